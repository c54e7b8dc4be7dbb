/* kernels_pixels.h - makes a batch of u8 pixels from recipes (pixels.h). Rules: kernels.h; arithmetic of a
 * pixel: pixel_math.h.
 *
 *   pixels_fill_axes(&job, stream); pixels_render(&job, stream); // in this order
 *   pixels_operate(&job, stream);                                // if the batch wants operations,
 *   pixels_change_colours(&job, stream); pixels_mix(&job, stream); // and if it wants these */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_PIXELS_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_PIXELS_H

#include "trainer/backend/cuda/kernels/kernels.h"
#include "trainer/backend/pixel_recipe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A batch to make; addresses are the device's. */
typedef struct PixelJob {
    uint8_t *target;      /* [count, height, width, channels] */
    const uint8_t *store; /* PixelRecipe.offset_bytes count from here */
    const PixelRecipe *recipes;
    const PixelOperations *operations; /* NULL: none */
    const PixelColours *colours;       /* NULL: none */
    uint8_t *scratch;                  /* of operations: [scratch_images, height, width, channels] */
    uint64_t scratch_images;           /* of operations: pixels_operation_images(count) */
    uint32_t *axes;                    /* [count][2] of pixel_axis_words(outputs, taps) */
    uint64_t count, seed;
    uint32_t width, height, channels;
    uint32_t outputs; /* the larger of width and height */
    uint32_t taps;    /* the most of any recipe's axis; 0: no image is resampled */
    unsigned side;
    double erased_deviation[4];
    uint8_t fill[4];
} PixelJob;

/* Computes the weights of all images that are resampled; does nothing if job->taps is 0. */
cudaError_t pixels_fill_axes(const PixelJob *job, cudaStream_t stream);
/* Renders the pixels of all images. */
cudaError_t pixels_render(const PixelJob *job, cudaStream_t stream);
/* Applies the operations of all images (operations.cu). */
cudaError_t pixels_operate(const PixelJob *job, cudaStream_t stream);
/* Returns how many images of `count` pixels_operate works on at a time on this device. */
uint64_t pixels_operation_images(uint64_t count);
/* Applies jitter, noise and erasing. */
cudaError_t pixels_change_colours(const PixelJob *job, cudaStream_t stream);
/* Mixes image 2i with image 2i + 1. */
cudaError_t pixels_mix(const PixelJob *job, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
