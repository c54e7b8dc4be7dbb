#include "formats/internal.h"

#include <inttypes.h>
#include <limits.h>
#include <sys/mman.h>
#include <stdlib.h>

#include "common/read_fault.h"

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
    if (!status)
        status = fsh_shard_rows(shard, &file->own_rows, &file->rows, error);
    file->record_count = shard->record_count;
    return status;
}

/* The pages of an LMDB's tree lie scattered among those of the values. Where the file is not in memory,
 * reading around each of them, as the kernel does for files that are mapped, would bring in most of it. What
 * MDB_NORDAHEAD does, but for the tree only: a value of many pages is read in one go, 4 times as fast as page
 * by page. */
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
    FshStatus status = FSH_OK;
    *file = (SplitFile){.container = container};
    if (fsh_container_is_foreign(container)) {
        status = fsh_foreign_open(file, path, container, (const char *const *)expected->field_names,
                                  expected->field_count, true, error);
        if (!status && file->table.label_max >= (int64_t)expected->class_count)
            status =
                fsh_error_set(error, FSH_ERR_CORRUPT, "%s: label %" PRId32 " in a dataset of %zu classes",
                              path, file->table.label_max, expected->class_count);
        if (status)
            fsh_split_file_close(file);
        return status;
    }
    char data_path[PATH_MAX];
    Metadata metadata = {0};
    if (container == FSH_CONTAINER_LMDB) {
        status = fsh_lmdb_data_path(data_path, path, error);
        path = data_path;
    }
    if (!status)
        status = file_map(path, &file->mapping, error);
    if (status)
        return status;
    status = container == FSH_CONTAINER_LMDB ? open_lmdb(file, expected, &metadata, error)
                                             : open_shard(file, expected, &metadata, error);
    if (status != FSH_ERR_MEMORY && fsh_split_file_check_all_read(file, error))
        status = FSH_ERR_SYSTEM; /* why the rest was wrong */
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
    if (fsh_split_file_bytes(file) != info->bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "has %" PRIu64 " bytes, not the %" PRIu64 " the manifest says",
                             fsh_split_file_bytes(file), info->bytes);
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
    for (size_t i = 0; i < file->other_count; i++) {
        file_unmap(&file->others[i]);
    }
    free(file->others);
    fsh_table_free(&file->table);
    buffer_free(&file->own_rows);
    *file = (SplitFile){0};
}

size_t fsh_split_file_mapping_count(const SplitFile *file)
{
    return 1 + file->other_count;
}

const FileMapping *fsh_split_file_mapping(const SplitFile *file, size_t index)
{
    return index ? &file->others[index - 1] : &file->mapping;
}

uint64_t fsh_split_file_bytes(const SplitFile *file)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < fsh_split_file_mapping_count(file); i++) {
        bytes += fsh_split_file_mapping(file, i)->length;
    }
    return bytes;
}

bool fsh_container_is_foreign(FshContainer container)
{
    return container == FSH_CONTAINER_TAR || container == FSH_CONTAINER_BASICSR ||
           container == FSH_CONTAINER_FOLDER2LMDB || container == FSH_CONTAINER_FILES;
}

/* The mapping in which each field lies. */
static void find_sides(const SplitFile *file, const FileMapping *sides[FSH_FIELDS_MAX])
{
    for (unsigned i = 0; i < file->table.field_count; i++) {
        sides[i] = fsh_split_file_mapping(file, file->container == FSH_CONTAINER_BASICSR ? (size_t)2 * i : 0);
    }
}

/* ---- what was not there ---- */

/* A part of a record. */
typedef struct Stretch {
    const FileMapping *mapping;
    uint64_t offset, bytes;
} Stretch;

enum { STRETCHES_MAX = 2 * FSH_FIELDS_MAX };

/* All of a record, and what is read with it: the note of a foreign one. Returns how many. */
static size_t record_stretches(const SplitFile *file, uint64_t record, Stretch stretches[STRETCHES_MAX])
{
    size_t count = 0;
    if (!fsh_container_is_foreign(file->container)) {
        const IndexRow row = fsh_index_row_load(file->rows + record * INDEX_ROW_BYTES);
        stretches[0] = (Stretch){&file->mapping, row.offset, row.record_bytes};
        return 1;
    }
    const FileMapping *sides[FSH_FIELDS_MAX];
    const SampleRow *row = fsh_table_row(&file->table, record);
    const FieldRow *fields = fsh_table_fields(&file->table, record);
    find_sides(file, sides);
    for (unsigned i = 0; i < file->table.field_count; i++) {
        stretches[count++] = (Stretch){sides[i], fields[i].offset, fields[i].bytes};
        if (row->note_bytes)
            stretches[count++] = (Stretch){sides[i], row->note_at, row->note_bytes};
    }
    return count;
}

