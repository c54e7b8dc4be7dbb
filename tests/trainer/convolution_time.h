/* convolution_time.h - operands in f16 for programs that time convolution kernels. Operands rotate through
 * more memory than the cache holds where shapes are large; small ones come from the cache, as they do in a
 * step. */
#ifndef FSHARD_TESTS_TRAINER_CONVOLUTION_TIME_H
#define FSHARD_TESTS_TRAINER_CONVOLUTION_TIME_H

#include "tests/trainer/gpu_time.h"
#include "trainer/backend/cuda/kernels/kernels.h"

/* Square images and kernels. */
typedef struct TimedShape {
    int64_t samples, x_side, y_side, in, out, kernel;
} TimedShape;

typedef enum TimedKind { TIMED_FORWARD, TIMED_SUMS, TIMED_DATA, TIMED_WEIGHT, TIMED_KINDS } TimedKind;

typedef struct TimedOperands {
    DeviceTensor x, y, filter, dfilter, sums;
    void *scratch;
    cudaStream_t stream;
} TimedOperands;

/* Makes a call of one kind. context: of convolution_time. */
typedef cudaError_t TimedCall(const void *context, const TimedOperands *operands, TimedKind kind);

/* Returns the milliseconds of a call as gpu_time_median does. Memory is made at the first call, and stays. */
double convolution_time(TimedCall *call, const void *context, const TimedShape *shape, TimedKind kind);

#endif
