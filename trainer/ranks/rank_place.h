/* rank_place.h - finds this process's place among those that train together.
 *
 * A run of several processes (ranks) is started by a launcher, which gives each its place in environment
 * variables. These launchers are known, in the order in which they are tried, the innermost first:
 *
 *   ftrain --gpus    as torchrun, with FSHARD_JOB
 *   torchrun         RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_PORT; TORCHELASTIC_RUN_ID,
 *                    _RESTART_COUNT
 *   mpirun           OMPI_COMM_WORLD_RANK _SIZE _LOCAL_RANK _LOCAL_SIZE (Open MPI); PMI_RANK PMI_SIZE
 *                    MPI_LOCALRANKID MPI_LOCALNRANKS (MPICH, Intel MPI)
 *   srun             SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID SLURM_STEP_NUM_NODES SLURM_JOB_ID
 *                    SLURM_STEP_ID. The shell of a batch script or of salloc is no step: what it runs is one
 *                    process.
 *
 * Without any of them there is one process. Today all ranks must be on one host; the struct has what several
 * hosts will need.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_RANKS_RANK_PLACE_H
#define FSHARD_TRAINER_RANKS_RANK_PLACE_H

#include <stdint.h>

#include "common/error.h"

enum { RANKS_MAX = 256, RANK_JOB_MAX = 64 };

typedef struct RankPlace {
    uint64_t rank, world_size;        /* 0 and 1: one process */
    uint64_t local_rank, local_world; /* among the ranks of this host */
    const char *launcher;             /* "torchrun", "srun", …; NULL: one process */
    /* The same for all ranks of a job, and different for other jobs on this host: letters, digits and '-'. */
    char job[RANK_JOB_MAX];
} RankPlace;

/* Returns the value of an environment variable; NULL: not set. */
typedef const char *(*RankLookup)(void *context, const char *name);

/* Fills place. FSH_ERR_USAGE: a launcher's variables are incomplete, not numbers, or contradict each other or
 * another launcher's; FSH_ERR_UNSUPPORTED: several hosts, or more than RANKS_MAX ranks. The message names the
 * variables. */
FshStatus rank_place_find(RankPlace *place, RankLookup lookup, void *context, FshError *error);
/* Fills place from this process's environment. */
FshStatus rank_place_from_environment(RankPlace *place, FshError *error);

#endif
