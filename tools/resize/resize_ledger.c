#include "tools/resize/resize_ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/file.h"
#include "common/progress.h"

enum {
    MAGIC_BYTES = 8,
    HEADER_BYTES = MAGIC_BYTES + LEDGER_RECIPE_BYTES + 2 * 8, /* settled length, checksum */
    RECORD_HEAD_BYTES = 16,                                   /* checksum, length, kind */
    ROW_BYTES = RECORD_HEAD_BYTES + 3 * 8 + 16,               /* what stands before the paths */
    COMMIT_BYTES = RECORD_HEAD_BYTES + 2 * 8,                 /* where its rows begin, the tar's end */
    RECORD_BYTES_MAX = ROW_BYTES + 2 * PATH_MAX,
    READ_BYTES = 1 << 20,
    KEPT_BACK_MAX = 1 << 22, /* bytes of rows waiting for a commit */
    KIND_ROW = 1,
    KIND_COMMIT = 2,
};

static const char magic[MAGIC_BYTES + 1] = "fshldgr1";
static const double commit_interval_seconds = 1.0;

/* Where a target's last row is. */
typedef struct Slot {
    uint64_t hash;   /* of the target */
    uint64_t offset; /* 0: empty */
} Slot;

/* Finders hold the lock to read, a commit holds it to write. */
struct Ledger {
    int descriptor; /* -1: not there */
    bool read_only;
    uint8_t recipe[LEDGER_RECIPE_BYTES];
    pthread_rwlock_t lock;
    char *path;
    Slot *slots; /* open addressing, a power of two, at most two thirds full */
    uint64_t slots_count, count;
    uint64_t end;         /* after the last commit */
    uint64_t settled_end; /* up to here rows are in order, each once */
    uint64_t tar_offset;
    Buffer kept_back; /* rows waiting, as they will be written */
    double committed_seconds;
};

/* ---- records as bytes ---- */

static void store_number(uint8_t *bytes, uint64_t number)
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(number >> (8 * i));
}

static uint64_t load_number(const uint8_t *bytes)
{
    uint64_t number = 0;
    for (int i = 7; i >= 0; i--)
        number = number << 8 | bytes[i];
    return number;
}

void ledger_hash(const void *bytes, size_t length, uint8_t hash[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, length));
    memcpy(hash, &canonical, sizeof canonical);
}

static uint64_t hash_target(const char *target)
{
    return XXH3_64bits(target, strlen(target));
}

/* Fills in length and kind and then the checksum, which is that of all after it. */
static void seal_record(uint8_t *record, size_t length, uint64_t kind)
{
    store_number(record + 8, (uint64_t)length | kind << 32);
    store_number(record, XXH3_64bits(record + 8, length - 8));
}

typedef struct Record {
    uint64_t kind;
    size_t length;
    LedgerRow row; /* of a row, as are the two that point into the bytes */
    const char *source, *target;
    uint64_t begin, tar_offset; /* of a commit */
} Record;

/* Fills record with the one that begins there. Returns false where none does, or it is not whole. */
static bool read_record(const uint8_t *bytes, size_t length, Record *record)
{
    if (length < RECORD_HEAD_BYTES)
        return false;
    const uint64_t head = load_number(bytes + 8);
    *record = (Record){.kind = head >> 32, .length = (uint32_t)head};
    const bool is_row =
        record->kind == KIND_ROW && record->length >= ROW_BYTES + 2 && record->length <= RECORD_BYTES_MAX;
    const bool is_commit = record->kind == KIND_COMMIT && record->length == COMMIT_BYTES;
    if ((!is_row && !is_commit) || record->length > length ||
        load_number(bytes) != XXH3_64bits(bytes + 8, record->length - 8))
        return false;
    if (is_commit) {
        record->begin = load_number(bytes + RECORD_HEAD_BYTES);
        record->tar_offset = load_number(bytes + RECORD_HEAD_BYTES + 8);
        return true;
    }
    record->row.source_bytes = load_number(bytes + 16);
    record->row.source_modified_ns = (int64_t)load_number(bytes + 24);
    record->row.bytes = load_number(bytes + 32);
    memcpy(record->row.hash, bytes + 40, sizeof record->row.hash);
    record->source = (const char *)bytes + ROW_BYTES;
    const size_t paths_bytes = record->length - ROW_BYTES,
                 source_bytes = strnlen(record->source, paths_bytes) + 1;
    record->target = record->source + source_bytes;
    return source_bytes < paths_bytes &&
           strnlen(record->target, paths_bytes - source_bytes) + 1 == paths_bytes - source_bytes;
}

