/* rank_place.h - finds this process's place among those that train together.
 *
 * A run of several processes (ranks) is started by a launcher, which gives each its place in environment
 * variables, or by hand, with options. These are known, in the order in which they are tried, the innermost
 * first:
 *
 *   ftrain --gpus    as torchrun, with FSHARD_JOB
 *   by hand          --world-size --rank: a process each, which are the ranks of one host if they are to meet
 *                    on its loopback address; --nnodes --node-rank: a host each
 *   a PyTorch job    PET_NNODES PET_NODE_RANK PET_NPROC_PER_NODE PET_MASTER_ADDR PET_MASTER_PORT, from
 *                    which torchrun takes its options (Kubeflow's torch runtime sets them): a host each. Not
 *                    where LOCAL_RANK is set: there torchrun has read them. A range of hosts ("2:4") is
 *                    torchrun's affair, and refused; "2:2" is 2
 *   torchrun         RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT;
 *                    TORCHELASTIC_RUN_ID, _RESTART_COUNT
 *   mpirun           OMPI_COMM_WORLD_RANK _SIZE _LOCAL_RANK _LOCAL_SIZE (Open MPI); PMI_RANK PMI_SIZE
 *                    MPI_LOCALRANKID MPI_LOCALNRANKS (MPICH, Intel MPI)
 *   srun             SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID SLURM_STEP_NUM_NODES SLURM_NODEID
 *                    SLURM_STEP_TASKS_PER_NODE SLURM_STEP_NODELIST SLURM_JOB_ID SLURM_STEP_ID. The shell of a
 *                    batch script or of salloc is no step: what it runs is one process.
 *   env://           RANK WORLD_SIZE MASTER_ADDR without LOCAL_RANK: a process each, as --world-size
 *
 * Variables that do not say which ranks are on this host (a script that exports RANK and WORLD_SIZE from
 * srun's; srun --mpi=pmi2) give way to those of another launcher that has given the same rank. Without any of
 * them there is one process.
 *
 * Several hosts meet at an address and a port: those of --master-addr and --master-port; else of the
 * launcher's variables; else the first name of SLURM_STEP_NODELIST, and a port between RANK_PORT_FIRST and
 * RANK_PORT_LAST by a hash of the job's names; 29500 if the job has no name. torchrun's own process listens
 * on MASTER_PORT, so under torchrun it is MASTER_PORT + 1.
 *
 * The ranks of a host follow each other: its first rank is rank - local_rank. Other orders (mpirun --map-by
 * node, srun --distribution cyclic) are refused, here where the launcher tells enough, else at the meeting.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_RANKS_RANK_PLACE_H
#define FSHARD_TRAINER_RANKS_RANK_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "trainer/ranks/rank_options.h"

enum { RANKS_MAX = 256, RANK_JOB_MAX = 64, RANK_ADDRESS_MAX = 256 };
enum { RANK_PORT_DEFAULT = 29500, RANK_PORT_FIRST = 15000, RANK_PORT_LAST = 31999 };

typedef struct RankPlace {
    uint64_t rank, world_size;        /* 0 and 1: one process */
    uint64_t local_rank, local_world; /* among the ranks of this host */
    const char *launcher;             /* "torchrun", "srun", …; NULL: one process */
    /* How many ranks the environment wants this process to start, as --gpus would say it; NULL: none. */
    const char *wanted_ranks;
    /* The same for all ranks of a job on this host, and different for other jobs: letters, digits and '-'. */
    char job[RANK_JOB_MAX];
    /* Where several hosts meet; "" and 0 where all ranks are on this one. */
    char address[RANK_ADDRESS_MAX];
    uint16_t port;
    bool name_comes_late; /* the address is a name that is known once the first host has started */
    uint64_t run;         /* a hash of the job's names that are the same on all hosts */
} RankPlace;

/* The message of a failure that another rank reports: print no line for it. */
extern const char ranks_told_elsewhere[];

/* Returns the value of an environment variable; NULL: not set. */
typedef const char *(*RankLookup)(void *context, const char *name);

/* Fills place. options may be NULL: none was given. FSH_ERR_USAGE: options or variables are incomplete, not
 * numbers, or contradict each other or another launcher's; the ranks of a host do not follow each other; the
 * address of several hosts is missing. FSH_ERR_UNSUPPORTED: more than RANKS_MAX ranks. The message names the
 * options and variables, and place is that of one process. The texts that place points to are those of the
 * options or of the environment. */
FshStatus rank_place_find(RankPlace *place, const RankOptions *options, RankLookup lookup, void *context,
                          FshError *error);
/* Fills place from the options and this process's environment. */
FshStatus rank_place_from_environment(RankPlace *place, const RankOptions *options, FshError *error);

/* Returns whether the text is a loopback address, which no other host has. */
bool rank_address_is_loopback(const char *text);
/* Returns whether there are ranks on other hosts. */
bool rank_place_has_hosts(const RankPlace *place);
/* Returns whether this rank speaks for its host: the first of the run, and of each other host. */
bool rank_place_speaks(const RankPlace *place);
/* Writes "rank 1 of 4 (host gpu07, process 4711)" to text, and returns text. */
const char *rank_describe(char *text, size_t text_bytes, uint64_t rank, uint64_t world_size, const char *host,
                          uint64_t process);
/* Returns the first rank of this host. */
uint64_t rank_place_first(const RankPlace *place);

#endif
