#include "tools/resize/resize_ledger.h"

#include <errno.h>
#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>
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
    KEY_BYTES_MAX = 511,     /* LMDB's, as Debian builds it */
    ROW_BYTES = 3 * 8 + 16,  /* what stands in front of the paths */
    KEPT_BACK_MAX = 1 << 22, /* bytes of rows waiting for a commit */
    META_BYTES = 2 * 4096,   /* shorter, it was stopped before its first commit */
    LOOKS_MAX = 1 << 16,     /* rows read before what was mapped for them is given back: some 8 MB */
};

#define MAP_BYTES ((size_t)16 << 30) /* addresses, not memory: a hundred million rows */

static const double commit_interval_seconds = 1.0;
/* Where the tar's end stands: no output has an empty name, or one that begins with NUL. */
static const char tar_key[1] = {'\0'};
static const char recipe_key[2] = {'\0', 'r'};

/* Readers begin a transaction for each look and the writer commits alone, under the lock: LMDB's own locks, which do not
 * work on network disks, are not used. */
struct Ledger {
    MDB_env *env;
    MDB_dbi dbi;
    bool read_only;
    bool has_rows; /* a database of this recipe is there */
    bool is_lost;  /* it could not be opened again: nothing is known any more */
    uint8_t recipe[LEDGER_RECIPE_BYTES];
    pthread_rwlock_t lock;
    char *path;
    atomic_uint looks; /* since the environment was opened */
    Buffer kept_back;  /* rows waiting: key length, value length (uint32_t each), key, value */
    double committed_seconds;
};

static FshStatus lmdb_failed(const Ledger *ledger, int code, const char *what, FshError *error)
{
    if (code > 0) /* an errno */
        return fsh_error_system(error, code, "%s: cannot %s", ledger->path, what);
    return fsh_error_set(error, code == MDB_MAP_FULL ? FSH_ERR_NO_SPACE : FSH_ERR_CORRUPT,
                         "%s: cannot %s: %s; --force makes the output anew", ledger->path, what,
                         mdb_strerror(code));
}

/* ---- rows as bytes ---- */

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

/* Returns the key's length. */
static size_t make_key(const char *target, uint8_t key[KEY_BYTES_MAX])
{
    size_t length = strlen(target), kept = length < KEY_BYTES_MAX ? length : KEY_BYTES_MAX;
    memcpy(key, target, kept);
    if (kept == length)
        return length;
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(target, length));
    memcpy(key + KEY_BYTES_MAX - sizeof hash, &hash, sizeof hash);
    return KEY_BYTES_MAX;
}

/* The file is the user's disk's: what it holds is checked. *source and *target point into value. */
static bool read_row(const MDB_val *value, LedgerRow *row, const char **source, const char **target)
{
    const uint8_t *bytes = value->mv_data;
    if (value->mv_size < ROW_BYTES + 2 || bytes[value->mv_size - 1] != '\0')
        return false;
    row->source_bytes = load_number(bytes);
    row->source_modified_ns = (int64_t)load_number(bytes + 8);
    row->bytes = load_number(bytes + 16);
    memcpy(row->hash, bytes + 24, sizeof row->hash);
    *source = (const char *)bytes + ROW_BYTES;
    size_t source_bytes = strlen(*source) + 1;
    if (source_bytes > value->mv_size - ROW_BYTES - 1)
        return false;
    *target = *source + source_bytes;
    return true;
}

/* ---- open and close ---- */

/* Opens the LMDB of this name; a new one is empty. *env_ret is to be closed, on failure too. */
static int open_environment(const char *path, unsigned flags, MDB_env **env_ret, MDB_dbi *dbi_ret)
{
    MDB_txn *txn = NULL;
    int code = mdb_env_create(env_ret);
    if (!code)
        code = mdb_env_set_mapsize(*env_ret, MAP_BYTES);
    if (!code)
        code =
            mdb_env_open(*env_ret, path, MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOTLS | MDB_NORDAHEAD | flags, 0666);
    if (!code)
        code = mdb_txn_begin(*env_ret, NULL, MDB_RDONLY, &txn);
    if (!code) {
        code = mdb_dbi_open(txn, NULL, 0, dbi_ret);
        mdb_txn_abort(txn);
    }
    return code;
}

/* A file that lost its end would be a SIGBUS when it is read. Zeros in place of what is missing are no pages: LMDB says so,
 * if it ever comes to them (pages that were never used need not be there). */
