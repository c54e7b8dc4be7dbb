#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/interrupt.h"
#include "common/mapped_pages.h"
#include "common/text.h"
#include "formats/check.h"
#include "formats/container.h"
#include "formats/dataset.h"
#include "formats/metadata.h"
#include "formats/names.h"
#include "formats/record.h"
#include "formats/shard.h"
#include "formats/split_file.h"
#include "formats/updated.h"
#include "formats/xxh3.h"

/* ---- reports ---- */

static FshStatus out_of_memory(FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
}

FshStatus fsh_report_add(FileReport *report, FshStatus status, int64_t record, const FshSample *sample,
                         const char *reason, FshError *error)
{
    if (report->problem_count == report->problem_capacity) {
        size_t capacity = report->problem_capacity ? 2 * report->problem_capacity : 8;
        FoundProblem *grown = realloc(report->problems, capacity * sizeof *grown);
        if (!grown)
            return out_of_memory(error);
        report->problems = grown;
        report->problem_capacity = capacity;
    }
    FoundProblem *problem = &report->problems[report->problem_count];
    *problem = (FoundProblem){.status = status, .record = record, .reason = strdup(reason)};
    bool with_source = sample && sample->fields[0].source_bytes;
    if (sample)
        problem->key = text_copy(sample->key, sample->key_bytes);
    if (with_source)
        problem->source = text_copy(sample->fields[0].source, sample->fields[0].source_bytes);
    report->problem_count++; /* from here on fsh_report_empty frees it */
    if (!problem->reason || (sample && !problem->key) || (with_source && !problem->source))
        return out_of_memory(error);
    return FSH_OK;
}

FshStatus fsh_report_found(FileReport *report, int64_t record, const FshSample *sample, const FshError *found,
                           FshError *error)
{
    return fsh_report_add(report, found->status, record, sample, found->message, error);
}

FshStatus fsh_report_classes(FileReport *report, size_t class_count, FshError *error)
{
    report->class_count = class_count;
    report->class_counts = calloc(class_count + 1, sizeof *report->class_counts);
    return report->class_counts ? FSH_OK : out_of_memory(error);
}

bool fsh_report_sample(const FileReport *report, uint64_t record, FshSample *sample)
{
    const SplitFile *file = &report->file;
    RecordHead head;
    if (!report->indexed || record >= file->record_count)
        return false;
    if (!container_has(file->container, FSH_HAS_METADATA))
        return fsh_split_file_sample(file, record, sample, &head, NULL) == FSH_OK;
    /* Of a record that contradicts its index row the key is told all the same. */
    IndexRow row = fsh_index_row_load(file->rows + record * INDEX_ROW_BYTES);
    return fsh_record_parse(file->mapping.bytes + row.offset, row.record_bytes, file->record_form, sample,
                            &head, NULL) == FSH_OK;
}

static void drop_problems(FileReport *report)
{
    for (size_t i = 0; i < report->problem_count; i++) {
        free(report->problems[i].key);
        free(report->problems[i].source);
        free(report->problems[i].reason);
    }
    report->problem_count = 0;
}

void fsh_report_empty(void *slot)
{
    FileReport *report = slot;
    drop_problems(report);
    free(report->problems);
    free(report->keys);
    free(report->contents);
    free(report->class_counts);
    free(report->counted);
    fsh_split_file_close(&report->file);
    *report = (FileReport){0};
}

/* ---- hashing ---- */

/* Read, hash, check, look for an interrupt, in pieces of this size: what was hashed is still in the
 * second-level cache when the CRC comes by. */
enum { PIECE_BYTES = 512 << 10 };

typedef struct Hashing {
    const FileMapping *mapping;
    XXH3_state_t *state;
    uint64_t position;   /* everything before it is hashed */
    uint64_t end;        /* of what is hashed while the records are checked */
    FshError unreadable; /* FSH_ERR_SYSTEM: what the disk did not give; then there is no hash */
} Hashing;

