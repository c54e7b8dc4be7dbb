#include "trainer/backend/cuda/device/stream_time.h"

#include "trainer/backend/cuda/device/device.h"

enum { RUNS_IN_A_ROW = 4, ROUNDS = 3 };

/* Records a few runs as one graph, as they will stand in the graph of the program: launched one by one, small
 * ones would measure the host. */
static FshStatus record_runs(const StreamWork *work, cudaStream_t stream, cudaGraphExec_t *recorded,
                             FshError *error)
{
    cudaGraph_t graph = NULL;
    FshStatus status = CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), error);
    if (status)
        return status;
    for (int i = 0; i < RUNS_IN_A_ROW && !status; i++)
        status = work->enqueue(work->context, stream, error);
    cudaError_t ended = cudaStreamEndCapture(stream, &graph); /* always: it is what gives the stream back */
    if (!status)
        status = cuda_check(ended, "cudaStreamEndCapture(stream, &graph)", error);
    if (!status)
        status = CUDA_TRY(cudaGraphInstantiate(recorded, graph, 0), error);
    if (graph)
        (void)cudaGraphDestroy(graph);
    return status;
}

static FshStatus time_round(cudaGraphExec_t recorded, cudaStream_t stream, const cudaEvent_t events[2],
                            float *milliseconds, FshError *error)
{
    FshStatus status = CUDA_TRY(cudaEventRecord(events[0], stream), error);
    if (!status)
        status = CUDA_TRY(cudaGraphLaunch(recorded, stream), error);
    if (!status)
        status = CUDA_TRY(cudaEventRecord(events[1], stream), error);
    if (!status)
        status = CUDA_TRY(cudaEventSynchronize(events[1]), error);
    return status ? status : CUDA_TRY(cudaEventElapsedTime(milliseconds, events[0], events[1]), error);
}

FshStatus stream_time(const StreamWork *work, cudaStream_t stream, double *milliseconds_ret, FshError *error)
{
    cudaGraphExec_t recorded = NULL;
    cudaEvent_t events[2] = {NULL, NULL};
    float least = 0;
    FshStatus status = work->enqueue(work->context, stream, error);
    if (!status)
        status = CUDA_TRY(cudaStreamSynchronize(stream), error);
    if (!status)
        status = record_runs(work, stream, &recorded, error);
    if (!status)
        status = CUDA_TRY(cudaGraphLaunch(recorded, stream), error);
    for (int i = 0; i < 2 && !status; i++)
        status = CUDA_TRY(cudaEventCreate(&events[i]), error);
    for (int round = 0; round < ROUNDS && !status; round++) {
        float milliseconds = 0;
        status = time_round(recorded, stream, events, &milliseconds, error);
        if (round == 0 || milliseconds < least)
            least = milliseconds;
    }
    *milliseconds_ret = (double)least / RUNS_IN_A_ROW;
    for (int i = 0; i < 2; i++)
        if (events[i])
            (void)cudaEventDestroy(events[i]);
    if (recorded)
        (void)cudaGraphExecDestroy(recorded);
    /* the runtime remembers a capture that was broken off, and the next kernel's launch would be blamed for
     * it */
    if (status)
        (void)cudaGetLastError();
    return status;
}
