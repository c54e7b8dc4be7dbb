/* Several datasets as one: what joining them gives, and in which order they are trained on and evaluated. */
#include "trainer/data/training_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "formats/names.h"
#include "tests/support/support.h"
#include "tests/trainer/dataset_support.h"
#include "trainer/data/sampler.h"

/* 4 classes; 3, of which one has a name of its own; the third is a zstd set with a dictionary. */
static const DatasetSpec specs[] = {
    {.codec = FSH_CODEC_RAW,
     .width = 16,
     .height = 12,
     .channels = 3,
     .class_count = 4,
     .train_count = 30,
     .val_count = 9,
     .shard_count = 2},
    {.codec = FSH_CODEC_RAW,
     .width = 12,
     .height = 14,
     .channels = 3,
     .class_count = 3,
     .train_count = 21,
     .val_count = 5,
     .shard_count = 1,
     .renamed = "aardvark"},
    {.codec = FSH_CODEC_RAW,
     .width = 12,
     .height = 12,
     .channels = 3,
     .class_count = 4,
     .train_count = 300,
     .val_count = 6,
     .shard_count = 3,
     .compressed = true},
};
enum { SETS = sizeof specs / sizeof *specs };

static const char *set_path(TestFolder *folder, size_t index)
{
    const char *path = test_path(folder, "set%zu", index);
    if (!file_exists(path))
        dataset_make(path, &specs[index]);
    return path;
}

static FshDataset *open_set(TestFolder *folder, size_t index)
{
    FshDataset *dataset = NULL;
    FshError error = {0};
    assert_ok(fsh_open(&dataset, set_path(folder, index), &error), &error);
    return dataset;
}

static FshDataset *join(TestFolder *folder)
{
    FshDataset *members[SETS], *joined = NULL;
    FshError error = {0};
    for (size_t i = 0; i < SETS; i++)
        members[i] = open_set(folder, i);
    assert_ok(fsh_join(&joined, members, SETS, &error), &error);
    for (size_t i = 0; i < SETS; i++)
        assert_null(members[i]);
    return joined;
}

/* Asserts that sample `index` of a split is sample `other` of another: key, bytes, and class by name. */
static void assert_same_sample(const FshSplit *split, uint64_t index, const FshSplit *theirs, uint64_t other)
{
    FshSample sample, wanted;
    FshUnpacker *unpackers[2] = {NULL};
    const void *bytes[2];
    size_t lengths[2];
    FshError error = {0};
    assert_ok(fsh_sample_get(split, index, &sample, &error), &error);
    assert_ok(fsh_sample_get(theirs, other, &wanted, &error), &error);
    assert_int_equal(sample.index, index);
    assert_int_equal(sample.key_bytes, wanted.key_bytes);
    assert_memory_equal(sample.key, wanted.key, wanted.key_bytes);
    for (int i = 0; i < 2; i++) {
        assert_ok(fsh_unpacker_new(&unpackers[i], &error), &error);
        assert_ok(fsh_field_unpack(unpackers[i], i ? theirs : split,
                                   i ? &wanted.fields[0] : &sample.fields[0], &bytes[i], &lengths[i], &error),
                  &error);
    }
    assert_int_equal(lengths[0], lengths[1]);
    assert_memory_equal(bytes[0], bytes[1], lengths[0]);
    for (int i = 0; i < 2; i++)
        fsh_unpacker_free(&unpackers[i]);
    assert_int_equal(sample.label, fsh_sample_label(split, index));
    assert_string_equal(fsh_manifest(split->dataset)->class_names[sample.label],
                        fsh_manifest(theirs->dataset)->class_names[wanted.label]);
}