static void make_commit(uint8_t bytes[COMMIT_BYTES], uint64_t begin, uint64_t tar_offset)
{
    store_number(bytes + RECORD_HEAD_BYTES, begin);
    store_number(bytes + RECORD_HEAD_BYTES + 8, tar_offset);
    seal_record(bytes, COMMIT_BYTES, KIND_COMMIT);
}

static void make_header(uint8_t bytes[HEADER_BYTES], const uint8_t recipe[LEDGER_RECIPE_BYTES],
                        uint64_t settled_end)
{
    memcpy(bytes, magic, MAGIC_BYTES);
    memcpy(bytes + MAGIC_BYTES, recipe, LEDGER_RECIPE_BYTES);
    store_number(bytes + HEADER_BYTES - 16, settled_end);
    store_number(bytes + HEADER_BYTES - 8, XXH3_64bits(bytes, HEADER_BYTES - 8));
}

/* ---- the file ---- */

static FshStatus damaged(const Ledger *ledger, uint64_t at, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: damaged at byte %llu; --force makes the output anew",
                         ledger->path, (unsigned long long)at);
}

/* Reads bytes from there on; *taken_ret is fewer than length where the file ends. False: errno. */
static bool read_at(int descriptor, uint64_t at, uint8_t *bytes, size_t length, size_t *taken_ret)
{
    *taken_ret = 0;
    while (*taken_ret < length) {
        const ssize_t got =
            pread(descriptor, bytes + *taken_ret, length - *taken_ret, (off_t)(at + *taken_ret));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got == 0;
        *taken_ret += (size_t)got;
    }
    return true;
}

static FshStatus write_at(const Ledger *ledger, int descriptor, uint64_t at, const uint8_t *bytes,
                          size_t length, FshError *error)
{
    for (size_t done = 0; done < length;) {
        const ssize_t put = pwrite(descriptor, bytes + done, length - done, (off_t)(at + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return fsh_error_system(error, put ? errno : ENOSPC, "%s: cannot write", ledger->path);
        done += (size_t)put;
    }
    return FSH_OK;
}

/* A part of the file, moved on as it is read. */
typedef struct Window {
    Buffer bytes;
    uint64_t begin;
    bool is_last; /* the file ends with it */
} Window;

/* Makes bytes from `at` on readable, a whole record's unless the file ends. */
static FshStatus look_at(const Ledger *ledger, Window *window, uint64_t at, const uint8_t **bytes_ret,
                         size_t *length_ret, FshError *error)
{
    const uint64_t end = window->begin + window->bytes.length;
    if (at < window->begin || at > end || (end - at < RECORD_BYTES_MAX && !window->is_last)) {
        FshStatus status = buffer_reserve(&window->bytes, READ_BYTES, error);
        if (status)
            return status;
        if (!read_at(ledger->descriptor, at, window->bytes.bytes, READ_BYTES, &window->bytes.length))
            return fsh_error_system(error, errno, "%s: cannot read", ledger->path);
        window->begin = at;
        window->is_last = window->bytes.length < READ_BYTES;
    }
    *bytes_ret = window->bytes.bytes + (at - window->begin);
    *length_ret = window->bytes.length - (size_t)(at - window->begin);
    return FSH_OK;
}

/* ---- the index ---- */

/* Returns the slot of this hash, or the empty one where it would go. */
static Slot *find_slot(Slot *slots, uint64_t slots_count, uint64_t hash)
{
    uint64_t at = hash & (slots_count - 1);
    while (slots[at].offset && slots[at].hash != hash)
        at = (at + 1) & (slots_count - 1);
    return &slots[at];
}

static FshStatus grow_index(Ledger *ledger, FshError *error)
{
    const uint64_t wanted = ledger->slots_count ? 2 * ledger->slots_count : 1024;
    Slot *slots = calloc(wanted, sizeof *slots);
    if (!slots)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: no memory for the list of what is done",
                             ledger->path);
    for (uint64_t i = 0; i < ledger->slots_count; i++) {
        if (ledger->slots[i].offset)
            *find_slot(slots, wanted, ledger->slots[i].hash) = ledger->slots[i];
    }
    free(ledger->slots);
    ledger->slots = slots;
    ledger->slots_count = wanted;
    return FSH_OK;
}

/* Puts rows into the index, a later one in the place of an earlier one. Of two targets with one hash (once in
 * a million ledgers of ten million rows) the earlier is forgotten, and made again. */
static FshStatus index_rows(Ledger *ledger, const Slot *rows, size_t count, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < count && !status; i++) {
        if (3 * (ledger->count + 1) > 2 * ledger->slots_count)
            status = grow_index(ledger, error);
        if (status)
            break;
        Slot *slot = find_slot(ledger->slots, ledger->slots_count, rows[i].hash);
        ledger->count += slot->offset == 0;
        *slot = rows[i];
    }
    return status;
}

