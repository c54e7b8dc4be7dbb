#include "trainer/data/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "common/progress.h"
#include "tests/support/support.h"
#include "tests/trainer/dataset_support.h"
#include "tests/trainer/loader_support.h"

static const DatasetSpec jpeg_spec = {.codec = FSH_CODEC_JPEG,
                                      .width = 48,
                                      .height = 40,
                                      .channels = 3,
                                      .class_count = 4,
                                      .train_count = 100,
                                      .val_count = 53,
                                      .shard_count = 3};

static const Augmentation train_view = {.mode = CROP_RESIZED,
                                        .size = 24,
                                        .channels = 3,
                                        .scale_min = 0.2,
                                        .scale_max = 1,
                                        .ratio_min = 0.75,
                                        .ratio_max = 1.3333,
                                        .flip_probability = 0.5};
static const Augmentation val_view = {.mode = CROP_CENTER, .size = 24, .resize = 28, .channels = 3};

enum { PIXELS = 24 * 24 * 3 };

/* Makes a dataset in the test's folder and opens it. */
static FshDataset *open_dataset(TestFolder *folder, const DatasetSpec *spec)
{
    const char *path = test_path(folder, "set");
    dataset_make(path, spec);
    FshDataset *dataset = NULL;
    FshError error = {0};
    assert_ok(fsh_open(&dataset, path, &error), &error);
    return dataset;
}

static LoaderOptions make_options(const FshDataset *dataset, bool training)
{
    return (LoaderOptions){.split = fsh_split(dataset, training ? "train" : "val"),
                           .augmentation = training ? train_view : val_view,
                           .batch = 16,
                           .world_size = 1,
                           .seed = 5,
                           .training = training,
                           .workers = 3,
                           .batches_ahead = 2,
                           .fill = {9, 8, 7}};
}

TEST_IN_FOLDER(test_evaluation_gives_every_sample_once_and_pads_the_last_batch, folder)
{
    FshDataset *dataset = open_dataset(folder, &jpeg_spec);
    const LoaderOptions options = make_options(dataset, false);
    Loader *loader = open_loader(&options);
    assert_int_equal(loader_step_count(loader), 4);
    uint64_t place = 0, valid = 0;
    loader_start(loader, 0, 4);
    for (const Batch *batch = next_batch(loader); batch; batch = next_batch(loader)) {
        valid += batch->valid_count;
        for (uint64_t i = 0; i < 16; i++, place++) {
            assert_int_equal(batch->samples[i], place < 53 ? place : SAMPLER_PADDING);
            assert_int_equal(batch->labels[i], place < 53 ? (int64_t)(place % 4) : -1);
            if (place >= 53)
                assert_memory_equal(batch->pixels + i * PIXELS, "\x09\x08\x07\x09", 4);
        }
    }
    assert_int_equal(place, 64);
    assert_int_equal(valid, 53);
    loader_free(&loader);
    assert_null(loader);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_raw_samples_of_the_right_size_arrive_unchanged, folder)
{
    DatasetSpec spec = jpeg_spec;
    spec.codec = FSH_CODEC_RAW;
    spec.width = spec.height = 24;
    FshDataset *dataset = open_dataset(folder, &spec);
    LoaderOptions options = make_options(dataset, false);
    options.augmentation.resize = 24;
    Loader *loader = open_loader(&options);
    loader_start(loader, 0, 4);
    for (const Batch *batch = next_batch(loader); batch; batch = next_batch(loader)) {
        assert_int_equal((uintptr_t)batch->pixels % 64, 0);
        for (uint64_t i = 0; i < 16 && batch->samples[i] != SAMPLER_PADDING; i++) {
            uint8_t expected[PIXELS];
            dataset_draw(&spec, batch->samples[i], expected);
            assert_memory_equal(batch->pixels + i * PIXELS, expected, PIXELS);
        }
    }
    loader_free(&loader);
    fsh_close(&dataset);
}

