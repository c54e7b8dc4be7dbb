/* Splits that lie decoded in RAM, where they differ from those in a GPU's memory (resident_split_test.c):
 * evaluation, whole images, bad samples, and what is said of memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/dataset_support.h"
#include "tests/trainer/loader_support.h"
#include "trainer/data/decoded_split.h"
#include "trainer/data/loader.h"

enum { EDGE = 24, BATCH = 16 };

/* No larger than the crop: nothing is decoded at a part of its size. */
static const DatasetSpec small_spec = {.codec = FSH_CODEC_JPEG,
                                       .width = 17,
                                       .height = 15,
                                       .channels = 3,
                                       .class_count = 4,
                                       .train_count = 100,
                                       .val_count = 53,
                                       .shard_count = 3,
                                       .grow = 3};
static const DatasetSpec pairs_spec = {.codec = FSH_CODEC_JPEG,
                                       .width = 40,
                                       .height = 30,
                                       .channels = 3,
                                       .class_count = 4,
                                       .train_count = 50,
                                       .val_count = 7,
                                       .shard_count = 2,
                                       .kind = FSH_KIND_PAIRS,
                                       .grow = 9};

static const Augmentation rrc_view = {.mode = CROP_RESIZED,
                                      .size = EDGE,
                                      .channels = 3,
                                      .scale_min = 0.2,
                                      .scale_max = 1,
                                      .ratio_min = 0.75,
                                      .ratio_max = 1.3333,
                                      .flip_probability = 0.5};
static const Augmentation center_view = {.mode = CROP_CENTER, .size = EDGE, .resize = 28, .channels = 3};
static const Augmentation random_view = {.mode = CROP_RANDOM, .size = EDGE, .channels = 3};
static const Augmentation whole_view = {.mode = CROP_WHOLE, .channels = 3};

/* ---- help ---- */

static FshDataset *open_dataset(TestFolder *folder, const DatasetSpec *spec)
{
    const char *path = test_path(folder, "set");
    dataset_make(path, spec);
    FshDataset *dataset = NULL;
    FshError error = {0};
    assert_ok(fsh_open(&dataset, path, &error), &error);
    return dataset;
}

static LoaderOptions options_of(const FshDataset *dataset, const Augmentation *view, bool training)
{
    const bool pairs = fsh_manifest(dataset)->kind == FSH_KIND_PAIRS, whole = view->mode == CROP_WHOLE;
    return (LoaderOptions){.split = fsh_split(dataset, training ? "train" : "val"),
                           .kind = fsh_manifest(dataset)->kind,
                           .target_field = pairs ? 1 : 0,
                           .augmentation = *view,
                           .batch = whole ? 1 : BATCH,
                           .world_size = 1,
                           .seed = 5,
                           .training = training,
                           .workers = 3,
                           .batches_ahead = 2,
                           .fill = {9, 8, 7}};
}

static PixelSource *open_named(const char *name, const LoaderOptions *options)
{
    PixelSource *source = NULL;
    FshError error = {0};
    const PixelSourceOptions wanted = {
        .samples = {.split = options->split, .kind = options->kind, .target_field = options->target_field},
        .channels = options->augmentation.channels,
        .threads = 2,
        .skip_bad = options->skip_bad};
    assert_ok(pixel_source_new(&source, pixel_source_type(name), &wanted, &error), &error);
    return source;
}

static PixelSource *open_source(const LoaderOptions *options)
{
    return open_named("pixels", options);
}

static PixelSource *decode_named(const char *name, const LoaderOptions *options)
{
    PixelSource *source = open_named(name, options);
    FshError error = {0};
    assert_ok(pixel_source_measure(source, &error), &error);
    assert_ok(pixel_source_load(source, &error), &error);
    return source;
}

/* Decodes the split that these options are of. */
static PixelSource *decode_split(const LoaderOptions *options)
{
    return decode_named("pixels", options);
}