static int complete_length(const Ledger *ledger)
{
    MDB_envinfo info = {0};
    MDB_stat pages = {0};
    struct stat file;
    int code = mdb_env_info(ledger->env, &info);
    if (!code)
        code = mdb_env_stat(ledger->env, &pages);
    if (!code && stat(ledger->path, &file))
        code = errno;
    const off_t needed = (off_t)((info.me_last_pgno + 1) * pages.ms_psize);
    if (code || file.st_size >= needed)
        return code;
    if (ledger->read_only)
        return MDB_CORRUPTED;
    return truncate(ledger->path, needed) ? errno : 0;
}

/* *same_ret: whether the rows are of the ledger's recipe. */
static int compare_recipe(const Ledger *ledger, bool *same_ret)
{
    MDB_txn *txn = NULL;
    MDB_val key = {.mv_size = sizeof recipe_key, .mv_data = (void *)recipe_key}, value;
    int code = mdb_txn_begin(ledger->env, NULL, MDB_RDONLY, &txn);
    *same_ret = false;
    if (code)
        return code;
    code = mdb_get(txn, ledger->dbi, &key, &value);
    *same_ret = !code && value.mv_size == sizeof ledger->recipe &&
                memcmp(value.mv_data, ledger->recipe, sizeof ledger->recipe) == 0;
    mdb_txn_abort(txn);
    return code == MDB_NOTFOUND ? 0 : code;
}

/* Empties it of another recipe's rows, and notes its own. */
static int begin_recipe(const Ledger *ledger)
{
    MDB_txn *txn = NULL;
    MDB_val key = {.mv_size = sizeof recipe_key, .mv_data = (void *)recipe_key};
    MDB_val value = {.mv_size = sizeof ledger->recipe, .mv_data = (void *)ledger->recipe};
    int code = mdb_txn_begin(ledger->env, NULL, 0, &txn);
    if (!code)
        code = mdb_drop(txn, ledger->dbi, 0);
    if (!code)
        code = mdb_put(txn, ledger->dbi, &key, &value, 0);
    if (!code)
        return mdb_txn_commit(txn);
    if (txn)
        mdb_txn_abort(txn);
    return code;
}

static FshStatus open_database(Ledger *ledger, FshError *error)
{
    bool same = false;
    const bool read_only = ledger->read_only;
    struct stat file;
    const bool unborn = stat(ledger->path, &file) == 0 && file.st_size < META_BYTES;
    if (unborn && read_only)
        return FSH_OK;
    if (unborn && truncate(ledger->path, 0))
        return fsh_error_system(error, errno, "%s: cannot write", ledger->path);
    int code = open_environment(ledger->path, read_only ? MDB_RDONLY : 0, &ledger->env, &ledger->dbi);
    if (!code)
        code = complete_length(ledger);
    if (!code)
        code = compare_recipe(ledger, &same);
    if (!code && !same && !read_only)
        code = begin_recipe(ledger);
    ledger->has_rows = !code && (same || !read_only);
    return code ? lmdb_failed(ledger, code, "open", error) : FSH_OK;
}

/* Pages that were read stay mapped, and count as the program's memory, until the environment is closed. Under the lock, or
 * where nobody else reads. */
static FshStatus reopen(Ledger *ledger, FshError *error)
{
    mdb_env_close(ledger->env);
    ledger->env = NULL;
    ledger->has_rows = false;
    atomic_store(&ledger->looks, 0);
    FshStatus status = open_database(ledger, error);
    ledger->is_lost = status != FSH_OK;
    return status;
}

FshStatus ledger_open(Ledger **ledger_ret, const char *path, const uint8_t recipe[LEDGER_RECIPE_BYTES],
                      bool read_only, FshError *error)
{
    Ledger *ledger = calloc(1, sizeof *ledger);
    FshStatus status = FSH_OK;
    if (!ledger)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: no memory for the list of what is done", path);
    ledger->read_only = read_only;
    memcpy(ledger->recipe, recipe, sizeof ledger->recipe);
    (void)pthread_rwlock_init(&ledger->lock, NULL);
    ledger->path = strdup(path);
    ledger->committed_seconds = progress_now_seconds();
    if (!ledger->path)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: no memory for the list of what is done", path);
    if (!status)
        status = open_database(ledger, error);
    if (status)
        ledger_close(&ledger);
    *ledger_ret = ledger;
    return status;
}

void ledger_close(Ledger **ledger)
{
    if (!*ledger)
        return;
    if ((*ledger)->env)
        mdb_env_close((*ledger)->env);
    (void)pthread_rwlock_destroy(&(*ledger)->lock);
    buffer_free(&(*ledger)->kept_back);
    free((*ledger)->path);
    free(*ledger);
    *ledger = NULL;
}

/* ---- reading ---- */

