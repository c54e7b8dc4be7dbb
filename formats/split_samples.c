/* The samples of an open split: where one lies, what is in it, whether it was there. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/file.h"
#include "common/read_fault.h"
#include "formats/container.h"
#include "formats/dataset.h"
#include "formats/names.h"
#include "formats/record.h"
#include "formats/shard.h"
#include "formats/split_file.h"

const SplitFile *fsh_split_find(const FshSplit *split, uint64_t index, uint64_t *record_ret)
{
    const uint64_t place = fsh_stored_place(split, index);
    const SplitFile *files = split->files->files;
    size_t low = 0, high = split->files->count;
    while (high - low > 1) { /* the last one that begins at or before the place */
        size_t middle = low + (high - low) / 2;
        if (files[middle].first <= place)
            low = middle;
        else
            high = middle;
    }
    *record_ret = place - files[low].first;
    return &files[low];
}

const char *fsh_sample_where(const FshSplit *split, uint64_t index, char *buffer, size_t buffer_bytes)
{
    if (index >= split->sample_count) {
        (void)snprintf(buffer, buffer_bytes, "split %s sample %" PRIu64, split->info->name, index);
        return buffer;
    }
    uint64_t record = 0;
    const SplitFile *file = fsh_split_find(split, index, &record);
    (void)snprintf(buffer, buffer_bytes, "%s record %" PRIu64,
                   split->info->files[file - split->files->files].name, fsh_split_file_row(file, record));
    return buffer;
}

/* Puts the place in front of a failure's message. */
static FshStatus fail_at(const FshSplit *split, const SplitFile *file, uint64_t record, FshStatus status,
                         FshError *error)
{
    const char *folder = split->files->folder;
    size_t length = strlen(folder);
    const char *separator = length && folder[length - 1] != '/' ? "/" : "";
    IndexRow row;
    char at[48] = "";
    if (!fsh_split_file_index_row(file, record, &row, NULL))
        (void)snprintf(at, sizeof at, " at byte %" PRIu64, row.offset);
    (void)fsh_error_prepend(error, "%s%s%s record %" PRIu64 "%s", folder, separator,
                            split->info->files[file - split->files->files].name,
                            fsh_split_file_row(file, record), at);
    return status;
}

/* Fails with the place of the record that holds data. Looks through all rows, since an LMDB's are in no
 * order: only for messages. */
FshStatus fsh_split_fail_at_data(const FshSplit *split, const void *data, FshStatus status, FshError *error)
{
    uintptr_t address = (uintptr_t)data;
    for (size_t i = 0; i < split->files->count; i++) {
        const SplitFile *file = &split->files->files[i];
        uintptr_t begin = (uintptr_t)file->mapping.bytes;
        if (address < begin || address >= begin + file->mapping.length)
            continue;
        for (uint64_t j = 0; j < file->record_count; j++) {
            IndexRow row;
            if (!fsh_split_file_index_row(file, j, &row, NULL) && address - begin >= row.offset &&
                address - begin - row.offset < row.record_bytes)
                return fail_at(split, file, j, status, error);
        }
    }
    (void)fsh_error_prepend(error, "split %s", split->info->name);
    return status;
}

FshStatus fsh_split_check_read_data(const FshSplit *split, const void *data, size_t bytes, FshError *error)
{
    for (size_t i = 0; read_faults_any() && i < split->files->count; i++) {
        const SplitFile *file = &split->files->files[i];
        for (size_t j = 0; j < fsh_split_file_mapping_count(file); j++) {
            const FileMapping *mapping = fsh_split_file_mapping(file, j);
            const uintptr_t begin = (uintptr_t)mapping->bytes;
            if ((uintptr_t)data >= begin && (uintptr_t)data < begin + mapping->length)
                return file_mapping_check(mapping, (uintptr_t)data - begin, bytes, error);
        }
    }
    return FSH_OK;
}

FshStatus fsh_sample_get(const FshSplit *split, uint64_t index, FshSample *sample, FshError *error)
{
    RecordHead head;
    if (index >= split->sample_count)
        return fsh_error_set(error, FSH_ERR_NOT_FOUND, "split %s: sample %" PRIu64 " of %" PRIu64,
                             split->info->name, index, split->sample_count);
    uint64_t record = 0;
    const SplitFile *file = fsh_split_find(split, index, &record);
    const size_t classes = fsh_stored_class_count(split->files, file);
    FshStatus status = fsh_split_file_sample(file, record, sample, &head, error);
    if (!status &&
        (sample->field_count != split->files->manifest->field_count || head.label >= (int64_t)classes))
        status = fsh_error_set(error, FSH_ERR_CORRUPT,
                               "%u fields and label %" PRId64 " in a dataset of %zu fields and %zu classes",
                               sample->field_count, head.label, split->files->manifest->field_count, classes);
    if (status)
        return fail_at(split, file, record, status, error);
    sample->index = index;
    sample->label = fsh_label_now(split->files, file, sample->label);
    return FSH_OK;
}

