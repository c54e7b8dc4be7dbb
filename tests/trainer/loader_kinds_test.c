/* What loader_test.c leaves out: pairs, mixing, sizes that change, colours, and that none of it depends on
 * workers or ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/dataset_support.h"
#include "tests/trainer/loader_support.h"
#include "trainer/data/loader.h"

enum { EDGE = 24, BATCH = 16 };

static const DatasetSpec classes_spec = {.codec = FSH_CODEC_JPEG,
                                         .width = 48,
                                         .height = 40,
                                         .channels = 3,
                                         .class_count = 4,
                                         .train_count = 100,
                                         .val_count = 20,
                                         .shard_count = 3};
static const DatasetSpec pairs_spec = {.codec = FSH_CODEC_RAW,
                                       .width = 40,
                                       .height = 30,
                                       .channels = 3,
                                       .class_count = 4,
                                       .train_count = 50,
                                       .val_count = 7,
                                       .shard_count = 2,
                                       .kind = FSH_KIND_PAIRS,
                                       .grow = 9};

static const Augmentation classes_view = {
    .mode = CROP_RESIZED,
    .size = EDGE,
    .channels = 3,
    .scale_min = 0.2,
    .scale_max = 1,
    .ratio_min = 0.75,
    .ratio_max = 1.3333,
    .flip_probability = 0.5,
    .jitter = {0.4, 0.4, 0.4, 0.1},
    .noise = 3,
    .erasing = {.probability = 0.5,
                .scale_min = 0.02,
                .scale_max = 0.33,
                .ratio_min = 0.3,
                .ratio_max = 3.3,
                .fill = ERASING_PIXEL,
                .deviation = {60, 60, 60}},
};
static const Augmentation pairs_view = {.mode = CROP_RANDOM,
                                        .size = EDGE,
                                        .channels = 3,
                                        .flip_probability = 0.5,
                                        .vertical_flip_probability = 0.5,
                                        .transpose_probability = 0.5};
static const Augmentation whole_view = {.mode = CROP_WHOLE, .channels = 3};
static const Mixing mixing = {
    .mixup_alpha = 0.8, .cutmix_alpha = 1, .probability = 0.8, .switch_probability = 0.5};

static FshDataset *open_dataset(TestFolder *folder, const DatasetSpec *spec)
{
    const char *path = test_path(folder, "set");
    dataset_make(path, spec);
    FshDataset *dataset = NULL;
    FshError error = {0};
    assert_ok(fsh_open(&dataset, path, &error), &error);
    return dataset;
}

static LoaderOptions options_of(const FshDataset *dataset, const Augmentation *view)
{
    bool pairs = fsh_manifest(dataset)->kind == FSH_KIND_PAIRS, whole = view->mode == CROP_WHOLE;
    return (LoaderOptions){.split = fsh_split(dataset, whole ? "val" : "train"),
                           .kind = fsh_manifest(dataset)->kind,
                           .target_field = pairs ? 1 : 0,
                           .augmentation = *view,
                           .batch = whole ? 1 : BATCH,
                           .world_size = 1,
                           .seed = 5,
                           .training = !whole,
                           .workers = 3,
                           .batches_ahead = 2,
                           .fill = {9, 8, 7}};
}

static FshStatus refused(const LoaderOptions *options, FshError *error)
{
    Loader *loader = NULL;
    FshStatus status = loader_new(&loader, options, error);
    assert_null(loader);
    return status;
}

/* ---- independence ---- */

/* What a place of the total batch held. */
typedef struct Place {
    uint64_t sample;
    int64_t label, label_mixed;
    float mix;
    uint8_t pixels[EDGE * EDGE * 3], target[EDGE * EDGE * 3];
} Place;

