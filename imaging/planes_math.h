/* planes_math.h - libjpeg's arithmetic of upsampled chroma and of colours, written once for the processor and
 * for CUDA kernels. Internal.
 *
 * Upsampling: h2v2_fancy_upsample (jdsample.c), 9/16, 3/16, 3/16 and 1/16 of the four nearest samples;
 * beyond an edge the sample at it counts twice. Conversion: JFIF (ITU-T T.871) in 16-bit fixed point
 * (jdcolor.c). */
#ifndef FSHARD_IMAGING_PLANES_MATH_H
#define FSHARD_IMAGING_PLANES_MATH_H

#include <stdint.h>

#include "common/philox.h"

/* Returns the size of a chroma plane of 4:2:0, along an edge of `size` pixels. */
FSH_HOST_DEVICE static inline uint32_t planes_halved(uint32_t size)
{
    return size / 2 + size % 2;
}

/* Returns a column's sum of two samples: of the pixel's own row of chroma, and of the next nearest. */
FSH_HOST_DEVICE static inline int planes_sum(int near, int far)
{
    return 3 * near + far;
}

/* Return the chroma of a column's left and right pixel, from its own sum and that of the column beside it. */
FSH_HOST_DEVICE static inline int planes_left(int own, int before)
{
    return (3 * own + before + 8) >> 4;
}

FSH_HOST_DEVICE static inline int planes_right(int own, int after)
{
    return (3 * own + after + 7) >> 4;
}

/* Cuts a value off to 0..255 that has 16 bits below its point. */
FSH_HOST_DEVICE static inline uint32_t planes_cut_off(int32_t value)
{
    const int32_t most = (256 << 16) - 1;
#ifdef __CUDA_ARCH__
    return (uint32_t)__vimin_s32_relu(value, most); /* both ends in one instruction */
#else
    return (uint32_t)(value < 0 ? 0 : value > most ? most : value);
#endif
}

/* Return a pixel's colours, with 16 bits below the point. libjpeg drops them before it adds y, which changes
 * nothing above it. */
FSH_HOST_DEVICE static inline uint32_t planes_red(int32_t y, int32_t cr)
{
    return planes_cut_off(y * 65536 + (32768 - 128 * 91881) + 91881 * cr);
}

FSH_HOST_DEVICE static inline uint32_t planes_green(int32_t y, int32_t cb, int32_t cr)
{
    return planes_cut_off(y * 65536 + (32768 + 128 * (22554 + 46802)) - 22554 * cb - 46802 * cr);
}

FSH_HOST_DEVICE static inline uint32_t planes_blue(int32_t y, int32_t cb)
{
    return planes_cut_off(y * 65536 + (32768 - 128 * 116130) + 116130 * cb);
}

/* Return a pixel's luma and chroma (jccolor.c). */
FSH_HOST_DEVICE static inline uint8_t planes_luma_of(int32_t r, int32_t g, int32_t b)
{
    return (uint8_t)((19595 * r + 38470 * g + 7471 * b + 32768) >> 16);
}

FSH_HOST_DEVICE static inline uint8_t planes_cb_of(int32_t r, int32_t g, int32_t b)
{
    return (uint8_t)((32768 * b - 11059 * r - 21709 * g + (128 << 16) + 32767) >> 16);
}

FSH_HOST_DEVICE static inline uint8_t planes_cr_of(int32_t r, int32_t g, int32_t b)
{
    return (uint8_t)((32768 * r - 27439 * g - 5329 * b + (128 << 16) + 32767) >> 16);
}

#endif
