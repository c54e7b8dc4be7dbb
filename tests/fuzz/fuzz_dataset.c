#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/fshard.h"
#include "tests/fuzz/fuzz.h"

typedef struct Seen {
    uint64_t problem_count;
} Seen;

static void visit(const FshProblem *problem, void *context)
{
    Seen *seen = context;
    seen->problem_count++;
    fuzz_expect(problem->status != FSH_OK, "a problem has a status");
    fuzz_touch(problem->file, strlen(problem->file));
    fuzz_touch(problem->reason, strlen(problem->reason));
    if (problem->key)
        fuzz_touch(problem->key, strlen(problem->key));
    if (problem->source)
        fuzz_touch(problem->source, strlen(problem->source));
}

/* Returns whether the sample can be read and is intact; wrong has the reason where it is not. */
static bool read_sample(const FshSplit *split, uint64_t index, FshUnpacker *unpacker, FshError *wrong)
{
    char where[256];
    FshSample sample;
    FshError error = {0};
    int64_t label = fsh_sample_label(split, index);
    int64_t class_count = (int64_t)fsh_manifest(split->dataset)->class_count;
    fuzz_expect(label == FSH_NO_LABEL || (label >= 0 && label < class_count), "a label is in range");
    fuzz_touch(where, strlen(fsh_sample_where(split, index, where, sizeof where)));
    bool readable = fsh_sample_get(split, index, &sample, wrong) == FSH_OK;
    bool intact = fsh_sample_verify(split, index, wrong) == FSH_OK;
    fuzz_expect(readable || !intact, "what cannot be read is not intact");
    if (!readable)
        return false;
    fuzz_expect(sample.index == index && sample.label == label, "index and label are those of the row");
    fuzz_expect(sample.field_count >= 1 && sample.field_count <= FSH_FIELDS_MAX, "a sample has fields");
    fuzz_touch(sample.key, sample.key_bytes);
    for (unsigned i = 0; i < sample.field_count; i++) {
        const FshField *field = &sample.fields[i];
        const void *data = NULL;
        size_t bytes = 0;
        fuzz_touch(field->data, field->bytes);
        fuzz_touch(field->source, field->source_bytes);
        fuzz_expect(strcmp(fsh_codec_name(field->codec), "unknown") != 0, "a codec is known");
        if (fsh_field_unpack(unpacker, split, field, &data, &bytes, &error) == FSH_OK) {
            fuzz_expect(bytes == field->unpacked_bytes, "a field unpacks to what it says");
            fuzz_touch(data, bytes);
        }
    }
    return intact;
}

static bool read_split(const FshSplit *split, FshError *wrong)
{
    FshUnpacker *unpacker = NULL;
    FshSample sample;
    FshError error = {0};
    bool intact = true;
    fuzz_expect_ok(fsh_unpacker_new(&unpacker, &error), &error, "fsh_unpacker_new");
    for (uint64_t i = 0; i < split->sample_count; i++)
        intact &= read_sample(split, i, unpacker, wrong);
    fuzz_expect(fsh_sample_get(split, split->sample_count, &sample, &error) == FSH_ERR_NOT_FOUND,
                "there is nothing behind the last sample");
    (void)fsh_split_bytes(split);
    fsh_unpacker_free(&unpacker);
    return intact;
}

void fuzz_dataset(const char *path)
{
    FshDataset *dataset = NULL;
    FshError error = {0}, wrong = {0};
    bool opened = fsh_open(&dataset, path, &wrong) == FSH_OK, intact = opened;
    for (size_t i = 0; opened && i < fsh_manifest(dataset)->split_count; i++) {
        const FshSplit *split = fsh_split(dataset, fsh_manifest(dataset)->splits[i].name);
        fuzz_expect(split != NULL, "a split of the manifest is there");
        intact &= read_split(split, &wrong);
    }
    fsh_close(&dataset);
    Seen seen = {0};
    uint64_t problem_count = 0;
    bool checked = fsh_check(path, FSH_CHECK_RECORDS, 1, visit, &seen, &problem_count, &error) == FSH_OK;
    fuzz_expect(!checked || problem_count == seen.problem_count, "each problem is told");
    if (checked && !problem_count && !intact)
        fuzz_expect_ok(wrong.status ? wrong.status : FSH_ERR_CORRUPT, &wrong,
                       "what has no problem reads and verifies");
}