/* Whether the index row of a record was there, where rows are used in the file. */
static FshStatus check_row(const SplitFile *file, uint64_t record, FshError *error)
{
    const uint8_t *row = file->rows + record * INDEX_ROW_BYTES, *bytes = file->mapping.bytes;
    const bool in_file =
        (uintptr_t)row >= (uintptr_t)bytes && (uintptr_t)row - (uintptr_t)bytes < file->mapping.length;
    return in_file && read_faults_any()
               ? file_mapping_check(&file->mapping, (uint64_t)(row - bytes), INDEX_ROW_BYTES, error)
               : FSH_OK;
}

FshStatus fsh_split_file_check_read(const SplitFile *file, uint64_t record, FshError *error)
{
    if (!read_faults_any())
        return FSH_OK;
    Stretch stretches[STRETCHES_MAX];
    const size_t count = record_stretches(file, record, stretches); /* first: this, too, reads the row */
    FshStatus status = check_row(file, record, error);
    for (size_t i = 0; i < count && !status; i++)
        status = file_mapping_check(stretches[i].mapping, stretches[i].offset, stretches[i].bytes, error);
    return status;
}

FshStatus fsh_split_file_check_all_read(const SplitFile *file, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < fsh_split_file_mapping_count(file) && read_faults_any() && !status; i++) {
        const FileMapping *mapping = fsh_split_file_mapping(file, i);
        status = file_mapping_check(mapping, 0, mapping->length, error);
    }
    return status;
}

FshStatus fsh_split_file_populate(const SplitFile *file, uint64_t record, FshError *error)
{
    Stretch stretches[STRETCHES_MAX];
    const size_t count = record_stretches(file, record, stretches);
    FshStatus status = check_row(file, record, error);
    for (size_t i = 0; i < count && !status; i++)
        status = fsh_populate(stretches[i].mapping, stretches[i].offset, stretches[i].bytes, error);
    return status;
}

/* ---- records ---- */

static FshStatus read_record(const SplitFile *file, uint64_t record, FshSample *sample, RecordHead *head,
                             FshError *error)
{
    IndexRow row = fsh_index_row_load(file->rows + record * INDEX_ROW_BYTES);
    if (file->container == FSH_CONTAINER_FILES) {
        *head = (RecordHead){.label = FSH_NO_LABEL};
        fsh_files_sample(file, record, sample);
        return FSH_OK;
    }
    if (fsh_container_is_foreign(file->container)) {
        const FileMapping *sides[FSH_FIELDS_MAX];
        find_sides(file, sides);
        *head = (RecordHead){.record_bytes = row.record_bytes, .label = row.label, .crc = row.crc};
        return fsh_table_sample(&file->table, sides, record, sample, error);
    }
    FshStatus status = fsh_record_parse(file->mapping.bytes + row.offset, row.record_bytes,
                                        file->shard.record_form, sample, head, error);
    if (!status && head->record_bytes != row.record_bytes)
        status =
            fsh_error_set(error, FSH_ERR_CORRUPT, "record of %" PRIu64 " bytes where the index has %" PRIu64,
                          head->record_bytes, row.record_bytes);
    if (!status && file->container == FSH_CONTAINER_SHARDS &&
        (head->label != row.label || head->crc != row.crc))
        status = fsh_error_set(error, FSH_ERR_CORRUPT,
                               "label or CRC32C of the record is not that of its index row");
    return status;
}

FshStatus fsh_split_file_sample(const SplitFile *file, uint64_t record, FshSample *sample, RecordHead *head,
                                FshError *error)
{
    FshStatus status = read_record(file, record, sample, head, error);
    return fsh_split_file_check_read(file, record, error) ? FSH_ERR_SYSTEM : status;
}

/* Where nothing tells a checksum, nobody has read all of it. */
static FshStatus verify_foreign(const SplitFile *file, uint64_t record, FshError *error)
{
    const FileMapping *sides[FSH_FIELDS_MAX];
    Stretch stretches[STRETCHES_MAX];
    find_sides(file, sides);
    const size_t count = record_stretches(file, record, stretches);
    for (size_t i = 0; i < count; i++)
        read_fault_touch(stretches[i].mapping->bytes + stretches[i].offset, (size_t)stretches[i].bytes);
    const bool must = file->written_by_us && file->container == FSH_CONTAINER_TAR;
    return fsh_table_verify(&file->table, sides, record, must, error);
}

static FshStatus verify_own(const SplitFile *file, uint64_t record, FshError *error)
{
    FshSample sample = {0};
    RecordHead head = {0};
    FshStatus status = read_record(file, record, &sample, &head, error);
    IndexRow row = fsh_index_row_load(file->rows + record * INDEX_ROW_BYTES);
    return status ? status : fsh_record_verify(file->mapping.bytes + row.offset, &sample, &head, error);
}

FshStatus fsh_split_file_verify(const SplitFile *file, uint64_t record, FshError *error)
{
    FshStatus status = fsh_container_is_foreign(file->container) ? verify_foreign(file, record, error)
                                                                 : verify_own(file, record, error);
    return fsh_split_file_check_read(file, record, error) ? FSH_ERR_SYSTEM : status;
}