/* All pixels, labels and samples of `count` batches from number `first`. */
typedef struct Recording {
    uint8_t *pixels;
    int64_t labels[32 * 16];
    uint64_t samples[32 * 16];
} Recording;

static Recording record_batches(LoaderOptions options, int workers, size_t ahead, uint64_t first,
                                uint64_t count)
{
    options.workers = workers;
    options.batches_ahead = ahead;
    Recording recording = {.pixels = malloc(count * 16 * PIXELS)};
    assert_true(recording.pixels && count <= 32);
    Loader *loader = open_loader(&options);
    loader_start(loader, first, count);
    for (uint64_t b = 0; b < count; b++) {
        const Batch *batch = next_batch(loader);
        assert_non_null(batch);
        assert_int_equal(batch->epoch, (first + b) / loader_step_count(loader));
        assert_int_equal(batch->step, (first + b) % loader_step_count(loader));
        memcpy(recording.pixels + b * 16 * PIXELS, batch->pixels, (size_t)16 * PIXELS);
        memcpy(recording.labels + b * 16, batch->labels, 16 * sizeof *batch->labels);
        memcpy(recording.samples + b * 16, batch->samples, 16 * sizeof *batch->samples);
    }
    assert_null(next_batch(loader));
    assert_null(next_batch(loader));
    loader_free(&loader);
    return recording;
}

TEST_IN_FOLDER(test_batches_do_not_depend_on_the_number_of_workers, folder)
{
    FshDataset *dataset = open_dataset(folder, &jpeg_spec);
    const LoaderOptions options = make_options(dataset, true);
    enum { BATCHES = 3 * 6 };
    Recording one = record_batches(options, 1, 1, 0, BATCHES);
    const int workers[] = {2, 3, 7};
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++) {
        Recording several = record_batches(options, workers[i], i + 1, 0, BATCHES);
        assert_memory_equal(several.samples, one.samples, BATCHES * 16 * sizeof *one.samples);
        assert_memory_equal(several.labels, one.labels, BATCHES * 16 * sizeof *one.labels);
        assert_memory_equal(several.pixels, one.pixels, (size_t)BATCHES * 16 * PIXELS);
        free(several.pixels);
    }
    free(one.pixels);
    fsh_close(&dataset);
}

enum { DIGESTS_MOST = 1 << 17 };

/* Lets a loader of some of `most` workers run until the number of those that take part is in least..end, for
 * a minute at most; the consumer takes pause_us for a batch. Then checks that one worker makes the same
 * batches. */