int64_t fsh_sample_label(const FshSplit *split, uint64_t index)
{
    uint64_t record = 0;
    const SplitFile *file = fsh_split_find(split, index, &record);
    int64_t label = fsh_split_file_label(file, record);
    /* One of an index row was checked when the file was opened. */
    if (container_has(file->container, CONTAINER_LABELS_IN_RECORDS) &&
        (label < 0 || label >= (int64_t)fsh_stored_class_count(split->files, file)))
        label = FSH_NO_LABEL;
    return fsh_split_file_check_read(file, record, NULL) ? FSH_NO_LABEL
                                                         : fsh_label_now(split->files, file, label);
}

void fsh_sample_prefetch(const FshSplit *split, uint64_t index, bool from_disk)
{
    enum { LINE_BYTES = 64, LINES = 4 }; /* a record's head, its key and its field's row, as a rule */
    uint64_t record = 0;
    const SplitFile *file = fsh_split_find(split, index, &record);
    if (!container_has(file->container, CONTAINER_CONTIGUOUS))
        return;
    IndexRow row = fsh_index_row_load(file->rows + record * INDEX_ROW_BYTES);
    const uint8_t *bytes = file->mapping.bytes + row.offset;
    if (from_disk) {
        size_t before = (uintptr_t)bytes & ((size_t)sysconf(_SC_PAGESIZE) - 1);
        (void)madvise((void *)(bytes - before), (size_t)row.record_bytes + before, MADV_WILLNEED);
        return;
    }
    for (size_t i = 0; i < LINES * LINE_BYTES && i < row.record_bytes; i += LINE_BYTES)
        __builtin_prefetch(bytes + i);
}

FshStatus fsh_sample_verify(const FshSplit *split, uint64_t index, FshError *error)
{
    FshSample sample = {0};
    FshStatus status = fsh_sample_get(split, index, &sample, error);
    if (status)
        return status;
    uint64_t record = 0;
    const SplitFile *file = fsh_split_find(split, index, &record);
    status = fsh_split_file_verify(file, record, error);
    if (status) {
        (void)fsh_error_prepend(error, "key %.*s", (int)sample.key_bytes, sample.key);
        (void)fail_at(split, file, record, status, error);
    }
    return status;
}

FshStatus fsh_sample_check_read(const FshSplit *split, const FshSample *sample, FshError *error)
{
    if (!read_faults_any() || sample->index >= split->sample_count)
        return FSH_OK;
    uint64_t record = 0;
    const SplitFile *file = fsh_split_find(split, sample->index, &record);
    FshStatus status = fsh_split_file_check_read(file, record, error);
    return status ? fail_at(split, file, record, status, error) : FSH_OK;
}

void fsh_outlive_read_errors(void)
{
    read_fault_outlive();
}

/* ---- bulk ---- */

/* Returns the bytes of a record; 0 where it cannot be found: whoever asks for it hears so. */
static uint64_t record_bytes(const SplitFile *file, uint64_t record)
{
    IndexRow row;
    return fsh_split_file_index_row(file, record, &row, NULL) ? 0 : row.record_bytes;
}

/* Returns what records of a file are counted as: `bytes`, and no more than the file has where it was opened
 * without a look at all of them, for nobody knows then that none lies over another. */
static uint64_t counted_bytes(const SplitFile *file, uint64_t bytes)
{
    const uint64_t most = file->rows ? UINT64_MAX : fsh_split_file_bytes(file);
    return bytes < most ? bytes : most;
}

static uint64_t chosen_bytes(const FshSplit *split)
{
    const SplitFile *file = NULL;
    uint64_t bytes = 0, own = 0; /* of files before, of this one */
    for (uint64_t i = 0; i < split->sample_count; i++) {
        uint64_t record = 0;
        const SplitFile *next = fsh_split_find(split, i, &record);
        if (file && next != file) {
            bytes += counted_bytes(file, own);
            own = 0;
        }
        file = next;
        own += record_bytes(file, record);
    }
    return file ? bytes + counted_bytes(file, own) : 0;
}

uint64_t fsh_split_bytes(const FshSplit *split)
{
    uint64_t bytes = 0;
    if (split->files->chosen)
        return chosen_bytes(split);
    for (size_t i = 0; i < split->files->count; i++) {
        const SplitFile *file = &split->files->files[i];
        if (container_has(file->container, CONTAINER_CONTIGUOUS) && file->record_count && !file->numbers) {
            const IndexRow first = fsh_index_row_load(file->rows);
            const IndexRow last = fsh_index_row_load(file->rows + (file->record_count - 1) * INDEX_ROW_BYTES);
            bytes += last.offset + last.record_bytes - first.offset;
            continue;
        }
        uint64_t own = 0;
        for (uint64_t j = 0; j < file->record_count; j++)
            own += record_bytes(file, j);
        bytes += counted_bytes(file, own);
    }
    return bytes;
}
