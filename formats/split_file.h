/* split_file.h - one file of a split, mapped, whatever its container (container.h). */
#ifndef FSHARD_FORMATS_SPLIT_FILE_H
#define FSHARD_FORMATS_SPLIT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/file.h"
#include "formats/fshard.h"
#include "formats/lmdb_reader.h"
#include "formats/metadata.h"
#include "formats/record.h"
#include "formats/sample_table.h"

typedef struct Container Container;
struct OpenRequest;

typedef struct SplitFile {
    const Container *container;
    FileMapping mapping;
    FileMapping *others; /* BasicSR has several: see fsh_split_file_mapping; owned */
    size_t other_count;
    uint64_t first; /* index in the split of this file's first record */
    uint64_t record_count;
    /* record_count index rows: of the shard, or in own_rows. An LMDB's have no labels and no CRCs; those of
     * tables have the label, the first field's offset and the bytes of all fields, without CRC. NULL for an
     * LMDB that is not checked: each row is found in its tree. See fsh_split_file_index_row. */
    const uint8_t *rows;
    Buffer own_rows;
    LmdbTree tree; /* of an LMDB without rows */
    /* What a file of records says of itself: */
    const char *metadata; /* JSON, not NUL-terminated */
    size_t metadata_bytes;
    const uint8_t *dictionary;
    size_t dictionary_bytes; /* 0: none */
    FshRecordForm record_form;
    uint32_t shard_index, shard_count; /* shard_count 0: it does not say */
    /* FSH_HAS_HASH: */
    FshHash128 hash;
    uint64_t hashed_bytes; /* from the file's first on */
    /* All others: */
    SampleTable table;
    bool written_by_us; /* a manifest lists it, so a tar's .json must tell the CRCs */
    /* of an updated dataset (updated.h): the labels that its classes, label_count of them, have in the
     * dataset, NULL where they are the same; the row of each record, where some are no samples; both owned */
    int32_t *labels;
    size_t label_count;
    uint32_t *numbers;
    /* of a joined dataset (join.c): what each class of the file's own dataset is in it; NULL: the same;
     * borrowed */
    const int32_t *joined_labels;
    size_t joined_label_count;
} SplitFile;

/* Maps and parses path. Messages begin with the path. On failure *file is closed. (container.h) */
FshStatus fsh_split_file_open(SplitFile *file, const char *path, const Container *container,
                              const struct OpenRequest *request, FshError *error);
/* Returns the row that a record has in the file itself, where an updated dataset leaves rows out. */
static inline uint64_t fsh_split_file_row(const SplitFile *file, uint64_t record)
{
    return file->numbers ? file->numbers[record] : record;
}
/* Finds the index row of a record: *row_ret, zero on failure. Fails for LMDBs only, where the way to it is
 * damaged, FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED, or could not be read, FSH_ERR_SYSTEM. */
FshStatus fsh_split_file_index_row(const SplitFile *file, uint64_t record, IndexRow *row_ret,
                                   FshError *error);
/* Returns the label of a record, from its index row or, where that has none, from the record itself;
 * FSH_NO_LABEL where it cannot be found. */
int64_t fsh_split_file_label(const SplitFile *file, uint64_t record);
/* Checks that the opened file is the one that the manifest lists as file_index of file_count; file_count 0:
 * of an updated dataset, in which it may have any number. FSH_ERR_CORRUPT; the message names no file. */
FshStatus fsh_split_file_compare(const SplitFile *file, const FshFileInfo *info, size_t file_index,
                                 size_t file_count, FshError *error);
void fsh_split_file_close(SplitFile *file);
/* Returns how many mappings the file has, in the order in which they are hashed: BasicSR data.mdb and
 * meta_info.txt for each field, every other container one. */
size_t fsh_split_file_mapping_count(const SplitFile *file);
const FileMapping *fsh_split_file_mapping(const SplitFile *file, size_t index);
/* Returns the bytes of all mappings. */
uint64_t fsh_split_file_bytes(const SplitFile *file);
/* Reads a record of the file, whatever the container: the sample (its index excepted) and what its record or
 * index says. Checks its structure. FSH_ERR_CORRUPT; the message names no place. */
FshStatus fsh_split_file_sample(const SplitFile *file, uint64_t record, FshSample *sample, RecordHead *head,
                                FshError *error);
/* Reads all of that record, and compares its checksums where the container has any. */
FshStatus fsh_split_file_verify(const SplitFile *file, uint64_t record, FshError *error);
/* Checks whether what was read of that record, or of the whole file, was there: FSH_ERR_SYSTEM where the disk
 * failed, or the file was cut short (common/read_fault.h). The message names the byte. */
FshStatus fsh_split_file_check_read(const SplitFile *file, uint64_t record, FshError *error);
FshStatus fsh_split_file_check_all_read(const SplitFile *file, FshError *error);
/* Reads that record into the page cache and maps it, as fsh_populate. */
FshStatus fsh_split_file_populate(const SplitFile *file, uint64_t record, FshError *error);

/* Makes the index rows of a file whose table is made. FSH_ERR_MEMORY. (table_file.c) */
FshStatus fsh_table_rows(SplitFile *file, FshError *error);

#endif