/* ---- open and close ---- */

/* Sets *followed_ret to whether a later commit follows: rows before it were on disk when its own were
 * written, so that what cannot be read there was lost later. A commit that reaches back over `at` may itself
 * have been cut short by a power cut. */
static FshStatus is_followed(const Ledger *ledger, Window *window, uint64_t at, bool *followed_ret,
                             FshError *error)
{
    const uint8_t *bytes = NULL;
    size_t length = 0;
    Record record;
    *followed_ret = at < ledger->settled_end; /* which was on disk before it had its name */
    for (uint64_t next = at + 1; !*followed_ret; next++) {
        FshStatus status = look_at(ledger, window, next, &bytes, &length, error);
        if (status || length < COMMIT_BYTES)
            return status;
        *followed_ret = load_number(bytes + 8) == (COMMIT_BYTES | (uint64_t)KIND_COMMIT << 32) &&
                        read_record(bytes, length, &record) && record.begin > at;
    }
    return FSH_OK;
}

/* Notes where rows are, commit by commit. What stands after the last one was being written when its run was
 * stopped. */
static FshStatus read_rows(Ledger *ledger, FshError *error)
{
    Window window = {0};
    Buffer rows = {0}; /* Slot: since the last commit */
    const uint8_t *bytes = NULL;
    size_t length = 0;
    bool followed = false;
    uint64_t at = HEADER_BYTES;
    FshStatus status = FSH_OK;
    ledger->end = at;
    for (;;) {
        Record record;
        status = look_at(ledger, &window, at, &bytes, &length, error);
        if (status || !read_record(bytes, length, &record))
            break;
        if (record.kind == KIND_ROW) {
            const Slot row = {hash_target(record.target), at};
            status = buffer_append(&rows, &row, sizeof row, error);
        } else if (record.begin != ledger->end) {
            break;
        } else {
            status = index_rows(ledger, (const Slot *)(void *)rows.bytes, rows.length / sizeof(Slot), error);
            rows.length = 0;
            ledger->tar_offset = record.tar_offset;
            ledger->end = at + record.length;
        }
        if (status)
            break;
        at += record.length;
    }
    if (!status)
        status = is_followed(ledger, &window, at, &followed, error);
    if (!status && followed)
        status = damaged(ledger, at, error);
    buffer_free(&rows);
    buffer_free(&window.bytes);
    return status;
}

static FshStatus begin_file(Ledger *ledger, FshError *error)
{
    uint8_t header[HEADER_BYTES];
    make_header(header, ledger->recipe, HEADER_BYTES);
    ledger->end = ledger->settled_end = HEADER_BYTES;
    if (ftruncate(ledger->descriptor, 0))
        return fsh_error_system(error, errno, "%s: cannot write", ledger->path);
    return write_at(ledger, ledger->descriptor, 0, header, sizeof header, error);
}