static void check_change(LoaderOptions options, int most, int least, int end, unsigned pause_us)
{
    uint64_t *digests = calloc(DIGESTS_MOST, sizeof *digests);
    const double deadline = progress_now_seconds() + 60;
    size_t count = 0;
    options.workers_most = most;
    Loader *loader = open_loader(&options);
    assert_int_equal(loader_active_workers(loader), options.workers);
    loader_start(loader, 0, DIGESTS_MOST);
    int active = options.workers;
    while ((active < least || active > end) && count < DIGESTS_MOST && progress_now_seconds() < deadline) {
        digests[count++] = XXH3_64bits(next_batch(loader)->pixels, (size_t)16 * PIXELS);
        (void)usleep(pause_us);
        active = loader_active_workers(loader);
    }
    assert_in_range(active, least, end);
    loader_free(&loader);
    options.workers = options.workers_most = 1;
    loader = open_loader(&options);
    loader_start(loader, 0, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(XXH3_64bits(next_batch(loader)->pixels, (size_t)16 * PIXELS), digests[i]);
    assert_int_equal(loader_active_workers(loader), 1);
    loader_free(&loader);
    free(digests);
}

TEST_IN_FOLDER(test_workers_join_and_rest_and_batches_stay_the_same, folder)
{
    FshDataset *dataset = open_dataset(folder, &jpeg_spec);
    LoaderOptions options = make_options(dataset, true);
    options.workers = 1;
    check_change(options, 4, 2, 4, 0);
    options.workers = 7;
    check_change(options, 8, 1, 3, 20000);
    fsh_close(&dataset);
}

TEST(test_alternating_flips_show_each_image_both_ways_in_two_epochs)
{
    enum { SAMPLES = 1000 };
    Augmentation view = train_view;
    size_t flipped = 0;
    view.flip_mode = FLIP_ALTERNATING;
    view.flip_probability = 0.5;
    for (uint64_t sample = 0; sample < SAMPLES; sample++) {
        bool before = false;
        for (uint64_t epoch = 0; epoch < 5; epoch++) {
            SampleRecipe recipe;
            sample_recipe_draw(&recipe, &view, 5, epoch, sample, 48, 40);
            assert_true(epoch == 0 || recipe.crop.flip != before);
            before = recipe.crop.flip;
        }
        flipped += before;
    }
    assert_true(flipped > SAMPLES * 2 / 5 && flipped < SAMPLES * 3 / 5);
}

TEST(test_alternating_flips_leave_the_rest_as_it_is)
{
    SampleRecipe random, alternating;
    Augmentation view = train_view;
    for (uint64_t sample = 0; sample < 50; sample++) {
        view.flip_mode = FLIP_RANDOM;
        sample_recipe_draw(&random, &view, 5, 1, sample, 48, 40);
        view.flip_mode = FLIP_ALTERNATING;
        sample_recipe_draw(&alternating, &view, 5, 1, sample, 48, 40);
        assert_memory_equal(&random.crop.box, &alternating.crop.box, sizeof random.crop.box);
    }
}

/* Applies to a rendered crop what the recipe of its sample says comes behind. */
static void finish_crop(const LoaderOptions *options, uint64_t sample, uint8_t *pixels)
{
    SampleRecipe recipe;
    uint8_t scratch[PIXELS];
    ImageCanvas canvas = {.pixels = pixels, .scratch = scratch, .width = 24, .height = 24, .channels = 3};
    memcpy(canvas.fill, options->fill, sizeof canvas.fill);
    sample_recipe_draw(&recipe, &options->augmentation, options->seed, 0, sample, 48, 40);
    auto_augment_apply(&recipe.operations, &canvas);
    colour_jitter_apply(&recipe.colours, pixels, (size_t)24 * 24, 3);
}

TEST_IN_FOLDER(test_operations_come_behind_the_crop_and_before_colours, folder)
{
    enum { BATCHES = 6 };
    FshDataset *dataset = open_dataset(folder, &jpeg_spec);
    FshError error = {0};
    LoaderOptions options = make_options(dataset, true);
    Recording crops = record_batches(options, 2, 2, 0, BATCHES);
    options.augmentation.jitter.contrast = 0.4;
    assert_ok(auto_augment_parse("rand-m9-n3-mstd1-p0.9", &options.augmentation.auto_augment, &error),
              &error);
    Recording finished = record_batches(options, 2, 2, 0, BATCHES);
    for (size_t i = 0; i < BATCHES * (size_t)16; i++) {
        finish_crop(&options, crops.samples[i], crops.pixels + i * PIXELS);
        assert_memory_equal(finished.pixels + i * PIXELS, crops.pixels + i * PIXELS, PIXELS);
    }
    free(crops.pixels);
    free(finished.pixels);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_operations_do_not_depend_on_workers_and_ranks, folder)
{
    enum { BATCHES = 6, HALF = 3 };
    FshDataset *dataset = open_dataset(folder, &jpeg_spec);
    FshError error = {0};
    LoaderOptions options = make_options(dataset, true);
    Recording plain = record_batches(options, 1, 1, 0, BATCHES);
    assert_ok(auto_augment_parse("ta_wide", &options.augmentation.auto_augment, &error), &error);
    Recording one = record_batches(options, 1, 1, 0, BATCHES),
              several = record_batches(options, 5, 2, 0, BATCHES);
    assert_memory_equal(several.pixels, one.pixels, (size_t)BATCHES * 16 * PIXELS);
    assert_memory_not_equal(plain.pixels, one.pixels, (size_t)BATCHES * 16 * PIXELS);
    options.world_size = 2;
    options.rank = 1;
    Recording second = record_batches(options, 3, 2, 0, HALF);
    size_t found = 0;
    for (size_t i = 0; i < HALF * (size_t)16; i++)
        for (size_t j = 0; j < BATCHES * (size_t)16; j++)
            if (second.samples[i] == one.samples[j]) {
                assert_memory_equal(second.pixels + i * PIXELS, one.pixels + j * PIXELS, PIXELS);
                found++;
            }
    assert_int_equal(found, HALF * 16);
    free(plain.pixels);
    free(one.pixels);
    free(several.pixels);
    free(second.pixels);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_compressed_samples_make_the_same_batches, folder)
{
    enum { BATCHES = 6 };
    const FshCodec codecs[] = {FSH_CODEC_RAW, FSH_CODEC_JPEG};
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        Recording recordings[2];
        for (int compressed = 0; compressed < 2; compressed++) {
            char name[32];
            DatasetSpec spec = jpeg_spec;
            FshDataset *dataset = NULL;
            FshError error = {0};
            spec.codec = codecs[i];
            spec.compressed = compressed;
            (void)snprintf(name, sizeof name, "set-%zu-%d", i, compressed);
            dataset_make(test_path(folder, name), &spec);
            assert_ok(fsh_open(&dataset, test_path(folder, name), &error), &error);
            recordings[compressed] = record_batches(make_options(dataset, true), 3, 2, 0, BATCHES);
            fsh_close(&dataset);
        }
        assert_memory_equal(recordings[1].samples, recordings[0].samples,
                            BATCHES * 16 * sizeof *recordings[0].samples);
        assert_memory_equal(recordings[1].pixels, recordings[0].pixels, (size_t)BATCHES * 16 * PIXELS);
        free(recordings[0].pixels);
        free(recordings[1].pixels);
    }
}

