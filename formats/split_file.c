#include "formats/internal.h"

#include <inttypes.h>
#include <limits.h>
#include <sys/mman.h>

static FshStatus open_shard(SplitFile *file, const Metadata *expected, Metadata *metadata_ret,
                            FshError *error)
{
    bool torn = false;
    uint64_t class_count = 0;
    ShardView *shard = &file->shard;
    FshStatus status = fsh_shard_parse_header(shard, file->mapping.bytes, file->mapping.length, error);
    if (!status && expected) {
        class_count = expected->class_count;
        status = fsh_metadata_compare(shard->metadata, shard->metadata_bytes, NULL, expected, error);
    } else if (!status) {
        status = fsh_metadata_parse(metadata_ret, shard->metadata, shard->metadata_bytes, NULL, error);
        class_count = metadata_ret->class_count;
    }
    if (!status)
        status = fsh_dictionary_check(shard->dictionary, shard->dictionary_bytes,
                                      expected ? &expected->dictionary : &metadata_ret->dictionary, error);
    if (!status)
        status = fsh_shard_parse_footer(shard, &torn, error);
    if (!status)
        status = fsh_shard_check_index(shard, class_count, NULL, NULL, error);
    file->record_count = shard->record_count;
    file->rows = shard->index;
    return status;
}

/* The pages of an LMDB's tree lie scattered among those of the values. Where the file is not in memory, reading around
 * each of them, as the kernel does for files that are mapped, would bring in most of it. What MDB_NORDAHEAD does, but
 * for the tree only: a value of many pages is read in one go, 4 times as fast as page by page. */
static void read_around(const FileMapping *mapping, bool wanted)
{
    if (mapping->length)
        (void)madvise((void *)mapping->bytes, (size_t)mapping->length, wanted ? MADV_NORMAL : MADV_RANDOM);
}

static FshStatus open_lmdb(SplitFile *file, const Metadata *expected, Metadata *metadata_ret, FshError *error)
{
    uint64_t count = 0;
    LmdbView *lmdb = &file->lmdb;
    read_around(&file->mapping, false);
    FshStatus status = fsh_lmdb_parse(lmdb, file->mapping.bytes, file->mapping.length, error);
    read_around(&file->mapping, true);
    if (!status && expected)
        status = fsh_metadata_compare(lmdb->metadata, lmdb->metadata_bytes, &count, expected, error);
    else if (!status)
        status = fsh_metadata_parse(metadata_ret, lmdb->metadata, lmdb->metadata_bytes, &count, error);
    if (!status)
        status = fsh_dictionary_check(lmdb->dictionary, lmdb->dictionary_bytes,
                                      expected ? &expected->dictionary : &metadata_ret->dictionary, error);
    if (!status && count != lmdb->record_count)
        status = fsh_error_set(error, FSH_ERR_CORRUPT,
                               "holds %" PRIu64 " samples, not the %" PRIu64 " its metadata says",
                               lmdb->record_count, count);
    file->record_count = lmdb->record_count;
    file->rows = lmdb->rows.bytes;
    return status;
}

FshStatus fsh_split_file_open(SplitFile *file, const char *path, FshContainer container,
                              const Metadata *expected, Metadata *metadata_ret, FshError *error)
{
    *file = (SplitFile){.container = container};
    char data_path[PATH_MAX];
    Metadata metadata = {0};
    FshStatus status = FSH_OK;
    if (container == FSH_CONTAINER_LMDB) {
        status = file_join(data_path, sizeof data_path, path, LMDB_DATA_NAME, error);
        path = data_path;
    }
    if (!status)
        status = file_map(path, &file->mapping, error);
    if (status)
        return status;
    status = container == FSH_CONTAINER_LMDB ? open_lmdb(file, expected, &metadata, error)
                                             : open_shard(file, expected, &metadata, error);
    if (status) {
        (void)fsh_error_prepend(error, "%s", path);
        fsh_split_file_close(file);
    } else if (metadata_ret) {
        *metadata_ret = metadata;
        metadata = (Metadata){0};
    }
    fsh_metadata_free(&metadata);
    return status;
}

FshStatus fsh_split_file_compare(const SplitFile *file, const FshFileInfo *info, size_t file_index,
                                 size_t file_count, FshError *error)
{
    bool is_shard = file->container == FSH_CONTAINER_SHARDS;
    if (is_shard && (file->shard.shard_index != file_index || file->shard.shard_count != file_count))
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "is shard %" PRIu32 " of %" PRIu32
                             " by its header, not %zu of %zu: renamed or swapped",
                             file->shard.shard_index, file->shard.shard_count, file_index, file_count);
    if (file->record_count != info->sample_count)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "holds %" PRIu64 " samples, not the %" PRIu64 " the manifest says",
                             file->record_count, info->sample_count);
    if (file->mapping.length != info->bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "has %" PRIu64 " bytes, not the %" PRIu64 " the manifest says",
                             file->mapping.length, info->bytes);
    if (is_shard && !fsh_hash_equal(&file->shard.hash, &info->hash)) {
        char found[FSH_HASH_TEXT_BYTES], listed[FSH_HASH_TEXT_BYTES];
        fsh_hash_format(&file->shard.hash, found);
        fsh_hash_format(&info->hash, listed);
        return fsh_error_set(error, FSH_ERR_CORRUPT, "XXH3-128 in its footer is %s, in the manifest %s",
                             found, listed);
    }
    return FSH_OK;
}

void fsh_split_file_close(SplitFile *file)
{
    if (file->container == FSH_CONTAINER_LMDB)
        fsh_lmdb_free(&file->lmdb);
    file_unmap(&file->mapping);
    *file = (SplitFile){0};
}