/* The rows of the file that is open; any_recipe: whichever it is. */
static FshStatus load(Ledger *ledger, bool any_recipe, FshError *error)
{
    uint8_t header[HEADER_BYTES];
    size_t taken = 0;
    if (!read_at(ledger->descriptor, 0, header, sizeof header, &taken))
        return fsh_error_system(error, errno, "%s: cannot read", ledger->path);
    if (taken < sizeof header) /* stopped before its first row */
        return ledger->read_only ? FSH_OK : begin_file(ledger, error);
    if (memcmp(header, magic, MAGIC_BYTES) != 0)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "%s: is no list of outputs; --force makes the output anew", ledger->path);
    if (load_number(header + HEADER_BYTES - 8) != XXH3_64bits(header, HEADER_BYTES - 8))
        return damaged(ledger, 0, error);
    if (!any_recipe && memcmp(header + MAGIC_BYTES, ledger->recipe, LEDGER_RECIPE_BYTES) != 0)
        return ledger->read_only ? FSH_OK : begin_file(ledger, error);
    ledger->settled_end = load_number(header + HEADER_BYTES - 16);
    FshStatus status = read_rows(ledger, error);
    if (!status && !ledger->read_only && ftruncate(ledger->descriptor, (off_t)ledger->end))
        status = fsh_error_system(error, errno, "%s: cannot write", ledger->path);
    return status;
}

static FshStatus open_file(Ledger **ledger_ret, const char *path, const uint8_t recipe[LEDGER_RECIPE_BYTES],
                           bool read_only, FshError *error)
{
    Ledger *ledger = calloc(1, sizeof *ledger);
    FshStatus status = FSH_OK;
    *ledger_ret = ledger;
    if (!ledger)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: no memory for the list of what is done", path);
    ledger->read_only = read_only;
    if (recipe)
        memcpy(ledger->recipe, recipe, sizeof ledger->recipe);
    (void)pthread_rwlock_init(&ledger->lock, NULL);
    ledger->descriptor = open(path, (read_only ? O_RDONLY : O_RDWR | O_CREAT) | O_CLOEXEC, 0666);
    ledger->path = strdup(path);
    ledger->committed_seconds = progress_now_seconds();
    if (!ledger->path)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: no memory for the list of what is done", path);
    else if (ledger->descriptor < 0)
        status = fsh_error_system(error, errno, "%s: cannot open", path);
    return status ? status : load(ledger, !recipe, error);
}

FshStatus ledger_open(Ledger **ledger_ret, const char *path, const uint8_t recipe[LEDGER_RECIPE_BYTES],
                      bool read_only, FshError *error)
{
    FshStatus status = open_file(ledger_ret, path, recipe, read_only, error);
    if (status)
        ledger_close(ledger_ret);
    return status;
}

void ledger_close(Ledger **ledger)
{
    if (!*ledger)
        return;
    if ((*ledger)->descriptor >= 0)
        (void)close((*ledger)->descriptor);
    (void)pthread_rwlock_destroy(&(*ledger)->lock);
    buffer_free(&(*ledger)->kept_back);
    free((*ledger)->slots);
    free((*ledger)->path);
    free(*ledger);
    *ledger = NULL;
}

/* ---- reading ---- */

bool ledger_is_blank(const char *path)
{
    Ledger *ledger = NULL;
    if (!file_exists(path))
        return true;
    const FshStatus status = open_file(&ledger, path, NULL, true, NULL);
    const bool is_blank = !status && ledger->count == 0;
    ledger_close(&ledger);
    return is_blank;
}

/* source: PATH_MAX bytes, or NULL. */
static FshStatus find(Ledger *ledger, const char *target, bool *found_ret, LedgerRow *row, char *source,
                      FshError *error)
{
    uint8_t room[RECORD_BYTES_MAX];
    Record record;
    size_t taken = 0;
    uint64_t offset = 0;
    *found_ret = false;
    (void)pthread_rwlock_rdlock(&ledger->lock);
    if (ledger->count)
        offset = find_slot(ledger->slots, ledger->slots_count, hash_target(target))->offset;
    (void)pthread_rwlock_unlock(&ledger->lock);
    if (offset == 0)
        return FSH_OK;
    if (!read_at(ledger->descriptor, offset, room, sizeof room, &taken))
        return fsh_error_system(error, errno, "%s: cannot read", ledger->path);
    if (!read_record(room, taken, &record) || record.kind != KIND_ROW)
        return damaged(ledger, offset, error);
    if (strcmp(record.target, target) != 0)
        return FSH_OK;
    *row = record.row;
    *found_ret = !source || snprintf(source, PATH_MAX, "%s", record.source) < PATH_MAX;
    return FSH_OK;
}

