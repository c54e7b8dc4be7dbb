/* Batches that the GPU makes from recipes, against what the loader's code renders: the same bytes.
 * Usage: cuda_support.h. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/imaging/make_images.h"
#include "tests/support/support.h"
#include "tests/trainer/cuda_support.h"
#include "tests/trainer/dataset_support.h"
#include "tests/trainer/operations_support.h"
#include "tests/trainer/pixels_support.h"
#include "trainer/data/loader.h"

static void check(FshStatus status, const FshError *error)
{
    if (status)
        fail_msg("%s", error->message);
}

/* A program whose inputs are images and targets of a case; what it computes does not matter. */
typedef struct Reader {
    Graph *graph;
    State *state;
    Program *program;
    TensorId inputs[2];
} Reader;

static Reader open_reader(const PixelBatch *batch)
{
    const double mean[4] = {0}, deviation[4] = {1, 1, 1, 1};
    const int64_t shape[4] = {(int64_t)batch->count, batch->height, batch->width, batch->channels};
    Reader reader = {.graph = graph_new()};
    FshError error = {0};
    for (int side = 0; side < 2; side++) {
        const char *const names[2][2] = {{"image", "fc"}, {"target", "fc2"}};
        reader.inputs[side] = graph_input(reader.graph, names[side][0], DATA_U8, 4, shape);
        TensorId x = graph_normalize(reader.graph, reader.inputs[side], mean, deviation);
        x = graph_linear(reader.graph, names[side][1], graph_global_avg_pool(reader.graph, x), 2, false);
        graph_keep(reader.graph, x, side ? "restored" : "logits");
    }
    check(state_new(&reader.state, backends[CUDA], reader.graph, &error), &error);
    check(state_initialize(reader.state, 1, &error), &error);
    check(program_new(&reader.program, reader.state, reader.graph, &error), &error);
    return reader;
}

static void close_reader(Reader *reader)
{
    program_free(&reader->program);
    state_free(&reader->state);
    graph_free(&reader->graph);
}

static PixelStore *store_case(const PixelsCase *test)
{
    PixelStore *store = NULL;
    FshError error = {0};
    check(pixel_store_new(&store, backends[CUDA], test->stored_bytes, &error), &error);
    check(pixel_store_put(store, 0, test->stored, test->stored_bytes, &error), &error);
    return store;
}

static void compare_case(const PixelsCase *test)
{
    const size_t bytes =
        (size_t)test->batch.count * test->batch.width * test->batch.height * test->batch.channels;
    uint8_t *pixels = malloc(bytes);
    assert_non_null(pixels);
    FshError error = {0};
    Reader reader = open_reader(&test->batch);
    PixelStore *store = store_case(test);
    for (int again = 0; again < 2; again++) {
        for (unsigned side = 0; side < test->sides; side++)
            check(
                program_write_pixels(reader.program, reader.inputs[side], store, side, &test->batch, &error),
                &error);
        check(program_run(reader.program, &error), &error);
        for (unsigned side = 0; side < test->sides; side++) {
            check(program_read(reader.program, reader.inputs[side], pixels, bytes, &error), &error);
            pixels_case_compare(test, side, pixels);
        }
    }
    pixel_store_free(&store);
    close_reader(&reader);
    free(pixels);
}

/* Every case: modes, channels, sizes, colours, mixing. */
CUDA_TEST(test_pixels_agree)
{
    PixelsCase test;
    for (unsigned number = 0; pixels_case_make(&test, comparison.seed, number); number++) {
        compare_case(&test);
        pixels_case_free(&test);
    }
}

