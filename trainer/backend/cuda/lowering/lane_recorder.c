#include "trainer/backend/cuda/lowering/lane_recorder.h"

#include <stdlib.h>

#include "trainer/backend/cuda/device/device.h"

FshStatus lane_recorder_begin(LaneRecorder *recorder, const LanePlan *plan, size_t node_count,
                              cudaStream_t main, cudaStream_t beside, FshError *error)
{
    *recorder = (LaneRecorder){.plan = plan, .node_count = node_count, .main = main, .beside = beside};
    if (plan->beside_count == 0 || main == beside)
        return FSH_OK;
    recorder->ended = calloc(node_count, sizeof(cudaEvent_t));
    if (!recorder->ended)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the events of %zu nodes", node_count);
    return CUDA_TRY(cudaEventCreateWithFlags(&recorder->fork, cudaEventDisableTiming), error);
}

/* Makes the main lane wait for the steps beside among the first `count` nodes: for the last of them, since
 * they run in order. */
static FshStatus wait_for(const LaneRecorder *recorder, size_t count, FshError *error)
{
    for (size_t n = recorder->ended ? count : 0; n-- > 0;)
        if (recorder->ended[n])
            return CUDA_TRY(cudaStreamWaitEvent(recorder->main, recorder->ended[n], 0), error);
    return FSH_OK;
}

/* Makes the lane beside wait for all that has been enqueued in the main lane. */
static FshStatus follow(LaneRecorder *recorder, FshError *error)
{
    if (recorder->fork_is_current || !recorder->ended)
        return FSH_OK;
    FshStatus status = CUDA_TRY(cudaEventRecord(recorder->fork, recorder->main), error);
    if (!status)
        status = CUDA_TRY(cudaStreamWaitEvent(recorder->beside, recorder->fork, 0), error);
    recorder->fork_is_current = status == FSH_OK;
    return status;
}

FshStatus lane_recorder_enter(LaneRecorder *recorder, size_t n, cudaStream_t *stream_ret, FshError *error)
{
    if (recorder->plan->beside[n]) {
        *stream_ret = recorder->beside;
        return follow(recorder, error);
    }
    *stream_ret = recorder->main;
    recorder->fork_is_current = false;
    return wait_for(recorder, recorder->plan->waits[n], error);
}

FshStatus lane_recorder_leave(LaneRecorder *recorder, size_t n, FshError *error)
{
    if (!recorder->plan->beside[n] || !recorder->ended)
        return FSH_OK;
    FshStatus status = CUDA_TRY(cudaEventCreateWithFlags(&recorder->ended[n], cudaEventDisableTiming), error);
    return status ? status : CUDA_TRY(cudaEventRecord(recorder->ended[n], recorder->beside), error);
}

FshStatus lane_recorder_end(LaneRecorder *recorder, FshError *error)
{
    FshStatus status = wait_for(recorder, recorder->node_count, error);
    for (size_t n = 0; recorder->ended && n < recorder->node_count; n++)
        if (recorder->ended[n])
            (void)cudaEventDestroy(recorder->ended[n]);
    if (recorder->fork)
        (void)cudaEventDestroy(recorder->fork);
    free(recorder->ended);
    *recorder = (LaneRecorder){0};
    return status;
}
