/* run_state.h - where a run stands, beside its weights: what a checkpoint's notes hold.
 *
 * Pure data: a run that goes on from its notes does what it would have done without the stop.
 * Threads: one. */
#ifndef FSHARD_TRAINER_CHECKPOINT_RUN_STATE_H
#define FSHARD_TRAINER_CHECKPOINT_RUN_STATE_H

#include <jansson.h>

#include "common/error.h"

#include "trainer/report/metrics.h"
#include "trainer/optim/early_stop.h"
#include "trainer/optim/plateau.h"

enum { KEPT_EPOCHS_MAX = 100 };

/* An epoch's weights on disk. */
typedef struct KeptEpoch {
    uint64_t epoch;
    double value; /* of the main metric; the loss is better when lower */
} KeptEpoch;

/* Of the epochs that were evaluated, the one with the highest main metric; of equal ones the first. */
typedef struct BestEpoch {
    bool any;
    uint64_t epoch;
    Metrics metrics;
} BestEpoch;

typedef struct RunState {
    /* the next step: step of epoch; step may be that epoch's count (evaluation is due) */
    uint64_t epoch, step;
    uint64_t steps_done; /* over all epochs */
    uint64_t images;     /* trained */
    double seconds;      /* of the run so far, all its parts */
    double step_seconds; /* of it in training steps, waiting included */
    double wait_seconds; /* of that, waiting for the loader */
    double evaluation_seconds;
    double last_evaluation_seconds; /* of the weights and of their average */
    /* where the plan has none: chosen after the first evaluation, then kept; 0: not yet */
    uint64_t evaluation_interval;
    Metrics metrics;                          /* of the epoch under way */
    double epoch_seconds, epoch_wait_seconds; /* of the epoch under way */
    BestEpoch best, best_average;             /* of the weights, and of the averaged ones */
    /* of those whose weights could be saved: the same, but where a disk failed */
    BestEpoch saved, saved_average;
    bool finished; /* nothing is left to do */
    Plateau plateau;
    EarlyStop early_stop;
    size_t kept_count;
    KeptEpoch kept[KEPT_EPOCHS_MAX]; /* --checkpoint-hist */
} RunState;

/* A new object; NULL: no memory. */
json_t *run_state_object(const RunState *state);
/* FSH_ERR_CORRUPT: a member is missing or of another type. path names the checkpoint in the message. */
FshStatus run_state_read(RunState *state, const char *path, const json_t *object, FshError *error);

#endif
