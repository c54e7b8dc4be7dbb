/* A tar of samples (WebDataset) by our own parser: members, the table of samples, each sample; then as a
 * dataset by fsh_open and fsh_check. */
#include <string.h>

#include "common/file.h"
#include "formats/sample_table.h"
#include "formats/webdataset.h"
#include "tests/fuzz/fuzz.h"
#include "tar/tar_parse.h"

static void walk(const uint8_t *bytes, size_t length)
{
    TarSource source = tar_source_memory(bytes, length);
    TarCursor cursor = {.source = &source};
    TarMember member = {0};
    FshError error = {0};
    uint64_t end = 0;
    while (fsh_tar_next(&cursor, &member, &error) == FSH_OK && member.path) {
        fuzz_expect(strlen(member.path) == member.path_bytes, "a path has no zero byte");
        fuzz_expect(member.header_offset >= end && member.content > member.header_offset,
                    "members follow each other");
        fuzz_expect(member.content <= length && member.bytes <= length - member.content,
                    "a member lies within the tar");
        end = member.content + member.bytes;
    }
    fsh_tar_free(&cursor);
}

static void read_table(const uint8_t *bytes, size_t length)
{
    SampleTable table = {0};
    FshError error = {0};
    const FileMapping tar = {.bytes = bytes, .length = length};
    const FileMapping *sides[FSH_FIELDS_MAX];
    for (size_t i = 0; i < FSH_FIELDS_MAX; i++)
        sides[i] = &tar;
    FshError tear = {0};
    if (fsh_webdataset_table(&table, bytes, length, NULL, 0, true, &tear, &error) != FSH_OK)
        return;
    fuzz_expect(!tear.status || table.sample_count, "a tar that breaks off has samples before the place");
    for (uint64_t record = 0; record < table.sample_count; record++) {
        FshSample sample = {0};
        if (fsh_table_sample(&table, sides, record, &sample, &error) != FSH_OK)
            continue;
        fuzz_touch(sample.key, sample.key_bytes);
        fuzz_expect(sample.key_bytes > 0 && sample.label >= FSH_NO_LABEL && sample.label <= table.label_max,
                    "a sample has a key, and a label in range");
        for (unsigned i = 0; i < sample.field_count; i++) {
            fuzz_touch(sample.fields[i].data, sample.fields[i].bytes);
            fuzz_touch(sample.fields[i].source, sample.fields[i].source_bytes);
        }
        bool verified = fsh_table_verify(&table, sides, record, true, &error) == FSH_OK;
        fuzz_expect(!verified || fsh_table_verify(&table, sides, record, false, &error) == FSH_OK,
                    "what must verify and does, also may");
    }
    fsh_table_free(&table);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    walk(bytes, length);
    read_table(bytes, length);
    if (fsh_tar_sniff(bytes, length)) {
        FuzzFolder folder = fuzz_folder_open("train.tar", bytes, length);
        fuzz_dataset(folder.file);
        fuzz_folder_close(&folder);
    }
    return 0;
}