static void compare_batches(const Batch *a, const Batch *b, const LoaderOptions *options)
{
    const size_t bytes = (size_t)a->width * a->height * options->augmentation.channels * options->batch;
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->height, b->height);
    assert_int_equal(a->valid_count, b->valid_count);
    assert_memory_equal(a->samples, b->samples, options->batch * sizeof *a->samples);
    assert_memory_equal(a->valid, b->valid, options->batch * sizeof *a->valid);
    assert_memory_equal(a->pixels, b->pixels, bytes);
    if (a->labels)
        assert_memory_equal(a->labels, b->labels, options->batch * sizeof *a->labels);
    if (a->target)
        assert_memory_equal(a->target, b->target, bytes);
}

/* Compares two epochs with images from records, and from RAM as this source has them there. Returns the
 * samples that were left out. */
static uint64_t compare_source(const char *name, FshDataset *dataset, const Augmentation *view, bool training,
                               bool skip_bad)
{
    LoaderOptions options = options_of(dataset, view, training);
    char messages[2][1024] = {"", ""};
    options.skip_bad = skip_bad;
    PixelSource *decoded = decode_named(name, &options);
    assert_int_equal((uintptr_t)decoded_split_of(decoded)->pixels.bytes % 64, 0);
    Loader *plain = open_loader(&options);
    options.source = decoded;
    Loader *fast = open_loader(&options);
    const uint64_t steps = 2 * loader_step_count(plain);
    loader_start(plain, 0, steps);
    loader_start(fast, 0, steps);
    for (uint64_t step = 0; step < steps; step++)
        compare_batches(next_batch(plain), next_batch(fast), &options);
    assert_null(next_batch(fast));
    const uint64_t problems = loader_problem_count(fast);
    assert_int_equal(problems, loader_problem_count(plain));
    (void)loader_problem(plain, 0, messages[0], sizeof messages[0]);
    (void)loader_problem(fast, 0, messages[1], sizeof messages[1]);
    assert_string_equal(messages[0], messages[1]);
    loader_free(&plain);
    loader_free(&fast);
    pixel_source_free(&decoded);
    assert_null(decoded);
    return problems;
}

/* Compares both sources in RAM with the loader that decodes each time; returns the number of problems, which
 * must agree. */
static uint64_t compare_loaders(TestFolder *folder, const DatasetSpec *spec, const Augmentation *view,
                                bool training, bool skip_bad)
{
    FshDataset *dataset = open_dataset(folder, spec);
    const uint64_t problems = compare_source("pixels", dataset, view, training, skip_bad);
    assert_int_equal(compare_source("planes", dataset, view, training, skip_bad), problems);
    fsh_close(&dataset);
    return problems;
}

/* ---- batches ---- */

TEST_IN_FOLDER(test_training_crops_of_small_jpegs_are_the_same, folder)
{
    assert_int_equal(compare_loaders(folder, &small_spec, &rrc_view, true, false), 0);
}

TEST_IN_FOLDER(test_evaluation_and_its_padding_are_the_same, folder)
{
    assert_int_equal(compare_loaders(folder, &small_spec, &center_view, false, false), 0);
}

TEST_IN_FOLDER(test_evaluation_of_raw_images_is_the_same, folder)
{
    DatasetSpec spec = small_spec;
    spec.codec = FSH_CODEC_RAW;
    spec.channels = 1;
    assert_int_equal(compare_loaders(folder, &spec, &center_view, false, false), 0);
}

TEST_IN_FOLDER(test_whole_pairs_are_the_same, folder)
{
    assert_int_equal(compare_loaders(folder, &pairs_spec, &whole_view, false, false), 0);
}

TEST_IN_FOLDER(test_whole_raw_pairs_are_the_same, folder)
{
    DatasetSpec spec = pairs_spec;
    spec.codec = FSH_CODEC_RAW;
    assert_int_equal(compare_loaders(folder, &spec, &whole_view, false, false), 0);
}

/* ---- planes ---- */

/* libjpeg's own upsampling and conversion, at odd and even sizes and places. */
TEST_IN_FOLDER(test_crops_from_planes_are_those_of_libjpeg, folder)
{
    DatasetSpec spec = small_spec;
    spec.subsampled = true;
    assert_int_equal(compare_loaders(folder, &spec, &rrc_view, true, false), 0);
}