TEST_IN_FOLDER(test_epochs_differ_in_order_and_in_augmentation, folder)
{
    FshDataset *dataset = open_dataset(folder, &jpeg_spec);
    Recording recording = record_batches(make_options(dataset, true), 2, 2, 0, 12);
    assert_memory_not_equal(recording.samples, recording.samples + 96, 96 * sizeof *recording.samples);
    /* The same sample in both epochs, if it is in both: other pixels. */
    size_t same = 0, compared = 0;
    for (size_t i = 0; i < 96; i++)
        for (size_t j = 96; j < 192; j++)
            if (recording.samples[i] == recording.samples[j]) {
                same += memcmp(recording.pixels + i * PIXELS, recording.pixels + j * PIXELS, PIXELS) == 0;
                compared++;
            }
    assert_true(compared > 80);
    assert_int_equal(same, 0);
    free(recording.pixels);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_a_start_in_the_middle_gives_what_would_have_come, folder)
{
    FshDataset *dataset = open_dataset(folder, &jpeg_spec);
    const LoaderOptions options = make_options(dataset, true);
    Recording whole = record_batches(options, 2, 2, 0, 12), rest = record_batches(options, 2, 2, 4, 8);
    assert_memory_equal(rest.samples, whole.samples + 64, 128 * sizeof *rest.samples);
    assert_memory_equal(rest.pixels, whole.pixels + (size_t)64 * PIXELS, (size_t)128 * PIXELS);
    free(whole.pixels);
    free(rest.pixels);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_starting_again_drops_what_was_under_way, folder)
{
    FshDataset *dataset = open_dataset(folder, &jpeg_spec);
    const LoaderOptions options = make_options(dataset, true);
    Loader *loader = open_loader(&options);
    for (uint64_t round = 0; round < 20; round++) {
        loader_start(loader, round, 50);
        for (uint64_t b = 0; b < round % 4; b++)
            assert_int_equal(next_batch(loader)->step, (round + b) % 6);
    }
    loader_start(loader, 6, 1);
    const Batch *batch = next_batch(loader);
    assert_int_equal(batch->epoch, 1);
    assert_int_equal(batch->step, 0);
    assert_null(next_batch(loader));
    loader_free(&loader);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_a_loader_can_be_freed_at_any_time, folder)
{
    FshDataset *dataset = open_dataset(folder, &jpeg_spec);
    const LoaderOptions options = make_options(dataset, true);
    for (uint64_t round = 0; round < 30; round++) {
        Loader *loader = open_loader(&options);
        if (round % 5)
            loader_start(loader, 0, 50);
        for (uint64_t b = 0; b + 1 < round % 5; b++)
            assert_non_null(next_batch(loader));
        loader_free(&loader);
    }
    Loader *none = NULL;
    loader_free(&none);
    fsh_close(&dataset);
}

