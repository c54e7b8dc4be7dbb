/* host_ranks.h - the ranks of one host, which share a file in /dev/shm: they meet, wait for each other,
 * combine values, and learn when one of them is lost.
 *
 *   HostRanks *host;
 *   host_ranks_open(&host, &place, &options, &error);   // returns when all of this host are there
 *   host_ranks_reduce(host, values, count, &sum, NULL, &error);
 *   host_ranks_close(&host);
 *
 * Part of the communicator (communicator.h), which everybody else calls. Where the ranks of a run are on
 * several hosts, the first rank of each host speaks for it: an exchange, given to a call here, runs on that
 * rank alone, while the others of its host wait, and may replace what they are about to receive.
 *
 * Every rank of the host makes the same calls in the same order with the same counts, and with an exchange
 * or without one alike. A rank's index is its place among those of this host: 0 is the first. Each element
 * is combined in the order of the indices, by one rank, so that all have the same bits.
 *
 * A loss ends the communication of all ranks of the host. Whoever notices it first writes it into the
 * shared file, with the message that every later call of every rank fails with. Those who wait hear of it
 * within HOST_RANKS_LOOK_SECONDS. A rank is lost
 *   when it ends in the middle of a run, however it ends, because the kernel then releases its lock;
 *   when its process has not moved for timeout_seconds (host_beats.h); if it wakes up, it hears of its loss;
 *   when its process has not moved for 5 seconds and a signal asks this one to stop, or for 2 seconds and two
 *   signals do: it is not waited for, and all ranks end as if the signal had come to them;
 *   when its process moves, but it does not come for patience_seconds, or for 10 seconds after two signals.
 *
 * Signals are those that interrupt.h has told the program, or the plugin, that has called host_ranks_open.
 *
 * Threads: one at a time, but for host_ranks_lose, _lose_to_signal, _lost_to, _check, _left, _is_lost, _tells
 * and _describe, which any thread may call between open and close. */
#ifndef FSHARD_TRAINER_RANKS_HOST_RANKS_H
#define FSHARD_TRAINER_RANKS_HOST_RANKS_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/ranks/communicator_options.h"
#include "trainer/ranks/rank_place.h"

/* Seconds between two looks of a rank that waits. */
#define HOST_RANKS_LOOK_SECONDS 0.1
enum { HOST_RANKS_NAME_MAX = 128, HOST_RANKS_LOSS_MAX = 400, HOST_RANKS_PIECE_BYTES = 512 * 1024 };

typedef struct HostRanks HostRanks;

/* How values of two ranks become one: combine makes result[i] of result[i] and values[i], from <= i < to. */
typedef struct RankReduction {
    size_t element_bytes;
    void (*combine)(void *result, const void *values, size_t from, size_t to);
} RankReduction;

/* Runs on the first rank of the host, while the others wait, with the bytes of a piece: what this host
 * has combined, or sends. Replaces them by what all hosts have. It may take long; it looks at
 * host_ranks_check about every HOST_RANKS_LOOK_SECONDS, and fails when that does. When it fails, its
 * message becomes the loss that all ranks of the host are told, with FSH_ERR_PEER; FSH_ERR_USAGE and
 * FSH_ERR_INTERRUPTED are told as they are. bytes is NULL and byte_count 0 where the ranks only wait for each
 * other. */
typedef struct HostExchange {
    FshStatus (*run)(void *context, void *bytes, size_t byte_count, FshError *error);
    void *context;
} HostExchange;

/* Waits for all ranks of the job on this host, at most options->hint.most_seconds. options may not be
 * NULL. FSH_ERR_USAGE: two processes have the same rank, or another number of ranks under the same job;
 * the file belongs to another user. FSH_ERR_PEER: a rank has not come, or has ended; the message is
 * ranks_told_elsewhere on all but one rank of the host. FSH_ERR_SYSTEM: a process that is no rank holds the
 * file; there is no shared memory. FSH_ERR_INTERRUPTED. On failure *host_ret is NULL. */