/* Compares cases of operations with the loader's pixels: small or large crops. */
static void compare_operations(bool large)
{
    OperationsCase test;
    FshError error = {0};
    for (unsigned number = 0; operations_case_make(&test, number); number++) {
        if (test.large == large) {
            PixelStore *store = NULL;
            uint8_t *pixels = malloc(test.stored_bytes);
            assert_non_null(pixels);
            Reader reader = open_reader(&test.batch);
            check(pixel_store_new(&store, backends[CUDA], test.stored_bytes, &error), &error);
            check(pixel_store_put(store, 0, test.stored, test.stored_bytes, &error), &error);
            check(program_write_pixels(reader.program, reader.inputs[0], store, 0, &test.batch, &error),
                  &error);
            check(program_read(reader.program, reader.inputs[0], pixels, test.stored_bytes, &error), &error);
            operations_case_compare(&test, pixels);
            pixel_store_free(&store);
            close_reader(&reader);
            free(pixels);
        }
        operations_case_free(&test);
    }
}

CUDA_TEST(test_operations_agree)
{
    compare_operations(false);
}

CUDA_TEST(test_operations_on_crops_of_a_usual_size)
{
    compare_operations(true);
}

/* Returns byte i of a store that tests fill. */
static uint8_t byte_at(unsigned number, size_t i)
{
    return (uint8_t)(number * 37 + i % 251 + i / 4096);
}

/* More pixels than a grid has threads: taken as they are, and mixed. */
CUDA_TEST(test_large_images_come_whole)
{
    enum { WIDTH = 4096, HEIGHT = 4099, IMAGES = 2 };
    const size_t image_bytes = (size_t)WIDTH * HEIGHT, bytes = IMAGES * image_bytes;
    FshError error = {0};
    PixelStore *store = NULL;
    PixelRecipe recipes[IMAGES];
    const PixelColours colours[IMAGES] = {{.share = 0.25F}, {.share = 0.25F}};
    uint8_t *stored = malloc(bytes), *expected = malloc(bytes), *pixels = malloc(bytes);
    assert_true(stored && expected && pixels);
    for (size_t i = 0; i < bytes; i++)
        stored[i] = byte_at((unsigned)(i / image_bytes), i);
    for (unsigned i = 0; i < IMAGES; i++)
        recipes[i] = (PixelRecipe){.offset_bytes = {i * image_bytes, PIXELS_NONE},
                                   .width = WIDTH,
                                   .height = HEIGHT,
                                   .channels = {1, 1},
                                   .part_width = WIDTH,
                                   .part_height = HEIGHT,
                                   .resized_width = WIDTH,
                                   .resized_height = HEIGHT};
    check(pixel_store_new(&store, backends[CUDA], bytes, &error), &error);
    check(pixel_store_put(store, 0, stored, bytes, &error), &error);
    for (int mixed = 0; mixed < 2; mixed++) {
        const PixelBatch batch = {.count = IMAGES,
                                  .width = WIDTH,
                                  .height = HEIGHT,
                                  .channels = 1,
                                  .recipes = recipes,
                                  .colours = mixed ? colours : NULL};
        Reader reader = open_reader(&batch);
        check(program_write_pixels(reader.program, reader.inputs[0], store, 0, &batch, &error), &error);
        check(program_read(reader.program, reader.inputs[0], pixels, bytes, &error), &error);
        pixels_apply(&batch, stored, 0, false, expected);
        assert_true(memcmp(pixels, expected, bytes) == 0);
        assert_true(mixed != (memcmp(expected, stored, bytes) == 0)); /* or the case says nothing */
        close_reader(&reader);
    }
    pixel_store_free(&store);
    free(stored);
    free(expected);
    free(pixels);
}

/* ---- filling from many threads ---- */

enum { THREADS = 8, SHARE_BYTES = 9 << 20 /* more than a stage takes at a time */ };

typedef struct Filler {
    pthread_t thread;
    PixelStore *store;
    unsigned number;
    FshStatus status;
} Filler;

static void *fill(void *context)
{
    Filler *filler = context;
    uint8_t *bytes = malloc(SHARE_BYTES);
    for (size_t i = 0; bytes && i < SHARE_BYTES; i++)
        bytes[i] = byte_at(filler->number, i);
    FshError error = {0};
    filler->status = bytes ? pixel_store_put(filler->store, (uint64_t)filler->number * SHARE_BYTES, bytes,
                                             SHARE_BYTES, &error)
                           : FSH_ERR_MEMORY;
    free(bytes);
    return NULL;
}

