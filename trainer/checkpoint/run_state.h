/* run_state.h - where a run stands, apart from its weights: the content of a checkpoint's notes.
 *
 * Pure data: a run that resumes from its notes does what it would have done without the stop. Threads:
 * one. */
#ifndef FSHARD_TRAINER_CHECKPOINT_RUN_STATE_H
#define FSHARD_TRAINER_CHECKPOINT_RUN_STATE_H

#include <jansson.h>

#include "common/error.h"

#include "trainer/report/metrics.h"
#include "trainer/optim/early_stop.h"
#include "trainer/optim/plateau.h"

enum { KEPT_EPOCHS_MAX = 100 };

/* An epoch whose weights were kept on disk. */
typedef struct KeptEpoch {
    uint64_t epoch;
    double value; /* of the main metric, or the epoch's number without evaluation; higher is better */
} KeptEpoch;

/* The evaluated epoch with the highest main metric; of equal ones the first. */
typedef struct BestEpoch {
    bool any;
    uint64_t epoch;
    Metrics metrics;
} BestEpoch;

/* Where a run stands. The loop writes it after each step and each epoch; a run that resumes reads it. */
typedef struct RunState {
    /* the next step: number `step` of epoch `epoch`; step may equal the epoch's steps (evaluation is due) */
    uint64_t epoch, step;
    uint64_t steps_done; /* over all epochs */
    uint64_t images;     /* trained on */
    double seconds;      /* of the run so far, with earlier parts */
    double step_seconds; /* of that, in training steps, including waiting */
    double wait_seconds; /* of that, waiting for the loader */
    double evaluation_seconds;
    double last_evaluation_seconds; /* of the weights and their average */
    /* chosen after the first evaluation and then kept, if the plan has none; 0: not chosen yet */
    uint64_t evaluation_interval;
    Metrics metrics;                          /* of the current epoch */
    double epoch_seconds, epoch_wait_seconds; /* of the current epoch */
    BestEpoch best, best_average;             /* of the weights; of the averaged weights */
    /* the best that are on disk: the same, unless a save failed */
    BestEpoch saved, saved_average;
    bool finished; /* nothing is left to do */
    Plateau plateau;
    EarlyStop early_stop;
    size_t kept_count;
    KeptEpoch kept[KEPT_EPOCHS_MAX]; /* --checkpoint-hist */
} RunState;

/* Returns the state as a new JSON object; NULL: no memory. */
json_t *run_state_object(const RunState *state);
/* Reads the object into state. FSH_ERR_CORRUPT: a member is missing or of another type. path: the checkpoint,
 * for the message. */
FshStatus run_state_read(RunState *state, const char *path, const json_t *object, FshError *error);

#endif
