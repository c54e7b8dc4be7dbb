/* stream_time.h - how long enqueued work takes on the device, where ways of doing one thing compete. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_DEVICE_STREAM_TIME_H
#define FSHARD_TRAINER_BACKEND_CUDA_DEVICE_STREAM_TIME_H

#include <cuda_runtime_api.h>

#include "common/error.h"

/* Work that can be captured and run again and again. */
typedef struct StreamWork {
    FshStatus (*enqueue)(const void *context, cudaStream_t stream, FshError *error);
    const void *context;
} StreamWork;

/* Sets *milliseconds_ret to the time of one run: the least of a few rounds after one that loads the kernels.
 * Synchronizes the stream. Fails as enqueue does, and with FSH_ERR_LIBRARY. */
FshStatus stream_time(const StreamWork *work, cudaStream_t stream, double *milliseconds_ret, FshError *error);

#endif
