/* One record: its structure, its CRC; and that the format is canonical: what verifies is what a writer would
 * write. */
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "formats/record.h"
#include "tests/fuzz/fuzz.h"

enum { AT_CRC = 4, AT_RECORD_BYTES = 8 }; /* fshard(5) */

/* Returns the form that the magic bytes tell; "FRec" is compact. */
static FshRecordForm form_of(const uint8_t *bytes, size_t length)
{
    return length > 2 && bytes[2] == 'e' ? FSH_RECORD_COMPACT : FSH_RECORD_ALIGNED;
}

static void expect_within(const void *part, size_t part_bytes, const uint8_t *bytes, uint64_t length)
{
    const uint8_t *at = part;
    fuzz_expect(at >= bytes && at <= bytes + length && part_bytes <= (size_t)(bytes + length - at),
                "parts lie within the record");
    fuzz_touch(part, part_bytes);
}

static void rebuild(const uint8_t *bytes, const FshSample *sample, const RecordHead *head)
{
    FshError error = {0};
    fuzz_expect(fsh_record_bytes(sample, head->form) == head->record_bytes,
                "a sample takes as much as its record");
    void *built = malloc((size_t)head->record_bytes);
    fuzz_expect(built != NULL, "memory for a record");
    fuzz_expect_ok(fsh_record_build(sample, head->form, built, (size_t)head->record_bytes, &error), &error,
                   "fsh_record_build");
    fuzz_expect(memcmp(built, bytes, (size_t)head->record_bytes) == 0, "a record is built to the same bytes");
    free(built);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    FshSample sample = {0};
    RecordHead head = {0};
    FshError error = {0};
    if (fsh_record_parse(bytes, length, form_of(bytes, length), &sample, &head, &error) != FSH_OK)
        return 0;
    expect_within(sample.key, sample.key_bytes, bytes, head.record_bytes);
    for (unsigned i = 0; i < sample.field_count; i++) {
        expect_within(sample.fields[i].data, sample.fields[i].bytes, bytes, head.record_bytes);
        expect_within(sample.fields[i].source, sample.fields[i].source_bytes, bytes, head.record_bytes);
    }
    if (fsh_record_verify(bytes, &sample, &head, &error) == FSH_OK)
        rebuild(bytes, &sample, &head);
    return 0;
}

void fuzz_mend(uint8_t *bytes, size_t length, uint32_t choice)
{
    if (form_of(bytes, length) == FSH_RECORD_COMPACT) {
        FshSample sample;
        RecordHead head;
        if (fsh_record_parse(bytes, length, FSH_RECORD_COMPACT, &sample, &head, NULL) == FSH_OK)
            store_le32(bytes + AT_CRC,
                       fsh_crc32c(0, bytes + RECORD_CRC_BEGIN, (size_t)head.record_bytes - RECORD_CRC_BEGIN));
        return;
    }
    if (length < RECORD_BYTES_MIN)
        return;
    if (choice & 1)
        store_le64(bytes + AT_RECORD_BYTES, length & ~(size_t)(FSH_ALIGNMENT - 1));
    uint64_t record_bytes = load_le64(bytes + AT_RECORD_BYTES);
    if (record_bytes >= RECORD_BYTES_MIN && record_bytes <= length)
        store_le32(bytes + AT_CRC,
                   fsh_crc32c(0, bytes + AT_RECORD_BYTES, (size_t)record_bytes - AT_RECORD_BYTES));
}
