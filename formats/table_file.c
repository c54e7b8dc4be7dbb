/* Files of a table: all that are no files of records. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/read_fault.h"
#include "formats/check.h"
#include "formats/container.h"
#include "formats/dataset.h"
#include "formats/metadata.h"
#include "formats/record.h"
#include "formats/sample_table.h"
#include "formats/shard.h"
#include "formats/split_file.h"

/* Makes index rows as shards have them, so that labels, places and sizes are asked for in one way. */
FshStatus fsh_table_rows(SplitFile *file, FshError *error)
{
    const SampleTable *table = &file->table;
    FshStatus status = buffer_reserve(&file->own_rows, (size_t)table->sample_count * INDEX_ROW_BYTES, error);
    for (uint64_t i = 0; i < table->sample_count && !status; i++) {
        const FieldRow *fields = fsh_table_fields(table, i);
        IndexRow row = {.offset = fields[0].offset, .label = fsh_table_row(table, i)->label};
        for (unsigned j = 0; j < table->field_count; j++) {
            row.record_bytes += fields[j].bytes;
        }
        fsh_index_row_store(file->own_rows.bytes + i * INDEX_ROW_BYTES, &row);
    }
    file->own_rows.length = (size_t)table->sample_count * INDEX_ROW_BYTES;
    file->rows = file->own_rows.bytes;
    file->record_count = table->sample_count;
    return status;
}

/* Finds the mapping in which each field lies. */
static void find_sides(const SplitFile *file, const FileMapping *sides[FSH_FIELDS_MAX])
{
    const bool many = container_has(file->container, CONTAINER_SIDES);
    for (unsigned i = 0; i < file->table.field_count; i++)
        sides[i] = fsh_split_file_mapping(file, many ? (size_t)2 * i : 0);
}

size_t fsh_table_file_stretches(const SplitFile *file, uint64_t record, Stretch stretches[STRETCHES_MAX])
{
    size_t count = 0;
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

FshStatus fsh_table_file_sample(const SplitFile *file, uint64_t record, FshSample *sample, RecordHead *head,
                                FshError *error)
{
    const IndexRow row = fsh_index_row_load(file->rows + record * INDEX_ROW_BYTES);
    const FileMapping *sides[FSH_FIELDS_MAX];
    find_sides(file, sides);
    *head = (RecordHead){.record_bytes = row.record_bytes, .label = row.label, .crc = row.crc};
    return fsh_table_sample(&file->table, sides, record, sample, error);
}

/* Checks the checksums of a record's fields, where something tells them. Touches all of the record first,
 * since without a checksum nobody has read all of it. */
FshStatus fsh_table_file_verify(const SplitFile *file, uint64_t record, FshError *error)
{
    const FileMapping *sides[FSH_FIELDS_MAX];
    Stretch stretches[STRETCHES_MAX];
    find_sides(file, sides);
    const size_t count = fsh_table_file_stretches(file, record, stretches);
    for (size_t i = 0; i < count; i++)
        read_fault_touch(stretches[i].mapping->bytes + stretches[i].offset, (size_t)stretches[i].bytes);
    const bool must = file->written_by_us && container_has(file->container, FSH_HAS_MEMBERS);
    return fsh_table_verify(&file->table, sides, record, must, error);
}

/* ---- proving ---- */

/* Counts the labels of the index rows. FSH_ERR_MEMORY. */
static FshStatus count_labels(FileReport *report, size_t class_count, FshError *error)
{
    FshStatus status = fsh_report_classes(report, class_count, error);
    for (uint64_t i = 0; i < report->file.record_count && !status; i++) {
        const int64_t label = fsh_index_row_load(report->file.rows + i * INDEX_ROW_BYTES).label;
        if (label >= 0)
            report->class_counts[label]++;
    }
    return status;
}

/* Returns whether a tar was cut between two members or in its end marker, which alone would be no fault, by
 * the length that its manifest says. *tear_ret: what to say of it. A last sample of which members are missing
 * is left out. */
static bool ends_early(const FileCheck *check, SplitFile *file, FshError *tear_ret)
{
    enum { END_MARKER_BYTES = 1024 };
    const uint64_t bytes = fsh_split_file_bytes(file), listed = check->info ? check->info->bytes : 0;
    if (!container_has(file->container, FSH_HAS_MEMBERS) || bytes >= listed ||
        (!file->table.unmarked_end && listed - bytes >= END_MARKER_BYTES))
        return false;
    if (file->record_count && fsh_table_file_verify(file, file->record_count - 1, NULL))
        file->table.sample_count = --file->record_count;
    (void)fsh_error_set(tear_ret, FSH_ERR_CORRUPT,
                        "has %" PRIu64 " bytes, not the %" PRIu64
                        " the manifest says: cut short; copy or download it again",
                        bytes, listed);
    return true;
}

/* Opens the file and checks its table; where there is a manifest, the manifest's fields are expected. Of a
 * tar that breaks off, which is a problem, the samples before the place are looked at. Leaves *metadata_ret
 * alone: no such file has metadata. */
FshStatus fsh_table_file_check(const FileCheck *check, FileReport *report, Metadata *metadata_ret,
                               FshError *error)
{
    SplitFile *file = &report->file;
    const Metadata *expected = check->expected;
    FshError found = {0}, tear = {0};
    FshStatus status = FSH_OK;
    OpenRequest request = fsh_check_request(check);
    request.tear_ret = &tear;
    (void)metadata_ret; /* no file tells any */
    if (fsh_split_file_open(file, check->path, check->container, &request, &found)) {
        /* The problem names its file already. */
        const size_t path_bytes = strlen(check->path);
        bool named = strncmp(found.message, check->path, path_bytes) == 0 && found.message[path_bytes] == ':';
        const char *reason = found.status == FSH_ERR_NOT_FOUND ? "missing"
                             : named                           ? found.message + path_bytes + 2
                                                               : found.message;
        return fsh_report_add(report, found.status, -1, NULL, reason, error);
    }
    report->indexed = true;
    report->torn = tear.status || ends_early(check, file, &tear);
    if (report->torn)
        status = fsh_report_found(report, -1, NULL, &tear, error);
    else if (file->table.unmarked_end && !expected) /* a manifest tells its length */
        status =
            fsh_report_add(report, FSH_OK, -1, NULL,
                           "has no end marker: either its writer makes none, or it is cut short between two "
                           "members, and to be copied again",
                           error);
    if (!expected || status)
        return status;
    if (!report->torn && check->container->check_index &&
        check->container->check_index(check->path, &found)) {
        status = fsh_report_found(report, -1, NULL, &found, error);
        found = (FshError){0};
    }
    if (file->table.label_max >= (int64_t)expected->class_count)
        (void)fsh_error_set(&found, FSH_ERR_CORRUPT, "label %" PRId32 " in a dataset of %zu classes",
                            file->table.label_max, expected->class_count);
    if (status)
        return status;
    return found.status ? fsh_report_found(report, -1, NULL, &found, error)
                        : count_labels(report, expected->class_count, error);
}

uint64_t fsh_unmarked_files(const FshDataset *dataset, const char **first_ret)
{
    uint64_t count = 0;
    for (size_t split = 0; split < dataset->manifest.split_count; split++)
        for (size_t i = 0; i < dataset->split_files[split].count; i++) {
            if (dataset->split_files[split].files[i].table.unmarked_end && count++ == 0)
                *first_ret = dataset->manifest.splits[split].files[i].name;
        }
    return count;
}
