/* kernels_pixels.h - a batch of u8 pixels from recipes (pixels.h). kernels.h has the rules; pixel_math.h what
 * becomes of a pixel.
 *
 *   pixels_fill_axes(&job, stream); pixels_render(&job, stream);          // in this order
 *   pixels_change_colours(&job, stream); pixels_mix(&job, stream); // where the batch wants
 * them */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_PIXELS_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_PIXELS_H

#include "trainer/backend/cuda/kernels/kernels.h"
#include "trainer/backend/pixel_recipe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Addresses are the device's. */
typedef struct PixelJob {
    uint8_t *target;      /* [count, height, width, channels] */
    const uint8_t *store; /* where PixelRecipe.offset_bytes count from */
    const PixelRecipe *recipes;
    const PixelColours *colours; /* NULL: none */
    uint32_t *axes;              /* [count][2] of pixel_axis_words(outputs, taps) */
    uint64_t count, seed;
    uint32_t width, height, channels;
    uint32_t outputs; /* the larger of width and height */
    uint32_t taps;    /* the most of any recipe's axis; 0: none resamples */
    unsigned side;
    double erased_deviation[4];
    uint8_t fill[4];
} PixelJob;

/* Weights of all images that are resampled; nothing where job->taps is 0. */
cudaError_t pixels_fill_axes(const PixelJob *job, cudaStream_t stream);
cudaError_t pixels_render(const PixelJob *job, cudaStream_t stream);
/* Jitter, noise, erasing. */
cudaError_t pixels_change_colours(const PixelJob *job, cudaStream_t stream);
/* Images 2i and 2i + 1 with each other. */
cudaError_t pixels_mix(const PixelJob *job, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
