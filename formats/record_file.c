/* Files of records, shards and LMDBs: what both do alike once they are mapped and their index rows are
 * known. */
#include <inttypes.h>
#include <limits.h>

#include "common/file.h"
#include "formats/check.h"
#include "formats/container.h"
#include "formats/dictionary.h"
#include "formats/metadata.h"
#include "formats/record.h"
#include "formats/shard.h"
#include "formats/split_file.h"
#include "formats/updated.h"

FshStatus fsh_record_file_take(SplitFile *file, const OpenRequest *request, Metadata *metadata_ret,
                               uint64_t *count_ret, FshError *error)
{
    const Metadata *expected = request->expected;
    FshStatus status = FSH_OK;
    if (request->updated && !fsh_metadata_is_same(file->metadata, file->metadata_bytes, expected)) {
        status = fsh_metadata_parse(metadata_ret, file->metadata, file->metadata_bytes, count_ret, error);
        if (!status)
            status = fsh_updated_fit(file, metadata_ret, expected, request->updated, error);
    } else {
        status =
            expected
                ? fsh_metadata_compare(file->metadata, file->metadata_bytes, count_ret, expected, error)
                : fsh_metadata_parse(metadata_ret, file->metadata, file->metadata_bytes, count_ret, error);
    }
    return status ? status
                  : fsh_dictionary_check(file->dictionary, file->dictionary_bytes,
                                         expected ? &expected->dictionary : &metadata_ret->dictionary, error);
}

FshStatus fsh_record_file_open(SplitFile *file, const char *path, const OpenRequest *request, FshError *error)
{
    char data_path[PATH_MAX];
    const char *mapped = NULL;
    Metadata metadata = {0};
    FshStatus status = fsh_container_map(file->container, path, data_path, &mapped, &file->mapping, error);
    if (status)
        return status;
    status = file->container->parse(file, request, &metadata, error);
    status = fsh_split_file_conclude(file, mapped, status, error);
    fsh_metadata_hand_over(&metadata, status ? NULL : request->metadata_ret);
    return status;
}

/* Maps data_name of a checked file, or the file itself. One that cannot be mapped is a problem: *mapped_ret
 * is false. */
static FshStatus map_checked(const FileCheck *check, FileReport *report, bool *mapped_ret, FshError *error)
{
    const char *data_name = check->container->data_name, *path = NULL;
    char data_path[PATH_MAX];
    FshError found = {0};
    report->file.container = check->container;
    (void)fsh_container_map(check->container, check->path, data_path, &path, &report->file.mapping, &found);
    *mapped_ret = !found.status;
    if (found.status == FSH_ERR_NOT_FOUND)
        (void)fsh_error_set(&found, FSH_ERR_NOT_FOUND, data_name ? "missing, or without %s" : "missing",
                            data_name);
    return found.status ? fsh_report_found(report, -1, NULL, &found, error) : FSH_OK;
}

FshStatus fsh_record_file_check(const FileCheck *check, FileReport *report, Metadata *metadata_ret,
                                FshError *error)
{
    bool mapped = false;
    const FshStatus status = map_checked(check, report, &mapped, error);
    return status || !mapped ? status : check->container->check_structure(check, report, metadata_ret, error);
}

FshStatus fsh_record_file_sample(const SplitFile *file, uint64_t record, FshSample *sample, RecordHead *head,
                                 FshError *error)
{
    IndexRow row;
    FshStatus status = fsh_split_file_index_row(file, record, &row, error);
    if (!status)
        status = fsh_record_parse(file->mapping.bytes + row.offset, row.record_bytes, file->record_form,
                                  sample, head, error);
    if (!status && head->record_bytes != row.record_bytes)
        status =
            fsh_error_set(error, FSH_ERR_CORRUPT, "record of %" PRIu64 " bytes where the index has %" PRIu64,
                          head->record_bytes, row.record_bytes);
    if (!status)
        sample->label = head->label = fsh_updated_label(file, head->label);
    if (!status && !container_has(file->container, CONTAINER_LABELS_IN_RECORDS) &&
        (head->label != row.label || head->crc != row.crc))
        status = fsh_error_set(error, FSH_ERR_CORRUPT,
                               "label or CRC32C of the record is not that of its index row");
    return status;
}

FshStatus fsh_record_file_verify(const SplitFile *file, uint64_t record, FshError *error)
{
    FshSample sample = {0};
    RecordHead head = {0};
    IndexRow row = {0};
    FshStatus status = fsh_record_file_sample(file, record, &sample, &head, error);
    if (!status)
        status = fsh_split_file_index_row(file, record, &row, error);
    return status ? status : fsh_record_verify(file->mapping.bytes + row.offset, &sample, &head, error);
}

size_t fsh_record_file_stretches(const SplitFile *file, uint64_t record, Stretch stretches[STRETCHES_MAX])
{
    IndexRow row;
    if (fsh_split_file_index_row(file, record, &row, NULL))
        return 0;
    stretches[0] = (Stretch){&file->mapping, row.offset, row.record_bytes};
    return 1;
}