/* Hashes up to `end`. What cannot be read is passed over; a record that it belongs to reports it. */
static FshStatus hash_to(Hashing *hashing, uint64_t end, FshError *error)
{
    while (hashing->position < end) {
        uint64_t left = end - hashing->position;
        size_t length = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        const uint8_t *bytes = hashing->mapping->bytes + hashing->position;
        if (interrupt_requested())
            return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted");
        mapped_pages_note(bytes, length);
        const bool first = !hashing->unreadable.status;
        FshStatus status =
            fsh_populate(hashing->mapping, hashing->position, length, first ? &hashing->unreadable : NULL);
        if (!status && XXH3_128bits_update(hashing->state, bytes, length) == XXH_ERROR)
            return fsh_error_set(error, FSH_ERR_LIBRARY, "XXH3 failed");
        hashing->position += length;
    }
    return FSH_OK;
}

/* ---- records ---- */

static FshHash128 hash_bytes(const void *bytes, size_t length)
{
    FshHash128 hash;
    hash = fsh_hash_bytes(bytes, length);
    return hash;
}

/* Returns the hash of all payloads, without their padding. */
static FshHash128 hash_contents(const FshSample *sample)
{
    FshHash128 hashes[FSH_FIELDS_MAX];
    for (unsigned i = 0; i < sample->field_count; i++)
        hashes[i] = hash_bytes(sample->fields[i].data, sample->fields[i].bytes);
    return sample->field_count == 1 ? hashes[0] : hash_bytes(hashes, sample->field_count * sizeof *hashes);
}

/* Notes a record for what is counted and compared, if it is a sample. */
static void note_record(const FileCheck *check, FileReport *report, uint64_t record, const FshSample *sample)
{
    if (check->updated && fsh_rows_hold(check->info->removed, check->info->removed_count, record))
        return;
    if (report->counted && check->counting && !check->counting->add(sample, report->counted)) {
        free(report->counted);
        report->counted = NULL;
    }
    if (report->keys)
        report->keys[record] = hash_bytes(sample->key, sample->key_bytes);
    if (report->contents)
        report->contents[record] = hash_contents(sample);
}

/* Checks a sample of a container without records: its structure, and the CRCs that a .json of ours tells. */
static FshStatus check_foreign_record(const FileCheck *check, FileReport *report, uint64_t record,
                                      FshError *error)
{
    const SplitFile *file = &report->file;
    FshSample sample;
    RecordHead head;
    FshError found = {0};
    bool readable = fsh_split_file_sample(file, record, &sample, &head, &found) == FSH_OK;
    if (readable)
        (void)fsh_split_file_verify(file, record, &found);
    if (!found.status) {
        note_record(check, report, record, &sample);
        return FSH_OK;
    }
    (void)fsh_error_prepend(&found, "at byte %" PRIu64,
                            fsh_index_row_load(file->rows + record * INDEX_ROW_BYTES).offset);
    return fsh_report_found(report, (int64_t)record, readable ? &sample : NULL, &found, error);
}

static FshStatus check_record(const FileCheck *check, FileReport *report, const Metadata *metadata,
                              uint64_t record, FshError *error)
{
    const SplitFile *file = &report->file;
    IndexRow row = fsh_index_row_load(file->rows + record * INDEX_ROW_BYTES);
    const uint8_t *bytes = file->mapping.bytes + row.offset;
    const bool rows_tell = !container_has(check->container, CONTAINER_LABELS_IN_RECORDS);
    FshSample sample;
    RecordHead head;
    FshError found; /* not cleared whole: that is a kilobyte for every record */
    found.status = FSH_OK;
    found.system_errno = 0;
    found.message[0] = '\0';
    if (fsh_record_parse(bytes, row.record_bytes, file->record_form, &sample, &head, &found)) {
        if (fsh_split_file_check_read(file, record, &found) == FSH_OK)
            (void)fsh_error_prepend(&found, "at byte %" PRIu64, row.offset);
        return fsh_report_found(report, (int64_t)record, NULL, &found, error);
    }
    if (fsh_record_verify(bytes, &sample, &head, &found)) {
        (void)fsh_split_file_check_read(file, record, &found); /* meanwhile: why it was wrong */
        return fsh_report_found(report, (int64_t)record, &sample, &found, error);
    }
    if (head.record_bytes != row.record_bytes ||
        (rows_tell && (head.label != row.label || head.crc != row.crc)))
        (void)fsh_error_set(&found, FSH_ERR_CORRUPT,
                            "its index row says %" PRIu64 " bytes, label %" PRId64 ", CRC32C %08" PRIx32
                            ", the record %" PRIu64 ", %" PRId64 ", %08" PRIx32,
                            row.record_bytes, row.label, row.crc, head.record_bytes, head.label, head.crc);
    else
        (void)fsh_record_fits(&sample, metadata, &found);
    if (found.status)
        return fsh_report_found(report, (int64_t)record, &sample, &found, error);
    sample.label = fsh_updated_label(file, sample.label);
    note_record(check, report, record, &sample);
    if (!rows_tell && report->class_counts && head.label >= 0)
        report->class_counts[head.label]++;
    return FSH_OK;
}

