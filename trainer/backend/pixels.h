/* pixels.h - batches of pixels that a backend makes itself, in its own memory: samples lie there (or come there as JPEG files), and
 * what travels for each batch is a recipe of some hundred bytes for each sample.
 *
 *   PixelStore *store;
 *   pixel_store_new(&store, backend, bytes, &error);      // FSH_ERR_UNSUPPORTED: this backend has none
 *   pixel_store_put(store, offset, pixels, count, &error); // any number of threads
 *   …
 *   PixelBatch batch = {.count = 512, .width = 160, .height = 160, .channels = 3, .recipes = recipes, .seed = seed};
 *   program_write_pixels(program, image, store, 0, &batch, &error);  // in place of program_write
 *   program_write_pixels(program, target, store, 1, &batch, &error); // of pairs
 *
 * Recipes are drawn by trainer/data (pixel_recipe.h) from the same numbers as the CPU's loader draws, and give the same bytes:
 * cropping, resampling (Pillow's fixed point), mirroring, colour jitter, constant erasing, mixing. Noise, and erasing with noise,
 * go through logarithm and sine of the device's library, and may differ in the last grey level of one value in millions.
 *
 * Threads: pixel_store_put any; all else the thread that drives the backend. */
#ifndef FSHARD_TRAINER_BACKEND_PIXELS_H
#define FSHARD_TRAINER_BACKEND_PIXELS_H

#include "trainer/backend/backend.h"

/* No image: pixels of the fill. */
#define PIXELS_NONE UINT64_MAX

/* One image of a batch: geometry. The same for both sides of a pair. */
typedef struct PixelRecipe {
    uint64_t offset_bytes
        [2]; /* where in the store the image begins, [height, width, channels] u8, rows without padding: the
                                 input, the target; PIXELS_NONE */
    uint32_t width, height; /* of the stored image, pixels */
    uint8_t channels
        [2]; /* of the stored images: 1 or 3; made into those of the batch: gray to r = g = b, colour to luma */
    /* Within the part, which pixels outside have no influence on … */
    bool flip; /* left to right */
    bool vertical_flip, transpose;
    uint32_t part_left, part_top, part_width, part_height;
    /* … resampled to this size (bilinear, antialiased; equal: taken as it is), the window that begins here is taken … */
    uint32_t resized_width, resized_height, window_left, window_top;
    /* … moved by these, edges mirrored; then flipped, then upside down, then rows for columns. */
    int32_t shift_x, shift_y;
} PixelRecipe;

enum { PIXEL_STEPS_MAX = 4 };

/* Where a sequence of random numbers goes on: Random of (seed, stream) after drawn of its 32-bit numbers. */
typedef struct PixelRandom {
    uint64_t stream;
    uint32_t drawn;
} PixelRandom;

/* One image of a batch: what changes colours, of the input alone; in this order. */
typedef struct PixelColours {
    double factors[PIXEL_STEPS_MAX];
    double noise; /* deviation, grey levels; 0: none */
    PixelRandom noise_random, erasing_random;
    uint32_t step_count;
    uint8_t steps[PIXEL_STEPS_MAX]; /* ColourStep (trainer/data/colour_math.h) */
    uint32_t erased_left, erased_top, erased_width, erased_height; /* width 0: nothing is erased */
    bool
        erased_noise; /* each value around erased_colour, by PixelBatch.erased_deviation; else the colour itself */
    uint8_t erased_colour[4];
    /* Mixing with the neighbour (place ^ 1); said in both, the same. */
    bool cut;
    float share; /* 1: nothing is mixed */
    uint32_t cut_left, cut_top, cut_right, cut_bottom;
} PixelColours;

typedef struct PixelBatch {
    uint64_t count; /* images; the input tensor is [count, height, width, channels] */
    uint32_t width, height, channels;
    const PixelRecipe *recipes;  /* [count] */
    const PixelColours *colours; /* [count], of side 0; NULL: no colour changes, nothing is mixed */
    uint64_t seed;
    double erased_deviation[4];
    uint8_t fill[4];
} PixelBatch;

typedef struct PixelStore PixelStore;

/* Memory for bytes of pixels. FSH_ERR_UNSUPPORTED: this backend computes where the loader's memory is. FSH_ERR_MEMORY says what was
 * asked for and what is free. */
FshStatus pixel_store_new(PixelStore **store, Backend *backend, uint64_t bytes, FshError *error);
/* Waits for what uses it. Before the backend is closed. NULL is fine. */
void pixel_store_free(PixelStore **store);
/* Copies bytes of pixels to offset; they may be forgotten when this returns. */
FshStatus pixel_store_put(PixelStore *store, uint64_t offset_bytes, const void *pixels, size_t bytes,
                          FshError *error);

/* The batch becomes the program's input: an u8 tensor [count, height, width, channels]. side: 0 the input, 1 the target of pairs.
 * Recipes are copied. FSH_ERR_MISMATCH: the tensor is of another shape, or a recipe goes beyond the store. */
FshStatus program_write_pixels(Program *program, TensorId input, PixelStore *store, unsigned side,
                               const PixelBatch *batch, FshError *error);

/* Memory of the device, bytes: to say beforehand what does not fit. FSH_ERR_UNSUPPORTED. */
FshStatus backend_free_memory(Backend *backend, uint64_t *free_bytes_ret, FshError *error);

/* What a backend implements; the functions above check arguments and call these. */
typedef struct PixelInterface {
    FshStatus (*store_new)(PixelStore **store, Backend *backend, uint64_t bytes, FshError *error);
    void (*store_free)(PixelStore *store);
    FshStatus (*store_put)(PixelStore *store, uint64_t offset_bytes, const void *pixels, size_t bytes,
                           FshError *error);
    FshStatus (*write)(Program *program, TensorId input, PixelStore *store, unsigned side,
                       const PixelBatch *batch, FshError *error);
    FshStatus (*free_memory)(Backend *backend, uint64_t *free_bytes_ret, FshError *error);
} PixelInterface;

/* What every backend's store begins with. */
struct PixelStore {
    Backend *backend;
    uint64_t bytes;
};

#endif