/* Records all places of `steps` steps; within a step one rank after the other. */
static void record(LoaderOptions options, int workers, uint64_t world_size, uint64_t steps, Place *places)
{
    enum { BYTES = EDGE * EDGE * 3 };
    uint64_t total = options.batch;
    options.workers = workers;
    options.world_size = world_size;
    options.batch = total / world_size;
    for (uint64_t rank = 0; rank < world_size; rank++) {
        options.rank = rank;
        Loader *loader = open_loader(&options);
        loader_start(loader, 0, steps);
        for (uint64_t step = 0; step < steps; step++) {
            const Batch *batch = next_batch(loader);
            assert_int_equal(batch->valid_count, options.batch);
            for (uint64_t i = 0; i < options.batch; i++) {
                Place *place = &places[step * total + rank * options.batch + i];
                *place = (Place){.sample = batch->samples[i],
                                 .label = batch->labels ? batch->labels[i] : -2,
                                 .label_mixed = batch->labels_mixed ? batch->labels_mixed[i] : -2,
                                 .mix = batch->mix ? batch->mix[i] : -2};
                memcpy(place->pixels, batch->pixels + i * BYTES, BYTES);
                if (batch->target)
                    memcpy(place->target, batch->target + i * BYTES, BYTES);
            }
        }
        loader_free(&loader);
    }
}

static void check_independence(const LoaderOptions *options)
{
    enum { STEPS = 7 };
    const int workers[] = {1, 3};
    const uint64_t world_sizes[] = {1, 2, 4};
    Place *one = calloc((size_t)STEPS * BATCH, sizeof *one),
          *other = calloc((size_t)STEPS * BATCH, sizeof *other);
    assert_true(one && other);
    record(*options, 1, 1, STEPS, one);
    for (size_t w = 0; w < 2; w++)
        for (size_t r = 0; r < 3; r++) {
            record(*options, workers[w], world_sizes[r], STEPS, other);
            assert_memory_equal(one, other, STEPS * BATCH * sizeof *one);
        }
    free(one);
    free(other);
}

TEST_IN_FOLDER(test_mixed_batches_do_not_depend_on_workers_or_ranks, folder)
{
    FshDataset *dataset = open_dataset(folder, &classes_spec);
    LoaderOptions options = options_of(dataset, &classes_view);
    options.mixing = mixing;
    check_independence(&options);
    options.mixing.mode = MIXING_BATCH;
    check_independence(&options);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_pairs_do_not_depend_on_workers_or_ranks, folder)
{
    FshDataset *dataset = open_dataset(folder, &pairs_spec);
    LoaderOptions options = options_of(dataset, &pairs_view);
    options.augmentation.jitter = classes_view.jitter;
    options.augmentation.noise = 5;
    check_independence(&options);
    fsh_close(&dataset);
}

/* ---- repeats, balanced classes ---- */

/* Two views of a sample differ, and are those of their turns however many workers render them. */
TEST_IN_FOLDER(test_repeats_are_other_views_whatever_the_workers, folder)
{
    enum { STEPS = 6, PLACES = STEPS * BATCH };
    FshDataset *dataset = open_dataset(folder, &classes_spec);
    LoaderOptions options = options_of(dataset, &classes_view);
    options.sampling.repeats = 3;
    options.mixing = mixing;
    Place *one = calloc(PLACES, sizeof *one), *other = calloc(PLACES, sizeof *other);
    assert_true(one && other);
    record(options, 1, 1, STEPS, one);
    record(options, 3, 1, STEPS, other);
    assert_memory_equal(one, other, PLACES * sizeof *one);
    options.mixing = (Mixing){0};
    record(options, 3, 1, STEPS, one);
    int same = 0;
    for (int i = 0; i < PLACES; i++)
        for (int k = 0; k < i; k++) {
            same += one[k].sample == one[i].sample;
            assert_true(memcmp(one[k].pixels, one[i].pixels, sizeof one[i].pixels) != 0);
        }
    assert_int_equal(same, PLACES); /* 32 samples, three times each: three pairs of each */
    free(one);
    free(other);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_balanced_batches_do_not_depend_on_workers_or_ranks, folder)
{
    enum { STEPS = 6 };
    FshDataset *dataset = open_dataset(folder, &classes_spec);
    LoaderOptions options = options_of(dataset, &classes_view);
    options.sampling.kind = SAMPLER_BALANCED;
    check_independence(&options);
    Place *places = calloc((size_t)STEPS * BATCH, sizeof *places);
    assert_non_null(places);
    record(options, 2, 1, STEPS, places);
    for (size_t i = 0; i < (size_t)STEPS * BATCH; i++) { /* four classes: each once in a round */
        assert_int_equal(places[i].label, fsh_sample_label(options.split, places[i].sample));
        for (size_t k = i / 4 * 4; k < i; k++)
            assert_int_not_equal(places[k].label, places[i].label);
    }
    free(places);
    fsh_close(&dataset);
}

