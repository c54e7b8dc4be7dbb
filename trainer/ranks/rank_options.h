/* rank_options.h - the options that say which processes train together, and how they look after each other.
 *
 * Each option has one row, here, and one reader: rank_gpus.h (gpus), restart.h (max_restarts), elastic.h
 * (elastic), train_plan.h (parallel), rank_place.h (all that name a place), communicator_options.h (timeout).
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_RANKS_RANK_OPTIONS_H
#define FSHARD_TRAINER_RANKS_RANK_OPTIONS_H

#include "common/options.h"

/* What --batch-size counts: the images of one rank, or of all. */
typedef enum RankParallel { RANK_PARALLEL_DDP, RANK_PARALLEL_DP } RankParallel;

typedef struct RankOptions {
    const char *gpus; /* rank_gpus.h; NULL: this process only, or as a launcher says */
    int parallel;     /* RankParallel */
    int64_t max_restarts;
    bool elastic;
    int gpu; /* no option: the GPU that --gpus gives this rank; -1: that of its local rank */
    /* A place by hand, as texts: rank_place.h reads them as it reads variables. NULL: not given. */
    const char *nnodes, *node_rank;
    const char *master_addr, *master_port;
    const char *world_size, *rank;
    double timeout; /* seconds: CommunicatorOptions.timeout_seconds */
} RankOptions;

/* Returns the defaults. */
RankOptions rank_options_default(void);
/* Writes the rows of the options to rows and returns their number. They point into options. */
size_t rank_options_rows(RankOptions *options, Option *rows);

#endif
