/* LMDB: each batch is a transaction of appends. data.mdb is built under a hidden name in its folder and
 * renamed, so that it is the old one or the new one at every moment; the folder itself needs no exchange.
 *
 * The size of the map is never guessed: it begins small, and a transaction that meets MDB_MAP_FULL is dropped
 * and made again from the batch in a map of twice the size. The result depends on the samples only. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lmdb.h>
#include <xxhash.h>

#include "formats/internal.h"

enum { FIRST_MAP_BYTES = 1 << 20 };

typedef struct LmdbWriter {
    MDB_env *environment;
    MDB_dbi database;
    size_t map_bytes;
    char *folder;
    bool folder_is_ours; /* made here: goes again if nothing is finished */
} LmdbWriter;

/* LMDB says EIO when a write was cut short, which nearly always means that the disk is full; asking for the
 * room tells. The file is lost anyway. */
static int explain_io_error(const FshWriter *writer)
{
    struct stat status;
    if (fstat(writer->file.descriptor, &status))
        return EIO;
    int code = posix_fallocate(writer->file.descriptor, status.st_size,
                               (off_t)writer->batch.length + FIRST_MAP_BYTES);
    return code == ENOSPC || code == EDQUOT ? code : EIO;
}

static FshStatus fail(const FshWriter *writer, int code, const char *what, FshError *error)
{
    if (code == EIO)
        code = explain_io_error(writer);
    if (code > 0)
        return fsh_error_system(error, code, "%s: %s", writer->path, what);
    return fsh_error_set(error, FSH_ERR_LIBRARY, "%s: %s: %s", writer->path, what, mdb_strerror(code));
}

/* ---- transactions ---- */

/* What a transaction appends; called again after the map has grown. Returns a code of LMDB. */
typedef int (*AppendEntries)(FshWriter *writer, MDB_txn *transaction, const void *context);

static int append_records(FshWriter *writer, MDB_txn *transaction, const void *context)
{
    (void)context;
    LmdbWriter *lmdb = writer->private_data;
    uint8_t *record = writer->batch.bytes;
    for (uint64_t i = writer->batch_first; i < writer->record_count; i++) {
        IndexRow row = fsh_index_row_load(writer->rows.bytes + i * INDEX_ROW_BYTES);
        char digits[LMDB_KEY_DIGITS + 11];
        (void)snprintf(digits, sizeof digits, "%010" PRIu64, i);
        MDB_val key = {.mv_size = LMDB_KEY_DIGITS, .mv_data = digits};
        MDB_val value = {.mv_size = (size_t)row.record_bytes, .mv_data = record};
        int code = mdb_put(transaction, lmdb->database, &key, &value, MDB_APPEND);
        if (code)
            return code;
        record += row.record_bytes;
    }
    return MDB_SUCCESS;
}

/* context: the metadata. */
static int append_metadata(FshWriter *writer, MDB_txn *transaction, const void *context)
{
    LmdbWriter *lmdb = writer->private_data;
    char name[] = LMDB_METADATA_KEY, dictionary_name[] = LMDB_DICTIONARY_KEY;
    MDB_val key = {.mv_size = sizeof name - 1, .mv_data = name};
    MDB_val value = *(const MDB_val *)context;
    int code = mdb_put(transaction, lmdb->database, &key, &value, MDB_APPEND);
    if (code || !writer->dictionary)
        return code;
    key = (MDB_val){.mv_size = sizeof dictionary_name - 1, .mv_data = dictionary_name};
    value = (MDB_val){.mv_size = writer->metadata.dictionary.bytes, .mv_data = writer->dictionary};
    return mdb_put(transaction, lmdb->database, &key, &value, MDB_APPEND);
}

static FshStatus append(FshWriter *writer, AppendEntries entries, const void *context, FshError *error)
{
    LmdbWriter *lmdb = writer->private_data;
    for (;;) {
        MDB_txn *transaction = NULL;
        int code = mdb_txn_begin(lmdb->environment, NULL, 0, &transaction);
        if (code == MDB_SUCCESS) {
            code = entries(writer, transaction, context);
            if (code == MDB_SUCCESS)
                code = mdb_txn_commit(transaction); /* frees it, whatever comes */
            else
                mdb_txn_abort(transaction);
        }
        if (code == MDB_SUCCESS)
            return FSH_OK;
        if (code != MDB_MAP_FULL || lmdb->map_bytes > SIZE_MAX / 4)
            return fail(writer, code, "cannot write", error);
        code = mdb_env_set_mapsize(lmdb->environment, 2 * lmdb->map_bytes);
        if (code)
            return fail(writer, code, "cannot enlarge the map", error);
        lmdb->map_bytes *= 2;
    }
}

/* ---- the container ---- */

