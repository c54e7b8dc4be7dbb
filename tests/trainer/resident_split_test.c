/* Splits that lie in a backend's memory, here a fake one of malloc, or in RAM: loaded whole, and batches of
 * recipes, or rendered from there, that give the loader's bytes. What is RAM's alone:
 * resident_host_test.c. */
#include "trainer/data/pixel_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/dataset_support.h"
#include "tests/trainer/fake_store.h"
#include "tests/trainer/pixels_support.h"
#include "trainer/data/loader.h"

enum { EDGE = 24, BATCH = 16 };

/* ---- datasets ---- */

static const DatasetSpec raw_spec = {.codec = FSH_CODEC_RAW,
                                     .width = 40,
                                     .height = 33,
                                     .channels = 3,
                                     .class_count = 4,
                                     .train_count = 100,
                                     .val_count = 20,
                                     .shard_count = 3,
                                     .grow = 9};

static const Augmentation rrc_view = {
    .mode = CROP_RESIZED,
    .size = EDGE,
    .channels = 3,
    .scale_min = 0.2,
    .scale_max = 1,
    .ratio_min = 0.75,
    .ratio_max = 1.3333,
    .flip_probability = 0.5,
};

static void open_split(TestFolder *folder, const DatasetSpec *spec, FshDataset **dataset,
                       const FshSplit **split)
{
    FshError error = {0};
    test_folder_make(folder);
    const char *path = test_path(folder, "set");
    dataset_make(path, spec);
    assert_ok(fsh_open(dataset, path, &error), &error);
    *split = fsh_split(*dataset, "train");
    assert_non_null(*split);
}

static PixelSourceOptions options_of(const FshSplit *split, FshKind kind, uint32_t channels)
{
    return (PixelSourceOptions){
        .samples = {.split = split, .kind = kind, .target_field = kind == FSH_KIND_PAIRS},
        .channels = channels,
        .threads = 3,
        .backend = &fake_backend};
}

static PixelSource *open_source(const char *name, const PixelSourceOptions *options)
{
    PixelSource *source = NULL;
    FshError error = {0};
    assert_ok(pixel_source_new(&source, pixel_source_type(name), options, &error), &error);
    return source;
}

static PixelSource *load(const char *name, const PixelSourceOptions *options)
{
    PixelSource *source = open_source(name, options);
    FshError error = {0};
    assert_ok(pixel_source_measure(source, &error), &error);
    assert_ok(pixel_source_load(source, &error), &error);
    return source;
}

static void compare_samples(const Batch *plain, const Batch *drawn, unsigned sides)
{
    assert_int_equal(drawn->valid_count, plain->valid_count);
    assert_memory_equal(drawn->samples, plain->samples, BATCH * sizeof *plain->samples);
    assert_memory_equal(drawn->valid, plain->valid, BATCH * sizeof *plain->valid);
    if (sides == 1)
        assert_memory_equal(drawn->labels, plain->labels, BATCH * sizeof *plain->labels);
    if (plain->mix) {
        assert_memory_equal(drawn->mix, plain->mix, BATCH * sizeof *plain->mix);
        assert_memory_equal(drawn->labels_mixed, plain->labels_mixed, BATCH * sizeof *plain->labels_mixed);
    }
}

static void compare_rendered(const Batch *plain, const Batch *rendered, uint32_t channels, unsigned sides)
{
    const size_t bytes = (size_t)plain->width * plain->height * channels;
    assert_null(rendered->recipes);
    assert_int_equal(rendered->width, plain->width);
    assert_int_equal(rendered->height, plain->height);
    compare_samples(plain, rendered, sides);
    assert_memory_equal(rendered->pixels, plain->pixels, BATCH * bytes);
    if (sides == 2)
        assert_memory_equal(rendered->target, plain->target, BATCH * bytes);
}