CUDA_TEST(test_threads_fill_a_store_together)
{
    enum { EDGE = 64 };
    FshError error = {0};
    PixelStore *store = NULL;
    Filler fillers[THREADS];
    check(pixel_store_new(&store, backends[CUDA], (uint64_t)THREADS * SHARE_BYTES, &error), &error);
    for (unsigned i = 0; i < THREADS; i++) {
        fillers[i] = (Filler){.store = store, .number = i};
        assert_int_equal(pthread_create(&fillers[i].thread, NULL, fill, &fillers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(fillers[i].thread, NULL), 0);
        assert_int_equal(fillers[i].status, FSH_OK);
    }
    /* windows of a few kilobytes at both ends of each thread's share */
    PixelRecipe recipes[2 * THREADS];
    for (unsigned i = 0; i < 2 * THREADS; i++) {
        const uint64_t first = i % 2 ? SHARE_BYTES - EDGE * EDGE : 0;
        recipes[i] = (PixelRecipe){.offset_bytes = {(uint64_t)(i / 2) * SHARE_BYTES + first, PIXELS_NONE},
                                   .width = EDGE,
                                   .height = EDGE,
                                   .channels = {1, 1},
                                   .part_width = EDGE,
                                   .part_height = EDGE,
                                   .resized_width = EDGE,
                                   .resized_height = EDGE};
    }
    const PixelBatch batch = {
        .count = 2 * THREADS, .width = EDGE, .height = EDGE, .channels = 1, .recipes = recipes};
    static uint8_t pixels[2 * THREADS][EDGE * EDGE];
    Reader reader = open_reader(&batch);
    check(program_write_pixels(reader.program, reader.inputs[0], store, 0, &batch, &error), &error);
    check(program_read(reader.program, reader.inputs[0], pixels, sizeof pixels, &error), &error);
    for (unsigned i = 0; i < 2 * THREADS; i++)
        for (size_t k = 0; k < EDGE * EDGE; k++)
            assert_int_equal(pixels[i][k], byte_at(i / 2, (i % 2 ? SHARE_BYTES - EDGE * EDGE : 0) + k));
    close_reader(&reader);
    pixel_store_free(&store);
}

/* ---- a split in the GPU's memory ---- */

enum { RESIDENT_BATCH = 16, RESIDENT_EDGE = 24 };

/* Asserts that batches from the loader's memory and from the GPU's have the same bytes. */
static void compare_resident(const FshSplit *split, FshKind kind, const Augmentation *view)
{
    const unsigned sides = kind == FSH_KIND_PAIRS ? 2 : 1;
    const PixelBatch shape = {
        .count = RESIDENT_BATCH, .width = view->size, .height = view->size, .channels = view->channels};
    const size_t bytes = (size_t)RESIDENT_BATCH * view->size * view->size * view->channels;
    const PixelSourceOptions load = {.samples = {.split = split, .kind = kind, .target_field = sides - 1},
                                     .channels = view->channels,
                                     .threads = 4,
                                     .backend = backends[CUDA]};
    LoaderOptions options = {.split = split,
                             .kind = kind,
                             .target_field = sides - 1,
                             .augmentation = *view,
                             .batch = RESIDENT_BATCH,
                             .world_size = 1,
                             .seed = comparison.seed,
                             .training = true,
                             .workers = 2,
                             .batches_ahead = 2};
    PixelSource *resident = NULL;
    Loader *loaders[2] = {NULL};
    FshError error = {0};
    uint8_t *pixels = malloc(bytes);
    assert_non_null(pixels);
    check(pixel_source_new(&resident, pixel_source_type("gpu"), &load, &error), &error);
    check(pixel_source_measure(resident, &error), &error);
    check(pixel_source_load(resident, &error), &error);
    for (int i = 0; i < 2; i++) {
        options.source = i ? resident : NULL;
        check(loader_new(&loaders[i], &options, &error), &error);
        loader_start(loaders[i], 0, 2 * loader_step_count(loaders[i]));
    }
    Reader reader = open_reader(&shape);
    for (uint64_t step = 0; step < 2 * loader_step_count(loaders[0]); step++) {
        const Batch *plain = NULL, *drawn = NULL;
        check(loader_next(loaders[0], &plain, &error), &error);
        check(loader_next(loaders[1], &drawn, &error), &error);
        for (unsigned side = 0; side < sides; side++) {
            check(program_write_pixels(reader.program, reader.inputs[side], drawn->store, side,
                                       drawn->recipes, &error),
                  &error);
            check(program_read(reader.program, reader.inputs[side], pixels, bytes, &error), &error);
            assert_memory_equal(pixels, side ? plain->target : plain->pixels, bytes);
        }
    }
    close_reader(&reader);
    loader_free(&loaders[0]);
    loader_free(&loaders[1]);
    pixel_source_free(&resident);
    free(pixels);
}

CUDA_TEST(test_a_split_in_the_gpus_memory_agrees)
{
    Augmentation views[2] = {{.mode = CROP_RESIZED,
                              .size = RESIDENT_EDGE,
                              .channels = 3,
                              .scale_min = 0.2,
                              .scale_max = 1,
                              .ratio_min = 0.75,
                              .ratio_max = 1.3333,
                              .flip_probability = 0.5,
                              .auto_augment = {.kind = AUTO_AUGMENT_TA_WIDE},
                              .jitter = {0.4, 0.4, 0.4, 0.1}},
                             {.mode = CROP_RANDOM,
                              .size = RESIDENT_EDGE,
                              .channels = 3,
                              .flip_probability = 0.5,
                              .vertical_flip_probability = 0.5,
                              .transpose_probability = 0.5}};
    for (int i = 0; i < 4; i++) { /* raw pixels; JPEG files, which lie as planes */
        const FshKind kind = i % 2 ? FSH_KIND_PAIRS : FSH_KIND_CLASSES;
        const DatasetSpec spec = {.codec = i < 2 ? FSH_CODEC_RAW : FSH_CODEC_JPEG,
                                  .subsampled = i >= 2,
                                  .width = 40,
                                  .height = 33,
                                  .channels = 3,
                                  .class_count = 4,
                                  .train_count = 70,
                                  .shard_count = 2,
                                  .kind = kind,
                                  .grow = 9};
        TestFolder folder;
        FshDataset *dataset = NULL;
        FshError error = {0};
        test_folder_make(&folder);
        const char *path = test_path(&folder, "set");
        dataset_make(path, &spec);
        check(fsh_open(&dataset, path, &error), &error);
        for (int k = INTERPOLATION_BILINEAR; k <= INTERPOLATION_LANCZOS; k++) {
            views[i % 2].interpolation = (Interpolation)k; /* of pairs, which are not resized, too */
            compare_resident(fsh_split(dataset, "train"), kind, &views[i % 2]);
        }
        fsh_close(&dataset);
        test_folder_remove(&folder);
    }
}

/* ---- images that come with their batch ---- */

enum { FILES = 10 };

/* Makes JPEG files of every kind that a decoder is given (jpeg_plain.h), of all sizes, and raw pixels between
 * them. */
static void make_files(uint32_t channels, Buffer files[FILES], PixelFile list[FILES],
                       PixelRecipe recipes[FILES], PixelBatch *batch)
{
    static const int across[] = {1, 2, 2, 1}, down[] = {1, 1, 2, 2};
    static const uint64_t samples[FILES] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    *batch = (PixelBatch){.count = FILES,
                          .width = 32,
                          .height = 32,
                          .channels = channels,
                          .recipes = recipes,
                          .files = {list, NULL},
                          .samples = samples};
    for (unsigned i = 0; i < FILES; i++) {
        const uint32_t width = 40 + 37 * i, height = 33 + 11 * i;
        const bool gray = i % 5 == 4 || channels == 1, raw = i == 3;
        const uint32_t stored = raw ? channels : gray ? 1 : 3;
        uint8_t *pixels = make_pixels(width, height, stored);
        if (raw) {
            files[i] = (Buffer){0};
            FshError error = {0};
            check(buffer_append(&files[i], pixels, (size_t)width * height * stored, &error), &error);
        } else {
            make_jpeg(&(MakeJpeg){.width = width,
                                  .height = height,
                                  .colours = gray ? MAKE_GRAY : MAKE_RGB,
                                  .pixels = pixels,
                                  .across = gray ? 1 : across[i % 4],
                                  .down = gray ? 1 : down[i % 4]},
                      &files[i]);
        }
        free(pixels);
        list[i] = (PixelFile){
            .data = files[i].bytes, .bytes = files[i].length, .is_jpeg = !raw, .lasting = i % 2 == 0};
        recipes[i] = (PixelRecipe){.offset_bytes = {batch->stored_bytes, PIXELS_NONE},
                                   .width = width,
                                   .height = height,
                                   .channels = {(uint8_t)channels, 0},
                                   .flip = i % 2,
                                   .filter = (ResampleFilter)(i % (RESAMPLE_LANCZOS + 1)),
                                   .part_width = width,
                                   .part_height = height,
                                   .resized_width = i % 3 ? 32 : width,
                                   .resized_height = i % 3 ? 32 : height};
        batch->stored_bytes += ((uint64_t)width * height * channels + 63) / 64 * 64;
    }
}

CUDA_TEST(test_decoded_files_agree)
{
    FshError error = {0};
    if (backend_decodes(backends[CUDA], &error)) {
        print_message("left out: %s\n", error.message);
        skip();
    }
    for (uint32_t channels = 1; channels <= 3; channels += 2) {
        Buffer files[FILES] = {0};
        PixelFile list[FILES];
        PixelRecipe recipes[FILES];
        PixelBatch batch;
        PixelStore *store = NULL;
        make_files(channels, files, list, recipes, &batch);
        const size_t image_bytes = (size_t)batch.width * batch.height * channels, bytes = image_bytes * FILES;
        uint8_t *expected = malloc(bytes), *pixels = malloc(bytes), *brought = pixels_bring_files(&batch);
        assert_true(expected && pixels);
        pixels_apply(&batch, brought, 0, false, expected);
        Reader reader = open_reader(&batch);
        check(pixel_store_new(&store, backends[CUDA], 0, &error), &error);
        for (int again = 0; again < 6; again++) { /* more batches than are under way at a time */
            check(program_write_pixels(reader.program, reader.inputs[0], store, 0, &batch, &error), &error);
            memset(pixels, 0, bytes);
            check(program_read(reader.program, reader.inputs[0], pixels, bytes, &error), &error);
            for (unsigned i = 0; i < FILES; i++) {
                const double decibels =
                    psnr(pixels + i * image_bytes, expected + i * image_bytes, image_bytes);
                if (again == 0)
                    print_message("%u channels, file %u: %.1f dB from libjpeg-turbo's\n", channels, i,
                                  decibels);
                /* rounding of the transform alone, and subsampled chroma brought to full size in another
                 * way */
                if (decibels < (list[i].is_jpeg ? 35 : 99))
                    fail_msg("%u channels, file %u: %.1f dB", channels, i, decibels);
            }
        }
        /* cut off: refused with the sample's name; decoded elsewhere, the batch goes through, and the others
         * are as before */
        size_t refused = 0;
        list[2].bytes = 50;
        assert_int_equal(program_write_pixels(reader.program, reader.inputs[0], store, 0, &batch, &error),
                         FSH_ERR_CORRUPT);
        assert_non_null(strstr(error.message, "sample 7 "));
        const uint64_t *places = pixel_store_refused(store, &refused);
        assert_int_equal(refused, 1);
        assert_int_equal(places[0], 2);
        list[2] = (PixelFile){.data = brought + recipes[2].offset_bytes[0],
                              .bytes = (size_t)recipes[2].width * recipes[2].height * channels};
        check(program_write_pixels(reader.program, reader.inputs[0], store, 0, &batch, &error), &error);
        assert_null(pixel_store_refused(store, &refused));
        check(program_read(reader.program, reader.inputs[0], pixels, bytes, &error), &error);
        for (unsigned i = 0; i < FILES; i++)
            assert_true(psnr(pixels + i * image_bytes, expected + i * image_bytes, image_bytes) >=
                        (list[i].is_jpeg ? 35 : 99));
        list[2] =
            (PixelFile){.data = files[2].bytes, .bytes = files[2].length, .is_jpeg = true, .lasting = true};
        check(program_write_pixels(reader.program, reader.inputs[0], store, 0, &batch, &error), &error);
        check(program_read(reader.program, reader.inputs[0], pixels, bytes, &error), &error);
        assert_true(psnr(pixels, expected, bytes) >= 35);
        pixel_store_free(&store);
        close_reader(&reader);
        for (unsigned i = 0; i < FILES; i++)
            buffer_free(&files[i]);
        free(expected);
        free(pixels);
        free(brought);
    }
}

/* ---- what is refused ---- */

CUDA_TEST(test_a_recipe_beyond_the_store_is_refused)
{
    FshError error = {0};
    PixelStore *store = NULL;
    check(pixel_store_new(&store, backends[CUDA], 100, &error), &error);
    PixelRecipe recipe = {.offset_bytes = {1, PIXELS_NONE},
                          .width = 10,
                          .height = 10,
                          .channels = {1, 1},
                          .part_width = 10,
                          .part_height = 10,
                          .resized_width = 10,
                          .resized_height = 10};
    const PixelBatch batch = {.count = 1, .width = 10, .height = 10, .channels = 1, .recipes = &recipe};
    Reader reader = open_reader(&batch);
    assert_int_equal(program_write_pixels(reader.program, reader.inputs[0], store, 0, &batch, &error),
                     FSH_ERR_MISMATCH);
    assert_non_null(strstr(error.message, "image"));
    recipe.offset_bytes[0] = 0;
    check(program_write_pixels(reader.program, reader.inputs[0], store, 0, &batch, &error), &error);
    recipe.window_top = 1;
    assert_int_equal(program_write_pixels(reader.program, reader.inputs[0], store, 0, &batch, &error),
                     FSH_ERR_MISMATCH);
    recipe.window_top = 0;
    recipe.planes[0] = true; /* of gray */
    assert_int_equal(program_write_pixels(reader.program, reader.inputs[0], store, 0, &batch, &error),
                     FSH_ERR_MISMATCH);
    recipe.channels[0] = 3; /* 150 bytes */
    assert_int_equal(program_write_pixels(reader.program, reader.inputs[0], store, 0, &batch, &error),
                     FSH_ERR_MISMATCH);
    assert_int_equal(pixel_store_put(store, 99, &recipe, 2, &error), FSH_ERR_MISMATCH);
    recipe.planes[0] = false;
    recipe.channels[0] = 1;
    PixelOperations operations = {.count = 1, .steps = {{.operation = 999}}};
    PixelBatch operated = batch;
    operated.operations = &operations;
    assert_int_equal(program_write_pixels(reader.program, reader.inputs[0], store, 0, &operated, &error),
                     FSH_ERR_MISMATCH);
    assert_non_null(strstr(error.message, "operations that are none"));
    close_reader(&reader);
    pixel_store_free(&store);
}

CUDA_TEST(test_a_store_that_does_not_fit_says_so)
{
    FshError error = {0};
    PixelStore *store = NULL;
    uint64_t before = 0, after = 0;
    check(backend_free_memory(backends[CUDA], &before, &error), &error);
    assert_true(before > 0);
    assert_int_equal(pixel_store_new(&store, backends[CUDA], before + (UINT64_C(1) << 40), &error),
                     FSH_ERR_MEMORY);
    assert_non_null(strstr(error.message, "free"));
    assert_null(store);
    check(backend_free_memory(backends[CUDA], &after, &error), &error);
    assert_true(after + (64 << 20) > before);
}
