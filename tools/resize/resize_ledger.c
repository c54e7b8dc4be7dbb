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
#include "tools/resize/resize_ledger_record.h"

enum {
    READ_BYTES = 1 << 20,
    KEPT_BACK_MAX = 1 << 22, /* bytes of rows waiting for a commit */
};

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

static uint64_t hash_target(const char *target)
{
    return XXH3_64bits(target, strlen(target));
}

/* ---- the file ---- */

static FshStatus damaged(const Ledger *ledger, uint64_t at, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: damaged at byte %llu; --force makes the output anew",
                         ledger->path, (unsigned long long)at);
}

/* Reads length bytes from there on. *taken_ret is less than length where the file ends. Returns false on
 * failure, with errno. */
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

/* Makes the bytes from `at` on readable: *length_ret of them at *bytes_ret, a whole record unless the file
 * ends. */
static FshStatus look_at(const Ledger *ledger, Window *window, uint64_t at, const uint8_t **bytes_ret,
                         size_t *length_ret, FshError *error)
{
    const uint64_t end = window->begin + window->bytes.length;
    if (at < window->begin || at > end || (end - at < LEDGER_RECORD_BYTES_MAX && !window->is_last)) {
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

/* Sets *followed_ret to whether a commit of rows after `at` follows. Earlier rows were on disk when that
 * commit was written, so one that cannot be read was lost later. A commit that reaches back over `at` does
 * not count: a power cut may have cut it short itself. */
static FshStatus is_followed(const Ledger *ledger, Window *window, uint64_t at, bool *followed_ret,
                             FshError *error)
{
    const uint8_t *bytes = NULL;
    size_t length = 0;
    LedgerRecord record;
    *followed_ret = at < ledger->settled_end; /* which was on disk before it had its name */
    for (uint64_t next = at + 1; !*followed_ret; next++) {
        FshStatus status = look_at(ledger, window, next, &bytes, &length, error);
        if (status || length < LEDGER_COMMIT_BYTES)
            return status;
        *followed_ret = ledger_record_may_be_commit(bytes) && ledger_record_read(bytes, length, &record) &&
                        record.begin > at;
    }
    return FSH_OK;
}

/* Indexes the rows, commit by commit. What stands after the last commit was being written when its run was
 * stopped. */
static FshStatus read_rows(Ledger *ledger, FshError *error)
{
    Window window = {0};
    Buffer rows = {0}; /* Slot: since the last commit */
    const uint8_t *bytes = NULL;
    size_t length = 0;
    bool followed = false;
    uint64_t at = LEDGER_HEADER_BYTES;
    FshStatus status = FSH_OK;
    ledger->end = at;
    for (;;) {
        LedgerRecord record;
        status = look_at(ledger, &window, at, &bytes, &length, error);
        if (status || !ledger_record_read(bytes, length, &record))
            break;
        if (record.kind == LEDGER_ROW) {
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
    uint8_t header[LEDGER_HEADER_BYTES];
    ledger_header_make(header, ledger->recipe, LEDGER_HEADER_BYTES);
    ledger->end = ledger->settled_end = LEDGER_HEADER_BYTES;
    if (ftruncate(ledger->descriptor, 0))
        return fsh_error_system(error, errno, "%s: cannot write", ledger->path);
    return write_at(ledger, ledger->descriptor, 0, header, sizeof header, error);
}

/* Reads the rows of the open file. Rows of another recipe are dropped, or with read_only not seen, unless
 * any_recipe. */
static FshStatus load(Ledger *ledger, bool any_recipe, FshError *error)
{
    uint8_t header[LEDGER_HEADER_BYTES];
    size_t taken = 0;
    if (!read_at(ledger->descriptor, 0, header, sizeof header, &taken))
        return fsh_error_system(error, errno, "%s: cannot read", ledger->path);
    if (taken < sizeof header) /* stopped before its first row */
        return ledger->read_only ? FSH_OK : begin_file(ledger, error);
    if (!ledger_header_is_ours(header))
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "%s: is no list of outputs; --force makes the output anew", ledger->path);
    if (!ledger_header_is_whole(header))
        return damaged(ledger, 0, error);
    if (!any_recipe && memcmp(ledger_header_recipe(header), ledger->recipe, LEDGER_RECIPE_BYTES) != 0)
        return ledger->read_only ? FSH_OK : begin_file(ledger, error);
    ledger->settled_end = ledger_header_settled_end(header);
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

FshStatus ledger_find(Ledger *ledger, const char *target, bool *found_ret, LedgerRow *row,
                      char source[PATH_MAX], FshError *error)
{
    uint8_t room[LEDGER_RECORD_BYTES_MAX];
    LedgerRecord record;
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
    if (!ledger_record_read(room, taken, &record) || record.kind != LEDGER_ROW)
        return damaged(ledger, offset, error);
    if (strcmp(record.target, target) != 0)
        return FSH_OK;
    *row = record.row;
    *found_ret = snprintf(source, PATH_MAX, "%s", record.source) < PATH_MAX;
    return FSH_OK;
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

static int compare_places(const void *a, const void *b)
{
    return strcmp(ledger_record_target(*(const uint8_t *const *)a),
                  ledger_record_target(*(const uint8_t *const *)b));
}

static void free_sorted(Sorted *sorted)
{
    buffer_free(&sorted->file);
    free(sorted->places);
}

static FshStatus sort_rows(Ledger *ledger, Sorted *sorted, FshError *error)
{
    size_t taken = 0;
    LedgerRecord record;
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
        if (offset > taken ||
            !ledger_record_read(sorted->file.bytes + offset, taken - (size_t)offset, &record))
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
        LedgerRecord record;
        if (ledger_record_read(sorted.places[i], ledger_record_length(sorted.places[i]), &record))
            status = visit(record.target, record.source, &record.row, context, error);
    }
    free_sorted(&sorted);
    return status;
}

/* ---- writing ---- */

FshStatus ledger_add(Ledger *ledger, const char *target, const char *source, const LedgerRow *row,
                     FshError *error)
{
    uint8_t record[LEDGER_RECORD_BYTES_MAX];
    const size_t length = ledger_record_make_row(record, target, source, row);
    if (length == 0)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: a path is too long for it", ledger->path);
    return buffer_append(&ledger->kept_back, record, length, error);
}

bool ledger_is_due(const Ledger *ledger)
{
    return ledger->kept_back.length >= KEPT_BACK_MAX ||
           progress_now_seconds() - ledger->committed_seconds >= commit_interval_seconds;
}

FshStatus ledger_commit(Ledger *ledger, uint64_t tar_offset, FshError *error)
{
    uint8_t commit[LEDGER_COMMIT_BYTES];
    const size_t rows_bytes = ledger->kept_back.length;
    ledger->committed_seconds = progress_now_seconds();
    if (rows_bytes == 0 && (tar_offset == 0 || tar_offset == ledger->tar_offset))
        return FSH_OK;
    ledger_record_make_commit(commit, ledger->end, tar_offset ? tar_offset : ledger->tar_offset);
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
    for (size_t at = 0; at < rows_bytes && !status;
         at += ledger_record_length(ledger->kept_back.bytes + at)) {
        const Slot row = {hash_target(ledger_record_target(ledger->kept_back.bytes + at)), ledger->end + at};
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
    uint8_t header[LEDGER_HEADER_BYTES], commit[LEDGER_COMMIT_BYTES];
    Buffer rows = {0};
    uint64_t at = LEDGER_HEADER_BYTES;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i <= sorted->count && !status; i++) {
        if (i < sorted->count)
            status = buffer_append(&rows, sorted->places[i], ledger_record_length(sorted->places[i]), error);
        if (!status && (rows.length >= READ_BYTES || i == sorted->count)) {
            status = write_at(ledger, descriptor, at, rows.bytes, rows.length, error);
            at += rows.length;
            rows.length = 0;
        }
    }
    buffer_free(&rows);
    ledger_record_make_commit(commit, LEDGER_HEADER_BYTES, ledger->tar_offset);
    ledger_header_make(header, ledger->recipe, at + LEDGER_COMMIT_BYTES);
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
