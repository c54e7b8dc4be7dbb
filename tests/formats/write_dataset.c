/* write_dataset FOLDER (shards|lmdb|tar) (classes|pairs) TRAIN VAL PAYLOAD_MAX: a data set of samples.h, and
 * on stdout a listing of what is in it, computed from the samples and not from the files. python_test.py
 * prints the same from what it reads. enospc_test runs it on a disk that fills up. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/crc32c.h"
#include "tests/formats/samples.h"

static void list_split(const DatasetPlan *plan, const char *split, uint64_t count)
{
    FshWriterOptions options = samples_writer_options(plan, split, 0);
    for (uint64_t i = 0; i < count; i++) {
        MadeSample made;
        sample_make(&made, plan, split, i);
        (void)printf("%s %" PRIu64 " %s %" PRId64, split, i, made.key, made.sample.label);
        for (unsigned f = 0; f < made.sample.field_count; f++) {
            const FshField *field = &made.sample.fields[f];
            (void)printf(" | %s %s %" PRIu32 "x%" PRIu32 "x%u %zu %08" PRIx32 " %s", options.field_names[f],
                         fsh_codec_name(field->codec), field->height, field->width, field->channels,
                         field->bytes, fsh_crc32c(0, field->data, field->bytes),
                         field->source_bytes ? field->source : "-");
        }
        (void)printf("\n");
        sample_free(&made);
    }
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        (void)fprintf(
            stderr, "usage: write_dataset FOLDER (shards|lmdb|tar) (classes|pairs) TRAIN VAL PAYLOAD_MAX\n");
        return 2;
    }
    DatasetPlan plan = {
        .container = strcmp(argv[2], "lmdb") == 0  ? FSH_CONTAINER_LMDB
                     : strcmp(argv[2], "tar") == 0 ? FSH_CONTAINER_TAR
                                                   : FSH_CONTAINER_SHARDS,
        .kind = strcmp(argv[3], "pairs") == 0 ? FSH_KIND_PAIRS : FSH_KIND_CLASSES,
        .train_count = strtoull(argv[4], NULL, 10),
        .val_count = strtoull(argv[5], NULL, 10),
        .shard_count = 3,
        .payload_bytes_max = strtoull(argv[6], NULL, 10),
    };
    FshError error = {0};
    FshStatus status = samples_try_write_dataset(&plan, argv[1], &error);
    if (status) {
        (void)fprintf(stderr, "write_dataset: %s: %s\n", fsh_strerror(status), error.message);
        return 1;
    }
    list_split(&plan, "train", plan.train_count);
    list_split(&plan, "val", plan.val_count);
    return fflush(stdout) ? 1 : 0;
}
