/* choose_speed.c - makes a set of as many records as ImageNet has, and times what choosing from it takes.
 *
 *   choose_speed make DIR COUNT BYTES       1000 classes, records of BYTES, keys as ImageNet's
 *   choose_speed time DIR [LIMIT [WHERE]]   seconds of the choice, milliseconds of opening, the best of five;
 *                                           nanoseconds to find a chosen sample, and one of the whole split
 *   choose_speed join DIR DIR...            seconds to join the sets; nanoseconds to find a sample of the
 *                                           whole and one of the sets apart, and for a place of an epoch of
 *                                           training without weights and with
 *
 * LIMIT and WHERE are values of ftrain's options, "" for none. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/progress.h"
#include "trainer/data/sample_choice.h"
#include "trainer/data/sampler.h"

enum { CLASSES = 1000, SHARDS = 16, ROUNDS = 5 };

static _Noreturn void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "choose_speed: %s: %s\n", what, why);
    exit(1);
}

static void write_shard(const char *folder, uint32_t shard, uint64_t begin, uint64_t end, uint64_t count,
                        size_t bytes, char *const *names, FshFileInfo *info, uint64_t *class_counts)
{
    FshError error = {0};
    FshWriter *writer = NULL;
    char name[128], path[4096], key[64];
    uint8_t *payload = calloc(bytes, 1);
    const char *const fields[] = {"image"};
    const FshWriterOptions options = {.container = FSH_CONTAINER_SHARDS,
                                      .dataset_id = "00112233445566778899aabbccddeeff",
                                      .split = "train",
                                      .kind = FSH_KIND_CLASSES,
                                      .field_names = fields,
                                      .field_count = 1,
                                      .class_names = (const char *const *)names,
                                      .class_count = CLASSES,
                                      .shard_index = shard,
                                      .shard_count = SHARDS};
    (void)snprintf(path, sizeof path, "%s/%s", folder,
                   fsh_file_name(name, sizeof name, FSH_CONTAINER_SHARDS, "train", shard, SHARDS));
    if (!payload || fsh_writer_open(&writer, path, &options, &error))
        die("open", error.message);
    for (uint64_t i = begin; i < end; i++) {
        const int64_t label = (int64_t)(i * CLASSES / count);
        (void)snprintf(key, sizeof key, "%s/%s_%" PRIu64, names[label], names[label], i);
        const FshSample sample = {.label = label,
                                  .key = key,
                                  .key_bytes = strlen(key),
                                  .field_count = 1,
                                  .fields = {{.data = payload,
                                              .bytes = bytes,
                                              .width = 160,
                                              .height = 160,
                                              .channels = 3,
                                              .codec = FSH_CODEC_OTHER}}};
        if (fsh_writer_put(writer, &sample, &error))
            die("put", error.message);
        class_counts[label]++;
    }
    if (fsh_writer_finish(writer, info, &error))
        die("finish", error.message);
    fsh_writer_close(&writer);
    free(payload);
}

static void make(const char *folder, uint64_t count, size_t bytes)
{
    FshError error = {0};
    static char *names[CLASSES];
    static uint64_t class_counts[CLASSES];
    FshFileInfo files[SHARDS] = {{0}};
    for (int i = 0; i < CLASSES; i++) {
        names[i] = malloc(16);
        if (!names[i])
            die("make", "out of memory");
        (void)snprintf(names[i], 16, "n%08d", 1440764 + i * 7919);
    }
    (void)mkdir(folder, 0777);
    for (uint32_t i = 0; i < SHARDS; i++)
        write_shard(folder, i, count * i / SHARDS, count * (i + 1) / SHARDS, count, bytes, names, &files[i],
                    class_counts);
    FshSplitInfo split = {.name = (char[]){"train"},
                          .sample_count = count,
                          .class_counts = class_counts,
                          .files = files,
                          .file_count = SHARDS};
    char *fields[] = {(char[]){"image"}};
    const FshManifest manifest = {.id = "00112233445566778899aabbccddeeff",
                                  .container = FSH_CONTAINER_SHARDS,
                                  .kind = FSH_KIND_CLASSES,
                                  .field_names = fields,
                                  .field_count = 1,
                                  .class_names = names,
                                  .class_count = CLASSES,
                                  .splits = &split,
                                  .split_count = 1,
                                  .statistics = {.channels = 3},
                                  .provenance_json = (char[]){"{}"}};
    if (fsh_manifest_save(&manifest, folder, false, &error))
        die("save", error.message);
}

/* Returns the nanoseconds for each sample to find its record and read its head, in order. */
static double nanoseconds_each(const FshSplit *split)
{
    FshError error = {0};
    FshSample sample;
    const double start = progress_now_seconds();
    for (uint64_t i = 0; i < split->sample_count; i++)
        if (fsh_sample_get(split, i, &sample, &error))
            die("read", error.message);
    return (progress_now_seconds() - start) / (double)split->sample_count * 1e9;
}