FshStatus ledger_find(Ledger *ledger, const char *target, bool *found_ret, LedgerRow *row, FshError *error)
{
    return find(ledger, target, found_ret, row, NULL, error);
}

FshStatus ledger_find_source(Ledger *ledger, const char *target, bool *found_ret, LedgerRow *row,
                             char source[PATH_MAX], FshError *error)
{
    return find(ledger, target, found_ret, row, source, error);
}

uint64_t ledger_tar_offset(const Ledger *ledger)
{
    return ledger->tar_offset;
}

uint64_t ledger_count(const Ledger *ledger)
{
    return ledger->count;
}

/* All rows in order. */
typedef struct Sorted {
    Buffer file;            /* as it is, up to the last commit */
    const uint8_t **places; /* [count] in it, by target */
    size_t count;
} Sorted;

static size_t length_at(const uint8_t *place)
{
    return (uint32_t)load_number(place + 8);
}

/* Of a row that read_record has seen. */
static const char *target_at(const uint8_t *place)
{
    const char *source = (const char *)place + ROW_BYTES;
    return source + strlen(source) + 1;
}

static int compare_places(const void *a, const void *b)
{
    return strcmp(target_at(*(const uint8_t *const *)a), target_at(*(const uint8_t *const *)b));
}

static void free_sorted(Sorted *sorted)
{
    buffer_free(&sorted->file);
    free(sorted->places);
}

static FshStatus sort_rows(Ledger *ledger, Sorted *sorted, FshError *error)
{
    size_t taken = 0;
    Record record;
    *sorted = (Sorted){0};
    FshStatus status = buffer_reserve(&sorted->file, (size_t)ledger->end, error);
    sorted->places = calloc(ledger->count + 1, sizeof *sorted->places);
    if (!status && !sorted->places)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: no memory for sorting it", ledger->path);
    if (status)
        return status;
    if (!read_at(ledger->descriptor, 0, sorted->file.bytes, (size_t)ledger->end, &taken))
        return fsh_error_system(error, errno, "%s: cannot read", ledger->path);
    for (uint64_t i = 0; i < ledger->slots_count; i++) {
        const uint64_t offset = ledger->slots[i].offset;
        if (offset == 0)
            continue;
        if (offset > taken || !read_record(sorted->file.bytes + offset, taken - (size_t)offset, &record))
            return damaged(ledger, offset, error);
        sorted->places[sorted->count++] = sorted->file.bytes + offset;
    }
    qsort(sorted->places, sorted->count, sizeof *sorted->places, compare_places);
    return FSH_OK;
}

FshStatus ledger_each(Ledger *ledger, LedgerVisit visit, void *context, FshError *error)
{
    Sorted sorted = {0};
    FshStatus status = ledger->count ? sort_rows(ledger, &sorted, error) : FSH_OK;
    for (size_t i = 0; i < sorted.count && !status; i++) {
        Record record;
        if (read_record(sorted.places[i], length_at(sorted.places[i]), &record))
            status = visit(record.target, record.source, &record.row, context, error);
    }
    free_sorted(&sorted);
    return status;
}

/* ---- writing ---- */

FshStatus ledger_add(Ledger *ledger, const char *target, const char *source, const LedgerRow *row,
                     FshError *error)
{
    uint8_t record[RECORD_BYTES_MAX];
    const size_t target_bytes = strlen(target) + 1, source_bytes = strlen(source) + 1;
    const size_t length = ROW_BYTES + source_bytes + target_bytes;
    if (length > sizeof record)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: a path is too long for it", ledger->path);
    store_number(record + 16, row->source_bytes);
    store_number(record + 24, (uint64_t)row->source_modified_ns);
    store_number(record + 32, row->bytes);
    memcpy(record + 40, row->hash, sizeof row->hash);
    memcpy(record + ROW_BYTES, source, source_bytes);
    memcpy(record + ROW_BYTES + source_bytes, target, target_bytes);
    seal_record(record, length, KIND_ROW);
    return buffer_append(&ledger->kept_back, record, length, error);
}

bool ledger_is_due(const Ledger *ledger)
{
    return ledger->kept_back.length >= KEPT_BACK_MAX ||
           progress_now_seconds() - ledger->committed_seconds >= commit_interval_seconds;
}