/* Returns whether a record can be read from the disk. If not, reports that; *status_ret is the status of the
 * report. */
static bool is_readable(FileReport *report, uint64_t record, FshStatus *status_ret, FshError *error)
{
    FshError found = {0};
    if (fsh_split_file_populate(&report->file, record, &found) == FSH_OK)
        return true;
    *status_ret = fsh_report_found(report, (int64_t)record, NULL, &found, error);
    return false;
}

static FshStatus check_records(const FileCheck *check, FileReport *report, const Metadata *metadata,
                               Hashing *hashing, FshError *error)
{
    const SplitFile *file = &report->file;
    FshStatus status = FSH_OK;
    for (uint64_t i = 0; i < file->record_count && !status; i++) {
        /* The hash runs ahead of the records, so that their bytes come from the disk once: by a piece at
         * least, since a record of a kilobyte takes less time than asking for its page. Of a tar's sample,
         * whose members may lie apart, it need not reach the end. */
        if (hashing->position < hashing->end) {
            IndexRow row = fsh_index_row_load(file->rows + i * INDEX_ROW_BYTES);
            const uint64_t end = row.offset + row.record_bytes, piece = hashing->position + PIECE_BYTES;
            const uint64_t ahead = end > piece ? end : piece;
            if (end > hashing->position)
                status = hash_to(hashing, ahead < hashing->end ? ahead : hashing->end, error);
        }
        if (status || (hashing->unreadable.status && !is_readable(report, i, &status, error)))
            continue;
        status = container_has(check->container, FSH_HAS_METADATA)
                     ? check_record(check, report, metadata, i, error)
                     : check_foreign_record(check, report, i, error);
    }
    return status;
}

/* ---- the whole file ---- */

/* Checks the hash of the whole file, and the records where asked for or where the hash is wrong. The file is
 * indexed. */
