/* recorded_steps.h - the steps of a program as CUDA graphs, in one lane and in two (trainer/graph/lanes.h),
 * and which of the two ways a run takes.
 *
 * Whether two lanes take less time is found out in the first runs. Both ways compute the same, so the trial
 * costs nothing but the slower way's runs: they take turns in blocks, and the shortest run of each is
 * compared. Which one wins is a matter of the network, its batch and the card: on an H200 lanes won 6 % of
 * nafnet's step, 5 of conv8's, 2.5 of pyramidnet's at 64, and lost 1.5 of resnet50's at 512, which runs at
 * the card's power limit as it is (docs/measurements/2026-11-24-step.md). That the second lane has the lesser
 * priority won another 3.6 % of resnet50's at 64, and 6.5 of airbench94's (2026-11-29-priorities.md). */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_RECORDED_STEPS_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_RECORDED_STEPS_H

#include <stdbool.h>

#include <cuda_runtime_api.h>

#include "common/error.h"
#include "trainer/backend/cuda/kernels/kernels_update.h"

typedef enum LaneWay { LANES_ONE, LANES_TWO, LANE_WAYS } LaneWay;

/* LANE_TRIAL_SLOTS: runs that may be under way, so that the host stays ahead of the device. */
enum { LANE_TRIAL_BLOCK = 4, LANE_TRIAL_RUNS = 8 * LANE_TRIAL_BLOCK, LANE_TRIAL_SLOTS = 3 };

/* A run that is timed. */
typedef struct TimedRun {
    cudaEvent_t begin, end;
    LaneWay way;
    bool under_way;
} TimedRun;

typedef struct RecordedSteps {
    /* By the kind of the run; NULL: there is no run of that kind. Ranks that accumulate have
     * UPDATE_ACCUMULATES and UPDATE_JOINED, others UPDATE_DECIDES; with sam there is UPDATE_PERTURBS too.
     * Those of LANES_TWO are there where some steps may lie beside others, until the trial has decided
     * against them. */
    cudaGraphExec_t graphs[LANE_WAYS][UPDATE_RUN_KINDS];
    LaneWay way;                      /* of the run that comes next, and of all after the trial */
    bool tries;                       /* the trial goes on */
    unsigned runs;                    /* of the trial so far */
    TimedRun slots[LANE_TRIAL_SLOTS]; /* its last runs */
    float milliseconds[LANE_WAYS];    /* of its shortest run; 0: none was timed */
} RecordedSteps;

/* Begins the trial, once both ways are recorded. FSH_ERR_LIBRARY. */
FshStatus recorded_steps_try(RecordedSteps *recorded, FshError *error);
/* Sets the way of the run that comes next. Within the trial it waits for an earlier run; after the trial's
 * last run it decides, and frees the graphs of the way that lost. */
FshStatus recorded_steps_turn(RecordedSteps *recorded, FshError *error);
/* Launches the steps of a kind of run, that way. */
FshStatus recorded_steps_launch(RecordedSteps *recorded, UpdateRun run, cudaStream_t stream, FshError *error);
/* Frees the graphs of a way. One that is under way goes when it has ended. */
void recorded_steps_drop(RecordedSteps *recorded, LaneWay way);
void recorded_steps_free(RecordedSteps *recorded);

#endif