static void compare_batches(const Batch *plain, const Batch *drawn, uint32_t channels, unsigned sides,
                            uint8_t *pixels)
{
    const size_t bytes = (size_t)plain->width * plain->height * channels;
    assert_null(plain->recipes);
    assert_null(drawn->pixels);
    assert_non_null(drawn->recipes);
    compare_samples(plain, drawn, sides);
    uint8_t *brought = drawn->recipes->files[0] ? pixels_bring_files(drawn->recipes) : NULL;
    for (unsigned side = 0; side < sides; side++) {
        pixels_apply(drawn->recipes, brought ? brought : fake_store_pixels(drawn->store), side, false,
                     pixels);
        assert_memory_equal(pixels, side ? plain->target : plain->pixels, BATCH * bytes);
    }
    free(brought);
}

/* Asserts that one image rendered by the host equals the batch's. */
static void compare_single(Loader *loader, const Batch *drawn, const Batch *plain, uint32_t channels,
                           unsigned sides)
{
    enum { PLACE = 3 };
    const size_t bytes = (size_t)plain->width * plain->height * channels;
    FshError error = {0};
    uint8_t *single = malloc(2 * bytes);
    assert_non_null(single);
    assert_ok(loader_image(loader, drawn, PLACE, single, sides == 2 ? single + bytes : NULL, &error), &error);
    assert_memory_equal(single, plain->pixels + PLACE * bytes, bytes);
    if (sides == 2)
        assert_memory_equal(single + bytes, plain->target + PLACE * bytes, bytes);
    free(single);
}

/* ---- files that the device refuses ---- */

enum { SAMPLES_MAX = 200, AHEAD = 2 };

/* Refuses every third file of the batch. seen has, for each sample, the step in which its file was refused,
 * plus 1; long after that step the sample must come as pixels. */
static void refuse_some(Loader *loader, const Batch *drawn, uint64_t step, uint64_t seen[SAMPLES_MAX])
{
    uint64_t places[BATCH];
    size_t count = 0;
    FshError error = {0};
    for (uint64_t place = 0; place < BATCH; place++) {
        const uint64_t sample = drawn->samples[place];
        if (!(drawn->valid[place] > 0))
            continue;
        const bool is_jpeg = drawn->recipes->files[0][place].is_jpeg;
        assert_true(sample < SAMPLES_MAX);
        if (seen[sample] && step > seen[sample] + AHEAD + 1)
            assert_false(is_jpeg);
        if (place % 3 == 0 && is_jpeg) {
            places[count++] = place;
            seen[sample] = step + 1;
        }
    }
    assert_ok(loader_decode_refused(loader, places, count, &error), &error);
    for (size_t i = 0; i < count; i++)
        for (int side = 0; side < 2 && drawn->recipes->files[side]; side++)
            assert_false(drawn->recipes->files[side][places[i]].is_jpeg);
}

/* Loaders of pixels, of pixels from a split in RAM, of recipes for a split that is loaded, of recipes with
 * files, and of such files that are refused, give the same batches. */
enum { PLAIN, DECODED, RESIDENT, FILES, REFUSED, LOADERS };
static const char *const source_names[LOADERS] = {"records", "pixels", "gpu", "nvjpeg", "nvjpeg"};

