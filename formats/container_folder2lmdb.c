/* The container of folder2lmdb's LMDBs, which are only read. Bytes are folder2lmdb.c's. */
#include <limits.h>

#include "common/file.h"
#include "formats/collection.h"
#include "formats/container.h"
#include "formats/folder2lmdb.h"
#include "formats/lmdb_reader.h"
#include "formats/split_file.h"

static bool sniff(const char *path, const FileMapping *data)
{
    (void)path;
    return fsh_lmdb_sniff(data->bytes, data->length) && fsh_folder2lmdb_sniff(data->bytes, data->length);
}

static FshStatus find(Collection *collection, const char *path, FshError *error)
{
    return fsh_collection_gather(collection, path, ".lmdb", &fsh_folder2lmdb_container, error);
}

static FshStatus open_file(SplitFile *file, const char *path, const OpenRequest *request, FshError *error)
{
    char data_path[PATH_MAX];
    const char *mapped = NULL;
    (void)request;
    FshStatus status = fsh_container_map(file->container, path, data_path, &mapped, &file->mapping, error);
    if (status)
        return status;
    status = fsh_folder2lmdb_table(&file->table, file->mapping.bytes, file->mapping.length, error);
    return fsh_split_file_conclude(file, mapped, status, error);
}

const Container fsh_folder2lmdb_container = {
    .id = FSH_CONTAINER_FOLDER2LMDB,
    .name = "folder2lmdb",
    .one = "LMDB",
    .many = "LMDBs",
    .facts = FSH_HAS_CLASSES,
    .suffix = ".lmdb",
    .data_name = LMDB_DATA_NAME,
    .sniff = sniff,
    .find = find,
    .open = open_file,
    .sample = fsh_table_file_sample,
    .verify = fsh_table_file_verify,
    .stretches = fsh_table_file_stretches,
    .check = fsh_table_file_check,
};