TEST_IN_FOLDER(test_a_joined_dataset_has_all_samples_in_order_and_the_union_of_classes, folder)
{
    FshDataset *joined = join(folder);
    const FshManifest *manifest = fsh_manifest(joined);
    assert_int_equal(fsh_member_count(joined), SETS);
    assert_int_equal(manifest->class_count, 5); /* the 4, and aardvark */
    for (size_t i = 1; i < 5; i++)
        assert_true(strcmp(manifest->class_names[i - 1], manifest->class_names[i]) < 0);
    assert_true(fsh_id_valid(manifest->id));
    assert_true(manifest->statistics.width_min == 12 && manifest->statistics.width_max == 16);
    assert_true(manifest->statistics.mean[0] == 0.35); /* all have it: to the bit */
    static const char *const names[] = {"train", "val"};
    for (size_t s = 0; s < 2; s++) {
        const FshSplit *split = fsh_split(joined, names[s]);
        uint64_t first = 0, bytes = 0, labelled = 0;
        for (size_t i = 0; i < SETS; i++) {
            FshDataset *alone = open_set(folder, i);
            const FshSplit *theirs = fsh_split(alone, names[s]);
            assert_int_equal(fsh_split_member_end(split, i), first + theirs->sample_count);
            for (uint64_t k = 0; k < theirs->sample_count; k++)
                assert_same_sample(split, first + k, theirs, k);
            first += theirs->sample_count;
            bytes += fsh_split_bytes(theirs);
            fsh_close(&alone);
        }
        assert_int_equal(split->sample_count, first);
        assert_int_equal(split->info->sample_count, first);
        assert_int_equal(fsh_split_bytes(split), bytes);
        for (size_t c = 0; c < manifest->class_count; c++)
            labelled += split->info->class_counts[c];
        assert_int_equal(labelled, first);
    }
    char where[256];
    assert_contains(fsh_sample_where(fsh_split(joined, "train"), 30, where, sizeof where),
                    "set1/train-00000-of-00001.fshard record 0");
    FshError error = {0};
    assert_ok(fsh_split_cache(fsh_split(joined, "train"), FSH_CACHE_RAM, 2, &error), &error);
    fsh_close(&joined);
}

TEST_IN_FOLDER(test_samples_are_chosen_from_a_joined_dataset, folder)
{
    static const uint64_t chosen[] = {0, 29, 30, 31, 50, 51, 350};
    enum { COUNT = sizeof chosen / sizeof *chosen };
    FshDataset *joined = join(folder);
    const FshSplit *all = fsh_split(joined, "train"), *split = NULL;
    FshError error = {0};
    assert_ok(fsh_split_choose(joined, all, chosen, COUNT, &split, &error), &error);
    assert_int_equal(fsh_split_member_end(split, 0), 2);
    assert_int_equal(fsh_split_member_end(split, 1), 5);
    assert_int_equal(fsh_split_member_end(split, 2), COUNT);
    for (uint64_t i = 0; i < COUNT; i++)
        assert_same_sample(split, i, all, chosen[i]);
    fsh_close(&joined);

    /* Classes too, in another order. */
    joined = join(folder);
    const size_t classes[] = {4, 0};
    char *last = strdup(fsh_manifest(joined)->class_names[4]);
    assert_ok(fsh_set_classes(joined, classes, 2, &error), &error);
    all = fsh_split(joined, "train");
    assert_string_equal(fsh_manifest(joined)->class_names[0], last);
    uint64_t of[3] = {0};
    for (uint64_t i = 0; i < all->sample_count; i++)
        of[fsh_sample_label(all, i) + 1]++;
    assert_int_equal(of[1], all->info->class_counts[0]);
    assert_int_equal(of[2], 7); /* aardvark's, of 21 in 3 classes */
    free(last);
    fsh_close(&joined);
}

/* ---- refusals ---- */

/* Asserts that sets of these specs are refused to be opened as one. */
static void assert_refused(TestFolder *folder, const DatasetSpec *a, const DatasetSpec *b,
                           const TrainingDataSource *wanted, FshStatus expected, const char *part)
{
    static int number;
    TrainingData data;
    FshError error = {0};
    const char *first = test_path(folder, "first%d", ++number),
               *second = test_path(folder, "second%d", number);
    dataset_make(first, a);
    dataset_make(second, b);
    TrainingDataSource source = *wanted;
    source.path = first;
    source.more_paths = &second;
    source.more_count = 1;
    assert_int_equal(training_data_open(&data, &source, &error), expected);
    assert_contains(error.message, part);
    assert_null(data.dataset);
}

