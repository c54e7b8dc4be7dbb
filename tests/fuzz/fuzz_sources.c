/* What the samples of a shard were made of (.NAME.sources): every row lies in the bytes, and is written again
 * no longer than it was. And which rows of a shard are no samples: a text that is read is written as it
 * was. */
#include <string.h>

#include "formats/source_list.h"
#include "formats/updated.h"
#include "formats/xxh3.h"
#include "tests/fuzz/fuzz.h"

enum { HASH_BYTES = 16 };

/* Renews the checksum at the end. */
void fuzz_mend(uint8_t *bytes, size_t length, uint32_t choice)
{
    if (length < HASH_BYTES || !(choice & 1))
        return;
    const FshHash128 hash = fsh_hash_bytes(bytes, length - HASH_BYTES);
    memcpy(bytes + length - HASH_BYTES, hash.bytes, HASH_BYTES);
}

static void read_sources(const uint8_t *bytes, size_t length)
{
    SourcesView view;
    FshError error = {0};
    Buffer row = {0};
    FshStatus status = fsh_sources_parse(&view, bytes, length, &error);
    if (status)
        return;
    fuzz_touch(view.head.root, view.head.root_bytes);
    fuzz_touch(view.head.statistics, view.head.statistics_bytes);
    while (!status && view.next < view.head.record_count) {
        const uint8_t *begin = view.at;
        SourceRecord record;
        status = fsh_sources_next(&view, &record, &error);
        if (status)
            break;
        fuzz_expect(record.key_bytes > 0 && record.field_count == view.head.field_count,
                    "a record has a key and fields");
        fuzz_touch(record.key, record.key_bytes);
        for (unsigned i = 0; i < record.field_count; i++)
            fuzz_touch(record.fields[i].path, record.fields[i].path_bytes);
        row.length = 0;
        fuzz_expect_ok(fsh_sources_add(&row, &record, &error), &error, "fsh_sources_add");
        /* The key may stand where a writer would not have put it: then the row is another one. */
        fuzz_expect(row.length <= (size_t)(view.at - begin), "a row is not written longer than it was");
    }
    fuzz_expect(status || view.at == view.end, "the rows end with the last record");
    buffer_free(&row);
}

static void read_rows(const uint8_t *bytes, size_t length)
{
    char text[512];
    FshRowRange *ranges = NULL;
    size_t count = 0;
    FshError error = {0};
    Buffer again = {0};
    if (length >= sizeof text || memchr(bytes, '\0', length))
        return;
    memcpy(text, bytes, length);
    text[length] = '\0';
    if (fsh_rows_parse(text, &ranges, &count, &error))
        return;
    uint64_t rows = 0;
    for (size_t i = 0; i < count; i++) {
        rows += ranges[i].count;
        fuzz_expect(fsh_rows_hold(ranges, count, ranges[i].first), "a range holds its first row");
        fuzz_expect(!fsh_rows_hold(ranges, count, (uint64_t)ranges[i].first + ranges[i].count),
                    "and not the one after its last");
    }
    fuzz_expect(rows == fsh_rows_count(ranges, count), "rows are counted");
    fuzz_expect_ok(fsh_rows_format(ranges, count, &again, &error), &error, "fsh_rows_format");
    fuzz_expect(again.length == length && memcmp(again.bytes, text, length) == 0,
                "what was read is written as it was");
    buffer_free(&again);
    free(ranges);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    read_sources(bytes, length);
    read_rows(bytes, length);
    return 0;
}
