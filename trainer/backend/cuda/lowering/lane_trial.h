/* lane_trial.h - finds out in a program's first runs whether two lanes take less time than one
 * (trainer/graph/lanes.h).
 *
 * Both ways have been recorded and compute the same, so the trial costs nothing but the slower way's runs:
 * they take turns in blocks, and the shortest run of each is compared. Which one wins is a matter of the
 * network, its batch and the card: on an H200 lanes won 6 % of nafnet's step, 5 of conv8's, 2.5 of
 * pyramidnet's at 64, and lost 1.5 of resnet50's at 512, which runs at the card's power limit as it is
 * (docs/measurements/2026-11-24-step.md). */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_LANE_TRIAL_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_LANE_TRIAL_H

#include <stdbool.h>

#include <cuda_runtime_api.h>

#include "common/error.h"

typedef enum LaneWay { LANES_ONE, LANES_TWO, LANE_WAYS } LaneWay;

enum { LANE_TRIAL_BLOCK = 4, LANE_TRIAL_RUNS = 8 * LANE_TRIAL_BLOCK, LANE_TRIAL_SLOTS = 2 };

/* A run that is timed. */
typedef struct LaneTrialRun {
    cudaEvent_t begin, end;
    LaneWay way;
    bool under_way;
} LaneTrialRun;

typedef struct LaneTrial {
    LaneTrialRun slots[LANE_TRIAL_SLOTS]; /* of the last runs */
    bool open;
    unsigned runs;                 /* so far */
    float milliseconds[LANE_WAYS]; /* of the shortest run; 0: none was timed */
    LaneWay way;                   /* of the run that comes next, and of all after the trial */
} LaneTrial;

/* Begins a trial. FSH_ERR_LIBRARY. */
FshStatus lane_trial_start(LaneTrial *trial, FshError *error);
/* Takes the time of the run that is about to be enqueued, and says by trial->way which it is. Waits for the
 * run before the last one. Does nothing after the trial, nor where none was begun. */
FshStatus lane_trial_before(LaneTrial *trial, cudaStream_t stream, FshError *error);
/* Notes that the run has been enqueued. */
FshStatus lane_trial_after(LaneTrial *trial, cudaStream_t stream, FshError *error);
void lane_trial_free(LaneTrial *trial);

#endif
