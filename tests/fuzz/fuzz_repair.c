/* A torn shard repaired: what comes out opens, and has as many intact records as the report says. */
#include <stdio.h>
#include <string.h>

#include "formats/shard.h"
#include "tests/fuzz/fuzz.h"

typedef struct Losses {
    uint64_t count, bytes, length;
} Losses;

static void visit(const FshLoss *loss, void *context)
{
    Losses *losses = context;
    fuzz_expect(loss->offset <= losses->length && loss->bytes <= losses->length - loss->offset,
                "what is lost lies within the torn shard");
    fuzz_touch(loss->key, loss->key_bytes);
    fuzz_touch(loss->source, loss->source_bytes);
    fuzz_touch(loss->reason, strlen(loss->reason));
    losses->count++;
    losses->bytes += loss->bytes;
}

static void expect_intact(const char *path, const FshRepairReport *report)
{
    FshDataset *dataset = NULL;
    FshError error = {0};
    uint64_t problem_count = 0;
    fuzz_expect_ok(fsh_open(&dataset, path, &error), &error, "fsh_open of what was repaired");
    const FshSplitInfo *split = &fsh_manifest(dataset)->splits[0];
    fuzz_expect(split->sample_count == report->record_count, "all records that were kept are there");
    for (uint64_t i = 0; i < split->sample_count; i++)
        fuzz_expect_ok(fsh_sample_verify(fsh_split(dataset, split->name), i, &error), &error,
                       "fsh_sample_verify of what was repaired");
    fsh_close(&dataset);
    fuzz_expect_ok(fsh_check(path, FSH_CHECK_QUICK, 1, NULL, NULL, &problem_count, &error), &error,
                   "fsh_check of what was repaired");
    fuzz_expect(problem_count == 0, "what was repaired has no problem");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    char repaired[PATH_MAX];
    FshRepairReport report;
    FshError error = {0};
    Losses losses = {.length = length};
    ShardView view;
    if (fsh_shard_parse_header(&view, bytes, length, &error) != FSH_OK)
        return 0; /* the target "shard" does these */
    FuzzFolder folder = fuzz_folder_open("torn.fshard", bytes, length);
    (void)snprintf(repaired, sizeof repaired, "%s/repaired.fshard", folder.path);
    if (fsh_repair(folder.file, repaired, visit, &losses, &report, &error) == FSH_OK) {
        fuzz_expect(losses.count == report.lost_ranges && losses.bytes == report.lost_bytes,
                    "each loss is told");
        expect_intact(repaired, &report);
        fuzz_folder_empty(&folder, "repaired.fshard");
    }
    fuzz_folder_close(&folder);
    return 0;
}