TEST_IN_FOLDER(test_sets_that_do_not_go_together_are_refused, folder)
{
    const TrainingDataSource train = {.train_split = "train"}, evaluate = {0},
                             named = {.train_split = "train", .evaluation_split = "val"};
    DatasetSpec pairs = specs[1], untrained = specs[1], unevaluated = specs[1];
    pairs.kind = FSH_KIND_PAIRS;
    pairs.renamed = NULL;
    untrained.train_count = 0;
    unevaluated.val_count = 0;
    assert_refused(folder, &specs[0], &specs[0], &train, FSH_ERR_MISMATCH, "is the same dataset as ");
    assert_refused(folder, &specs[0], &pairs, &train, FSH_ERR_MISMATCH, "holds pairs of images, and ");
    assert_refused(folder, &specs[0], &untrained, &train, FSH_ERR_NOT_FOUND,
                   "has no split 'train', which every set of a run needs (--train-split); it has: val");
    assert_refused(folder, &specs[0], &unevaluated, &evaluate, FSH_ERR_NOT_FOUND, "has no split 'val'");
    assert_refused(folder, &specs[0], &unevaluated, &named, FSH_ERR_NOT_FOUND, "has no split 'val'");

    /* Training alone it may have none. */
    TrainingData data;
    FshError error = {0};
    const char *first = set_path(folder, 0), *second = test_path(folder, "alone");
    dataset_make(second, &unevaluated);
    const TrainingDataSource source = {
        .path = first, .more_paths = &second, .more_count = 1, .train_split = "train"};
    assert_ok(training_data_open(&data, &source, &error), &error);
    assert_int_equal(data.train->sample_count, 51);
    assert_int_equal(data.evaluation->sample_count, 9);
    assert_int_equal(set_samples(data.evaluation, 1), 0);
    assert_int_equal(data.class_count, 5);
    assert_string_equal(data.sets.names[0], "set0");
    assert_string_equal(data.sets.names[1], "alone");

    static const double weights[] = {1, 0.5, 2};
    assert_int_equal(training_sets_weigh(&data.sets, weights, 3, &error), FSH_ERR_MISMATCH);
    assert_string_equal(error.message, "--set-weights: 3 weights for 2 sets: set0, alone");
    assert_ok(training_sets_weigh(&data.sets, (const double[]){1, 1}, 2, &error), &error);
    assert_null(data.sets.weights); /* as without */
    assert_ok(training_sets_weigh(&data.sets, weights, 2, &error), &error);
    assert_true(data.sets.weights[1] == 0.5);
    training_data_close(&data);
}

/* Sets whose folders have the same name are told apart by their paths. */
TEST_IN_FOLDER(test_names_of_sets_are_unique, folder)
{
    TrainingData data;
    FshError error = {0};
    const char *first = test_path(folder, "x/shards/"), *second = test_path(folder, "y/shards//");
    dataset_make(first, &specs[0]);
    dataset_make(second, &specs[1]);
    const TrainingDataSource source = {
        .path = first, .more_paths = &second, .more_count = 1, .train_split = "train"};
    assert_ok(training_data_open(&data, &source, &error), &error);
    assert_string_equal(data.sets.names[0], test_path(folder, "x/shards"));
    assert_string_equal(data.sets.names[1], test_path(folder, "y/shards"));
    training_data_close(&data);
}

/* ---- order ---- */

enum { EPOCHS = 20 };

static Sampler weighted(const SetOrder *order, uint64_t batch, uint64_t ranks, uint64_t rank)
{
    return (Sampler){.sample_count = order->places[order->count],
                     .batch = batch,
                     .rank = rank,
                     .world_size = ranks,
                     .sets = order,
                     .seed = 5,
                     .training = true};
}

/* In each epoch a set has its places, and over epochs each of its samples comes equally often to within one,
 * each time with another turn. */
