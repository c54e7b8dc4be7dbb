/* random_erasing.h - a rectangle of the image is lost (Zhong et al. 2017), as in torchvision and timm.
 *
 * They erase normalised pixels, with 0 as the usual value; that is the mean here, before normalisation. timm
 * erases after mixing images, we before.
 *
 * Threads: no state. */
#ifndef FSHARD_TRAINER_DATA_RANDOM_ERASING_H
#define FSHARD_TRAINER_DATA_RANDOM_ERASING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/options.h"
#include "common/random.h"

typedef enum ErasingFill {
    ERASING_CONST, /* the mean */
    ERASING_RAND,  /* one colour, normal around the mean */
    ERASING_PIXEL, /* each value normal around the mean */
    ERASING_FILL_COUNT
} ErasingFill;

typedef struct RandomErasing {
    double probability;          /* 0: never */
    double scale_min, scale_max; /* part of the area; torchvision 0.02 to 0.33 */
    double ratio_min, ratio_max; /* height / width; torchvision 0.3 to 3.3 */
    ErasingFill fill;
    double deviation[4]; /* ERASING_RAND, ERASING_PIXEL: of each channel, in grey levels */
} RandomErasing;

typedef struct ErasingPlan {
    uint32_t left, top, width, height; /* width 0: nothing is erased */
} ErasingPlan;

/* Draws a rectangle within width x height in ten tries, else none (torchvision's
 * RandomErasing.get_params). */
void random_erasing_plan(const RandomErasing *erasing, uint32_t width, uint32_t height, Random *random,
                         ErasingPlan *plan);

/* Sets colour to what the rectangle is filled with: the mean, for ERASING_RAND a colour around it. random: as
 * the plan left it. */
void random_erasing_colour(const RandomErasing *erasing, const uint8_t mean[4], uint32_t channels,
                           Random *random, uint8_t colour[4]);

/* Erases the rectangle in pixels, [height, width, channels]. mean: of each channel. random: as the plan left
 * it. */
void random_erasing_apply(const RandomErasing *erasing, const ErasingPlan *plan, const uint8_t mean[4],
                          uint8_t *pixels, uint32_t width, uint32_t channels, Random *random);

/* Returns torchvision's scale and ratio, and no erasing. */
RandomErasing random_erasing_default(void);
/* Writes the rows of the options that set fields of *erasing, and returns their number. */
size_t random_erasing_rows(RandomErasing *erasing, Option *rows);

#endif
