/* class_draw.h - draws some samples of each class.
 *
 * A sample's number is drawn by the seed and its name; those with the lowest numbers of their class are
 * taken. So what fewer take is among what more take, and what one class has does not move what is taken of
 * another.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_DATA_CLASS_DRAW_H
#define FSHARD_TRAINER_DATA_CLASS_DRAW_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

/* How many of a class: a part of it, rounded up, or a number of samples. */
typedef struct ClassLimit {
    double part;    /* in 0..1; 0: count */
    uint64_t count; /* a class with fewer is taken whole */
} ClassLimit;

/* Reads "10%" or "500". FSH_ERR_USAGE. */
FshStatus class_limit_parse(ClassLimit *limit, const char *text, FshError *error);

/* Sets keeps[i] to whether sample i of `count` is taken. labels: 0 to classes - 1; names: unique numbers
 * of the samples. FSH_ERR_MEMORY. */
FshStatus class_draw(const ClassLimit *limit, uint64_t seed, const int32_t *labels, const uint64_t *names,
                     uint64_t count, uint64_t classes, bool *keeps, FshError *error);

#endif