TEST_IN_FOLDER(test_weights_say_how_often_a_set_is_drawn, folder)
{
    static const double weights[SETS] = {2, 0.5, 0.1};
    static const uint64_t places[SETS] = {60, 11, 30}; /* of 30, 21 (half up) and 300 samples */
    FshDataset *joined = join(folder);
    const FshSplit *split = fsh_split(joined, "train");
    SetOrder order;
    FshError error = {0};
    assert_ok(set_order_weighted(&order, split, weights, &error), &error);
    assert_int_equal(set_order_places(split, weights), 101);
    assert_int_equal(set_order_places(split, NULL), 351);
    const Sampler sampler = weighted(&order, 1, 1, 0);
    assert_int_equal(sampler_step_count(&sampler), 101);
    static uint64_t drawn[351], turns[351];
    bool moved = false;
    memset(drawn, 0, sizeof drawn);
    memset(turns, 0, sizeof turns);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        uint64_t of[SETS] = {0};
        for (uint64_t step = 0; step < 101; step++) {
            const SamplerPick pick = sampler_at(&sampler, epoch, step, 0);
            const size_t set = pick.sample < 30 ? 0 : pick.sample < 51 ? 1 : 2;
            assert_true(pick.sample < 351 && pick.turn < 64);
            of[set]++;
            drawn[pick.sample]++;
            assert_int_equal(turns[pick.sample] >> pick.turn & 1, 0);
            turns[pick.sample] |= 1ULL << pick.turn;
            moved |= step && set != 0 && epoch == 0 && step < 40; /* the sets are mixed */
        }
        for (size_t i = 0; i < SETS; i++)
            assert_int_equal(of[i], places[i]);
    }
    for (size_t i = 0; i < 351; i++) {
        const size_t set = i < 30 ? 0 : i < 51 ? 1 : 2;
        const double mean = (double)places[set] * EPOCHS / (double)specs[set].train_count;
        assert_true(fabs((double)drawn[i] - mean) < 1);
    }
    assert_true(moved);
    set_order_free(&order);
    fsh_close(&joined);
}

/* The places of a step are the same, however ranks share them. */
TEST_IN_FOLDER(test_weighted_order_is_the_same_for_every_world_size, folder)
{
    static const double weights[SETS] = {1, 3, 0.2};
    FshDataset *joined = join(folder);
    SetOrder order;
    FshError error = {0};
    assert_ok(set_order_weighted(&order, fsh_split(joined, "train"), weights, &error), &error);
    const Sampler one = weighted(&order, 12, 1, 0);
    for (uint64_t ranks = 2; ranks <= 4; ranks++)
        for (uint64_t step = 0; step < sampler_step_count(&one); step++)
            for (uint64_t slot = 0; slot < 12; slot++) {
                const uint64_t batch = 12 / ranks;
                const Sampler other = weighted(&order, batch, ranks, slot / batch);
                const SamplerPick a = sampler_at(&one, 3, step, slot),
                                  b = sampler_at(&other, 3, step, slot % batch);
                assert_true(a.sample == b.sample && a.turn == b.turn);
            }
    const Sampler two = weighted(&order, 6, 2, 1);
    assert_int_equal(sampler_order_digest(&one, 3), sampler_order_digest(&two, 3));
    assert_int_not_equal(sampler_order_digest(&one, 3), sampler_order_digest(&one, 4));
    set_order_free(&order);
    fsh_close(&joined);
}

/* Evaluation takes each sample once, and no step has samples of two sets. */
TEST_IN_FOLDER(test_sets_are_evaluated_in_steps_of_their_own, folder)
{
    FshDataset *joined = join(folder);
    const FshSplit *split = fsh_split(joined, "val"); /* 9, 5 and 6 */
    SetOrder order;
    FshError error = {0};
    assert_int_equal(set_order_steps(split, 4), 3 + 2 + 2);
    assert_ok(set_order_apart(&order, split, 4, &error), &error);
    uint64_t seen[20] = {0}, padding = 0;
    for (uint64_t rank = 0; rank < 2; rank++) {
        const Sampler sampler = {
            .sample_count = order.places[SETS], .batch = 2, .rank = rank, .world_size = 2, .sets = &order};
        assert_int_equal(sampler_step_count(&sampler), 7);
        for (uint64_t step = 0; step < 7; step++)
            for (uint64_t slot = 0; slot < 2; slot++) {
                const uint64_t sample = sampler_at(&sampler, 0, step, slot).sample;
                const size_t set = set_order_find(&order, step * 4);
                padding += sample == SAMPLER_PADDING;
                if (sample == SAMPLER_PADDING)
                    continue;
                assert_true(sample >= order.firsts[set] && sample < order.firsts[set + 1]);
                /* the place that it has when the set is evaluated alone */
                assert_int_equal(sample - order.firsts[set],
                                 (step - order.places[set] / 4) * 4 + rank * 2 + slot);
                seen[sample]++;
            }
    }
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(padding, 3 + 3 + 2);
    set_order_free(&order);
    fsh_close(&joined);
}
