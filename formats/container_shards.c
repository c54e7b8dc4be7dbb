/* The container of shards: opening one, and proving its structure. Bytes are shard.c's. */
#include <inttypes.h>
#include <stdio.h>

#include "common/file.h"
#include "common/text.h"
#include "formats/check.h"
#include "formats/container.h"
#include "formats/dictionary.h"
#include "formats/metadata.h"
#include "formats/shard.h"
#include "formats/split_file.h"
#include "formats/updated.h"
#include "formats/writer.h"

static void write_name(char *buffer, size_t buffer_bytes, const char *split, uint32_t index, uint32_t count)
{
    (void)snprintf(buffer, buffer_bytes, "%s-%05" PRIu32 "-of-%05" PRIu32 ".fshard", split, index, count);
}

static bool sniff(const char *path, const FileMapping *data)
{
    (void)path;
    return fsh_shard_sniff(data->bytes, data->length);
}

/* Copies what the header says into the file. */
static void take_header(SplitFile *file, const ShardView *shard)
{
    file->metadata = shard->metadata;
    file->metadata_bytes = shard->metadata_bytes;
    file->dictionary = shard->dictionary;
    file->dictionary_bytes = shard->dictionary_bytes;
    file->record_form = shard->record_form;
    file->shard_index = shard->shard_index;
    file->shard_count = shard->shard_count;
}

/* Copies what the footer says into the file, and makes its index rows. FSH_ERR_MEMORY. */
static FshStatus take_footer(SplitFile *file, const ShardView *shard, FshError *error)
{
    file->hash = shard->hash;
    file->hashed_bytes = shard->footer_offset;
    file->record_count = shard->record_count;
    return fsh_shard_rows(shard, &file->own_rows, &file->rows, error);
}

static FshStatus parse(SplitFile *file, const OpenRequest *request, Metadata *metadata, FshError *error)
{
    ShardView shard = {0};
    bool torn = false;
    FshStatus status = fsh_shard_parse_header(&shard, file->mapping.bytes, file->mapping.length, error);
    take_header(file, &shard);
    if (!status)
        status = fsh_record_file_take(file, request, metadata, NULL, error);
    if (!status)
        status = fsh_shard_parse_footer(&shard, &torn, error);
    const size_t class_count = file->labels        ? file->label_count
                               : request->expected ? request->expected->class_count
                                                   : metadata->class_count;
    if (!status)
        status = fsh_shard_check_index(&shard, class_count, NULL, NULL, error);
    if (!status)
        status = take_footer(file, &shard, error);
    return status || !request->updated ? status : fsh_updated_take(file, request->updated, error);
}

/* ---- proving ---- */

/* Reports a shard that cannot be used by its index, and what is left of it. */
static FshStatus add_with_intact(FileReport *report, const ShardView *shard, int64_t row,
                                 const FshError *found, FshError *error)
{
    char reason[sizeof found->message + 64];
    const uint64_t intact = fsh_shard_count_intact(shard);
    (void)snprintf(reason, sizeof reason, "%s; %" PRIu64 " intact record%s can be recovered", found->message,
                   intact, text_plural(intact));
    return fsh_report_add(report, found->status, row, NULL, reason, error);
}

/* Checks header, metadata, footer and index, and reports each problem by itself. Fills *metadata_ret. */
static FshStatus check_structure(const FileCheck *check, FileReport *report, Metadata *metadata_ret,
                                 FshError *error)
{
    SplitFile *file = &report->file;
    ShardView shard = {0};
    FshError found = {0};
    if (fsh_shard_parse_header(&shard, file->mapping.bytes, file->mapping.length, &found))
        return fsh_report_found(report, -1, NULL, &found, error);
    take_header(file, &shard);
    bool readable =
        fsh_metadata_parse(metadata_ret, shard.metadata, shard.metadata_bytes, NULL, &found) == FSH_OK;
    if (readable && check->updated)
        (void)fsh_updated_fit(file, metadata_ret, check->expected, check->info, &found);
    else if (readable && check->expected)
        (void)fsh_metadata_compare(shard.metadata, shard.metadata_bytes, NULL, check->expected, &found);
    if (readable && !found.status)
        (void)fsh_dictionary_check(shard.dictionary, shard.dictionary_bytes, &metadata_ret->dictionary,
                                   &found);
    FshStatus status = found.status ? fsh_report_found(report, -1, NULL, &found, error) : FSH_OK;
    bool torn = false;
    if (!status && fsh_shard_parse_footer(&shard, &torn, &found))
        return add_with_intact(report, &shard, -1, &found, error);
    if (status || !readable)
        return status;
    status = fsh_report_classes(report, metadata_ret->class_count, error);
    if (status)
        return status;
    int64_t row = -1;
    if (fsh_shard_check_index(&shard, report->class_count, report->class_counts, &row, &found))
        return add_with_intact(report, &shard, row, &found, error);
    status = take_footer(file, &shard, error);
    report->indexed = !status;
    return status;
}

const Container fsh_shards_container = {
    .id = FSH_CONTAINER_SHARDS,
    .name = "shards",
    .one = "shard",
    .many = "shards",
    .facts = FSH_HAS_METADATA | FSH_HAS_CHECKSUMS | FSH_HAS_HASH | FSH_HAS_SIZES | FSH_HAS_CLASSES |
             FSH_HAS_SHARDS | FSH_HAS_RAW | FSH_HAS_COMPRESSION | FSH_HAS_COMPACT | FSH_HAS_SOURCES |
             CONTAINER_CONTIGUOUS,
    .suffix = ".fshard",
    .writer = &fsh_shard_writer,
    .sniff = sniff,
    .write_name = write_name,
    .open = fsh_record_file_open,
    .parse = parse,
    .sample = fsh_record_file_sample,
    .verify = fsh_record_file_verify,
    .stretches = fsh_record_file_stretches,
    .check = fsh_record_file_check,
    .check_structure = check_structure,
};
