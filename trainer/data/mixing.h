/* mixing.h - two images become two mixtures: mixup (Zhang et al. 2017) and CutMix (Yun et al. 2019), by
 * timm's rules.
 *
 * Each of a pair gets the same share of itself: first = share * first + (1 - share) * second, second the
 * other way round; the labels go the same way. Arithmetic and rounding are those of timm's FastCollateMixup
 * in "pair" mode, on finished u8 pixels.
 *
 * Threads: no state. */
#ifndef FSHARD_TRAINER_DATA_MIXING_H
#define FSHARD_TRAINER_DATA_MIXING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/options.h"
#include "common/random.h"

/* For whom a share and a box are drawn. */
typedef enum MixingMode { MIXING_PAIR, MIXING_BATCH } MixingMode;

/* timm's options: --mixup, --cutmix, --mixup-prob, --mixup-switch-prob, --mixup-mode. All zero: nothing is
 * mixed. */
typedef struct Mixing {
    double mixup_alpha,
        cutmix_alpha;          /* of the beta distribution that shares are drawn from; 0: not this one */
    double probability;        /* that a pair, or a batch, is mixed */
    double switch_probability; /* where both are given: of CutMix */
    int mode;                  /* MixingMode */
} Mixing;

static inline bool mixing_is_on(const Mixing *mixing)
{
    return mixing->probability > 0 && (mixing->mixup_alpha > 0 || mixing->cutmix_alpha > 0);
}

typedef struct MixPlan {
    float share; /* that an image keeps of itself; 1: nothing is mixed */
    bool cut;    /* CutMix: these pixels change places; else mixup */
    uint32_t left, top, right, bottom;
} MixPlan;

/* Draws the plan for images of width x height. CutMix's share is what the box leaves after it is cut off at
 * the edges. */
void mixing_plan(const Mixing *mixing, uint32_t width, uint32_t height, Random *random, MixPlan *plan);

/* Mixes first and second, [height, width, channels], in place. */
void mixing_apply(const MixPlan *plan, uint32_t width, uint32_t height, uint32_t channels, uint8_t *first,
                  uint8_t *second);

/* Returns a number drawn from Beta(alpha, alpha), alpha > 0. */
double mixing_draw_beta(double alpha, Random *random);

/* Returns what the options below say unless given: nothing is mixed. */
Mixing mixing_default(void);
/* Writes the rows of the options that set fields of *mixing, and returns their number. */
size_t mixing_rows(Mixing *mixing, Option *rows);

#endif
