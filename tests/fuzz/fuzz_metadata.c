/* What a file says of itself: JSON of a shard (no count) and of an LMDB (a count). What is read can be
 * written, and what was written is the same. */
#include <stdlib.h>

#include "formats/metadata.h"
#include "tests/fuzz/fuzz.h"

static void read_and_write(const char *text, size_t bytes, bool counted)
{
    Metadata metadata = {0};
    FshError error = {0};
    uint64_t count = 0, count_again = 0;
    char *written = NULL;
    size_t written_bytes = 0;
    if (fsh_metadata_parse(&metadata, text, bytes, counted ? &count : NULL, &error) != FSH_OK)
        return;
    fuzz_expect(metadata.field_count >= 1 && metadata.field_count <= FSH_FIELDS_MAX, "there are fields");
    fuzz_expect_ok(fsh_metadata_compare(text, bytes, counted ? &count_again : NULL, &metadata, &error),
                   &error, "fsh_metadata_compare with what was read");
    fuzz_expect(count == count_again, "the count is the same");
    if (count <= INT64_MAX) {
        fuzz_expect_ok(fsh_metadata_encode(&metadata, counted ? (int64_t)count : METADATA_NO_COUNT, &written,
                                           &written_bytes, &error),
                       &error, "fsh_metadata_encode");
        fuzz_expect_ok(
            fsh_metadata_compare(written, written_bytes, counted ? &count_again : NULL, &metadata, &error),
            &error, "fsh_metadata_compare with what was written");
        fuzz_expect(count == count_again, "the count is written");
    }
    free(written);
    fsh_metadata_free(&metadata);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    read_and_write((const char *)bytes, length, false);
    read_and_write((const char *)bytes, length, true);
    return 0;
}