bool ledger_is_blank(const char *path)
{
    static const struct {
        const char *bytes;
        size_t length;
    } notes[] = {{tar_key, sizeof tar_key}, {recipe_key, sizeof recipe_key}};
    struct stat file;
    if (stat(path, &file))
        return errno == ENOENT;
    if (file.st_size < META_BYTES)
        return true;
    MDB_env *env = NULL;
    MDB_txn *txn = NULL;
    MDB_dbi dbi = 0;
    MDB_stat rows = {0};
    int code = open_environment(path, MDB_RDONLY, &env, &dbi);
    if (!code)
        code = mdb_txn_begin(env, NULL, MDB_RDONLY, &txn);
    if (!code)
        code = mdb_stat(txn, dbi, &rows);
    for (size_t i = 0; i < sizeof notes / sizeof notes[0] && !code; i++) {
        MDB_val key = {.mv_size = notes[i].length, .mv_data = (void *)notes[i].bytes}, value;
        rows.ms_entries -= mdb_get(txn, dbi, &key, &value) == 0;
    }
    if (txn)
        mdb_txn_abort(txn);
    if (env)
        mdb_env_close(env);
    return !code && rows.ms_entries == 0;
}

/* The value of a key, as read by `read`, which sees it while it is there. */
static FshStatus look_up(Ledger *ledger, const void *key, size_t key_bytes, bool *found_ret,
                         bool (*read)(const MDB_val *value, void *context), void *context, FshError *error)
{
    MDB_txn *txn = NULL;
    MDB_val name = {.mv_size = key_bytes, .mv_data = (void *)key}, value;
    bool readable = true;
    FshStatus status = FSH_OK;
    *found_ret = false;
    if (atomic_fetch_add(&ledger->looks, 1) == LOOKS_MAX) {
        (void)pthread_rwlock_wrlock(&ledger->lock);
        status = reopen(ledger, error);
        (void)pthread_rwlock_unlock(&ledger->lock);
    }
    if (status)
        return status;
    (void)pthread_rwlock_rdlock(&ledger->lock);
    const bool is_lost = ledger->is_lost;
    int code = ledger->has_rows ? mdb_txn_begin(ledger->env, NULL, MDB_RDONLY, &txn) : MDB_NOTFOUND;
    if (!code) {
        code = mdb_get(txn, ledger->dbi, &name, &value);
        if (!code)
            readable = read(&value, context);
        mdb_txn_abort(txn);
    }
    (void)pthread_rwlock_unlock(&ledger->lock);
    if (is_lost) /* by another thread's look, which tells why */
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: cannot be opened again", ledger->path);
    *found_ret = !code && readable; /* a row that makes no sense is none: its output is made again */
    return code && code != MDB_NOTFOUND ? lmdb_failed(ledger, code, "read", error) : FSH_OK;
}

static bool read_found_row(const MDB_val *value, void *context)
{
    const char *source = NULL, *target = NULL;
    return read_row(value, context, &source, &target);
}

FshStatus ledger_find(Ledger *ledger, const char *target, bool *found_ret, LedgerRow *row, FshError *error)
{
    uint8_t key[KEY_BYTES_MAX];
    size_t key_bytes = make_key(target, key);
    return look_up(ledger, key, key_bytes, found_ret, read_found_row, row, error);
}

typedef struct FoundRow {
    LedgerRow *row;
    char *source; /* PATH_MAX bytes */
} FoundRow;

static bool read_row_and_source(const MDB_val *value, void *context)
{
    const FoundRow *found = context;
    const char *source = NULL, *target = NULL;
    if (!read_row(value, found->row, &source, &target))
        return false;
    return snprintf(found->source, PATH_MAX, "%s", source) < PATH_MAX;
}

FshStatus ledger_find_source(Ledger *ledger, const char *target, bool *found_ret, LedgerRow *row,
                             char source[PATH_MAX], FshError *error)
{
    uint8_t key[KEY_BYTES_MAX];
    size_t key_bytes = make_key(target, key);
    FoundRow found = {.row = row, .source = source};
    return look_up(ledger, key, key_bytes, found_ret, read_row_and_source, &found, error);
}

static bool read_offset(const MDB_val *value, void *context)
{
    if (value->mv_size != 8)
        return false;
    *(uint64_t *)context = load_number(value->mv_data);
    return true;
}

FshStatus ledger_tar_offset(Ledger *ledger, uint64_t *offset_ret, FshError *error)
{
    bool found = false;
    *offset_ret = 0;
    return look_up(ledger, tar_key, sizeof tar_key, &found, read_offset, offset_ret, error);
}