static FshStatus check_contents(const FileCheck *check, FileReport *report, const Metadata *metadata,
                                Hashing *hashing, FshError *error)
{
    SplitFile *file = &report->file;
    const bool has_hash = container_has(check->container, FSH_HAS_HASH);
    bool every_record = check->level >= FSH_CHECK_RECORDS;
    const size_t problems_before = report->problem_count;
    const FshHash128 *stored = has_hash                       ? &file->hash
                               : check->info && !report->torn ? &check->info->hash
                                                              : NULL;
    FshStatus status = FSH_OK;
    if (every_record) {
        report->keys = calloc(file->record_count + 1, sizeof *report->keys);
        report->contents =
            check->with_contents ? calloc(file->record_count + 1, sizeof *report->contents) : NULL;
        const bool counts = check->counting && container_has(check->container, FSH_HAS_METADATA);
        report->counted = counts ? calloc(1, check->counting->own_bytes) : NULL;
        if (!report->keys || (check->with_contents && !report->contents) || (counts && !report->counted))
            return out_of_memory(error);
    }
    const size_t mapping_count = fsh_split_file_mapping_count(file);
    if (mapping_count == 1) /* else records lie in several, and all are hashed before */
        hashing->end = has_hash ? file->hashed_bytes : file->mapping.length;
    for (size_t i = 0; i < mapping_count && mapping_count > 1 && !status; i++) {
        hashing->mapping = fsh_split_file_mapping(file, i);
        hashing->position = 0;
        status = hash_to(hashing, hashing->mapping->length, error);
    }
    if (every_record && !status)
        status = check_records(check, report, metadata, hashing, error);
    if (!status)
        status = hash_to(hashing, hashing->end, error);
    if (!status && hashing->unreadable.status && !every_record)
        status = check_records(check, report, metadata, hashing, error); /* tell which */
    if (status)
        return status;
    if (hashing->unreadable.status) /* a record's own message says more */
        return report->problem_count > problems_before
                   ? FSH_OK
                   : fsh_report_found(report, -1, NULL, &hashing->unreadable, error);
    report->hash = fsh_hash_taken(hashing->state);
    if (!stored || fsh_hash_equal(&report->hash, stored))
        return FSH_OK;
    if (!every_record) /* tell which records, now that something is wrong */
        status = check_records(check, report, metadata, hashing, error);
    if (status || report->problem_count > problems_before) /* a record's own message says more */
        return status;
    char computed[FSH_HASH_TEXT_BYTES], expected[FSH_HASH_TEXT_BYTES], reason[256];
    fsh_hash_format(&report->hash, computed);
    fsh_hash_format(stored, expected);
    (void)snprintf(reason, sizeof reason, "XXH3-128 is %s, %s says %s: bytes were changed", computed,
                   has_hash ? "its footer" : "the manifest", expected);
    return fsh_report_add(report, FSH_ERR_CORRUPT, -1, NULL, reason, error);
}

/* Counts the samples of a shard of an updated dataset, in the dataset's classes. */
static FshStatus count_updated(const FileCheck *check, FileReport *report, FshError *error)
{
    FshError found = {0};
    free(report->class_counts);
    FshStatus status = fsh_report_classes(report, check->expected->class_count, error);
    if (!status && fsh_updated_count(&report->file, check->info, report->class_counts, &found))
        status = fsh_report_found(report, -1, NULL, &found, error);
    return status;
}

/* Reports that a header, footer or index could not be read from the disk, in place of the other problems:
 * they came of that. */
static FshStatus refuse_unread(FileReport *report, const FshError *found, FshError *error)
{
    drop_problems(report);
    report->indexed = false;
    return fsh_report_found(report, -1, NULL, found, error);
}

OpenRequest fsh_check_request(const FileCheck *check)
{
    const Metadata *expected = check->expected;
    if (!expected)
        return (OpenRequest){0};
    return (OpenRequest){.field_names = (const char *const *)expected->field_names,
                         .field_count = expected->field_count,
                         .written_by_us = true};
}

FshStatus fsh_check_file(const FileCheck *check, FileReport *report, FshError *error)
{
    Metadata metadata = {0};
    Hashing hashing = {.mapping = &report->file.mapping};
    FshError found = {0};
    fsh_report_empty(report);
    FshStatus status = check->container->check(check, report, &metadata, error);
    if (!status && fsh_split_file_check_all_read(&report->file, &found)) {
        status = refuse_unread(report, &found, error);
        goto done;
    }
    if (status || !report->indexed)
        goto done;
    if (check->info && !report->torn && /* else that explains the rest */
        fsh_split_file_compare(&report->file, check->info, check->file_index, check->file_count, &found))
        status = fsh_report_found(report, -1, NULL, &found, error);
    if (!status && check->updated)
        status = count_updated(check, report, error);
    hashing.state = XXH3_createState();
    if (!hashing.state || XXH3_128bits_reset(hashing.state) == XXH_ERROR) {
        status = out_of_memory(error);
        goto done;
    }
    size_t problems_before = report->problem_count;
    if (!status)
        status = check_contents(check, report, &metadata, &hashing, error);
    if (container_has(check->container, CONTAINER_LABELS_IN_RECORDS) &&
        report->problem_count > problems_before) {
        free(report->class_counts); /* damaged records were not counted */
        report->class_counts = NULL;
    }
done:
    (void)XXH3_freeState(hashing.state);
    fsh_metadata_free(&metadata);
    return status;
}
