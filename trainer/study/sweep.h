/* sweep.h - the runs of a sweep (ftrain --sweep lr=0.1,0.2 --seeds 3): every combination of values with every
 * seed, and where each stands.
 *
 * A run lies in OUTPUT/NAME, where NAME says its values: "lr=0.1,seed=0". The folders alone hold the state of
 * a sweep: a run whose checkpoint says that it has ended is not run again, and any other begins or goes on
 * (--resume auto). More values or seeds may be asked for later.
 *
 * Threads: one. Nothing here starts a thread or touches a device: start_runs.h forks. */
#ifndef FSHARD_TRAINER_STUDY_SWEEP_H
#define FSHARD_TRAINER_STUDY_SWEEP_H

#include <limits.h>

#include "trainer/plan/train_options.h"

enum { SWEEP_AXES_MAX = 8, SWEEP_RUNS_MAX = 10000 };

/* An option and the values that it takes in turn. */
typedef struct SweepAxis {
    char *text;          /* owned: "lr", a NUL, and the values with NULs between */
    const char *option;  /* by its own name */
    const char **values; /* [count], owned; they point into text */
    size_t count;
} SweepAxis;

typedef struct SweepRun {
    char name[NAME_MAX + 1];
    char folder[PATH_MAX];
    size_t places[SWEEP_AXES_MAX]; /* of its values, in their axes */
    int64_t seed;
    bool finished; /* sweep_look */
} SweepRun;

typedef struct Sweep {
    SweepAxis axes[SWEEP_AXES_MAX];
    size_t axis_count;
    SweepRun *runs; /* [count], owned: the seeds of a combination follow each other */
    size_t count, seeds;
} Sweep;

/* Returns whether the options ask for several runs. */
bool sweep_is_wanted(const TrainOptions *options);

/* Makes the runs. What they vary wins over any other value of the option, and is no longer that of a
 * recipe. FSH_ERR_USAGE: an option that there is none of, or that a sweep cannot change; a value that it
 * does not take, or twice; what is for one run alone; names that are too long or the same. On failure
 * nothing is held. */
FshStatus sweep_open(Sweep *sweep, const TrainOptions *options, FshError *error);
/* Frees what the sweep holds; a zeroed sweep is fine. */
void sweep_close(Sweep *sweep);

/* Changes the options to those of the run: its values, its seed, its folder. The texts among them belong to
 * the sweep. FSH_ERR_USAGE. */
FshStatus sweep_apply(const Sweep *sweep, const SweepRun *run, TrainOptions *options, FshError *error);

/* Sets `finished` of every run. FSH_ERR_EXISTS: OUTPUT, or the folder of a run, holds something else.
 * FSH_ERR_MISMATCH: a folder holds a run with other options, which would be taken for this one. With --force
 * nothing is finished, and only a dataset or a file in the place of OUTPUT is refused. */
FshStatus sweep_look(Sweep *sweep, const TrainOptions *options, FshError *error);
/* Sets run->finished alone, as the checkpoint says it; false where it cannot be read. */
void sweep_look_at(SweepRun *run);

#endif
