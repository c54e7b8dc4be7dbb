/* A shard: header, metadata, footer, index and records by the parsers, in memory that ends where the file
 * ends; then as a dataset, mapped, by fsh_open and fsh_check. */
#include "common/file.h"
#include "formats/metadata.h"
#include "formats/record.h"
#include "formats/shard.h"
#include "tests/fuzz/fuzz.h"

static void parse(const uint8_t *bytes, size_t length)
{
    ShardView view;
    Metadata metadata = {0};
    Buffer own_rows = {0};
    FshError error = {0};
    bool torn = false;
    if (fsh_shard_parse_header(&view, bytes, length, &error) != FSH_OK)
        return;
    fuzz_expect(view.header_bytes <= length, "a header lies within its file");
    fuzz_touch(view.metadata, view.metadata_bytes);
    (void)fsh_shard_count_intact(&view);
    bool sound = fsh_shard_parse_footer(&view, &torn, &error) == FSH_OK;
    sound =
        fsh_metadata_parse(&metadata, view.metadata, view.metadata_bytes, NULL, &error) == FSH_OK && sound;
    if (sound && fsh_shard_check_index(&view, metadata.class_count, NULL, NULL, &error) == FSH_OK) {
        const uint8_t *rows = NULL;
        fuzz_expect_ok(fsh_shard_rows(&view, &own_rows, &rows, &error), &error, "fsh_shard_rows");
        for (uint64_t i = 0; i < view.record_count; i++) {
            IndexRow row = fsh_index_row_load(rows + i * INDEX_ROW_BYTES);
            FshSample sample;
            RecordHead head;
            fuzz_expect(row.offset <= length && row.record_bytes <= length - row.offset,
                        "a row of a sound index lies within the file");
            if (fsh_record_parse(bytes + row.offset, row.record_bytes, view.record_form, &sample, &head,
                                 &error) == FSH_OK)
                (void)fsh_record_verify(bytes + row.offset, &sample, &head, &error);
        }
    }
    buffer_free(&own_rows);
    fsh_metadata_free(&metadata);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    parse(bytes, length);
    if (fsh_shard_sniff(bytes, length)) { /* all else fsh_open takes for something else */
        FuzzFile file = fuzz_file_open(bytes, length);
        fuzz_dataset(file.path);
        fuzz_file_close(&file);
    }
    return 0;
}
