/* stem_case.h - what the tests of a stem's convolution and of its weight gradient share. */
#ifndef FSHARD_TESTS_TRAINER_STEM_CASE_H
#define FSHARD_TESTS_TRAINER_STEM_CASE_H

#include "tests/trainer/gpu_memory.h"

enum { CHANNELS = 64, KERNEL = 7, TAPS = KERNEL * KERNEL, GUARD = 512 };
static const uint16_t mark = 0x5A5A;

typedef struct Case {
    int images, height, width, channels; /* of the pixels */
    ElementType element;
} Case;

/* (byte - mean) / deviation is a number that both types have. */
static const float mean[4] = {128, 96, 160, 112}, deviation[4] = {64, 32, 64, 128};

/* Returns the number of channel i of the pixel that a tap of the kernel meets from pixel (h, w) of the
 * result; 0 outside the image. bytes: of all images. */
static inline double stem_number(const Case *c, const uint8_t *bytes, int64_t n, int64_t h, int64_t w,
                                 int tap, int i)
{
    const int64_t row = 2 * h - 3 + tap / KERNEL, column = 2 * w - 3 + tap % KERNEL;
    if (row < 0 || row >= c->height || column < 0 || column >= c->width)
        return 0;
    const uint8_t byte = bytes[((n * c->height + row) * c->width + column) * c->channels + i];
    return ((double)byte - (double)mean[i]) / (double)deviation[i];
}

#endif
