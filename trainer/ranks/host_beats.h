/* host_beats.h - a thread of each rank that beats, so that the others see that its process moves, and
 * that counts for how long each of the others has not. For host_ranks.c alone.
 *
 * A process that is stopped (SIGSTOP, a debugger), in a frozen container or virtual machine, or swapped
 * out does not beat. One that writes a checkpoint, evaluates, or waits for a disk does.
 *
 * Time counts while this process moves itself: after all have been suspended together, none is found
 * still.
 *
 * Threads: host_beats_still from any, the others from one. The thread takes no signals. A child made by
 * fork has none: a rank that forks must not use its ranks there. */
#ifndef FSHARD_TRAINER_RANKS_HOST_BEATS_H
#define FSHARD_TRAINER_RANKS_HOST_BEATS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "trainer/ranks/host_memory.h"

/* The same for all ranks, whatever their timeouts: one may wait for a second only. */
#define HOST_BEAT_SECONDS 0.2

typedef struct HostBeats {
    const HostMemory *memory;
    double most_seconds; /* that count between two beats */
    pthread_t thread;
    pthread_mutex_t mutex; /* of ends */
    pthread_cond_t ended;
    bool runs, ends;
    unsigned seen[RANKS_MAX];             /* the last beat of each rank; the thread's alone */
    _Atomic uint32_t still_ms[RANKS_MAX]; /* since it was seen */
} HostBeats;

/* Starts to beat, every HOST_BEAT_SECONDS. Whoever is still for timeout_seconds is lost, which says how
 * exactly time is to be counted. memory is open until host_beats_stop. FSH_ERR_SYSTEM. */
FshStatus host_beats_start(HostBeats *beats, const HostMemory *memory, double timeout_seconds,
                           FshError *error);
/* Ends the thread, if it was started. */
void host_beats_stop(HostBeats *beats);
/* Returns for how many seconds a rank has not beaten. 0 for one that is not there yet, or has left. */
double host_beats_still(const HostBeats *beats, uint64_t index);

#endif
