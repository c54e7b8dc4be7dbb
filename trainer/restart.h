/* restart.h - whether ranks are started again after one was lost (--max-restarts), and from where.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_RESTART_H
#define FSHARD_TRAINER_RESTART_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "trainer/launch.h"
#include "trainer/plan/train_options.h"

/* A checkpoint on disk that the run would go on from. */
typedef struct RestartPoint {
    bool there;
    uint64_t steps;   /* done when it was written */
    uint64_t epoch;   /* begun then: the same step may end one or begin the next, after the evaluation */
    struct stat file; /* of the checkpoint, whether or not it is the run's own */
} RestartPoint;

typedef struct Restarts {
    uint64_t most, done;  /* --max-restarts; restarts so far */
    bool elastic;         /* a rank that does not get on may be left out */
    int left_out;         /* by the last decision: this rank of the host; -1: none */
    RestartPoint last;    /* where the last of them began */
    RestartPoint foreign; /* a checkpoint of another run that stood in the folder when this one began */
} Restarts;

/* Looks at the output folder before the first launch: a checkpoint there is another run's, unless --resume
 * goes on from it. FSH_ERR_CORRUPT, FSH_ERR_USAGE: as run_resume_find. */
FshStatus restarts_begin(Restarts *restarts, const TrainOptions *options, FshError *error);
/* Decides whether the ranks are started again, and whether without one: a run that has not got on since the
 * last restart stops, or leaves out the rank that was lost (restarts->left_out). Writes a sentence to text
 * that says so, or why not; "" if there is nothing to say. The caller prints it, and launches again if true
 * is returned. */
bool restarts_decide(Restarts *restarts, const LaunchEnd *end, const RestartPoint *here, char *text,
                     size_t text_bytes);
/* Finds the checkpoint that a restarted run would go on from. here->there is false if the run has written
 * none. FSH_ERR_CORRUPT, FSH_ERR_MISMATCH: it cannot be read. */
FshStatus restarts_find(const Restarts *restarts, const TrainOptions *options, RestartPoint *here,
                        FshError *error);
/* Changes the options to those of a run that goes on from there, or begins anew. Only what this run has
 * begun to write may be replaced. */
void restarts_apply(const RestartPoint *here, TrainOptions *options);

#endif