static double lesser(double a, double b)
{
    return a < b ? a : b;
}

static void measure(const char *folder, const char *limit, const char *where)
{
    double least = 1e9, opening = 1e9, part = 1e9, whole = 1e9;
    uint64_t chosen = 0, all = 0;
    const ChoiceOptions options = {.limit = *limit ? limit : NULL, .where = *where ? where : NULL};
    for (int i = 0; i < ROUNDS; i++) {
        FshError error = {0};
        FshDataset *dataset = NULL;
        SampleChoice choice;
        const double start = progress_now_seconds();
        if (fsh_open(&dataset, folder, &error))
            die("open", error.message);
        const double opened = progress_now_seconds() - start;
        const FshSplit *train = fsh_split(dataset, "train"), *none = NULL;
        all = train->sample_count;
        if (sample_choice_make(&choice, &options, 0, dataset, &train, &none, &error))
            die("choose", error.message);
        chosen = train->sample_count;
        least = lesser(choice.seconds, least);
        opening = lesser(opened, opening);
        for (int pass = 0; pass < 3; pass++) { /* the first one brings the pages in */
            part = lesser(nanoseconds_each(train), part);
            whole = lesser(nanoseconds_each(fsh_split(dataset, "train")), whole);
        }
        fsh_close(&dataset);
    }
    (void)printf("limit '%s' where '%s': %" PRIu64 " of %" PRIu64
                 " in %.3f s; opening %.3f ms; a sample %.0f ns, of the whole %.0f ns\n",
                 limit, where, chosen, all, least, 1e3 * opening, part, whole);
}

/* Returns the nanoseconds for each place of an epoch. */
static double nanoseconds_of_order(const Sampler *sampler)
{
    const double start = progress_now_seconds();
    uint64_t sum = 0;
    for (uint64_t i = 0; i < sampler->sample_count; i++)
        sum += sampler_at(sampler, 1, i, 0).sample;
    const double seconds = progress_now_seconds() - start;
    if (sum == 0)
        die("order", "no samples");
    return seconds / (double)sampler->sample_count * 1e9;
}

static void measure_join(char **folders, size_t count)
{
    double joining = 1e9, whole = 1e9, apart = 1e9, plain = 1e9, weighted = 1e9;
    uint64_t samples = 0;
    FshDataset **members = calloc(count, sizeof(FshDataset *));
    double *weights = calloc(count, sizeof *weights);
    if (!members || !weights)
        die("join", "out of memory");
    for (int round = 0; round < ROUNDS; round++) {
        FshError error = {0};
        FshDataset *joined = NULL;
        SetOrder order;
        for (size_t i = 0; i < count; i++) {
            weights[i] = i % 2 ? 0.5 : 1.5;
            if (fsh_open(&members[i], folders[i], &error))
                die("open", error.message);
            (void)nanoseconds_each(fsh_split(members[i], "train")); /* brings the pages in */
            apart = lesser(nanoseconds_each(fsh_split(members[i], "train")), apart);
        }
        const double start = progress_now_seconds();
        if (fsh_join(&joined, members, count, &error))
            die("join", error.message);
        joining = lesser(progress_now_seconds() - start, joining);
        const FshSplit *train = fsh_split(joined, "train");
        samples = train->sample_count;
        whole = lesser(nanoseconds_each(train), whole);
        if (set_order_weighted(&order, train, weights, &error))
            die("order", error.message);
        Sampler sampler = {.sample_count = samples, .batch = 1, .world_size = 1, .training = true};
        plain = lesser(nanoseconds_of_order(&sampler), plain);
        sampler.sets = &order;
        sampler.sample_count = order.places[order.count];
        weighted = lesser(nanoseconds_of_order(&sampler), weighted);
        set_order_free(&order);
        fsh_close(&joined);
    }
    (void)printf("%zu sets, %" PRIu64
                 " samples: joined in %.4f s; a sample %.0f ns, of the sets apart %.0f ns; a "
                 "place %.0f ns, with weights %.0f ns\n",
                 count, samples, joining, whole, apart, plain, weighted);
    free(members);
    free(weights);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "make") == 0)
        make(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
    else if (argc >= 3 && argc <= 5 && strcmp(argv[1], "time") == 0)
        measure(argv[2], argc > 3 ? argv[3] : "", argc > 4 ? argv[4] : "");
    else if (argc > 3 && strcmp(argv[1], "join") == 0)
        measure_join(argv + 2, (size_t)argc - 2);
    else {
        (void)fprintf(
            stderr,
            "usage: choose_speed make DIR COUNT BYTES | time DIR [LIMIT [WHERE]] | join DIR DIR...\n");
        return 2;
    }
    return 0;
}
