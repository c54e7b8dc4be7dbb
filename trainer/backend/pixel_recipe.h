/* pixel_recipe.h - what becomes of each image of a batch, as plain numbers: drawn by the loader, done by a
 * backend (pixels.h).
 *
 * Also read by CUDA kernels. */
#ifndef FSHARD_TRAINER_BACKEND_PIXEL_RECIPE_H
#define FSHARD_TRAINER_BACKEND_PIXEL_RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "imaging/resample.h"

/* No image: pixels of the fill. */
#define PIXELS_NONE UINT64_MAX

/* One image of a batch: geometry. The same for both sides of a pair. */
typedef struct PixelRecipe {
    /* where in the store the image begins, u8 without padding: the input, the target; PIXELS_NONE */
    uint64_t offset_bytes[2];
    uint32_t width, height; /* of the stored image, pixels */
    /* of the stored images: 1 or 3; made into those of the batch: gray to r = g = b, colour to luma */
    uint8_t channels[2];
    /* of 3 channels: as Y [height, width], then Cb and Cr of 4:2:0 (imaging/planes.h), in place of
     * [height, width, channels] */
    bool planes[2];
    /* Within the part, which pixels outside have no influence on … */
    bool flip; /* left to right */
    bool vertical_flip, transpose;
    ResampleFilter filter; /* of resampling; operations take pixels bilinear if it is, else bicubic */
    uint32_t part_left, part_top, part_width, part_height;
    /* … resampled to this size (antialiased; equal: taken as it is), the window that begins here is
     * taken … */
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
    uint8_t steps[PIXEL_STEPS_MAX]; /* ColourStep (trainer/backend/colour_math.h) */
    uint32_t erased_left, erased_top, erased_width, erased_height; /* width 0: nothing is erased */
    /* each value around erased_colour, by PixelBatch.erased_deviation; else the colour itself */
    bool erased_noise;
    uint8_t erased_colour[4];
    /* Mixing with the neighbour (place ^ 1); said in both, the same. */
    bool cut;
    float share; /* 1: nothing is mixed */
    uint32_t cut_left, cut_top, cut_right, cut_bottom;
} PixelColours;

enum { PIXEL_OPERATIONS_MAX = 8 };

/* A box of a length that is no whole number: its pixels, and one more at each end that weighs less. */
typedef struct PixelBox {
    int32_t radius;           /* whole pixels each way */
    uint32_t weight, at_ends; /* in 24 bits */
} PixelBox;

/* One operation, with what its values are computed from. */
typedef struct PixelOperation {
    uint32_t operation; /* ImageOperation (trainer/backend/operation_math.h) */
    PixelBox box;       /* OPERATION_BLUR */
    double argument;    /* of those without geometry and blur */
    /* Of geometry: where the pixel with its middle at x, y comes from is m[0] x + m[1] y + m[2],
       m[3] x + m[4] y + m[5]. */
    double affine[6];
} PixelOperation;

/* One image of a batch: operations on the rendered input, in order, before its colours are changed. */
typedef struct PixelOperations {
    uint32_t count;
    uint8_t fill[4]; /* what comes in from outside */
    PixelOperation steps[PIXEL_OPERATIONS_MAX];
} PixelOperations;

/* An image that comes with its batch. */
typedef struct PixelFile {
    const void *data; /* a JPEG file, or pixels [height, width, channels] */
    size_t bytes;
    bool is_jpeg; /* baseline, upright, gray or YCbCr (jpeg_plain.h): for the device to decode */
    /* data stays as it is for as long as the store lives; else until program_write_pixels returns */
    bool lasting;
} PixelFile;

typedef struct PixelBatch {
    uint64_t count; /* images; the input tensor is [count, height, width, channels] */
    uint32_t width, height, channels;
    const PixelRecipe *recipes;        /* [count] */
    const PixelOperations *operations; /* [count], of side 0; NULL: none */
    const PixelColours *colours;       /* [count], of side 0; NULL: no colour changes, nothing is mixed */
    /* [count] of each side; NULL: pixels lie in the store. Else they come with the batch, take its place,
     * stored_bytes long, and recipes say where in that. */
    const PixelFile *files[2];
    uint64_t stored_bytes;
    const uint64_t *samples; /* [count], of files: for messages */
    uint64_t seed;
    double erased_deviation[4];
    uint8_t fill[4];
} PixelBatch;

#endif
