/* communicator.h - what the ranks of a run tell each other through the host's memory: small sums and flags
 * for all, and the gradients of the CPU backend.
 *
 *   Communicator *communicator;
 *   communicator_open(&communicator, &place, NULL, &error);    // returns when all ranks are there
 *   communicator_sum_f64(communicator, sums, count, &error);    // every rank has the sums over all
 *   communicator_close(&communicator);
 *
 * Every rank makes the same calls in the same order with the same counts; each call returns when all have
 * made it. Results are the same bits on all ranks: each element is added in the order of the ranks, once.
 *
 * A rank that ends in the middle of a run, in whatever way, is noticed by all that wait for it, in a fraction
 * of a second: its lock on the shared file goes with its process. FSH_ERR_SYSTEM then ("rank 1 (process 4711)
 * has ended"), from this and every later call. A rank that lives and does not come for
 * COMMUNICATOR_PATIENCE_SECONDS counts as lost too.
 *
 * All ranks on one host: a file in /dev/shm, of the user alone, named after the job, gone as soon as all have
 * opened it. This interface says nothing of that; several hosts can be put behind it.
 *
 * Threads: one at a time, but for the calls that say otherwise. */
#ifndef FSHARD_TRAINER_RANKS_COMMUNICATOR_H
#define FSHARD_TRAINER_RANKS_COMMUNICATOR_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/ranks/rank_place.h"

enum { COMMUNICATOR_PATIENCE_SECONDS = 1800, COMMUNICATOR_GATHERING_SECONDS = 120 };

typedef struct Communicator Communicator;

/* Who is told, once, that ranks are missing yet, by the first rank that is there: "rank 3 of 4 is waited
 * for"; or that another process keeps this one from meeting them. */
typedef struct CommunicatorHint {
    double after_seconds;
    double most_seconds; /* then it is a failure; 0: COMMUNICATOR_GATHERING_SECONDS */
    void (*tell)(void *context, const char *text);
    void *context;
} CommunicatorHint;

/* Waits for all ranks of the job, COMMUNICATOR_GATHERING_SECONDS at most; place is copied; hint may be NULL.
 * FSH_ERR_USAGE: two processes with the same rank, or of another world size under the same job; the file is
 * another user's. FSH_ERR_SYSTEM: one has not come, or has ended; a process that is none of them holds the
 * file; shared memory cannot be had. FSH_ERR_INTERRUPTED. On failure *communicator is NULL. */
FshStatus communicator_open(Communicator **communicator, const RankPlace *place, const CommunicatorHint *hint,
                            FshError *error);
/* Says that this rank leaves. Whoever waits for it from now on is told that it has ended. NULL is fine. */
void communicator_close(Communicator **communicator);

const RankPlace *communicator_place(const Communicator *communicator);

FshStatus communicator_barrier(Communicator *communicator, FshError *error);
/* values[i] becomes the sum, or the greatest, over the ranks. */
FshStatus communicator_sum_f64(Communicator *communicator, double *values, size_t count, FshError *error);
FshStatus communicator_sum_u64(Communicator *communicator, uint64_t *values, size_t count, FshError *error);
FshStatus communicator_max_u64(Communicator *communicator, uint64_t *values, size_t count, FshError *error);
/* values[i] becomes the mean over the ranks: added up in f32, then divided. */
FshStatus communicator_mean_f32(Communicator *communicator, float *values, size_t count, FshError *error);
/* bytes of rank `root` come to all. */
FshStatus communicator_broadcast(Communicator *communicator, uint64_t root, void *bytes, size_t byte_count,
                                 FshError *error);
/* At rank 0 all[rank * byte_count] becomes that rank's bytes; elsewhere `all` may be NULL and is left
 * alone. */
FshStatus communicator_gather(Communicator *communicator, const void *bytes, size_t byte_count, void *all,
                              FshError *error);

/* FSH_OK, or FSH_ERR_SYSTEM with the rank that has ended without communicator_close. Asks the system, waits
 * for nobody; from any thread. */
FshStatus communicator_check(Communicator *communicator, FshError *error);
/* The same, and for one that has called communicator_close too: nobody need wait for it. */
FshStatus communicator_check_all_there(Communicator *communicator, FshError *error);
/* True where a call has failed because a rank has ended: no later one will do. */
bool communicator_is_broken(const Communicator *communicator);
/* True once all other ranks have called communicator_close, or ended. From any thread. */
bool communicator_is_last(Communicator *communicator);

#endif