static void compare_loaders(const DatasetSpec *spec, const LoaderOptions *wanted)
{
    TestFolder folder;
    FshDataset *dataset = NULL;
    PixelSource *sources[LOADERS] = {NULL};
    LoaderOptions options = *wanted;
    Loader *loaders[LOADERS] = {NULL};
    uint64_t seen[SAMPLES_MAX] = {0};
    FshError error = {0};
    const unsigned sides = spec->kind == FSH_KIND_PAIRS ? 2 : 1;
    open_split(&folder, spec, &dataset, &options.split);
    options.kind = sides == 2 ? FSH_KIND_PAIRS : FSH_KIND_CLASSES;
    options.target_field = sides - 1;
    options.batch = BATCH;
    options.world_size = 1;
    options.seed = 7;
    options.training = true;
    options.batches_ahead = AHEAD;
    options.workers = 3;
    memcpy(options.fill, (uint8_t[]){100, 110, 120, 0}, 4);
    PixelSourceOptions source_options =
        options_of(options.split, options.kind, options.augmentation.channels);
    source_options.skip_bad = options.skip_bad;
    for (int i = 0; i < LOADERS; i++) {
        options.source = sources[i] = load(source_names[i], &source_options);
        assert_ok(loader_new(&loaders[i], &options, &error), &error);
        loader_start(loaders[i], 0, 2 * loader_step_count(loaders[i]));
    }
    uint8_t *pixels = malloc((size_t)BATCH * 64 * 64 * 3);
    assert_non_null(pixels);
    for (uint64_t step = 0; step < 2 * loader_step_count(loaders[0]); step++) {
        const Batch *plain = NULL;
        assert_ok(loader_next(loaders[0], &plain, &error), &error);
        for (int i = 1; i < LOADERS; i++) {
            const Batch *drawn = NULL;
            assert_ok(loader_next(loaders[i], &drawn, &error), &error);
            assert_ptr_equal(drawn->store, sources[i]->store);
            assert_int_equal(drawn->store == NULL, i == DECODED);
            if (i == REFUSED)
                refuse_some(loaders[i], drawn, step, seen);
            if (i == FILES && drawn->valid[0] > 0)
                assert_int_equal(drawn->recipes->files[0][0].is_jpeg, spec->codec == FSH_CODEC_JPEG);
            if (i == DECODED)
                compare_rendered(plain, drawn, options.augmentation.channels, sides);
            else
                compare_batches(plain, drawn, options.augmentation.channels, sides, pixels);
            if (!plain->mix && plain->valid[3] > 0)
                compare_single(loaders[i], drawn, plain, options.augmentation.channels, sides);
        }
    }
    for (int i = 1; i < LOADERS; i++) {
        char messages[2][1024];
        assert_int_equal(loader_problem_count(loaders[i]), loader_problem_count(loaders[0]));
        for (uint64_t n = 0; loader_problem(loaders[0], n, messages[0], sizeof messages[0]); n++) {
            assert_true(loader_problem(loaders[i], n, messages[1], sizeof messages[1]));
            assert_string_equal(messages[1], messages[0]);
        }
    }
    free(pixels);
    for (int i = 0; i < LOADERS; i++) {
        loader_free(&loaders[i]);
        pixel_source_free(&sources[i]);
    }
    fsh_close(&dataset);
    test_folder_remove(&folder);
}

TEST(test_raw_images_of_all_sizes)
{
    LoaderOptions options = {.augmentation = rrc_view};
    compare_loaders(&raw_spec, &options);
    const uint32_t sizes[] = {16, 20, 24};
    options.epoch_sizes = sizes;
    options.epoch_size_count = 3;
    compare_loaders(&raw_spec, &options);
}

TEST(test_gray_images_for_a_network_of_colours)
{
    DatasetSpec spec = raw_spec;
    spec.channels = 1;
    compare_loaders(&spec, &(LoaderOptions){.augmentation = rrc_view});
}

TEST(test_operations_of_every_policy)
{
    static const char *const policies[] = {"ra",       "ta_wide", "imagenet",
                                           "original", "3a",      "rand-m9-n3-p0.8-mstd0.5-inc1"};
    const uint32_t sizes[] = {16, 23, 24};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        LoaderOptions options = {.augmentation = rrc_view, .epoch_sizes = sizes, .epoch_size_count = i % 4};
        AutoAugment *policy = &options.augmentation.auto_augment;
        FshError error = {0};
        options.augmentation.interpolation = i % 3 == 2 ? INTERPOLATION_BICUBIC : INTERPOLATION_BILINEAR;
        *policy = auto_augment_default();
        assert_ok(auto_augment_parse(policies[i], policy, &error), &error);
        if (i % 2 == 0) {
            options.mixing = (Mixing){.mixup_alpha = 0.8, .probability = 0.8};
            options.augmentation.jitter = (ColourJitter){0.3, 0.3, 0.3, 0};
        }
        compare_loaders(&raw_spec, &options);
    }
}

