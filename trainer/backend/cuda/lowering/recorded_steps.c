#include "trainer/backend/cuda/lowering/recorded_steps.h"

#include "trainer/backend/cuda/device/device.h"

FshStatus recorded_steps_try(RecordedSteps *recorded, FshError *error)
{
    FshStatus status = FSH_OK;
    recorded->tries = true;
    for (int i = 0; i < LANE_TRIAL_SLOTS && !status; i++) {
        TimedRun *run = &recorded->slots[i];
        /* who waits for one leaves the processor to the loader's threads */
        status = CUDA_TRY(cudaEventCreateWithFlags(&run->begin, cudaEventBlockingSync), error);
        if (!status)
            status = CUDA_TRY(cudaEventCreateWithFlags(&run->end, cudaEventBlockingSync), error);
    }
    return status;
}

static FshStatus read_time(RecordedSteps *recorded, TimedRun *run, FshError *error)
{
    float milliseconds = 0, *best = &recorded->milliseconds[run->way];
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

static void end_trial(RecordedSteps *recorded)
{
    for (int i = 0; i < LANE_TRIAL_SLOTS; i++) {
        TimedRun *run = &recorded->slots[i];
        if (run->begin)
            (void)cudaEventDestroy(run->begin);
        if (run->end)
            (void)cudaEventDestroy(run->end);
        *run = (TimedRun){0};
    }
    recorded->tries = false;
}

static FshStatus decide(RecordedSteps *recorded, FshError *error)
{
    FshStatus status = FSH_OK;
    for (int i = 0; i < LANE_TRIAL_SLOTS && !status; i++)
        status = read_time(recorded, &recorded->slots[i], error);
    if (status)
        return status;
    const bool two = recorded->milliseconds[LANES_TWO] < recorded->milliseconds[LANES_ONE];
    recorded->way = two ? LANES_TWO : LANES_ONE;
    end_trial(recorded);
    recorded_steps_drop(recorded, two ? LANES_ONE : LANES_TWO);
    return FSH_OK;
}

/* Returns the run of the trial that comes next. */
static TimedRun *next_run(RecordedSteps *recorded)
{
    return &recorded->slots[recorded->runs % LANE_TRIAL_SLOTS];
}

FshStatus recorded_steps_turn(RecordedSteps *recorded, FshError *error)
{
    if (!recorded->tries)
        return FSH_OK;
    if (recorded->runs == LANE_TRIAL_RUNS)
        return decide(recorded, error);
    TimedRun *run = next_run(recorded);
    FshStatus status = read_time(recorded, run, error);
    run->way = recorded->way = recorded->runs / LANE_TRIAL_BLOCK % 2 ? LANES_TWO : LANES_ONE;
    return status;
}

FshStatus recorded_steps_launch(RecordedSteps *recorded, UpdateRun run, cudaStream_t stream, FshError *error)
{
    TimedRun *timed = recorded->tries ? next_run(recorded) : NULL;
    FshStatus status = timed ? CUDA_TRY(cudaEventRecord(timed->begin, stream), error) : FSH_OK;
    if (!status)
        status = CUDA_TRY(cudaGraphLaunch(recorded->graphs[recorded->way][run], stream), error);
    if (status || !timed)
        return status;
    /* the first of a block finds the caches as the other way has left them */
    timed->under_way = recorded->runs++ % LANE_TRIAL_BLOCK > 0;
    return CUDA_TRY(cudaEventRecord(timed->end, stream), error);
}

void recorded_steps_drop(RecordedSteps *recorded, LaneWay way)
{
    for (int run = 0; run < UPDATE_RUN_KINDS; run++) {
        if (recorded->graphs[way][run])
            (void)cudaGraphExecDestroy(recorded->graphs[way][run]);
        recorded->graphs[way][run] = NULL;
    }
}

void recorded_steps_free(RecordedSteps *recorded)
{
    end_trial(recorded);
    recorded_steps_drop(recorded, LANES_ONE);
    recorded_steps_drop(recorded, LANES_TWO);
}
