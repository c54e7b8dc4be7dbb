/* study_run.h - a run as it lies in its output folder, for comparison with others: what was asked for and
 * what came of it.
 *
 * Everything comes from args.json and metrics.jsonl, which an unfinished run has too. Threads: one. */
#ifndef FSHARD_TRAINER_STUDY_STUDY_RUN_H
#define FSHARD_TRAINER_STUDY_STUDY_RUN_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>

#include "trainer/report/run_history.h"

/* What runs of a kind of dataset are measured by. */
typedef struct StudyTask {
    const char *metric, *title; /* "top1", "top-1": of eval_top1 and ema_top1 */
    const char *sign;           /* the column that a run has which has this task */
    bool rises;                 /* more is better */
} StudyTask;

/* What a run has reached. NaN: it is not known, for it was never evaluated. */
typedef struct StudyResult {
    double best, best_epoch; /* of the task's metric */
    double best_iteration;   /* where the run counts them */
    double last, last_loss;  /* at the last evaluation */
    double average;          /* the best of the averaged weights */
    double seconds;          /* from the beginning of training to the end of the last epoch */
} StudyResult;

typedef struct StudyRun {
    char folder[PATH_MAX];
    char name[NAME_MAX + 1]; /* of the folder: the last part of its path */
    json_t *arguments;       /* args.json */
    json_t *options;         /* that decide a run, with what was chosen for them, without the seed */
    int64_t seed;
    const char *dataset; /* the dataset's id; points into arguments */
    const char *choice;  /* digest of what it was evaluated on; NULL: a whole split; points into arguments */
    RunHistory history;
    const StudyTask *task;       /* top-1 where nothing says another */
    bool counts_iterations;      /* then its epochs are the stretches between evaluations */
    uint64_t epochs, iterations; /* done; iterations: 0 where they are not counted */
    uint64_t planned;            /* epochs, or iterations where they are counted; 0: args.json does not say */
    double epoch_iterations;     /* in an epoch of a run that counts those; 0: args.json does not say */
    StudyResult result;
} StudyRun;

/* Reads the run. FSH_ERR_NOT_FOUND: the folder holds no run. FSH_ERR_CORRUPT: its args.json is none of
 * ftrain's. FSH_ERR_MEMORY. Nothing is held then. */
FshStatus study_run_read(StudyRun *run, const char *folder, FshError *error);
/* Frees what the run holds; a zeroed run is fine. */
void study_run_free(StudyRun *run);

/* Returns whether the folder holds a run. */
bool study_run_is_there(const char *folder);

/* Returns the iterations (updates) of the first `epochs` epochs of a run that counts those. */
double study_run_iterations_of(const StudyRun *run, double epochs);

/* Returns the iterations done at the end of a row of the run's epochs, however the run is counted; NaN: that
 * is not known. */
double study_run_iteration_at(const StudyRun *run, size_t row);

/* Returns a column of the run's epochs; NULL: it has none of that name. */
const double *study_run_column(const StudyRun *run, const char *name);

#endif
