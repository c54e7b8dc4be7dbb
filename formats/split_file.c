/* One file of a split, mapped: what holds whatever its container. */

#include "formats/split_file.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/file.h"
#include "common/read_fault.h"
#include "formats/container.h"
#include "formats/dataset.h"
#include "formats/names.h"
#include "formats/record.h"
#include "formats/sample_table.h"
#include "formats/shard.h"

/* Makes the index rows of a file whose table is made, if the table is what the request expects. */
static FshStatus finish_table(SplitFile *file, const char *path, const OpenRequest *request, FshError *error)
{
    const SampleTable *table = &file->table;
    if (table->field_count == 0)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: holds no sample with an image", path);
    const FshStatus status = fsh_table_rows(file, error);
    if (!status && request->expected && table->label_max >= (int64_t)request->expected->class_count)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: label %" PRId32 " in a dataset of %zu classes",
                             path, table->label_max, request->expected->class_count);
    return status;
}

FshStatus fsh_split_file_open(SplitFile *file, const char *path, const Container *container,
                              const OpenRequest *request, FshError *error)
{
    *file = (SplitFile){.container = container, .written_by_us = request->written_by_us};
    FshStatus status = container->open(file, path, request, error);
    if (!status && !container_has(container, FSH_HAS_METADATA))
        status = finish_table(file, path, request, error);
    if (status)
        fsh_split_file_close(file);
    return status;
}

FshStatus fsh_split_file_conclude(const SplitFile *file, const char *path, FshStatus status, FshError *error)
{
    if (status != FSH_ERR_MEMORY && fsh_split_file_check_all_read(file, error))
        status = FSH_ERR_SYSTEM; /* why the rest was wrong */
    return status ? fsh_error_prepend(error, "%s", path) : FSH_OK;
}

FshStatus fsh_split_file_compare(const SplitFile *file, const FshFileInfo *info, size_t file_index,
                                 size_t file_count, FshError *error)
{
    if (file_count && file->shard_count &&
        (file->shard_index != file_index || file->shard_count != file_count))
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "is shard %" PRIu32 " of %" PRIu32
                             " by its header, not %zu of %zu: renamed or swapped",
                             file->shard_index, file->shard_count, file_index, file_count);
    if (file_count && file->record_count != info->sample_count)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "holds %" PRIu64 " samples, not the %" PRIu64 " the manifest says",
                             file->record_count, info->sample_count);
    if (fsh_split_file_bytes(file) != info->bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "has %" PRIu64 " bytes, not the %" PRIu64 " the manifest says%s",
                             fsh_split_file_bytes(file), info->bytes,
                             fsh_split_file_bytes(file) < info->bytes ? ": cut short; copy it again" : "");
    if (container_has(file->container, FSH_HAS_HASH) && !fsh_hash_equal(&file->hash, &info->hash)) {
        char found[FSH_HASH_TEXT_BYTES], listed[FSH_HASH_TEXT_BYTES];
        fsh_hash_format(&file->hash, found);
        fsh_hash_format(&info->hash, listed);
        return fsh_error_set(error, FSH_ERR_CORRUPT, "XXH3-128 in its footer is %s, in the manifest %s",
                             found, listed);
    }
    return FSH_OK;
}

void fsh_split_file_close(SplitFile *file)
{
    file_unmap(&file->mapping);
    for (size_t i = 0; i < file->other_count; i++) {
        file_unmap(&file->others[i]);
    }
    free(file->others);
    fsh_table_free(&file->table);
    buffer_free(&file->own_rows);
    free(file->labels);
    free(file->numbers);
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

FshStatus fsh_split_file_index_row(const SplitFile *file, uint64_t record, IndexRow *row_ret, FshError *error)
{
    if (file->rows) {
        *row_ret = fsh_index_row_load(file->rows + record * INDEX_ROW_BYTES);
        return FSH_OK;
    }
    const FshStatus status = fsh_lmdb_find(&file->tree, record, row_ret, error);
    /* A page that was not there reads as zeros, and is none of the tree. */
    return status && fsh_split_file_check_all_read(file, error) ? FSH_ERR_SYSTEM : status;
}

/* ---- what was not there ---- */

/* Checks that the index row of a record could be read, where rows are used in the file. */
static FshStatus check_row(const SplitFile *file, uint64_t record, FshError *error)
{
    if (!file->rows)
        return FSH_OK;
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
    const size_t count =
        file->container->stretches(file, record, stretches); /* first: this, too, reads the row */
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
    const size_t count = file->container->stretches(file, record, stretches);
    FshStatus status = check_row(file, record, error);
    for (size_t i = 0; i < count && !status; i++)
        status = fsh_populate(stretches[i].mapping, stretches[i].offset, stretches[i].bytes, error);
    return status;
}

/* ---- records ---- */

int64_t fsh_split_file_label(const SplitFile *file, uint64_t record)
{
    IndexRow row;
    if (fsh_split_file_index_row(file, record, &row, NULL))
        return FSH_NO_LABEL;
    if (!container_has(file->container, CONTAINER_LABELS_IN_RECORDS))
        return row.label;
    return row.record_bytes < RECORD_BYTES_MIN ? FSH_NO_LABEL
                                               : fsh_record_label(file->mapping.bytes + row.offset);
}

FshStatus fsh_split_file_sample(const SplitFile *file, uint64_t record, FshSample *sample, RecordHead *head,
                                FshError *error)
{
    FshStatus status = file->container->sample(file, record, sample, head, error);
    return fsh_split_file_check_read(file, record, error) ? FSH_ERR_SYSTEM : status;
}

FshStatus fsh_split_file_verify(const SplitFile *file, uint64_t record, FshError *error)
{
    FshStatus status = file->container->verify(file, record, error);
    return fsh_split_file_check_read(file, record, error) ? FSH_ERR_SYSTEM : status;
}