/* ---- bad samples ---- */

/* Runs `epochs` epochs of training; returns the first failure. *blank_ret is the number of samples that were
 * left out. */
static FshStatus run_epochs(Loader *loader, uint64_t epochs, uint64_t *blank_ret, FshError *error)
{
    const Batch *batch = NULL;
    FshStatus status = FSH_OK;
    *blank_ret = 0;
    loader_start(loader, 0, epochs * loader_step_count(loader));
    do {
        status = loader_next(loader, &batch, error);
        for (uint64_t i = 0; batch && i < 16; i++)
            if (batch->labels[i] == -1) {
                assert_memory_equal(batch->pixels + i * PIXELS, "\x09\x08\x07\x09", 4);
                ++*blank_ret;
            }
    } while (!status && batch);
    return status;
}

/* Asserts that an epoch of evaluation stops at the one bad sample of a dataset, and names it. words: what is
 * wrong with it. */
static void expect_stop(TestFolder *folder, const DatasetSpec *spec, const char *words)
{
    FshDataset *dataset = open_dataset(folder, spec);
    LoaderOptions options = make_options(dataset, false);
    Loader *loader = open_loader(&options);
    FshError error = {0};
    uint64_t blank;
    assert_int_not_equal(run_epochs(loader, 1, &blank, &error), FSH_OK);
    assert_contains(error.message, "val-00000-of-00003.fshard record 5");
    assert_contains(error.message, words);
    assert_contains(error.message, "packed from val/class01/000005.png");
    loader_free(&loader);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_a_sample_that_is_no_image_stops_with_its_place, folder)
{
    DatasetSpec spec = jpeg_spec;
    spec.garbage = true;
    expect_stop(folder, &spec, "key class01/000005");
}

TEST_IN_FOLDER(test_a_sample_that_is_no_frame_stops_with_its_place, folder)
{
    DatasetSpec spec = jpeg_spec;
    spec.compressed = spec.broken_frame = true;
    expect_stop(folder, &spec, "no zstd frame");
}