FshStatus host_ranks_open(HostRanks **host_ret, const RankPlace *place, const CommunicatorOptions *options,
                          FshError *error);
/* Leaves and frees. A rank that waits for this one from now on is told that it has ended. NULL is fine. */
void host_ranks_close(HostRanks **host);

/* Removes the name of the job's file, if there is one; no rank of the job may live. */
void host_ranks_forget(const RankPlace *place);

/* Return the index of this rank, the number of ranks on this host, and the rank in the run
 * (RankPlace.rank) of the one with an index. */
uint64_t host_ranks_index(const HostRanks *host);
uint64_t host_ranks_count(const HostRanks *host);
uint64_t host_ranks_rank(const HostRanks *host, uint64_t index);
/* Writes "rank 1 of 4 (host gpu07, process 4711)" to text, and returns text. */
const char *host_ranks_describe(const HostRanks *host, uint64_t index, char text[HOST_RANKS_NAME_MAX]);

/* ---- together ---- */

/* Waits until all ranks of this host have come here and, with an exchange, until it has run. exchange may
 * be NULL, here and below. */
FshStatus host_ranks_meet(HostRanks *host, const HostExchange *exchange, FshError *error);
/* Replaces values[i] by the reduction over the ranks. The exchange gets the values of this host, piece by
 * piece, and leaves those of all hosts. Pieces have the same sizes on all hosts. */
FshStatus host_ranks_reduce(HostRanks *host, void *values, size_t count, const RankReduction *reduction,
                            const HostExchange *exchange, FshError *error);
/* Copies the bytes of the rank with that index to all. The exchange gets them, piece by piece, to send.
 * For a sender on another host, index is host_ranks_count(): the exchange then gets bytes without a
 * meaning, and fills them. */
FshStatus host_ranks_broadcast(HostRanks *host, uint64_t index, void *bytes, size_t byte_count,
                               const HostExchange *exchange, FshError *error);

/* ---- losses ---- */

/* Ends the communication of all ranks of this host, with that message; the first loss counts, later ones
 * change nothing. Wakes those who wait. Returns FSH_ERR_PEER with the message of the loss that counts. */
FshStatus host_ranks_lose(HostRanks *host, const char *text, FshError *error);
/* Does the same for a loss that a signal has hastened: the ranks are to end as if it had come to them. */
FshStatus host_ranks_lose_to_signal(HostRanks *host, int signal_number, const char *text, FshError *error);
/* Returns the signal that has hastened the loss; 0: none, or no loss. */
int host_ranks_lost_to(const HostRanks *host);
/* Returns for how many seconds a rank, or another host, may stand still: timeout_seconds, or less where a
 * signal has come to this rank, to which *signal_ret is set; 0: none. */
double host_ranks_still_most(const HostRanks *host, int *signal_ret);
/* Returns for how many seconds a rank that lives, or another host, may keep the others waiting:
 * patience_seconds, or less where two signals have come to this rank. Sets *signal_ret to the signal then;
 * 0: none. */
double host_ranks_late_most(const HostRanks *host, int *signal_ret);
/* Returns options->timeout_seconds, or what stands for 0 there. */
double host_ranks_timeout(const HostRanks *host);
/* Looks for a rank of this host that is lost, and makes that the loss. Returns
 * FSH_OK, or FSH_ERR_PEER with the loss that counts. Asks the system and waits for no rank. */
FshStatus host_ranks_check(HostRanks *host, FshError *error);
/* Returns the index of a rank that has called host_ranks_close, which is no loss until somebody waits for
 * it; host_ranks_count() if there is none. */
uint64_t host_ranks_left(const HostRanks *host);
/* Returns whether a loss counts already. */
bool host_ranks_is_lost(const HostRanks *host);
/* Returns whether this rank is the one of its host that tells the user why all of them end: true on the
 * lowest that lives and calls, again whenever it asks, and false on the others. Waits up to 2 seconds for
 * lower ones that live. */
bool host_ranks_tells(HostRanks *host);

#endif