TEST(test_colours_and_mixing)
{
    LoaderOptions options = {
        .augmentation = rrc_view,
        .mixing = {.mixup_alpha = 0.8, .cutmix_alpha = 1, .probability = 0.8, .switch_probability = 0.5}};
    options.augmentation.jitter = (ColourJitter){0.4, 0.4, 0.4, 0.1};
    options.augmentation.noise = 3;
    options.augmentation.erasing = (RandomErasing){.probability = 0.5,
                                                   .scale_min = 0.02,
                                                   .scale_max = 0.33,
                                                   .ratio_min = 0.3,
                                                   .ratio_max = 3.3,
                                                   .fill = ERASING_PIXEL,
                                                   .deviation = {60, 60, 60}};
    compare_loaders(&raw_spec, &options);
    options.augmentation.noise = 0; /* mixing alone */
    options.augmentation.jitter = (ColourJitter){0};
    options.augmentation.erasing = (RandomErasing){0};
    compare_loaders(&raw_spec, &options);
}

TEST(test_jpegs_in_full_size)
{
    DatasetSpec spec = raw_spec;
    spec.codec = FSH_CODEC_JPEG;
    Augmentation padded = rrc_view;
    padded.mode = CROP_PADDED;
    padded.resize = EDGE + 4;
    padded.padding = 3;
    compare_loaders(&spec, &(LoaderOptions){.augmentation = padded});
    padded.channels = 1;
    compare_loaders(&spec, &(LoaderOptions){.augmentation = padded});
    padded.channels = 3;
    padded.jitter = (ColourJitter){0.4, 0.4, 0.4, 0.1};
    compare_loaders(
        &spec, &(LoaderOptions){.augmentation = padded, .mixing = {.mixup_alpha = 0.8, .probability = 0.8}});
}

/* As files of 4:2:0 hold them, of odd and even sizes; and gray. */
TEST(test_images_as_planes)
{
    DatasetSpec spec = raw_spec;
    LoaderOptions options = {
        .augmentation = rrc_view,
        .mixing = {.mixup_alpha = 0.8, .cutmix_alpha = 1, .probability = 0.8, .switch_probability = 0.5}};
    Augmentation padded = rrc_view;
    spec.codec = FSH_CODEC_JPEG;
    spec.subsampled = true;
    compare_loaders(&spec, &options);
    options.augmentation.jitter = (ColourJitter){0.4, 0.4, 0.4, 0.1};
    compare_loaders(&spec, &options);
    spec.codec = FSH_CODEC_Y4M; /* fpack --store yuv420 */
    compare_loaders(&spec, &options);
    padded.mode = CROP_PADDED;
    padded.resize = EDGE + 4;
    padded.padding = 3;
    compare_loaders(&spec, &(LoaderOptions){.augmentation = padded});
    padded.channels = 1;
    compare_loaders(&spec, &(LoaderOptions){.augmentation = padded});
    spec.channels = 1;
    compare_loaders(&spec, &options);
}

/* Some as planes, some as pixels: libjpeg upsamples narrow images in another way. */
TEST(test_images_too_narrow_for_planes_among_others)
{
    DatasetSpec spec = raw_spec;
    spec.codec = FSH_CODEC_JPEG;
    spec.subsampled = true;
    spec.width = 3;
    spec.height = 1;
    compare_loaders(&spec, &(LoaderOptions){.augmentation = rrc_view});
}

static void check_told(DatasetSpec spec, uint64_t bytes, const char *says)
{
    TestFolder folder;
    FshDataset *dataset = NULL;
    const FshSplit *split = NULL;
    FshError error = {0};
    char line[256];
    open_split(&folder, &spec, &dataset, &split);
    const PixelSourceOptions options = options_of(split, FSH_KIND_CLASSES, 3);
    PixelSource *source = load("gpu", &options);
    assert_int_equal(source->store->bytes, bytes);
    assert_ok(pixel_source_tell(source, line, sizeof line, &error), &error);
    assert_contains(line, says);
    pixel_source_free(&source);
    fsh_close(&dataset);
    test_folder_remove(&folder);
}