TEST_IN_FOLDER(test_a_skipped_sample_is_blank_and_named_once, folder)
{
    DatasetSpec spec = jpeg_spec;
    spec.garbage = true;
    FshDataset *dataset = open_dataset(folder, &spec);
    LoaderOptions options = make_options(dataset, false);
    options.skip_bad = true;
    Loader *loader = open_loader(&options);
    FshError error = {0};
    char message[512];
    uint64_t blank;
    for (int round = 0; round < 3; round++) {
        assert_ok(run_epochs(loader, 1, &blank, &error), &error);
        assert_int_equal(blank, 11 + 1); /* padding, and the bad one */
    }
    assert_int_equal(loader_problem_count(loader), 1);
    assert_true(loader_problem(loader, 0, message, sizeof message));
    assert_contains(message, "record 5");
    assert_false(loader_problem(loader, 1, message, sizeof message));
    loader_free(&loader);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_the_first_bad_sample_in_order_is_the_one_reported, folder)
{
    DatasetSpec spec = jpeg_spec;
    spec.codec = FSH_CODEC_RAW;
    FshDataset *dataset = open_dataset(folder, &spec);
    /* One byte in the pixels of every record of the last shard: all 18 are bad, the first of them is
     * number 35. */
    FshSample sample;
    FshError error = {0};
    const FshSplit *val = fsh_split(dataset, "val");
    const char *shard = test_path(folder, "set/val-00002-of-00003.fshard");
    size_t length = 0;
    char *bytes = test_file_read(shard, &length);
    for (uint64_t i = 35; i < 53; i++) {
        assert_ok(fsh_sample_get(val, i, &sample, &error), &error);
        const char *at = memmem(bytes, length, sample.fields[0].data, sample.fields[0].bytes);
        assert_non_null(at);
        test_file_flip_byte(shard, at - bytes + 100);
    }
    free(bytes);
    fsh_close(&dataset);
    assert_ok(fsh_open(&dataset, test_path(folder, "set"), &error), &error);
    LoaderOptions options = make_options(dataset, false);
    options.workers = 7;
    for (int round = 0; round < 10; round++) {
        Loader *loader = open_loader(&options);
        uint64_t blank;
        assert_int_equal(run_epochs(loader, 1, &blank, &error), FSH_ERR_CORRUPT);
        assert_contains(error.message, "val-00002-of-00003.fshard");
        assert_contains(error.message, "record 0");
        assert_contains(error.message, "class03/000035");
        assert_contains(error.message, "packed from val/class03/000035.png");
        loader_free(&loader);
    }
    fsh_close(&dataset);
}

/* A flipped byte in raw pixels, which "decode" whatever they hold: only the checksum tells, in each epoch
 * anew, and also for a sample that the first epoch left over. */
TEST_IN_FOLDER(test_a_wrong_checksum_is_left_out_in_every_epoch, folder)
{
    enum { EPOCHS = 6, BAD = 24 };
    DatasetSpec spec = jpeg_spec;
    spec.codec = FSH_CODEC_RAW;
    FshDataset *dataset = open_dataset(folder, &spec);
    const char *shard = test_path(folder, "set/train-00000-of-00003.fshard");
    size_t length = 0;
    FshSample sample;
    FshError error = {0};
    char *bytes = test_file_read(shard, &length);
    for (uint64_t i = 0; i < BAD; i++) {
        assert_ok(fsh_sample_get(fsh_split(dataset, "train"), i, &sample, &error), &error);
        const char *at = memmem(bytes, length, sample.fields[0].data, sample.fields[0].bytes);
        assert_non_null(at);
        test_file_flip_byte(shard, at - bytes + 100);
    }
    free(bytes);
    fsh_close(&dataset);
    assert_ok(fsh_open(&dataset, test_path(folder, "set"), &error), &error);
    LoaderOptions options = make_options(dataset, true);
    options.skip_bad = true;
    Loader *loader = open_loader(&options);
    uint64_t expected = 0, blank, seen_later = 0;
    bool seen[BAD] = {false};
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
        for (uint64_t place = 0; place < loader_step_count(loader) * 16; place++) {
            uint64_t index = sampler_at(loader_sampler(loader), epoch, place / 16, place % 16).sample;
            if (index >= BAD)
                continue;
            expected++;
            seen_later += epoch > 0 && !seen[index];
            seen[index] = true;
        }
    assert_true(seen_later > 0); /* or the seed says nothing about left-over samples */
    assert_ok(run_epochs(loader, EPOCHS, &blank, &error), &error);
    assert_int_equal(blank, expected);
    assert_int_equal(loader_problem_count(loader), BAD);
    loader_free(&loader);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_the_consumer_knows_how_long_it_waited, folder)
{
    FshDataset *dataset = open_dataset(folder, &jpeg_spec);
    const LoaderOptions options = make_options(dataset, true);
    Loader *loader = open_loader(&options);
    assert_true(loader_wait_seconds(loader) == 0);
    loader_start(loader, 0, 60);
    while (next_batch(loader))
        ;
    assert_true(loader_wait_seconds(loader) > 0); /* nobody is faster than nothing */
    loader_free(&loader);
    fsh_close(&dataset);
}
