/* rank_gpus.h - which GPUs the ranks of this host take: the value of --gpus.
 *
 *   4       four ranks, on the GPUs 0 to 3
 *   all     a rank on each GPU that the process sees
 *   0,2,5   three ranks, on these GPUs, in this order
 *   2,      one rank, on GPU 2: with a comma it is a list
 *
 * GPUs have the numbers that the process sees: CUDA_VISIBLE_DEVICES, with numbers, UUIDs or names of MIG
 * instances, says which GPUs those are, and the first that it names is 0.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_RANKS_RANK_GPUS_H
#define FSHARD_TRAINER_RANKS_RANK_GPUS_H

#include <stdbool.h>

#include "common/error.h"
#include "trainer/ranks/rank_place.h"

typedef struct RankGpus {
    bool all, listed;       /* "all"; a list; else a number */
    int count;              /* of ranks; "all": 0 until rank_gpus_settle */
    int there;              /* GPUs that the process sees; 0 until rank_gpus_settle */
    int numbers[RANKS_MAX]; /* rank i takes this GPU; after rank_gpus_settle, or of a list */
} RankGpus;

/* Reads the text. FSH_ERR_USAGE: it is none of the forms above, or names a GPU twice. */
FshStatus rank_gpus_read(RankGpus *gpus, const char *text, FshError *error);
/* Fills in the count of "all" and the GPU of each rank, where the process sees `there` GPUs.
 * FSH_ERR_MISMATCH: a GPU is wanted that is not there. */
FshStatus rank_gpus_settle(RankGpus *gpus, int there, FshError *error);
/* Leaves out the GPU of rank `index`: those that follow move up. The value is a list from then on. */
void rank_gpus_leave_out(RankGpus *gpus, int index);

#endif