TEST(test_memory_is_half_for_planes_and_a_third_for_gray)
{
    DatasetSpec spec = raw_spec, narrow, gray;
    spec.codec = FSH_CODEC_JPEG;
    spec.grow = 0;
    check_told(spec, 100 * 40 * 33 * 3, "train: 100 samples, 387 KiB of pixels on the GPU, in ");
    spec.subsampled = true;
    check_told(spec, 100 * (40 * 33 + 2 * 20 * 17), " of pixels on the GPU, as planes, in ");
    narrow = gray = spec;
    narrow.width = 3;
    narrow.height = 20;
    narrow.grow = 2; /* 3, 5, 7 wide, and as many of each 20 and 22 high */
    narrow.train_count = 90;
    check_told(narrow, 15 * (42 * 3 * 3 + 42 * 5 + 2 * 21 * 3 + 42 * 7 + 2 * 21 * 4),
               ", 60 of 90 images as planes, in ");
    gray.channels = 1;
    check_told(gray, 100 * 40 * 33, " of pixels on the GPU, in ");
    spec.codec = FSH_CODEC_Y4M;
    check_told(spec, 100 * (40 * 33 + 2 * 20 * 17), " of pixels on the GPU, as planes, in ");
}

TEST(test_pairs_in_all_eight_ways)
{
    DatasetSpec spec = raw_spec;
    spec.kind = FSH_KIND_PAIRS;
    const Augmentation view = {.mode = CROP_RANDOM,
                               .size = EDGE,
                               .channels = 3,
                               .noise = 5,
                               .flip_probability = 0.5,
                               .vertical_flip_probability = 0.5,
                               .transpose_probability = 0.5};
    compare_loaders(&spec, &(LoaderOptions){.augmentation = view});
    spec.codec = FSH_CODEC_JPEG;
    compare_loaders(&spec, &(LoaderOptions){.augmentation = view});
    spec.subsampled = true;
    compare_loaders(&spec, &(LoaderOptions){.augmentation = view});
}

TEST(test_compressed_records)
{
    DatasetSpec spec = raw_spec;
    spec.compressed = true;
    compare_loaders(&spec, &(LoaderOptions){.augmentation = rrc_view});
}

TEST(test_a_bad_sample_is_left_out_and_named)
{
    DatasetSpec spec = raw_spec;
    spec.codec = FSH_CODEC_JPEG;
    spec.garbage = true;
    Augmentation view = rrc_view;
    view.mode = CROP_CENTER;
    view.resize = EDGE;
    compare_loaders(&spec, &(LoaderOptions){.augmentation = view, .skip_bad = true});
}

/* Refuses a JPEG file that went to the device for its good head and that the host cannot read either. With
 * skip_bad the sample must be left out, and its neighbour not be mixed with it; else it must be the
 * failure. */
static void check_untabled_file(bool skip_bad)
{
    TestFolder folder;
    FshDataset *dataset = NULL;
    DatasetSpec spec = raw_spec;
    PixelSource *source = NULL;
    Loader *loader = NULL;
    FshError error = {0};
    const Batch *batch = NULL;
    char message[1024];
    spec.codec = FSH_CODEC_JPEG;
    spec.untabled = true;
    LoaderOptions options = {.augmentation = rrc_view,
                             .mixing = {.mixup_alpha = 1, .probability = 1},
                             .batch = BATCH,
                             .world_size = 1,
                             .training = true,
                             .workers = 2,
                             .batches_ahead = 1,
                             .skip_bad = skip_bad};
    open_split(&folder, &spec, &dataset, &options.split);
    const PixelSourceOptions source_options = options_of(options.split, FSH_KIND_CLASSES, 3);
    options.source = source = open_source("nvjpeg", &source_options);
    assert_ok(loader_new(&loader, &options, &error), &error);
    loader_start(loader, 0, 2 * loader_step_count(loader));
    uint64_t place = BATCH;
    while (place == BATCH) {
        assert_ok(loader_next(loader, &batch, &error), &error);
        if (!batch)
            abort(); /* sample 5 is in one of two epochs */
        for (place = 0; place < BATCH && batch->samples[place] != 5; place++)
            ;
    }
    const uint64_t neighbour = place ^ 1;
    assert_true(batch->recipes->files[0][place].is_jpeg);
    assert_true(batch->mix[neighbour] < 1 && batch->recipes->colours[neighbour].share < 1);
    FshStatus status = loader_decode_refused(loader, &place, 1, &error);
    if (skip_bad) {
        assert_ok(status, &error);
        assert_int_equal(batch->valid_count, BATCH - 1);
        assert_true(batch->valid[place] == 0);
        assert_int_equal(batch->labels[place], -1);
        assert_true(batch->recipes->recipes[place].offset_bytes[0] == PIXELS_NONE);
        assert_true(batch->mix[neighbour] == 1 && batch->recipes->colours[neighbour].share == 1);
        assert_int_equal(batch->labels_mixed[neighbour], batch->labels[neighbour]);
        assert_int_equal(loader_problem_count(loader), 1);
        assert_true(loader_problem(loader, 0, message, sizeof message));
        assert_non_null(strstr(message, "packed from train/class01/000005.png"));
    } else {
        assert_int_equal(status, FSH_ERR_CORRUPT);
        assert_non_null(strstr(error.message, "packed from train/class01/000005.png"));
    }
    loader_free(&loader);
    pixel_source_free(&source);
    fsh_close(&dataset);
    test_folder_remove(&folder);
}

