/* The container of our own LMDBs: opening one, and proving its structure. Bytes are lmdb_reader.c's. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "common/file.h"
#include "formats/check.h"
#include "formats/container.h"
#include "formats/dictionary.h"
#include "formats/lmdb_reader.h"
#include "formats/metadata.h"
#include "formats/split_file.h"
#include "formats/writer.h"

static void write_name(char *buffer, size_t buffer_bytes, const char *split, uint32_t index, uint32_t count)
{
    (void)index;
    (void)count;
    (void)snprintf(buffer, buffer_bytes, "%s.lmdb", split);
}

static bool sniff(const char *path, const FileMapping *data)
{
    (void)path;
    return fsh_lmdb_sniff(data->bytes, data->length);
}

static bool owns(const FshManifest *manifest, const char *name)
{
    (void)manifest;
    return strcmp(name, LMDB_DATA_NAME) == 0 || strcmp(name, "lock.mdb") == 0;
}

/* Moves what was read into the file; the view is empty then. */
static void take_view(SplitFile *file, LmdbView *lmdb)
{
    file->metadata = lmdb->metadata;
    file->metadata_bytes = lmdb->metadata_bytes;
    file->dictionary = lmdb->dictionary;
    file->dictionary_bytes = lmdb->dictionary_bytes;
    file->record_count = lmdb->record_count;
    file->own_rows = lmdb->rows;
    file->rows = lmdb->rows.bytes;
    file->tree = lmdb->tree;
    *lmdb = (LmdbView){0};
}

/* Asks the kernel to read around the pages that are touched, as it does for mapped files, or not to. Not
 * wanted while the tree is read: its pages lie scattered among those of the values, and reading around each
 * would bring in most of a file that is not in memory. MDB_NORDAHEAD turns it off for the values too; but a
 * value of many pages is read in one go, 4 times as fast as page by page. */
static void read_around(const FileMapping *mapping, bool wanted)
{
    if (mapping->length)
        (void)madvise((void *)mapping->bytes, (size_t)mapping->length, wanted ? MADV_NORMAL : MADV_RANDOM);
}

static FshStatus check_count(const SplitFile *file, uint64_t count, FshError *error)
{
    return count == file->record_count
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_CORRUPT,
                               "holds %" PRIu64 " samples, not the %" PRIu64 " its metadata says",
                               file->record_count, count);
}

static FshStatus parse(SplitFile *file, const OpenRequest *request, Metadata *metadata, FshError *error)
{
    LmdbView lmdb = {0};
    uint64_t count = 0;
    read_around(&file->mapping, false);
    /* The id of one without a manifest is made of all its records. */
    FshStatus status = (request->expected ? fsh_lmdb_open : fsh_lmdb_parse)(&lmdb, file->mapping.bytes,
                                                                            file->mapping.length, error);
    read_around(&file->mapping, true);
    take_view(file, &lmdb);
    if (!status)
        status = fsh_record_file_take(file, request, metadata, &count, error);
    return status ? status : check_count(file, count, error);
}

/* ---- proving ---- */

static FshStatus check_structure(const FileCheck *check, FileReport *report, Metadata *metadata_ret,
                                 FshError *error)
{
    SplitFile *file = &report->file;
    LmdbView lmdb = {0};
    FshError found = {0};
    uint64_t count = 0;
    FshStatus status = FSH_OK;
    if (fsh_lmdb_parse(&lmdb, file->mapping.bytes, file->mapping.length, &found))
        return fsh_report_found(report, -1, NULL, &found, error);
    take_view(file, &lmdb);
    if (fsh_metadata_parse(metadata_ret, file->metadata, file->metadata_bytes, &count, &found))
        return fsh_report_found(report, -1, NULL, &found, error);
    if (!check_count(file, count, &found) && check->expected)
        (void)fsh_metadata_compare(file->metadata, file->metadata_bytes, &count, check->expected, &found);
    if (!found.status)
        (void)fsh_dictionary_check(file->dictionary, file->dictionary_bytes, &metadata_ret->dictionary,
                                   &found);
    if (check->level >= FSH_CHECK_RECORDS) /* labels are in the records only */
        status = fsh_report_classes(report, metadata_ret->class_count, error);
    if (status)
        return status;
    report->indexed = true;
    return found.status ? fsh_report_found(report, -1, NULL, &found, error) : FSH_OK;
}

const Container fsh_lmdb_container = {
    .id = FSH_CONTAINER_LMDB,
    .name = "lmdb",
    .one = "LMDB",
    .many = "LMDBs",
    .facts = FSH_HAS_METADATA | FSH_HAS_CHECKSUMS | FSH_HAS_SIZES | FSH_HAS_CLASSES | FSH_HAS_RAW |
             FSH_HAS_COMPRESSION | CONTAINER_LABELS_IN_RECORDS | CONTAINER_COUNTS,
    .suffix = ".lmdb",
    .data_name = LMDB_DATA_NAME,
    .writer = &fsh_lmdb_writer,
    .sniff = sniff,
    .write_name = write_name,
    .open = fsh_record_file_open,
    .parse = parse,
    .sample = fsh_record_file_sample,
    .verify = fsh_record_file_verify,
    .stretches = fsh_record_file_stretches,
    .check = fsh_record_file_check,
    .check_structure = check_structure,
    .owns = owns,
};