/* ---- mixing ---- */

TEST_IN_FOLDER(test_mixing_is_between_neighbours, folder)
{
    FshDataset *dataset = open_dataset(folder, &classes_spec);
    LoaderOptions options = options_of(dataset, &classes_view);
    enum { STEPS = 6, BYTES = EDGE * EDGE * 3 };
    Place *plain = calloc((size_t)STEPS * BATCH, sizeof *plain),
          *mixed = calloc((size_t)STEPS * BATCH, sizeof *mixed);
    assert_true(plain && mixed);
    record(options, 2, 1, STEPS, plain);
    options.mixing = mixing;
    record(options, 2, 1, STEPS, mixed);
    int changed = 0;
    for (size_t i = 0; i < (size_t)STEPS * BATCH; i++) {
        const Place *a = &plain[i], *b = &plain[i ^ 1], *m = &mixed[i];
        assert_int_equal(m->sample, a->sample);
        assert_int_equal(m->label, a->label);
        assert_true(m->mix == mixed[i ^ 1].mix && m->mix >= 0 && m->mix <= 1);
        assert_int_equal(m->label_mixed, m->mix < 1 ? b->label : a->label);
        /* whatever the way: each value lies between those of the two */
        for (size_t k = 0; k < BYTES; k++) {
            uint8_t low = a->pixels[k] < b->pixels[k] ? a->pixels[k] : b->pixels[k];
            uint8_t high = a->pixels[k] < b->pixels[k] ? b->pixels[k] : a->pixels[k];
            assert_true(m->pixels[k] >= low && m->pixels[k] <= high);
        }
        changed += m->mix < 1;
        if (m->mix == 1)
            assert_memory_equal(m->pixels, a->pixels, BYTES);
    }
    assert_true(changed > STEPS * BATCH / 2 && changed < STEPS * BATCH);
    free(plain);
    free(mixed);
    fsh_close(&dataset);
}

/* One share for the images of a step, others in other steps; mixup and CutMix, and steps that are not mixed,
 * are all among them. */
TEST_IN_FOLDER(test_a_batch_is_mixed_by_one_draw, folder)
{
    enum { STEPS = 60 };
    FshDataset *dataset = open_dataset(folder, &classes_spec);
    LoaderOptions options = options_of(dataset, &classes_view);
    options.mixing = mixing;
    options.mixing.mode = MIXING_BATCH;
    Place *mixed = calloc((size_t)STEPS * BATCH, sizeof *mixed);
    assert_non_null(mixed);
    record(options, 2, 1, STEPS, mixed);
    int plain = 0, alike = 0;
    for (size_t step = 0; step < STEPS; step++) {
        const Place *first = &mixed[step * BATCH];
        for (size_t i = 1; i < BATCH; i++)
            assert_true(first[i].mix == first->mix);
        plain += first->mix == 1;
        for (size_t other = 0; other < step; other++)
            alike += first->mix < 1 && mixed[other * BATCH].mix == first->mix;
    }
    assert_true(plain > 0 && plain < STEPS / 2); /* a fifth of the steps */
    assert_true(alike < STEPS);
    free(mixed);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_a_skipped_sample_is_not_mixed_with, folder)
{
    DatasetSpec spec = classes_spec;
    spec.garbage = true;
    FshDataset *dataset = open_dataset(folder, &spec);
    LoaderOptions options = options_of(dataset, &classes_view);
    options.mixing = (Mixing){.mixup_alpha = 1, .probability = 1};
    options.skip_bad = true;
    Loader *loader = open_loader(&options);
    loader_start(loader, 0, 12);
    int skipped = 0;
    for (const Batch *batch = next_batch(loader); batch; batch = next_batch(loader))
        for (uint64_t i = 0; i < BATCH; i++)
            if (batch->samples[i] == 5) {
                skipped++;
                assert_true(batch->valid[i] == 0 && batch->valid[i ^ 1] == 1);
                assert_int_equal(batch->labels[i], -1);
                assert_int_equal(batch->labels_mixed[i], -1);
                assert_true(batch->mix[i] == 1 && batch->mix[i ^ 1] == 1);
                assert_int_equal(batch->labels_mixed[i ^ 1], batch->labels[i ^ 1]);
                assert_memory_equal(batch->pixels + i * EDGE * EDGE * 3, "\x09\x08\x07\x09", 4);
                assert_int_equal(batch->valid_count, BATCH - 1);
            }
    assert_true(skipped > 0);
    loader_free(&loader);
    fsh_close(&dataset);
}