TEST(test_a_file_that_nobody_decodes_is_left_out_or_stops)
{
    check_untabled_file(true);
    check_untabled_file(false);
}

TEST(test_a_bad_sample_stops_the_load)
{
    TestFolder folder;
    FshDataset *dataset = NULL;
    const FshSplit *split = NULL;
    FshError error = {0};
    DatasetSpec spec = raw_spec;
    spec.codec = FSH_CODEC_JPEG;
    spec.garbage = true;
    open_split(&folder, &spec, &dataset, &split);
    const PixelSourceOptions options = options_of(split, FSH_KIND_CLASSES, 3);
    PixelSource *source = open_source("gpu", &options);
    FshStatus status = pixel_source_measure(source, &error);
    if (!status)
        status = pixel_source_load(source, &error);
    assert_int_not_equal(status, FSH_OK);
    assert_non_null(strstr(error.message, "packed from train/"));
    pixel_source_free(&source);
    fsh_close(&dataset);
    test_folder_remove(&folder);
}

/* Pictures larger than what threads copy at a time, alone and in pairs. */
TEST(test_large_images)
{
    DatasetSpec spec = raw_spec;
    spec.kind = FSH_KIND_PAIRS;
    spec.train_count = 16;
    spec.width = 1100;
    spec.height = 1000;
    compare_loaders(&spec,
                    &(LoaderOptions){.augmentation = {.mode = CROP_RANDOM, .size = EDGE, .channels = 3}});
    spec.width = 2100;
    spec.height = 1900;
    spec.train_count = 16;
    spec.shard_count = 1;
    spec.channels = 1;
    compare_loaders(&spec,
                    &(LoaderOptions){.augmentation = {.mode = CROP_RANDOM, .size = EDGE, .channels = 1}});
}

TEST(test_what_does_not_fit_is_told_before_it_is_loaded)
{
    TestFolder folder;
    FshDataset *dataset = NULL;
    const FshSplit *split = NULL;
    FshError error = {0};
    open_split(&folder, &raw_spec, &dataset, &split);
    const PixelSourceOptions options = options_of(split, FSH_KIND_CLASSES, 3);
    PixelSource *source = open_source("gpu", &options);
    assert_int_equal(pixel_source_measure(source, &error), FSH_OK);
    fake_free_bytes = 1000;
    assert_int_equal(pixel_source_load(source, &error), FSH_ERR_MEMORY);
    fake_free_bytes = UINT64_C(1) << 40;
    assert_non_null(strstr(error.message, "--cache gpu"));
    assert_non_null(strstr(error.message, "'train'"));
    assert_null(source->store);
    pixel_source_free(&source);
    fsh_close(&dataset);
    test_folder_remove(&folder);
}
