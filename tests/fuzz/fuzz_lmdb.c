/* data.mdb of our own LMDBs: the walk over its pages, in memory that ends where the file ends, and the
 * records it finds; then as a dataset, mapped, by fsh_open and fsh_check. */
#include <string.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "formats/lmdb_reader.h"
#include "formats/metadata.h"
#include "formats/record.h"
#include "formats/shard.h"
#include "tests/fuzz/fuzz.h"

enum { AT_RECORD_CRC = 4, AT_RECORD_BYTES = 8 }; /* fshard(5) */

static void parse(const uint8_t *bytes, size_t length)
{
    LmdbView view;
    FshError error = {0};
    if (fsh_lmdb_parse(&view, bytes, length, &error) != FSH_OK)
        return;
    Metadata metadata = {0};
    uint64_t count = 0;
    (void)fsh_metadata_parse(&metadata, view.metadata, view.metadata_bytes, &count, &error);
    for (uint64_t i = 0; i < view.record_count; i++) {
        IndexRow row = fsh_index_row_load(view.rows.bytes + i * INDEX_ROW_BYTES);
        FshSample sample;
        RecordHead head;
        fuzz_expect(row.offset <= length && row.record_bytes <= length - row.offset,
                    "a value lies within the file");
        if (fsh_record_parse(bytes + row.offset, row.record_bytes, FSH_RECORD_ALIGNED, &sample, &head,
                             &error) == FSH_OK)
            (void)fsh_record_verify(bytes + row.offset, &sample, &head, &error);
    }
    fsh_metadata_free(&metadata);
    fsh_lmdb_free(&view);
}

/* By the tree alone: what it finds lies within the file, and is what the walk finds. */
static void find(const uint8_t *bytes, size_t length)
{
    LmdbView view, walked;
    FshError error = {0};
    const bool intact = fsh_lmdb_parse(&walked, bytes, length, NULL) == FSH_OK;
    const bool opened = fsh_lmdb_open(&view, bytes, length, &error) == FSH_OK;
    fuzz_expect(opened || !intact, "what the walk reads is opened");
    fuzz_expect(!intact || view.record_count == walked.record_count, "both count the same");
    for (uint64_t i = 0; opened && view.tree.bytes && i < view.record_count; i++) {
        IndexRow row;
        const bool found = fsh_lmdb_find(&view.tree, i, &row, &error) == FSH_OK;
        fuzz_expect(found || !intact, "what the walk finds is found");
        fuzz_expect(row.offset <= length && row.record_bytes <= length - row.offset,
                    "a value lies within the file");
        fuzz_expect(!intact ||
                        row.offset == fsh_index_row_load(walked.rows.bytes + i * INDEX_ROW_BYTES).offset,
                    "both find the same");
    }
    fsh_lmdb_free(&view);
    fsh_lmdb_free(&walked);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    parse(bytes, length);
    find(bytes, length);
    if (fsh_lmdb_sniff(bytes, length)) {
        FuzzFolder folder = fuzz_folder_open(LMDB_DATA_NAME, bytes, length);
        fuzz_dataset(folder.path);
        fuzz_folder_close(&folder);
    }
    return 0;
}

/* Renews every record's checksum; LMDB itself has none. */
void fuzz_mend(uint8_t *bytes, size_t length, uint32_t choice)
{
    LmdbView view;
    (void)choice;
    if (fsh_lmdb_parse(&view, bytes, length, NULL) != FSH_OK)
        return;
    for (uint64_t i = 0; i < view.record_count; i++) {
        IndexRow row = fsh_index_row_load(view.rows.bytes + i * INDEX_ROW_BYTES);
        if (row.record_bytes >= RECORD_BYTES_MIN)
            store_le32(bytes + row.offset + AT_RECORD_CRC,
                       fsh_crc32c(0, bytes + row.offset + AT_RECORD_BYTES,
                                  (size_t)row.record_bytes - AT_RECORD_BYTES));
    }
    fsh_lmdb_free(&view);
}