TEST_IN_FOLDER(test_gray_files_are_kept_gray_for_a_network_of_colours, folder)
{
    DatasetSpec spec = small_spec;
    Augmentation jittered = rrc_view;
    spec.channels = 1;
    jittered.jitter = (ColourJitter){0.4, 0.4, 0.4, 0.1};
    assert_int_equal(compare_loaders(folder, &spec, &jittered, true, false), 0);
}

TEST_IN_FOLDER(test_whole_pairs_in_planes_are_the_same, folder)
{
    DatasetSpec spec = pairs_spec;
    spec.subsampled = true;
    spec.width = 601; /* several tiles of columns, and an edge within one */
    assert_int_equal(compare_loaders(folder, &spec, &whole_view, false, false), 0);
}

TEST_IN_FOLDER(test_random_crops_of_pairs_in_planes_are_the_same, folder)
{
    DatasetSpec spec = pairs_spec;
    spec.subsampled = true;
    assert_int_equal(compare_loaders(folder, &spec, &random_view, true, false), 0);
}

TEST_IN_FOLDER(test_tiny_images_are_kept_as_pixels_where_libjpeg_repeats_chroma, folder)
{
    DatasetSpec spec = small_spec;
    spec.subsampled = true;
    spec.width = 3;
    spec.height = 1;
    spec.grow = 5;
    assert_int_equal(compare_loaders(folder, &spec, &rrc_view, true, false), 0);
}

TEST_IN_FOLDER(test_a_bad_sample_in_planes_is_left_out, folder)
{
    DatasetSpec spec = small_spec;
    spec.subsampled = spec.untabled = true;
    assert_int_equal(compare_loaders(folder, &spec, &rrc_view, true, true), 1);
}

/* Returns the memory that the training split takes as planes. */
static uint64_t split_bytes(const FshDataset *dataset, uint32_t channels)
{
    LoaderOptions options = options_of(dataset, &rrc_view, true);
    options.augmentation.channels = channels;
    PixelSource *source = decode_named("planes", &options);
    const uint64_t bytes = pixel_source_ram_bytes(source);
    pixel_source_free(&source);
    return bytes;
}

static uint64_t planes_bytes(TestFolder *folder, const DatasetSpec *spec, uint32_t channels)
{
    FshDataset *dataset = open_dataset(folder, spec);
    const uint64_t bytes = split_bytes(dataset, channels);
    fsh_close(&dataset);
    return bytes;
}

/* A file says by its first bytes that it is a JPEG. */
TEST_IN_FOLDER(test_files_that_nobody_has_packed_become_planes, folder)
{
    DatasetSpec spec = small_spec;
    spec.subsampled = true;
    FshDataset *packed = open_dataset(folder, &spec), *files = NULL;
    FshError error = {0};
    dataset_unpack(fsh_split(packed, "train"), test_path(folder, "files"));
    assert_ok(fsh_open(&files, test_path(folder, "files"), &error), &error);
    assert_int_equal(split_bytes(files, 3), split_bytes(packed, 3));
    fsh_close(&files);
    fsh_close(&packed);
}