uint64_t ledger_count(Ledger *ledger)
{
    MDB_stat stat = {0};
    MDB_txn *txn = NULL;
    bool has_offset = false;
    uint64_t offset = 0;
    if (!ledger->has_rows || mdb_txn_begin(ledger->env, NULL, MDB_RDONLY, &txn))
        return 0;
    (void)mdb_stat(txn, ledger->dbi, &stat);
    mdb_txn_abort(txn);
    (void)look_up(ledger, tar_key, sizeof tar_key, &has_offset, read_offset, &offset, NULL);
    return stat.ms_entries - has_offset - 1; /* and the recipe */
}

/* Entries as they are stored, in the order of the keys, from `after` on (key_bytes 0: from the first), LOOKS_MAX at most.
 * after becomes the last one's key; *count_ret how many there were. */
typedef int (*RawVisit)(const MDB_val *key, const MDB_val *value, void *context);

static int visit_some(const Ledger *ledger, uint8_t after[KEY_BYTES_MAX], size_t *after_bytes,
                      size_t *count_ret, RawVisit visit, void *context)
{
    MDB_txn *txn = NULL;
    MDB_cursor *cursor = NULL;
    MDB_val key = {.mv_size = *after_bytes, .mv_data = after}, value;
    *count_ret = 0;
    int code = mdb_txn_begin(ledger->env, NULL, MDB_RDONLY, &txn);
    if (!code)
        code = mdb_cursor_open(txn, ledger->dbi, &cursor);
    if (!code)
        code = mdb_cursor_get(cursor, &key, &value, *after_bytes ? MDB_SET_RANGE : MDB_FIRST);
    if (!code && *after_bytes) /* it is the one seen last */
        code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    while (!code && *count_ret < LOOKS_MAX) {
        if (key.mv_size > KEY_BYTES_MAX) { /* none that LMDB itself would have written */
            code = MDB_CORRUPTED;
            break;
        }
        code = visit(&key, &value, context);
        memcpy(after, key.mv_data, key.mv_size);
        *after_bytes = key.mv_size;
        ++*count_ret;
        if (!code)
            code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    if (txn)
        mdb_txn_abort(txn);
    return code;
}

/* All of them. Where visit fails, with any number but MDB_NOTFOUND, this is returned in *code_ret. */
static FshStatus visit_all(Ledger *ledger, RawVisit visit, void *context, int *code_ret, FshError *error)
{
    uint8_t after[KEY_BYTES_MAX];
    size_t after_bytes = 0, count = 0;
    FshStatus status = FSH_OK;
    *code_ret = ledger->has_rows ? 0 : MDB_NOTFOUND;
    while (!status && !*code_ret) {
        *code_ret = visit_some(ledger, after, &after_bytes, &count, visit, context);
        status = reopen(ledger, error);
    }
    if (*code_ret == MDB_NOTFOUND)
        *code_ret = 0;
    return status;
}

typedef struct Visiting {
    LedgerVisit visit;
    void *context;
    FshError *error;
    FshStatus status;
} Visiting;

static int visit_row(const MDB_val *key, const MDB_val *value, void *context)
{
    Visiting *visiting = context;
    LedgerRow row;
    const char *source = NULL, *target = NULL;
    (void)key;
    if (read_row(value, &row, &source, &target))
        visiting->status = visiting->visit(target, source, &row, visiting->context, visiting->error);
    return visiting->status ? ECANCELED : 0;
}

FshStatus ledger_each(Ledger *ledger, LedgerVisit visit, void *context, FshError *error)
{
    Visiting visiting = {.visit = visit, .context = context, .error = error};
    int code = 0;
    FshStatus status = visit_all(ledger, visit_row, &visiting, &code, visiting.status ? NULL : error);
    if (visiting.status)
        return visiting.status;
    return status || !code ? status : lmdb_failed(ledger, code, "read", error);
}

/* ---- writing ---- */

FshStatus ledger_add(Ledger *ledger, const char *target, const char *source, const LedgerRow *row,
                     FshError *error)
{
    uint8_t key[KEY_BYTES_MAX], fixed[ROW_BYTES];
    size_t target_bytes = strlen(target) + 1, source_bytes = strlen(source) + 1;
    uint32_t lengths[2] = {(uint32_t)make_key(target, key),
                           (uint32_t)(ROW_BYTES + source_bytes + target_bytes)};
    store_number(fixed, row->source_bytes);
    store_number(fixed + 8, (uint64_t)row->source_modified_ns);
    store_number(fixed + 16, row->bytes);
    memcpy(fixed + 24, row->hash, sizeof row->hash);
    const size_t before = ledger->kept_back.length;
    FshStatus status = buffer_append(&ledger->kept_back, lengths, sizeof lengths, error);
    if (!status)
        status = buffer_append(&ledger->kept_back, key, lengths[0], error);
    if (!status)
        status = buffer_append(&ledger->kept_back, fixed, sizeof fixed, error);
    if (!status)
        status = buffer_append(&ledger->kept_back, source, source_bytes, error);
    if (!status)
        status = buffer_append(&ledger->kept_back, target, target_bytes, error);
    if (status)
        ledger->kept_back.length = before;
    return status;
}

bool ledger_is_due(const Ledger *ledger)
{
    return ledger->kept_back.length >= KEPT_BACK_MAX ||
           progress_now_seconds() - ledger->committed_seconds >= commit_interval_seconds;
}

static int put_rows(const Ledger *ledger, MDB_txn *txn)
{
    int code = 0;
    for (size_t at = 0; at < ledger->kept_back.length && !code;) {
        uint32_t lengths[2];
        memcpy(lengths, ledger->kept_back.bytes + at, sizeof lengths);
        at += sizeof lengths;
        MDB_val key = {.mv_size = lengths[0], .mv_data = ledger->kept_back.bytes + at};
        MDB_val value = {.mv_size = lengths[1], .mv_data = ledger->kept_back.bytes + at + lengths[0]};
        at += (size_t)lengths[0] + lengths[1];
        code = mdb_put(txn, ledger->dbi, &key, &value, 0);
    }
    return code;
}

FshStatus ledger_commit(Ledger *ledger, uint64_t tar_offset, FshError *error)
{
    MDB_txn *txn = NULL;
    uint8_t number[8];
    store_number(number, tar_offset);
    if (ledger->is_lost)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: cannot be opened again", ledger->path);
    (void)pthread_rwlock_wrlock(&ledger->lock);
    int code = mdb_txn_begin(ledger->env, NULL, 0, &txn);
    if (!code)
        code = put_rows(ledger, txn);
    if (!code && tar_offset) {
        MDB_val key = {.mv_size = sizeof tar_key, .mv_data = (void *)tar_key};
        MDB_val value = {.mv_size = sizeof number, .mv_data = number};
        code = mdb_put(txn, ledger->dbi, &key, &value, 0);
    }
    if (!code)
        code = mdb_txn_commit(txn);
    else if (txn)
        mdb_txn_abort(txn);
    (void)pthread_rwlock_unlock(&ledger->lock);
    ledger->committed_seconds = progress_now_seconds();
    if (code)
        return lmdb_failed(ledger, code, "write", error);
    ledger->kept_back.length = 0;
    return FSH_OK;
}

/* A database that is filled in the order of its keys. */
typedef struct Copying {
    MDB_env *env;
    MDB_dbi dbi;
    MDB_txn *txn;
    size_t count; /* of rows in the transaction */
} Copying;

static int copy_row(const MDB_val *key, const MDB_val *value, void *context)
{
    Copying *copying = context;
    MDB_val name = *key, content = *value;
    int code = 0;
    if (copying->count++ == LOOKS_MAX / 4) { /* a transaction holds what it has written in memory */
        code = mdb_txn_commit(copying->txn);
        copying->txn = NULL;
        copying->count = 0;
    }
    if (!code && !copying->txn)
        code = mdb_txn_begin(copying->env, NULL, 0, &copying->txn);
    return code ? code : mdb_put(copying->txn, copying->dbi, &name, &content, MDB_APPEND);
}

FshStatus ledger_settle(Ledger *ledger, FshError *error)
{
    char path[PATH_MAX];
    Copying copying = {0};
    int length = snprintf(path, sizeof path, "%s.new", ledger->path);
    if (length < 0 || (size_t)length >= sizeof path)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: the path is too long", ledger->path);
    (void)unlink(path); /* of a run that was killed here */
    FshStatus status = FSH_OK;
    int code = open_environment(path, MDB_NOSYNC, &copying.env, &copying.dbi);
    if (!code)
        status = visit_all(ledger, copy_row, &copying, &code, error);
    if (copying.txn && !status && !code) {
        code = mdb_txn_commit(copying.txn);
        copying.txn = NULL;
    }
    if (copying.txn)
        mdb_txn_abort(copying.txn);
    if (!status && !code)
        code = mdb_env_sync(copying.env, 1);
    if (copying.env)
        mdb_env_close(copying.env);
    if (!status && !code && rename(path, ledger->path))
        code = errno;
    if (status || code) {
        (void)unlink(path);
        return status ? status : lmdb_failed(ledger, code, "rewrite", error);
    }
    return reopen(ledger, error); /* the file that has the name now */
}
