#include "tests/trainer/gpu_time.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { TIMES = 20, WARM = 3, IN_A_ROW = 8 };

void gpu_time_check(cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, cudaGetErrorString(code));
    exit(1);
}

static int by_size(const void *a, const void *b)
{
    const float first = *(const float *)a, second = *(const float *)b;
    return (first > second) - (first < second);
}

/* Records a row of calls as one graph; NULL: the call is not supported. */
static cudaGraphExec_t record(cudaError_t (*call)(const void *context, int turn), const void *context,
                              cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t recorded = NULL;
    cudaError_t code = call(context, 0); /* what is made once is not made while recording */
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < IN_A_ROW && code == cudaSuccess; i++)
        code = call(context, i);
    CHECK(cudaStreamEndCapture(stream, &graph));
    if (code == cudaSuccess)
        CHECK(cudaGraphInstantiate(&recorded, graph, 0));
    else if (code != cudaErrorNotSupported)
        CHECK(code);
    CHECK(cudaGraphDestroy(graph));
    return recorded;
}

double gpu_time_median(cudaError_t (*call)(const void *context, int turn), const void *context,
                       cudaStream_t stream)
{
    cudaGraphExec_t recorded = record(call, context, stream);
    cudaEvent_t marks[TIMES + 1];
    float ms[TIMES];
    if (!recorded)
        return -1;
    for (int i = 0; i <= TIMES; i++)
        CHECK(cudaEventCreate(&marks[i]));
    for (int i = 0; i < WARM + TIMES; i++) {
        CHECK(cudaGraphLaunch(recorded, stream));
        if (i + 1 >= WARM)
            CHECK(cudaEventRecord(marks[i + 1 - WARM], stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < TIMES; i++)
        CHECK(cudaEventElapsedTime(&ms[i], marks[i], marks[i + 1]));
    for (int i = 0; i <= TIMES; i++)
        CHECK(cudaEventDestroy(marks[i]));
    CHECK(cudaGraphExecDestroy(recorded));
    qsort(ms, TIMES, sizeof *ms, by_size);
    return (double)ms[TIMES / 2] / IN_A_ROW;
}

void *gpu_time_memory(size_t bytes)
{
    enum { BLOCK = 4 << 20 };
    uint16_t *values = malloc(BLOCK);
    char *memory = NULL;
    uint32_t random = 1;
    if (!values)
        exit(1);
    for (size_t i = 0; i < BLOCK / sizeof *values; i++) {
        random = random * 1664525U + 1013904223U;
        values[i] = (uint16_t)((random >> 16 & 0x8000U) | (0x2C00U + (random >> 17) % 0x1400U));
    }
    CHECK(cudaMalloc((void **)&memory, bytes));
    for (size_t at = 0; at < bytes; at += BLOCK)
        CHECK(
            cudaMemcpy(memory + at, values, bytes - at < BLOCK ? bytes - at : BLOCK, cudaMemcpyHostToDevice));
    free(values);
    return memory;
}
