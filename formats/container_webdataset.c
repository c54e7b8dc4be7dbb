/* The container of WebDataset's tars, ours and others'. Samples are webdataset_samples.c's. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "common/file.h"
#include "common/text.h"
#include "formats/collection.h"
#include "formats/container.h"
#include "formats/split_file.h"
#include "formats/webdataset.h"
#include "formats/writer.h"
#include "tar/tar_parse.h"

static void write_name(char *buffer, size_t buffer_bytes, const char *split, uint32_t index, uint32_t count)
{
    (void)count;
    (void)snprintf(buffer, buffer_bytes, "%s-%06" PRIu32 ".tar", split, index);
}

/* Returns whether the file is a tar. An empty tar is zeros, which only its name tells from other files. */
static bool sniff(const char *path, const FileMapping *data)
{
    const bool named = text_has_suffix(path, ".tar");
    return !file_is_folder(path) &&
           (fsh_tar_sniff(data->bytes, data->length) || (named && data->length && data->bytes[0] == 0));
}

static FshStatus find(Collection *collection, const char *path, FshError *error)
{
    return fsh_collection_gather(collection, path, ".tar", NULL, error);
}

static FshStatus open_file(SplitFile *file, const char *path, const OpenRequest *request, FshError *error)
{
    FshStatus status = file_map(path, &file->mapping, error);
    if (status)
        return status;
    if (!file->mapping.length && !file->written_by_us) /* a manifest tells its length */
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "%s: has 0 bytes, and even an empty tar has some: " TAR_CUT_SHORT, path);
    /* Only headers are looked at: without this a disk would read everything between them too. */
    if (file->mapping.length)
        (void)madvise((void *)file->mapping.bytes, (size_t)file->mapping.length, MADV_RANDOM);
    status =
        fsh_webdataset_table(&file->table, file->mapping.bytes, file->mapping.length, request->field_names,
                             request->field_count, !file->written_by_us, request->tear_ret, error);
    if (file->mapping.length)
        (void)madvise((void *)file->mapping.bytes, (size_t)file->mapping.length, MADV_NORMAL);
    return fsh_split_file_conclude(file, path, status, error);
}

const Container fsh_webdataset_container = {
    .id = FSH_CONTAINER_TAR,
    .name = "tar",
    .one = "tar",
    .many = "tars",
    .facts = FSH_HAS_CLASSES | FSH_HAS_SHARDS | FSH_HAS_RAW | FSH_HAS_MEMBERS | FSH_HAS_INDEX,
    .suffix = ".tar",
    .writer = &fsh_webdataset_writer,
    .sniff = sniff,
    .find = find,
    .write_name = write_name,
    .encode_key = fsh_webdataset_key_encode,
    .open = open_file,
    .sample = fsh_table_file_sample,
    .verify = fsh_table_file_verify,
    .stretches = fsh_table_file_stretches,
    .check = fsh_table_file_check,
    .index_suffix = FSH_TAR_INDEX_SUFFIX,
    .check_index = fsh_tar_index_check,
    .list_suffix = WIDS_SUFFIX,
    .save_list = fsh_wids_save,
    .check_list = fsh_wids_check,
};
