/* cuda_narrow.h - layers in bf16 and f16 on the CUDA backend against the CPU backend in f32, from the same
 * values: inputs, weights and the gradient that comes in are rounded to the narrow type before either sees
 * them, so what differs is the rounding of results. */
#ifndef FSHARD_TESTS_TRAINER_CUDA_NARROW_H
#define FSHARD_TESTS_TRAINER_CUDA_NARROW_H

#include "tests/trainer/cuda_support.h"

/* layers of x [shape], drawn from the normal distribution, and the gradients that follow from one of their
 * result: of x, and of every parameter. Each may be apart by `roundings` times the type's epsilon (2^-8 for
 * bf16, 2^-11 for f16) of its size, root mean square: about 0.3 for each result that is rounded on the way.
 * Beware of ReLUs behind what is rounded: a sign that flips is no rounding. Memory is poisoned before each of
 * two runs. Both types, fused where the graph's passes find something. */
void compare_narrow(Layers layers, const char *name, int rank, const int64_t *shape, double roundings);

/* Rounds values to the significant bits of type. */
void round_to(DataType type, float *values, size_t count);
double epsilon_of(DataType type);

#endif
