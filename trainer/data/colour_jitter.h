/* colour_jitter.h - brightness, contrast, saturation and hue, in torchvision's arithmetic.
 *
 * That of torchvision.transforms.ColorJitter on PIL images: Pillow's ImageEnhance (blends of 8-bit images,
 * cut off, not rounded) and its 8-bit HSV. tests/trainer/golden/make_augment.py holds the pixels against it.
 *
 * Pixels are HWC u8, changed in place; channels 1 or 3. Gray has no saturation and no hue: these leave it
 * alone.
 *
 * Threads: no state. */
#ifndef FSHARD_TRAINER_DATA_COLOUR_JITTER_H
#define FSHARD_TRAINER_DATA_COLOUR_JITTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/random.h"
#include "trainer/backend/colour_math.h"

/* How far each may go: factors are drawn from max(0, 1 - x) to 1 + x, the hue's shift from -x to x (of the
 * circle, at most 0.5). 0: not touched. */
typedef struct ColourJitter {
    double brightness, contrast, saturation, hue;
} ColourJitter;

/* What becomes of one image: steps in order, each with its factor. */
typedef struct ColourPlan {
    unsigned count; /* 0: nothing */
    ColourStep steps[COLOUR_STEP_COUNT];
    double factors[COLOUR_STEP_COUNT];
} ColourPlan;

/* Draws the steps' factors, and their order. */
void colour_jitter_plan(const ColourJitter *jitter, Random *random, ColourPlan *plan);
/* Applies the plan to pixels in place. */
void colour_jitter_apply(const ColourPlan *plan, uint8_t *pixels, size_t pixel_count, uint32_t channels);

/* Applies one step: torchvision.transforms.functional.adjust_brightness, …_contrast, …_saturation, …_hue. */
void colour_adjust(ColourStep step, double factor, uint8_t *pixels, size_t pixel_count, uint32_t channels);

#endif