/* Only a JPEG of 4:2:0 for a network of colours takes half. */
TEST(test_planes_take_half_the_memory)
{
    enum { COUNT = 100, PIXELS = 20 * 10 };
    const DatasetSpec halved = {.codec = FSH_CODEC_JPEG,
                                .width = 20,
                                .height = 10,
                                .channels = 3,
                                .class_count = 4,
                                .train_count = COUNT,
                                .val_count = 4,
                                .shard_count = 1,
                                .subsampled = true};
    DatasetSpec full = halved, raw = halved, gray = halved;
    full.subsampled = false;
    raw.codec = FSH_CODEC_RAW;
    gray.channels = 1;
    const struct {
        const DatasetSpec *spec;
        uint32_t channels;
        uint64_t bytes;
    } cases[] = {{&halved, 3, PIXELS * 3 / 2}, {&halved, 1, PIXELS}, {&full, 3, PIXELS * 3},
                 {&raw, 3, PIXELS * 3},        {&gray, 3, PIXELS},   {&gray, 1, PIXELS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TestFolder folder;
        test_folder_make(&folder);
        assert_int_equal(planes_bytes(&folder, cases[i].spec, cases[i].channels), COUNT * cases[i].bytes);
        test_folder_remove(&folder);
    }
}

/* ---- memory ---- */

/* Records are no longer looked at: with their files overwritten by zeros the pixels are what they were. */
TEST_IN_FOLDER(test_batches_come_from_memory, folder)
{
    FshDataset *dataset = open_dataset(folder, &small_spec);
    LoaderOptions options = options_of(dataset, &rrc_view, true);
    PixelSource *decoded = decode_split(&options);
    Loader *plain = open_loader(&options);
    options.source = decoded;
    options.measure = true;
    Loader *fast = open_loader(&options);
    LoaderStatistics statistics;
    loader_start(plain, 0, 1);
    const Batch *expected = next_batch(plain);
    const char *shards[] = {"train-00000-of-00003", "train-00001-of-00003", "train-00002-of-00003"};
    for (size_t i = 0; i < 3; i++) {
        const char *path = test_path(folder, "set/%s.fshard", shards[i]);
        const uint64_t bytes = test_file_size(path);
        char *zeros = calloc(1, bytes);
        FILE *stream = fopen(path, "r+e");
        assert_true(zeros && stream);
        assert_int_equal(fwrite(zeros, 1, bytes, stream), bytes);
        assert_int_equal(fclose(stream), 0);
        free(zeros);
    }
    loader_start(fast, 0, 1);
    compare_batches(expected, next_batch(fast), &options);
    loader_statistics(fast, &statistics);
    assert_int_equal(statistics.samples.stored_bytes, 0);
    assert_true(statistics.samples.seconds[SAMPLE_DECODE] == 0);
    loader_free(&plain);
    loader_free(&fast);
    pixel_source_free(&decoded);
    fsh_close(&dataset);
}

/* ---- samples that cannot be used ---- */

TEST_IN_FOLDER(test_a_bad_sample_is_left_out_of_batches, folder)
{
    DatasetSpec spec = small_spec;
    spec.untabled = true; /* measures well, does not decode */
    assert_int_equal(compare_loaders(folder, &spec, &rrc_view, true, true), 1);
}

TEST_IN_FOLDER(test_a_bad_whole_pair_is_left_out, folder)
{
    DatasetSpec spec = pairs_spec;
    spec.uneven = true;
    assert_int_equal(compare_loaders(folder, &spec, &whole_view, false, true), 1);
}

TEST_IN_FOLDER(test_a_bad_sample_stops_the_load_by_name, folder)
{
    DatasetSpec spec = small_spec;
    spec.untabled = true;
    FshDataset *dataset = open_dataset(folder, &spec);
    FshError error = {0};
    const LoaderOptions options = options_of(dataset, &rrc_view, true);
    PixelSource *decoded = open_source(&options);
    assert_ok(pixel_source_measure(decoded, &error), &error);
    assert_int_equal(pixel_source_load(decoded, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "packed from train/class01/000005.png");
    assert_null(decoded_split_of(decoded)->pixels.bytes);
    assert_true(pixel_source_ram_bytes(decoded) > 0);
    pixel_source_free(&decoded);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_nothing_but_bad_samples_is_an_empty_split, folder)
{
    DatasetSpec spec = small_spec;
    spec.val_count = spec.shard_count = 1;
    FshDataset *dataset = open_dataset(folder, &spec);
    FshError error = {0};
    LoaderOptions options = options_of(dataset, &center_view, false);
    const char *shard = test_path(folder, "set/val-00000-of-00001.fshard");
    FshSample sample;
    size_t length = 0;
    assert_ok(fsh_sample_get(options.split, 0, &sample, &error), &error);
    char *bytes = test_file_read(shard, &length);
    const char *at = memmem(bytes, length, sample.fields[0].data, sample.fields[0].bytes);
    assert_non_null(at);
    test_file_flip_byte(shard, at - bytes + 100);
    free(bytes);
    options.skip_bad = true;
    PixelSource *decoded = decode_split(&options);
    assert_int_equal(pixel_source_ram_bytes(decoded), 0);
    options.source = decoded;
    Loader *loader = open_loader(&options);
    loader_start(loader, 0, 1);
    assert_int_equal(next_batch(loader)->valid_count, 0);
    assert_int_equal(loader_problem_count(loader), 1);
    loader_free(&loader);
    pixel_source_free(&decoded);
    fsh_close(&dataset);
}

/* The message of a sample whose record nobody has opened says where it lies all the same. */
TEST_IN_FOLDER(test_a_crop_larger_than_a_pair_names_it, folder)
{
    FshDataset *dataset = open_dataset(folder, &pairs_spec);
    FshError errors[2] = {{0}, {0}};
    LoaderOptions options = options_of(dataset, &random_view, true);
    options.augmentation.size = 36;
    options.workers = 1;
    PixelSource *decoded = decode_split(&options);
    for (int i = 0; i < 2; i++) {
        const Batch *batch;
        options.source = i ? decoded : NULL;
        Loader *loader = open_loader(&options);
        loader_start(loader, 0, 1);
        assert_int_equal(loader_next(loader, &batch, &errors[i]), FSH_ERR_MISMATCH);
        loader_free(&loader);
    }
    assert_contains(errors[1].message, "x 30 pixels, too small for a crop of 36 x 36");
    assert_string_equal(errors[1].message, errors[0].message);
    pixel_source_free(&decoded);
    fsh_close(&dataset);
}

/* ---- what is refused ---- */

TEST_IN_FOLDER(test_a_loader_wants_its_split_loaded, folder)
{
    FshDataset *dataset = open_dataset(folder, &small_spec);
    FshError error = {0};
    const Batch *batch;
    LoaderOptions options = options_of(dataset, &rrc_view, true);
    PixelSource *decoded = open_source(&options);
    decoded->type->prefetch(decoded, NULL, 0); /* as workers do before they look */
    assert_ok(pixel_source_measure(decoded, &error), &error);
    options.source = decoded;
    Loader *loader = open_loader(&options);
    loader_start(loader, 0, 1);
    assert_int_equal(loader_next(loader, &batch, &error), FSH_ERR_USAGE);
    assert_contains(error.message, "was not loaded");
    loader_free(&loader);
    pixel_source_free(&decoded);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_room_is_that_of_all_ranks_with_some_left, folder)
{
    enum { MEGABYTE = 1 << 20 };
    FshDataset *dataset = open_dataset(folder, &small_spec);
    const LoaderOptions options = options_of(dataset, &rrc_view, true);
    PixelSource *decoded = open_source(&options);
    FshError error = {0};
    assert_ok(pixel_source_check_room(decoded, 4 * MEGABYTE, 1, 260 * MEGABYTE, &error), &error);
    assert_int_equal(pixel_source_check_room(decoded, 4 * MEGABYTE + 1, 1, 260 * MEGABYTE, &error),
                     FSH_ERR_MEMORY);
    assert_contains(error.message,
                    "set: --cache pixels: the decoded images take 4 MiB, and 4 MiB of memory are free; "
                    "pack smaller images (fpack --max-size), or use --cache ram");
    assert_int_equal(pixel_source_check_room(decoded, 4 * MEGABYTE, 2, 260 * MEGABYTE, &error),
                     FSH_ERR_MEMORY);
    assert_contains(error.message, "take 4 MiB in each of 2 ranks, and 4 MiB of memory");
    assert_contains(error.message, "start fewer ranks, or");
    assert_ok(pixel_source_check_room(decoded, 2 * MEGABYTE, 2, 260 * MEGABYTE, &error), &error);
    assert_int_equal(pixel_source_check_room(decoded, 1, 1, 100, &error), FSH_ERR_MEMORY);
    pixel_source_free(&decoded);
    fsh_close(&dataset);
}
