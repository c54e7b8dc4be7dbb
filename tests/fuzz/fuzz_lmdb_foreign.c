/* data.mdb of others: the walk over all entries, folder2lmdb's table, and BasicSR's with the meta_info.txt
 * that the keys would have. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/file.h"
#include "formats/basicsr.h"
#include "formats/folder2lmdb.h"
#include "formats/lmdb_reader.h"
#include "formats/sample_table.h"
#include "tests/fuzz/fuzz.h"

typedef struct Walked {
    uint64_t length, count;
    bool in_order;
    LmdbEntry last_entry;
    Buffer meta;
} Walked;

static FshStatus visit(const LmdbEntry *entry, void *context, FshError *error)
{
    Walked *walked = context;
    fuzz_touch(entry->key, entry->key_bytes);
    fuzz_expect(entry->offset <= walked->length && entry->bytes <= walked->length - entry->offset,
                "a value lies within the file");
    if (walked->count++) {
        const LmdbEntry *last = &walked->last_entry;
        size_t least = last->key_bytes < entry->key_bytes ? last->key_bytes : entry->key_bytes;
        int order = memcmp(last->key, entry->key, least);
        walked->in_order &= order < 0 || (order == 0 && last->key_bytes < entry->key_bytes);
    }
    walked->last_entry = *entry;
    FshStatus status = buffer_append(&walked->meta, entry->key, entry->key_bytes, error);
    return status ? status : buffer_append(&walked->meta, ".png (2,3,3) 1\n", 15, error);
}

static void read_table(SampleTable *table, const uint8_t *bytes, size_t length)
{
    const FileMapping file = {.bytes = bytes, .length = length};
    const FileMapping *sides[FSH_FIELDS_MAX] = {&file, &file};
    for (uint64_t record = 0; record < table->sample_count; record++) {
        FshSample sample = {0};
        FshError error = {0};
        if (fsh_table_sample(table, sides, record, &sample, &error) == FSH_OK) {
            fuzz_touch(sample.key, sample.key_bytes);
            fuzz_touch(sample.fields[0].data, sample.fields[0].bytes);
        }
        (void)fsh_table_verify(table, sides, record, false, &error);
    }
    fsh_table_free(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    Walked walked = {.length = length, .in_order = true};
    SampleTable table = {0};
    FshError error = {0};
    (void)fsh_folder2lmdb_sniff(bytes, length);
    if (fsh_folder2lmdb_table(&table, bytes, length, &error) == FSH_OK)
        read_table(&table, bytes, length);
    if (fsh_lmdb_walk(bytes, length, visit, &walked, &error) == FSH_OK) {
        fuzz_expect(walked.in_order, "keys are in order");
        const BasicsrSide side = {"blurry", bytes, length, (const char *)walked.meta.bytes,
                                  walked.meta.length};
        BasicsrSide sides[2] = {side, side};
        sides[1].name = "sharp";
        for (int decode = 0; decode < 2; decode++)
            if (fsh_basicsr_table(&table, sides, 2, decode, &error) == FSH_OK)
                read_table(&table, bytes, length);
    }
    buffer_free(&walked.meta);
    return 0;
}
