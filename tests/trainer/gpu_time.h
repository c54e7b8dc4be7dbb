/* gpu_time.h - what the programs that time kernels have in common. What fails ends the program. */
#ifndef FSHARD_TESTS_TRAINER_GPU_TIME_H
#define FSHARD_TESTS_TRAINER_GPU_TIME_H

#include <cuda_runtime_api.h>

/* Ends the program with what CUDA says of `what` unless the call succeeded. */
void gpu_time_check(cudaError_t code, const char *what);
#define CHECK(call) gpu_time_check((call), #call)

/* Returns memory of the GPU with half-precision numbers of both signs between 1/16 and 2: one random block,
 * repeated. cudaFree frees it. */
void *gpu_time_memory(size_t bytes);

/* Returns the median of a call's milliseconds; below 0: it is not supported. Calls are recorded as one graph,
 * eight behind each other, as they stand in the graph of a program: launched one by one, small ones would
 * measure the host. turn: 0 for the first, 1 for the second, … */
double gpu_time_median(cudaError_t (*call)(const void *context, int turn), const void *context,
                       cudaStream_t stream);

#endif
