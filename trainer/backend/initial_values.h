/* initial_values.h - the values that the tensors of a network begin with, by their initializers.
 *
 * A tensor has a stream of random numbers by its name, whatever the order of the tensors, and a value depends
 * on its place in it alone: so the values are the same on any number of threads. */
#ifndef FSHARD_TRAINER_BACKEND_INITIAL_VALUES_H
#define FSHARD_TRAINER_BACKEND_INITIAL_VALUES_H

#include "common/error.h"
#include "trainer/graph/graph.h"

/* A tensor, and room for its values. */
typedef struct InitialValues {
    const Tensor *tensor;
    float *values;
} InitialValues;

/* Fills the values of all tensors, on up to `jobs` threads. FSH_ERR_INTERRUPTED. */
FshStatus initial_values_draw(const InitialValues *tensors, size_t count, uint64_t seed, int jobs,
                              FshError *error);

#endif
