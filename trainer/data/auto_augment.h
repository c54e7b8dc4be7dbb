/* auto_augment.h - which operations an image gets: RandAugment (Cubuk et al. 2020), TrivialAugment (Müller
 * and Hutter 2021), AutoAugment (Cubuk et al. 2019) and 3-Augment (Touvron et al. 2022), under the names and
 * with the ranges of torchvision and timm.
 *
 *   AutoAugment policy;
 *   auto_augment_parse("rand-m6-n2-mstd0.5-inc1", &policy, &error);
 *   auto_augment_draw(&policy, width, height, &random, &steps); // no pixels needed
 *   auto_augment_apply(&steps, &canvas);
 *
 * torchvision's: `ra`, `ta_wide`, `imagenet`, `cifar10`, `svhn`; black comes in from outside. timm's:
 * `original` and `rand`, with sections, and `3a`; the mean comes in. Draws are held to 10,000 of theirs
 * (tests/trainer/golden/make_operations.py).
 *
 * Threads: no state. */
#ifndef FSHARD_TRAINER_DATA_AUTO_AUGMENT_H
#define FSHARD_TRAINER_DATA_AUTO_AUGMENT_H

#include "common/error.h"
#include "common/options.h"
#include "common/random.h"
#include "trainer/data/image_operations.h"

typedef enum AutoAugmentKind {
    AUTO_AUGMENT_NONE,
    AUTO_AUGMENT_RAND,     /* timm's RandAugment: 15 operations, magnitude 10 is full */
    AUTO_AUGMENT_ORIGINAL, /* timm's AutoAugment: the policies of the paper for ImageNet */
    AUTO_AUGMENT_THREE,    /* timm's 3-Augment: gray, solarized or blurred */
    AUTO_AUGMENT_RA,       /* torchvision's RandAugment: 14 operations, magnitude 30 is full */
    AUTO_AUGMENT_TA_WIDE,  /* torchvision's TrivialAugmentWide */
    AUTO_AUGMENT_IMAGENET, /* torchvision's AutoAugment, the same policies; and those for two other sets */
    AUTO_AUGMENT_CIFAR10,
    AUTO_AUGMENT_SVHN,
} AutoAugmentKind;

enum { AUTO_AUGMENT_LAYERS_MAX = PIXEL_OPERATIONS_MAX };

/* All zero: none. */
typedef struct AutoAugment {
    const char *text; /* the option's value, borrowed; NULL: none */
    AutoAugmentKind kind;
    unsigned layers;      /* RAND (n), RA: operations for an image */
    double probability;   /* RAND (p): of each of them */
    double magnitude;     /* RAND (m) */
    double magnitude_max; /* RAND (mmax) */
    double deviation;     /* RAND, ORIGINAL (mstd): of the magnitude; INFINITY: it is uniform from 0 up */
    bool increasing;      /* RAND (inc): every operation does more with a larger magnitude */
    int64_t ra_magnitude; /* RA: 0 to 30 */
} AutoAugment;

/* What becomes of one image: steps in order. */
typedef struct ImageSteps {
    unsigned count; /* 0: nothing */
    bool black;     /* comes in from outside, else the mean */
    ImageStep steps[AUTO_AUGMENT_LAYERS_MAX];
} ImageSteps;

/* Reads a policy's name, with timm's sections, and sets all of *policy but its ra_magnitude. FSH_ERR_USAGE:
 * the message says what is wrong with which section. */
FshStatus auto_augment_parse(const char *text, AutoAugment *policy, FshError *error);

/* Draws the steps for an image of width x height. AUTO_AUGMENT_NONE draws nothing. */
void auto_augment_draw(const AutoAugment *policy, uint32_t width, uint32_t height, Random *random,
                       ImageSteps *steps);

/* Applies the steps. canvas->fill: the mean. */
void auto_augment_apply(const ImageSteps *steps, const ImageCanvas *canvas);

/* Returns what the options below say unless given: none. */
AutoAugment auto_augment_default(void);
/* Writes the rows of the options that set fields of *policy, and returns their number. */
size_t auto_augment_rows(AutoAugment *policy, Option *rows);

#endif
