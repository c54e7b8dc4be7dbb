/* start_ranks.h - starts the ranks that the options ask for (--gpus), before the program does anything else.
 *
 * Threads: one, that of main. */
#ifndef FSHARD_TRAINER_START_RANKS_H
#define FSHARD_TRAINER_START_RANKS_H

#include "trainer/launch.h"
#include "trainer/ranks/rank_gpus.h"
#include "trainer/plan/train_options.h"

/* Refuses options that are for one process where there are several: `place` says how many a launcher has
 * started, options->ranks.gpus how many are to be started. FSH_ERR_USAGE, also for a --gpus that says
 * nothing. */
FshStatus start_ranks_check(const TrainOptions *options, const RankPlace *place, FshError *error);

/* Takes from the environment how many ranks to start (RankPlace.wanted_ranks), where --gpus does not say
 * it. */
void start_ranks_take_wanted(TrainOptions *options, const RankPlace *place);

/* A rank that start_ranks has started. */
typedef struct StartedRank {
    Launcher launcher; /* the parent's; of no use where the parent is another program */
    bool reports;      /* there is a parent that wants to know how this rank ends */
    int index;         /* of this rank among those of its host */
} StartedRank;

/* Starts the ranks of options->ranks.gpus as processes. Returns in each of them, with its place in *place,
 * and the device and the GPU that it takes in *options; the process that was started waits for them and ends
 * with their status. With --max-restarts it starts them again after one was lost (restart.h). If one rank is
 * asked for and no restart, this process is that rank. Where a launcher has started one process on each host,
 * each starts its host's ranks. With --dry-run it starts none: this process takes the place of the first of
 * them. FSH_ERR_USAGE: a launcher has started several on this one. FSH_ERR_MISMATCH:
 * a GPU is not there. FSH_ERR_SYSTEM, FSH_ERR_UNSUPPORTED: see launch.h. */
FshStatus start_ranks(TrainOptions *options, RankPlace *place, StartedRank *started, FshError *error);
/* With --elastic, deals the images of an update of the run that the options go on with out to the ranks that
 * there are. Fails as elastic_find and elastic_apply; what cannot be dealt is told by the first rank of each
 * host. */
FshStatus start_ranks_share(TrainOptions *options, const RankPlace *place, FshError *error);
/* Reads --gpus: how many processes, and which GPU each of them takes; on the CPU their number alone. Sets
 * options->device. FSH_ERR_USAGE, FSH_ERR_MISMATCH; fails as launch_count_gpus. */
FshStatus start_ranks_gpus(TrainOptions *options, RankGpus *gpus, FshError *error);
/* Tells the process that has started this rank how the rank ends. */
void start_ranks_report(const StartedRank *started, FshStatus status);

#endif