FshStatus ledger_commit(Ledger *ledger, uint64_t tar_offset, FshError *error)
{
    uint8_t commit[COMMIT_BYTES];
    const size_t rows_bytes = ledger->kept_back.length;
    ledger->committed_seconds = progress_now_seconds();
    if (rows_bytes == 0 && (tar_offset == 0 || tar_offset == ledger->tar_offset))
        return FSH_OK;
    make_commit(commit, ledger->end, tar_offset ? tar_offset : ledger->tar_offset);
    FshStatus status = buffer_append(&ledger->kept_back, commit, sizeof commit, error);
    if (!status)
        status = write_at(ledger, ledger->descriptor, ledger->end, ledger->kept_back.bytes,
                          ledger->kept_back.length, error);
    if (!status && fdatasync(ledger->descriptor))
        status = fsh_error_system(error, errno, "%s: cannot write to disk", ledger->path);
    ledger->kept_back.length = rows_bytes;
    if (status) {
        (void)ftruncate(ledger->descriptor,
                        (off_t)ledger->end); /* what is left of it would be no commit anyway */
        return status;
    }
    (void)pthread_rwlock_wrlock(&ledger->lock);
    for (size_t at = 0; at < rows_bytes && !status; at += length_at(ledger->kept_back.bytes + at)) {
        const Slot row = {hash_target(target_at(ledger->kept_back.bytes + at)), ledger->end + at};
        status = index_rows(ledger, &row, 1, error);
    }
    (void)pthread_rwlock_unlock(&ledger->lock);
    ledger->tar_offset = tar_offset ? tar_offset : ledger->tar_offset;
    ledger->end += rows_bytes + sizeof commit;
    ledger->kept_back.length = 0;
    return status;
}

/* Writes the rows in their order, after the header of a new file. */
static FshStatus write_sorted(const Ledger *ledger, int descriptor, const Sorted *sorted, FshError *error)
{
    uint8_t header[HEADER_BYTES], commit[COMMIT_BYTES];
    Buffer rows = {0};
    uint64_t at = HEADER_BYTES;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i <= sorted->count && !status; i++) {
        if (i < sorted->count)
            status = buffer_append(&rows, sorted->places[i], length_at(sorted->places[i]), error);
        if (!status && (rows.length >= READ_BYTES || i == sorted->count)) {
            status = write_at(ledger, descriptor, at, rows.bytes, rows.length, error);
            at += rows.length;
            rows.length = 0;
        }
    }
    buffer_free(&rows);
    make_commit(commit, HEADER_BYTES, ledger->tar_offset);
    make_header(header, ledger->recipe, at + COMMIT_BYTES);
    if (!status)
        status = write_at(ledger, descriptor, at, commit, sizeof commit, error);
    if (!status)
        status = write_at(ledger, descriptor, 0, header, sizeof header, error);
    if (!status && fsync(descriptor))
        status = fsh_error_system(error, errno, "%s: cannot write to disk", ledger->path);
    return status;
}

/* Reads the file that has the name now. */
static FshStatus load_again(Ledger *ledger, int descriptor, FshError *error)
{
    (void)close(ledger->descriptor);
    ledger->descriptor = descriptor;
    free(ledger->slots);
    ledger->slots = NULL;
    ledger->slots_count = ledger->count = 0;
    return load(ledger, false, error);
}

FshStatus ledger_settle(Ledger *ledger, FshError *error)
{
    char path[PATH_MAX];
    Sorted sorted = {0};
    const int length = snprintf(path, sizeof path, "%s.new", ledger->path);
    if (length < 0 || (size_t)length >= sizeof path)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: the path is too long", ledger->path);
    FshStatus status = sort_rows(ledger, &sorted, error);
    /* O_TRUNC: of a run that was killed here */
    int descriptor = status ? -1 : open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (!status && descriptor < 0)
        status = fsh_error_system(error, errno, "%s: cannot write", path);
    if (!status)
        status = write_sorted(ledger, descriptor, &sorted, error);
    if (!status && rename(path, ledger->path))
        status = fsh_error_system(error, errno, "%s: cannot write", ledger->path);
    free_sorted(&sorted);
    if (!status)
        return load_again(ledger, descriptor, error);
    if (descriptor >= 0) {
        (void)close(descriptor);
        (void)unlink(path);
    }
    return status;
}
