/* hub.h - the first ranks of several hosts: one TCP connection from each to rank 0, on which they meet,
 * combine values, and hear of ranks that are lost elsewhere. Part of the communicator (communicator.h).
 *
 *   Hub *hub;
 *   hub_open(&hub, &place, &options, &error);       // returns when all hosts are there
 *   hub_reduce(hub, sums, bytes, &sum, &error);     // all hosts have the sums over the hosts
 *   hub_close(&hub);
 *
 * Every host makes the same calls in the same order with the same counts. Rank 0 combines what the hosts send
 * in the order of their ranks and sends all the same bytes.
 *
 * A thread of its own serves the connections: it sends a sign of life four times a second, and asks
 * options.look whether this host is well, about every HUB_LOOK_SECONDS. What it learns, a loss, is told to
 * this host by options.lose and to all other hosts, so that all hear of it within a fraction of a second. A
 * host is lost when its connection ends before hub_close there, or when nothing is heard of it for
 * options.timeout_seconds (a frozen machine, a link that is down). Time counts while this process moves
 * itself: hosts that have been suspended together go on together.
 *
 * Threads: one at a time; hub_left from any. */
#ifndef FSHARD_TRAINER_RANKS_HUB_H
#define FSHARD_TRAINER_RANKS_HUB_H

#include "trainer/ranks/host_ranks.h"

enum { HUB_PIECE_BYTES = 512 * 1024 };
#define HUB_LOOK_SECONDS 0.1

typedef struct HubOptions {
    CommunicatorHint hint;  /* most_seconds 0: COMMUNICATOR_HOSTS_SECONDS */
    double timeout_seconds; /* above 0 */
    const char *secret;     /* NULL: none */
    /* Returns FSH_OK, or what this host has lost, which all others are told; sets *signal_ret to the signal
     * that ends all ranks with it, 0: none. NULL: nothing is ever lost. From hub's thread and from the
     * caller's. */
    FshStatus (*look)(void *context, int *signal_ret, FshError *error);
    /* Is told once what is lost, on this host or another. From hub's thread or the caller's. NULL: nobody. */
    void (*lose)(void *context, const char *text, int signal_number);
    /* Returns for how many seconds another host may be silent, timeout_seconds at most, and sets *signal_ret
     * to the signal that is why, 0: none. NULL: timeout_seconds. From hub's thread. */
    double (*most_silence)(void *context, int *signal_ret);
    /* Returns for how many seconds a host that lives may keep the others waiting, and sets *signal_ret as
     * above. NULL: COMMUNICATOR_PATIENCE_SECONDS. From the caller's thread. */
    double (*most_late)(void *context, int *signal_ret);
    void *context;
} HubOptions;

typedef struct Hub Hub;

/* Meets the other hosts at place->address: listens there if this is rank 0, and connects to it otherwise.
 * place is that of a host's first rank. FSH_ERR_USAGE: the address does not resolve; the port is taken;
 * another version, secret, number of ranks; ranks of a host that do not follow each other. FSH_ERR_PEER:
 * the address does not answer, or a host has not come, within the time of the hint. FSH_ERR_SYSTEM: there is
 * no network. FSH_ERR_INTERRUPTED: a signal has come here, or to the first host, and then counts here
 * too. Hosts that wait at the first one end with the status with which it ends. On failure *hub_ret is
 * NULL. */
FshStatus hub_open(Hub **hub_ret, const RankPlace *place, const HubOptions *options, FshError *error);
/* Tells a loss of this host that the others have not heard of, leaves in order, which is no loss until
 * somebody waits for this host, and frees. NULL is fine. */
void hub_close(Hub **hub);

/* Replaces the values by their reduction over the hosts. byte_count is at most HUB_PIECE_BYTES and the same
 * on all hosts. */
FshStatus hub_reduce(Hub *hub, void *values, size_t byte_count, const RankReduction *reduction,
                     FshError *error);
/* Copies the bytes of the one host that calls with is_mine to all others. byte_count as above. */
FshStatus hub_broadcast(Hub *hub, bool is_mine, void *bytes, size_t byte_count, FshError *error);

/* Returns whether a host has left in order; writes "rank 2 of 4 (host gpu08, process 4711)" to text then. */
bool hub_left(Hub *hub, char text[HOST_RANKS_NAME_MAX]);

#endif
