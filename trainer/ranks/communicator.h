/* communicator.h - communication between the ranks of a run: small sums and flags, and the gradients of the
 * CPU backend.
 *
 *   Communicator *communicator;
 *   communicator_open(&communicator, &place, NULL, &error);    // returns when all ranks are there
 *   communicator_sum_f64(communicator, sums, count, &error);    // every rank has the sums over all
 *   communicator_close(&communicator);
 *
 * Every rank makes the same calls in the same order with the same counts; each call returns when all have
 * made it. Results are the same bits on all ranks: each element is added in the order of the ranks, once;
 * where they are on several hosts, first on each host, and then over the hosts in the order of their ranks.
 *
 * When a rank ends in the middle of a run, however it ends, all ranks that wait for it notice within a
 * fraction of a second. That call and every later one, of all ranks, then fail with FSH_ERR_PEER and one
 * message, "rank 1 of 4 (host gpu07, process 4711) has ended". A rank whose process stands still for
 * timeout_seconds is lost too, and one that lives but does not come for patience_seconds. A signal ends no
 * call, since all ranks are to stop together; but where it finds a rank that has stood still for 5 seconds,
 * that one is lost at once.
 *
 * The ranks of a host talk through its memory (host_ranks.h). Where there are several hosts, the first rank
 * of each has a TCP connection to rank 0 (hub.h), over which all hosts hear of a loss on one of them. A host
 * that has not been heard of for timeout_seconds is lost.
 *
 * Threads: one at a time, except where a call says otherwise. */
#ifndef FSHARD_TRAINER_RANKS_COMMUNICATOR_H
#define FSHARD_TRAINER_RANKS_COMMUNICATOR_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/ranks/communicator_options.h"
#include "trainer/ranks/rank_place.h"

typedef struct Communicator Communicator;

/* Waits for all ranks of the job, at most options->hint.most_seconds. Copies place; options may be NULL.
 * FSH_ERR_USAGE: two processes have the same rank, or another world size under the same job; the file belongs
 * to another user; on a host's first rank, what hub_open says. FSH_ERR_PEER: a rank has not come, or has
 * ended. FSH_ERR_SYSTEM: a process that is no rank holds the file; there is no shared memory.
 * FSH_ERR_INTERRUPTED. What all ranks of a host would say, one says: the message of the others is
 * ranks_told_elsewhere. On failure *communicator is NULL. */
FshStatus communicator_open(Communicator **communicator_ret, const RankPlace *place,
                            const CommunicatorOptions *options, FshError *error);
/* Leaves and frees. A rank that waits for this one from now on is told that it has ended. NULL is fine. */
void communicator_close(Communicator **communicator);

/* Removes what the ranks of a job on this host have left if all were killed before they had met. For who has
 * started them, once none lives. */
void communicator_forget(const RankPlace *place);

const RankPlace *communicator_place(const Communicator *communicator);
/* Returns the number of hosts that the ranks are on. */
uint64_t communicator_host_count(const Communicator *communicator);

/* Replace values[i] by its sum, or its maximum, over the ranks. */
FshStatus communicator_sum_f64(Communicator *communicator, double *values, size_t count, FshError *error);
FshStatus communicator_sum_u64(Communicator *communicator, uint64_t *values, size_t count, FshError *error);
FshStatus communicator_max_u64(Communicator *communicator, uint64_t *values, size_t count, FshError *error);
/* Replaces values[i] by its mean over the ranks: added up in f32, then divided. */
FshStatus communicator_mean_f32(Communicator *communicator, float *values, size_t count, FshError *error);
/* Copies the bytes of rank `root` to all ranks. */
FshStatus communicator_broadcast(Communicator *communicator, uint64_t root, void *bytes, size_t byte_count,
                                 FshError *error);
/* Copies byte_count bytes of each rank to all: those of rank r go to all_ret + r * byte_count. */
FshStatus communicator_gather(Communicator *communicator, const void *mine, size_t byte_count, void *all_ret,
                              FshError *error);

/* Returns FSH_OK, or FSH_ERR_PEER with the message of the loss, if a rank has ended without
 * communicator_close or stands still, or a call has failed. Asks the system and waits for no rank; from any
 * thread. */
FshStatus communicator_check(Communicator *communicator, FshError *error);
/* Does the same, and also fails for a rank that has called communicator_close: no other need wait for it. */
FshStatus communicator_check_all_there(Communicator *communicator, FshError *error);
/* Returns the signal without which a rank that stood still would have been waited for longer: this process
 * is to end as if it had come here. 0: no rank is lost, or not for that reason. From any thread. */
int communicator_lost_to(const Communicator *communicator);
/* Returns whether a rank is lost, so that every later call fails; from any thread. */
bool communicator_is_broken(const Communicator *communicator);
/* Makes it the loss that this rank `what`, as in "has ended", or where is_own is false that `what`: for what
 * only this rank can know, of its GPU. The first loss counts. Returns FSH_ERR_PEER with its message. From any
 * thread. */
FshStatus communicator_lose(Communicator *communicator, bool is_own, const char *what, FshError *error);
/* Returns for how many seconds a rank may stand still. */
double communicator_timeout(const Communicator *communicator);
/* Returns whether this rank tells the user why the ranks of its host end, as host_ranks_tells; from any
 * thread. */
bool communicator_tells(Communicator *communicator);

#endif