static FshStatus open_environment(FshWriter *writer, FshError *error)
{
    LmdbWriter *lmdb = writer->private_data;
    MDB_txn *transaction = NULL;
    int code = mdb_env_create(&lmdb->environment);
    if (!code)
        code = mdb_env_set_mapsize(lmdb->environment, lmdb->map_bytes);
    /* One writer, no reader, one sync at the end: no lock file, no syncs between. Nothing is read but the edge of the
     * tree: no read-ahead. */
    if (!code)
        code = mdb_env_open(lmdb->environment, writer->file.temporary_path,
                            MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC | MDB_NOMETASYNC | MDB_NORDAHEAD, 0666);
    if (!code)
        code = mdb_txn_begin(lmdb->environment, NULL, 0, &transaction);
    if (!code) {
        code = mdb_dbi_open(transaction, NULL, 0, &lmdb->database);
        if (code)
            mdb_txn_abort(transaction);
        else
            code = mdb_txn_commit(transaction);
    }
    return code ? fail(writer, code, "cannot create", error) : FSH_OK;
}

static FshStatus lmdb_open(FshWriter *writer, FshError *error)
{
    char data_path[PATH_MAX];
    LmdbWriter *lmdb = calloc(1, sizeof *lmdb);
    writer->private_data = lmdb;
    if (lmdb)
        lmdb->folder = strdup(writer->path);
    if (!lmdb || !lmdb->folder)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", writer->path);
    lmdb->map_bytes = FIRST_MAP_BYTES;
    FshStatus status = file_join(data_path, sizeof data_path, lmdb->folder, LMDB_DATA_NAME, error);
    if (status)
        return status;
    if (mkdir(lmdb->folder, 0777) == 0)
        lmdb->folder_is_ours = true;
    else if (errno != EEXIST)
        return fsh_error_system(error, errno, "%s: cannot make the folder", lmdb->folder);
    else if (!file_is_folder(lmdb->folder))
        return fsh_error_set(error, FSH_ERR_EXISTS, "%s: exists and is no folder", lmdb->folder);
    (void)file_remove_stale_temporaries(lmdb->folder); /* of a run that was killed */
    status = atomic_file_open(&writer->file, data_path, writer->force, error);
    return status ? status : open_environment(writer, error);
}

static FshStatus lmdb_write_batch(FshWriter *writer, FshError *error)
{
    return append(writer, append_records, NULL, error);
}

static FshStatus hash_file(const char *path, FshFileInfo *info, FshError *error)
{
    FileMapping mapping;
    FshStatus status = file_map(path, &mapping, error);
    if (status)
        return status;
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(mapping.bytes, (size_t)mapping.length));
    memcpy(info->hash.bytes, canonical.digest, sizeof info->hash.bytes);
    info->bytes = mapping.length;
    file_unmap(&mapping);
    return FSH_OK;
}

static FshStatus lmdb_finish(FshWriter *writer, FshFileInfo *info, FshError *error)
{
    LmdbWriter *lmdb = writer->private_data;
    char lock_path[PATH_MAX];
    char *metadata = NULL;
    MDB_val value = {0};
    FshStatus status = fsh_metadata_encode(&writer->metadata, (int64_t)writer->record_count, &metadata,
                                           &value.mv_size, error);
    if (status)
        return status;
    value.mv_data = metadata;
    status = append(writer, append_metadata, &value, error);
    free(metadata);
    if (status)
        return status;
    int code = mdb_env_sync(lmdb->environment, 1);
    if (code)
        return fail(writer, code, "cannot write to disk", error);
    mdb_env_close(lmdb->environment);
    lmdb->environment = NULL;
    status = hash_file(writer->file.temporary_path, info, error);
    if (!status)
        status = file_join(lock_path, sizeof lock_path, lmdb->folder, "lock.mdb", error);
    if (!status)
        status = atomic_file_commit(&writer->file, true, error);
    if (status)
        return status;
    (void)unlink(lock_path); /* another program's; it belongs to the file that was replaced */
    lmdb->folder_is_ours = false;
    return FSH_OK;
}

static void lmdb_close(FshWriter *writer)
{
    LmdbWriter *lmdb = writer->private_data;
    if (!lmdb)
        return;
    if (lmdb->environment)
        mdb_env_close(lmdb->environment);
    atomic_file_abandon(&writer->file);
    if (lmdb->folder_is_ours)
        (void)rmdir(lmdb->folder);
    free(lmdb->folder);
    free(lmdb);
    writer->private_data = NULL;
}

const ContainerWriter fsh_lmdb_writer = {
    .batch_bytes = 16 << 20, /* 4,096 pages: far below what a transaction may hold */
    /* LMDB 0.9 writes a value by one call, which moves at most 2^31 - 4096 bytes. */
    .record_bytes_max = (UINT64_C(1) << 31) - 65536,
    .record_count_max = UINT64_C(9999999999),
    .open = lmdb_open,
    .write_batch = lmdb_write_batch,
    .finish = lmdb_finish,
    .close = lmdb_close,
};
