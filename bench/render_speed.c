/* render_speed.c - times what a GPU spends on making batches from images in its memory (--cache gpu): random
 * resized crops, mirrored or not, of images of made-up bytes.
 *
 *   render_speed [BATCH [CROP [WIDTH HEIGHT]]]     2048, 128, 213 x 160
 *
 * For images as RGB, as planes of 4:2:0 and as gray, for a network of three channels: nanoseconds for each
 * image, the best of ROUNDS; bytes that must cross memory, of the crops and of the batch, and how long that
 * takes at 4.29 TB/s (a copy's speed on an H200). Large batches hide what the processor does for each. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/progress.h"
#include "imaging/planes.h"
#include "trainer/backend/pixels.h"
#include "trainer/data/sample_recipe.h"

enum { ROUNDS = 5, BATCHES = 20, STORED = 4096 };
static const double copy_bytes_per_second = 4.29e12;

typedef struct Kind {
    const char *name;
    uint8_t channels;
    bool planes;
} Kind;

static const Kind kinds[] = {{"RGB", 3, false}, {"planes", 3, true}, {"gray", 1, false}};

static void check(FshStatus status, const FshError *error)
{
    if (!status)
        return;
    (void)fprintf(stderr, "render_speed: %s\n", error->message);
    exit(1);
}

/* A program with an input of that shape. */
typedef struct Reader {
    Graph *graph;
    State *state;
    Program *program;
    TensorId input, output; /* [batch, 2] */
} Reader;

static Reader open_reader(Backend *backend, int64_t batch, int64_t edge)
{
    const double mean[4] = {0}, deviation[4] = {1, 1, 1, 1};
    const int64_t shape[4] = {batch, edge, edge, 3};
    Reader reader = {.graph = graph_new()};
    FshError error = {0};
    reader.input = graph_input(reader.graph, "image", DATA_U8, 4, shape);
    const TensorId pixels = graph_normalize(reader.graph, reader.input, mean, deviation);
    reader.output = graph_linear(reader.graph, "fc", graph_global_avg_pool(reader.graph, pixels), 2, false);
    graph_keep(reader.graph, reader.output, "logits");
    check(state_new(&reader.state, backend, reader.graph, &error), &error);
    check(state_initialize(reader.state, 1, &error), &error);
    check(program_new(&reader.program, reader.state, reader.graph, &error), &error);
    return reader;
}

/* Waits until all is done: reads a few bytes. */
static void wait_for(Reader *reader, uint64_t batch)
{
    FshError error = {0};
    float *outputs = malloc(batch * 2 * sizeof *outputs);
    if (!outputs)
        exit(1);
    check(program_read(reader->program, reader->output, outputs, batch * 2 * sizeof *outputs, &error),
          &error);
    free(outputs);
}

static void close_reader(Reader *reader)
{
    program_free(&reader->program);
    state_free(&reader->state);
    graph_free(&reader->graph);
}

static PixelStore *fill_store(Backend *backend, uint64_t image_bytes)
{
    PixelStore *store = NULL;
    FshError error = {0};
    uint8_t *bytes = malloc(image_bytes);
    if (!bytes)
        exit(1);
    check(pixel_store_new(&store, backend, STORED * image_bytes, &error), &error);
    for (uint64_t i = 0; i < STORED; i++) {
        for (uint64_t k = 0; k < image_bytes; k++)
            bytes[k] = (uint8_t)(k * (i + 1) >> 3);
        check(pixel_store_put(store, i * image_bytes, bytes, image_bytes, &error), &error);
    }
    free(bytes);
    return store;
}

/* Draws crops of STORED images in any order, and returns the bytes that a batch of them reads. */
static double draw(PixelRecipe *recipes, uint64_t batch, uint32_t crop, uint32_t width, uint32_t height,
                   const Kind *kind, uint64_t image_bytes)
{
    const Augmentation augmentation = {.mode = CROP_RESIZED,
                                       .size = crop,
                                       .channels = 3,
                                       .scale_min = 0.35,
                                       .scale_max = 1,
                                       .ratio_min = 0.75,
                                       .ratio_max = 4.0 / 3,
                                       .flip_probability = 0.5};
    double read = 0;
    for (uint64_t i = 0; i < batch; i++) {
        SampleRecipe drawn;
        PixelRecipe *recipe = &recipes[i];
        sample_recipe_draw(&drawn, &augmentation, 7, 1, i, width, height);
        sample_recipe_pixels(&drawn, &augmentation, width, height, recipe);
        recipe->offset_bytes[0] = i * 2654435761U % STORED * image_bytes;
        recipe->offset_bytes[1] = PIXELS_NONE;
        recipe->channels[0] = kind->channels;
        recipe->planes[0] = kind->planes;
        read += (kind->planes ? 1.5 : kind->channels) * recipe->part_width * recipe->part_height;
    }
    return read;
}

/* Returns the seconds of a batch, the best. */
static double seconds_of(Reader *reader, PixelStore *store, const PixelBatch *batch)
{
    double best = 1e9;
    FshError error = {0};
    for (int round = 0; round <= ROUNDS; round++) { /* the first one warms up */
        const double start = progress_now_seconds();
        for (int i = 0; i < BATCHES; i++)
            check(program_write_pixels(reader->program, reader->input, store, 0, batch, &error), &error);
        wait_for(reader, batch->count);
        const double seconds = (progress_now_seconds() - start) / BATCHES;
        if (round && seconds < best)
            best = seconds;
    }
    return best;
}

int main(int argc, char **argv)
{
    const uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 2048;
    const uint32_t crop = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 128,
                   width = argc > 4 ? (uint32_t)strtoul(argv[3], NULL, 10) : 213,
                   height = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 160;
    const size_t bytes = (size_t)count * crop * crop * 3;
    Backend *backend = NULL;
    FshError error = {0};
    PixelRecipe *recipes = calloc(count, sizeof *recipes);
    if (!recipes)
        return 1;
    check(backend_open(&backend, "cuda", &(BackendOptions){.threads = 1}, &error), &error);
    Reader reader = open_reader(backend, (int64_t)count, crop);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const uint64_t image_bytes = kinds[k].planes ? planes_bytes(PLANES_420, width, height)
                                                     : (uint64_t)width * height * kinds[k].channels;
        PixelStore *store = fill_store(backend, image_bytes);
        const double moved =
            (double)bytes + draw(recipes, count, crop, width, height, &kinds[k], image_bytes);
        const PixelBatch batch = {
            .count = count, .width = crop, .height = crop, .channels = 3, .recipes = recipes};
        const double seconds = seconds_of(&reader, store, &batch), images = (double)count;
        printf("%-7s %" PRIu64
               " x %u px from %u x %u: %7.1f ns an image; %.0f KB of it cross memory, in %.1f ns\n",
               kinds[k].name, count, crop, width, height, seconds / images * 1e9, moved / images / 1e3,
               moved / images / copy_bytes_per_second * 1e9);
        pixel_store_free(&store);
    }
    close_reader(&reader);
    backend_close(&backend);
    free(recipes);
    return 0;
}
