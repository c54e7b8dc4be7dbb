/* host_memory.h - the file in /dev/shm through which the ranks of one host talk: how they find it, take a
 * place in it, and how long they wait for each other there. For host_ranks.c alone.
 *
 * The file has a head, with a cell for each rank, a slot of HOST_SLOT_BYTES for each rank, and one for
 * results. It is accessible to the user alone, named after the job, and its name goes as soon as all
 * ranks have opened it.
 *
 * Every rank holds a lock (fcntl) on its own byte of the file as long as it lives. The kernel releases it
 * however the process ends, and it works across pid name spaces, where asking for a pid would not. Byte 0
 * is the gate: its holder may make the file anew or take a place in it. A file without a held place is
 * left over from a run that was killed.
 *
 * Threads: any for the functions that take a const HostMemory; one for the others. */
#ifndef FSHARD_TRAINER_RANKS_HOST_MEMORY_H
#define FSHARD_TRAINER_RANKS_HOST_MEMORY_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "trainer/ranks/host_ranks.h"

enum { HOST_SLOT_BYTES = HOST_RANKS_PIECE_BYTES, HOST_HEAD_BYTES = 20480, HOST_CELL_BYTES = 64 };

typedef enum HostRankState { HOST_RANK_ABSENT, HOST_RANK_THERE, HOST_RANK_LEFT } HostRankState;

/* What a rank tells the others of its host. Written by that rank alone; a line of the cache for itself. */
typedef struct HostRankCell {
    alignas(HOST_CELL_BYTES) atomic_int state; /* HostRankState */
    atomic_int process;
    atomic_int rank;     /* in the run */
    atomic_uint beats;   /* host_beats.h */
    atomic_uint meeting; /* the last barrier that it has come to, counted from 1 */
} HostRankCell;

typedef enum HostLossState { HOST_LOSS_NONE, HOST_LOSS_WRITING, HOST_LOSS_TOLD } HostLossState;

typedef struct HostLoss {
    atomic_int state;         /* HostLossState: who moves it from NONE writes the rest, once */
    atomic_int signal_number; /* that has hastened it; 0: none */
    atomic_int status;        /* with which all end: host_ranks.h, HostExchange */
    atomic_int teller;        /* who tells the user: index + 1; 0: nobody yet */
    char text[HOST_RANKS_LOSS_MAX];
} HostLoss;

typedef struct HostHead {
    atomic_uint arrived;    /* ranks at the current barrier */
    atomic_uint generation; /* barriers passed; a futex */
    atomic_bool exchanging; /* the first rank talks with other hosts */
    HostLoss loss;
    HostRankCell ranks[RANKS_MAX];
} HostHead;
_Static_assert(sizeof(HostHead) <= HOST_HEAD_BYTES, "the head has its own pages");

typedef struct HostMemory {
    RankPlace place;
    uint64_t index, count;        /* of this rank among those of this host; their number */
    char host[64];                /* the host's name */
    char name[RANK_JOB_MAX + 40]; /* of the file, for shm_open */
    int descriptor;
    HostHead *head; /* the mapping */
    size_t bytes;   /* of it */
} HostMemory;

/* Says who this rank is on its host, and what the file is called. Where all ranks of the run are on one host,
 * their order there is that of the run, whatever local ranks a launcher gives. host_memory_open does so. */
void host_memory_place(HostMemory *memory, const RankPlace *place);
/* Finds or makes the file, takes this rank's place in it, and lets the others in. Errors as
 * host_ranks_open; after one, memory is to be closed too. */
FshStatus host_memory_open(HostMemory *memory, const RankPlace *place, const CommunicatorHint *hint,
                           FshError *error);
/* Waits until all ranks of the host are there. Errors as host_ranks_open. */
FshStatus host_memory_gather(HostMemory *memory, const CommunicatorHint *hint, FshError *error);
/* Leaves the place and the file. */
void host_memory_close(HostMemory *memory);

/* Return where a rank puts its values, and where results are. */
char *host_memory_slot(const HostMemory *memory, uint64_t index);
char *host_memory_result(const HostMemory *memory);

HostRankState host_memory_state(const HostMemory *memory, uint64_t index);
/* Returns whether a rank was there and has ended without leaving its place. */
bool host_memory_has_died(const HostMemory *memory, uint64_t index);
/* Writes "rank 1 of 4 (host gpu07, process 4711)" to text, and returns text. */
const char *host_memory_describe(const HostMemory *memory, uint64_t index, char text[HOST_RANKS_NAME_MAX]);

#endif
