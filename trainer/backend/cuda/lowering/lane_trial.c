#include "trainer/backend/cuda/lowering/lane_trial.h"

#include "trainer/backend/cuda/device/device.h"

FshStatus lane_trial_start(LaneTrial *trial, FshError *error)
{
    FshStatus status = FSH_OK;
    *trial = (LaneTrial){.open = true};
    for (int i = 0; i < LANE_TRIAL_SLOTS && !status; i++) {
        status = CUDA_TRY(cudaEventCreate(&trial->slots[i].begin), error);
        if (!status)
            status = CUDA_TRY(cudaEventCreate(&trial->slots[i].end), error);
    }
    return status;
}

static FshStatus read_time(LaneTrial *trial, LaneTrialRun *run, FshError *error)
{
    float milliseconds = 0, *best = &trial->milliseconds[run->way];
    if (!run->under_way)
        return FSH_OK;
    run->under_way = false;
    FshStatus status = CUDA_TRY(cudaEventSynchronize(run->end), error);
    if (!status)
        status = CUDA_TRY(cudaEventElapsedTime(&milliseconds, run->begin, run->end), error);
    if (!status && (*best <= 0 || milliseconds < *best))
        *best = milliseconds;
    return status;
}

/* Ends the trial. */
static FshStatus decide(LaneTrial *trial, FshError *error)
{
    FshStatus status = FSH_OK;
    for (int i = 0; i < LANE_TRIAL_SLOTS && !status; i++)
        status = read_time(trial, &trial->slots[i], error);
    trial->way = trial->milliseconds[LANES_TWO] < trial->milliseconds[LANES_ONE] ? LANES_TWO : LANES_ONE;
    lane_trial_free(trial);
    return status;
}

FshStatus lane_trial_before(LaneTrial *trial, cudaStream_t stream, FshError *error)
{
    if (!trial->open)
        return FSH_OK;
    if (trial->runs == LANE_TRIAL_RUNS)
        return decide(trial, error);
    LaneTrialRun *run = &trial->slots[trial->runs % LANE_TRIAL_SLOTS];
    FshStatus status = read_time(trial, run, error);
    run->way = trial->way = trial->runs / LANE_TRIAL_BLOCK % 2 ? LANES_TWO : LANES_ONE;
    return status ? status : CUDA_TRY(cudaEventRecord(run->begin, stream), error);
}

FshStatus lane_trial_after(LaneTrial *trial, cudaStream_t stream, FshError *error)
{
    if (!trial->open)
        return FSH_OK;
    LaneTrialRun *run = &trial->slots[trial->runs % LANE_TRIAL_SLOTS];
    /* the first of a block finds the caches as the other way has left them */
    run->under_way = trial->runs++ % LANE_TRIAL_BLOCK > 0;
    return CUDA_TRY(cudaEventRecord(run->end, stream), error);
}

void lane_trial_free(LaneTrial *trial)
{
    for (int i = 0; i < LANE_TRIAL_SLOTS; i++) {
        LaneTrialRun *run = &trial->slots[i];
        if (run->begin)
            (void)cudaEventDestroy(run->begin);
        if (run->end)
            (void)cudaEventDestroy(run->end);
        *run = (LaneTrialRun){0};
    }
    trial->open = false;
}