/* ---- pairs ---- */

/* Raw pairs whose target is the negative of the input: it stays that, wherever the crop is and however it is
 * laid. */
TEST_IN_FOLDER(test_both_sides_of_a_pair_get_the_same_geometry, folder)
{
    FshDataset *dataset = open_dataset(folder, &pairs_spec);
    const LoaderOptions options = options_of(dataset, &pairs_view);
    Loader *loader = open_loader(&options);
    loader_start(loader, 0, 9);
    for (const Batch *batch = next_batch(loader); batch; batch = next_batch(loader)) {
        assert_null(batch->labels);
        assert_null(batch->mix);
        assert_non_null(batch->target);
        assert_int_equal((uintptr_t)batch->target % 64, 0);
        for (size_t i = 0; i < (size_t)BATCH * EDGE * EDGE * 3; i++)
            assert_int_equal(batch->target[i], 255 - batch->pixels[i]);
    }
    loader_free(&loader);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_jitter_and_noise_leave_the_target_alone, folder)
{
    FshDataset *dataset = open_dataset(folder, &pairs_spec);
    LoaderOptions options = options_of(dataset, &pairs_view);
    enum { STEPS = 3 };
    Place *plain = calloc((size_t)STEPS * BATCH, sizeof *plain),
          *other = calloc((size_t)STEPS * BATCH, sizeof *other);
    assert_non_null(plain);
    assert_non_null(other);
    record(options, 2, 1, STEPS, plain);
    for (int round = 0; round < 2; round++) {
        options.augmentation.jitter = round ? (ColourJitter){0} : (ColourJitter){.brightness = 0.5};
        options.augmentation.noise = round ? 20 : 0;
        record(options, 2, 1, STEPS, other);
        int changed = 0; /* now and then next to nothing is drawn */
        for (size_t i = 0; i < (size_t)STEPS * BATCH; i++) {
            assert_memory_equal(plain[i].target, other[i].target, sizeof plain[i].target);
            changed += memcmp(plain[i].pixels, other[i].pixels, sizeof plain[i].pixels) != 0;
        }
        assert_true(changed > STEPS * BATCH * 9 / 10);
    }
    free(plain);
    free(other);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_whole_pairs_come_in_their_own_sizes, folder)
{
    FshDataset *dataset = open_dataset(folder, &pairs_spec);
    const LoaderOptions options = options_of(dataset, &whole_view);
    Loader *loader = open_loader(&options);
    uint8_t *expected = malloc((size_t)60 * 60 * 3);
    assert_non_null(expected);
    assert_int_equal(loader_step_count(loader), 7);
    loader_start(loader, 0, 14);
    uint64_t count = 0;
    for (const Batch *batch = next_batch(loader); batch; batch = next_batch(loader), count++) {
        uint64_t sample = batch->samples[0];
        assert_int_equal(sample, count % 7);
        assert_int_equal(batch->width, dataset_width(&pairs_spec, sample));
        assert_int_equal(batch->height, dataset_height(&pairs_spec, sample));
        dataset_draw(&pairs_spec, sample, expected);
        size_t bytes = (size_t)batch->width * batch->height * 3;
        assert_memory_equal(batch->pixels, expected, bytes);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(batch->target[i], 255 - expected[i]);
    }
    assert_int_equal(count, 14);
    free(expected);
    loader_free(&loader);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_a_whole_image_that_is_skipped_has_no_size, folder)
{
    DatasetSpec spec = pairs_spec;
    spec.codec = FSH_CODEC_JPEG;
    spec.garbage = true;
    FshDataset *dataset = open_dataset(folder, &spec);
    LoaderOptions options = options_of(dataset, &whole_view);
    options.skip_bad = true;
    options.world_size = 2;
    options.rank = 1; /* samples 1, 3, 5, and one that is not there */
    Loader *loader = open_loader(&options);
    loader_start(loader, 0, 4);
    for (uint64_t i = 0; i < 4; i++) {
        const Batch *batch = next_batch(loader);
        assert_int_equal(batch->samples[0], i < 3 ? 2 * i + 1 : SAMPLER_PADDING);
        assert_int_equal(batch->valid_count, i < 2);
        assert_int_equal(batch->width != 0, i < 2);
        assert_int_equal(batch->height != 0, i < 2);
    }
    assert_int_equal(loader_problem_count(loader), 1);
    loader_free(&loader);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_a_crop_larger_than_a_pair_names_it, folder)
{
    FshDataset *dataset = open_dataset(folder, &pairs_spec);
    LoaderOptions options = options_of(dataset, &pairs_view);
    options.augmentation.size = 36;
    options.workers = 1;
    Loader *loader = open_loader(&options);
    const Batch *batch;
    FshError error = {0};
    loader_start(loader, 0, 1);
    assert_int_equal(loader_next(loader, &batch, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, ".fshard record ");
    assert_contains(error.message, "x 30 pixels, too small for a crop of 36 x 36");
    assert_contains(error.message, "packed from train/");
    loader_free(&loader);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_sides_of_different_sizes_name_the_pair, folder)
{
    DatasetSpec spec = pairs_spec;
    spec.uneven = true;
    FshDataset *dataset = open_dataset(folder, &spec);
    const LoaderOptions options = options_of(dataset, &whole_view);
    Loader *loader = open_loader(&options);
    const Batch *batch;
    FshError error = {0};
    loader_start(loader, 5, 1);
    assert_int_equal(loader_next(loader, &batch, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "its sides differ in size: 58 x 39 and 57 x 39 pixels");
    assert_contains(error.message, "val-00001-of-00002.fshard record 2");
    loader_free(&loader);
    fsh_close(&dataset);
}

/* ---- sizes ---- */

TEST_IN_FOLDER(test_the_crop_grows_with_the_epochs, folder)
{
    FshDataset *dataset = open_dataset(folder, &classes_spec);
    LoaderOptions options = options_of(dataset, &classes_view);
    const uint32_t sizes[] = {16, 20, 28};
    options.epoch_sizes = sizes;
    options.epoch_size_count = 3;
    Loader *loader = open_loader(&options);
    assert_int_equal(loader_step_count(loader), 6);
    loader_start(loader, 0, 5 * 6);
    uint64_t number = 0;
    for (const Batch *batch = next_batch(loader); batch; batch = next_batch(loader), number++) {
        uint32_t expected = sizes[number / 6 < 2 ? number / 6 : 2];
        assert_int_equal(batch->width, expected);
        assert_int_equal(batch->height, expected);
        assert_int_equal(batch->valid_count, BATCH);
    }
    assert_int_equal(number, 30);
    loader_free(&loader);
    /* the last size is that of a loader that knows no other */
    options.epoch_sizes = NULL;
    options.epoch_size_count = 0;
    options.augmentation.size = 28;
    Loader *fixed = open_loader(&options);
    options.epoch_sizes = sizes;
    options.epoch_size_count = 3;
    options.augmentation.size = EDGE;
    loader = open_loader(&options);
    loader_start(loader, 18, 3);
    loader_start(fixed, 18, 3);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(next_batch(loader)->pixels, next_batch(fixed)->pixels, BATCH * 28 * 28 * 3);
    loader_free(&fixed);
    loader_free(&loader);
    fsh_close(&dataset);
}

/* ---- what is refused ---- */

TEST_IN_FOLDER(test_options_that_contradict_each_other_are_refused, folder)
{
    FshDataset *pairs = NULL, *classes = open_dataset(folder, &classes_spec);
    FshError error = {0};
    dataset_make(test_path(folder, "pairs"), &pairs_spec);
    assert_ok(fsh_open(&pairs, test_path(folder, "pairs"), &error), &error);
    LoaderOptions options = options_of(classes, &classes_view);
    options.mixing = mixing;
    options.batch = 15;
    assert_int_equal(refused(&options, &error), FSH_ERR_USAGE);
    assert_contains(error.message, "--batch-size must be even, not 15");
    options = options_of(classes, &classes_view);
    options.batch = 101;
    assert_int_equal(refused(&options, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message,
                    "split 'train' has 100 samples, fewer than a batch of 101; lower --batch-size");
    options.batch = 51;
    options.world_size = 2;
    assert_int_equal(refused(&options, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "fewer than a batch of 102");
    options = options_of(classes, &whole_view);
    assert_int_equal(refused(&options, &error), FSH_ERR_USAGE);
    options = options_of(pairs, &classes_view);
    assert_int_equal(refused(&options, &error), FSH_ERR_USAGE);
    options = options_of(pairs, &pairs_view);
    options.mixing = mixing;
    assert_int_equal(refused(&options, &error), FSH_ERR_USAGE);
    options = options_of(pairs, &whole_view);
    options.batch = 2;
    assert_int_equal(refused(&options, &error), FSH_ERR_USAGE);
    assert_contains(error.message, "whole images come one to a batch");
    const uint32_t sizes[] = {24, 0};
    options = options_of(classes, &classes_view);
    options.epoch_sizes = sizes;
    options.epoch_size_count = 2;
    assert_int_equal(refused(&options, &error), FSH_ERR_USAGE);
    assert_contains(error.message, "the crop of epoch 1 cannot be 0 pixels");
    options = options_of(pairs, &whole_view);
    options.epoch_sizes = sizes;
    options.epoch_size_count = 1;
    assert_int_equal(refused(&options, &error), FSH_ERR_USAGE);
    fsh_close(&pairs);
    fsh_close(&classes);
}

TEST_IN_FOLDER(test_the_loader_counts_what_it_does, folder)
{
    FshDataset *dataset = open_dataset(folder, &classes_spec);
    LoaderOptions options = options_of(dataset, &classes_view);
    options.measure = true;
    Loader *loader = open_loader(&options);
    LoaderStatistics statistics;
    loader_start(loader, 0, 6);
    while (next_batch(loader))
        ;
    loader_statistics(loader, &statistics);
    assert_int_equal(statistics.samples.images, 6 * BATCH);
    assert_int_equal(statistics.samples.pixel_bytes, 6 * BATCH * EDGE * EDGE * 3);
    assert_true(statistics.samples.stored_bytes > (uint64_t)6 * BATCH * 500);
    double stages = 0;
    for (int stage = 0; stage < SAMPLE_STAGE_COUNT; stage++)
        stages += statistics.samples.seconds[stage];
    assert_true(statistics.samples.seconds[SAMPLE_DECODE] > 0 &&
                statistics.samples.seconds[SAMPLE_COPY] == 0);
    assert_true(stages > 0.5 * statistics.busy_seconds && stages <= statistics.busy_seconds);
    assert_true(statistics.cpu_seconds > 0);
    loader_free(&loader);
    fsh_close(&dataset);
}
