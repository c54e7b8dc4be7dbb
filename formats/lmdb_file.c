#include "formats/lmdb_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "formats/lmdb_reader.h"
#include "formats/xxh3.h"

enum { FIRST_MAP_BYTES = 1 << 20 };

/* Returns the code that explains LMDB's EIO, which comes when a write was cut short and nearly always means
 * that the disk is full: asking for the room tells. The file is lost anyway. */
static int explain_io_error(const LmdbFile *file, uint64_t bytes)
{
    struct stat status;
    if (fstat(file->file.descriptor, &status))
        return EIO;
    int code = posix_fallocate(file->file.descriptor, status.st_size, (off_t)bytes + FIRST_MAP_BYTES);
    return code == ENOSPC || code == EDQUOT ? code : EIO;
}

static FshStatus fail(const LmdbFile *file, int code, uint64_t bytes, const char *what, FshError *error)
{
    if (code == EIO)
        code = explain_io_error(file, bytes);
    if (code > 0)
        return fsh_error_system(error, code, "%s: %s", file->folder, what);
    return fsh_error_set(error, FSH_ERR_LIBRARY, "%s: %s: %s", file->folder, what, mdb_strerror(code));
}

FshStatus fsh_lmdb_file_put(LmdbFile *file, LmdbPut put, void *context, uint64_t bytes, FshError *error)
{
    for (;;) {
        MDB_txn *transaction = NULL;
        int code = mdb_txn_begin(file->environment, NULL, 0, &transaction);
        if (code == MDB_SUCCESS) {
            code = put(file, transaction, context);
            if (code == MDB_SUCCESS)
                code = mdb_txn_commit(transaction); /* frees it, whatever comes */
            else
                mdb_txn_abort(transaction);
        }
        if (code == MDB_SUCCESS)
            return FSH_OK;
        if (code != MDB_MAP_FULL || file->map_bytes > SIZE_MAX / 4)
            return fail(file, code, bytes, "cannot write", error);
        code = mdb_env_set_mapsize(file->environment, 2 * file->map_bytes);
        if (code)
            return fail(file, code, bytes, "cannot enlarge the map", error);
        file->map_bytes *= 2;
    }
}

static FshStatus open_environment(LmdbFile *file, FshError *error)
{
    MDB_txn *transaction = NULL;
    int code = mdb_env_create(&file->environment);
    if (!code)
        code = mdb_env_set_mapsize(file->environment, file->map_bytes);
    /* One writer, no reader, one sync at the end: no lock file, no syncs between. Nothing is read but the
     * edge of the tree: no read-ahead. */
    if (!code)
        code = mdb_env_open(file->environment, file->file.temporary_path,
                            MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC | MDB_NOMETASYNC | MDB_NORDAHEAD, 0666);
    if (!code)
        code = mdb_txn_begin(file->environment, NULL, 0, &transaction);
    if (!code) {
        code = mdb_dbi_open(transaction, NULL, 0, &file->database);
        if (code)
            mdb_txn_abort(transaction);
        else
            code = mdb_txn_commit(transaction);
    }
    return code ? fail(file, code, 0, "cannot create", error) : FSH_OK;
}

FshStatus fsh_lmdb_file_open(LmdbFile *file, const char *folder, bool force, FshError *error)
{
    char data_path[PATH_MAX];
    *file = (LmdbFile){.map_bytes = FIRST_MAP_BYTES, .file.descriptor = -1, .folder = strdup(folder)};
    if (!file->folder)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", folder);
    FshStatus status = file_join(data_path, sizeof data_path, folder, LMDB_DATA_NAME, error);
    if (status)
        return status;
    if (mkdir(folder, 0777) == 0)
        file->folder_is_ours = true;
    else if (errno != EEXIST)
        return fsh_error_system(error, errno, "%s: cannot make the folder", folder);
    else if (!file_is_folder(folder))
        return fsh_error_set(error, FSH_ERR_EXISTS, "%s: exists and is no folder", folder);
    (void)file_remove_stale_temporaries(folder); /* of a run that was killed */
    status = atomic_file_open(&file->file, data_path, force, error);
    return status ? status : open_environment(file, error);
}

static FshStatus hash_file(const char *path, XXH3_state_t *hash, uint64_t *bytes_ret, FshError *error)
{
    FileMapping mapping;
    FshStatus status = file_map(path, &mapping, error);
    if (status)
        return status;
    if (XXH3_128bits_update(hash, mapping.bytes, (size_t)mapping.length) == XXH_ERROR)
        status = fsh_error_set(error, FSH_ERR_LIBRARY, "%s: XXH3 failed", path);
    if (!status && file_mapping_check(&mapping, 0, mapping.length, error))
        status = fsh_error_prepend(error, "%s", path);
    *bytes_ret += mapping.length;
    file_unmap(&mapping);
    return status;
}

FshStatus fsh_lmdb_file_finish(LmdbFile *file, XXH3_state_t *hash, uint64_t *bytes_ret, FshError *error)
{
    char lock_path[PATH_MAX];
    int code = mdb_env_sync(file->environment, 1);
    if (code)
        return fail(file, code, 0, "cannot write to disk", error);
    mdb_env_close(file->environment);
    file->environment = NULL;
    FshStatus status = hash_file(file->file.temporary_path, hash, bytes_ret, error);
    if (!status)
        status = file_join(lock_path, sizeof lock_path, file->folder, "lock.mdb", error);
    if (!status)
        status = atomic_file_commit(&file->file, true, error);
    if (status)
        return status;
    (void)unlink(lock_path); /* another program's; it belongs to the file that was replaced */
    file->folder_is_ours = false;
    return FSH_OK;
}

void fsh_lmdb_file_close(LmdbFile *file)
{
    if (!file->folder)
        return;
    if (file->environment)
        mdb_env_close(file->environment);
    atomic_file_abandon(&file->file);
    if (file->folder_is_ours)
        (void)rmdir(file->folder);
    free(file->folder);
    *file = (LmdbFile){0};
}
