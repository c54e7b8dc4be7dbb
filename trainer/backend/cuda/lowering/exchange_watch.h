/* exchange_watch.h - whether a GPU that trains with others gets on. Part of device_ranks.h.
 *
 * A process beats (host_beats.h) while its GPU, its driver or the link to the other GPUs hangs. So in front
 * of each exchange of gradients, and behind it, a kernel of one thread counts in memory of the host: how many
 * exchanges the GPU has reached, and how many it has passed. Ranks agree before each step, so a step that one
 * has enqueued all have, and it takes as long as a GPU needs. A GPU that does not reach its next exchange
 * meanwhile hangs itself; one that waits in it waits for others.
 *
 * Threads: exchange_watch_look from one, the others from that of the backend. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_EXCHANGE_WATCH_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_EXCHANGE_WATCH_H

#include <stdatomic.h>

#include "trainer/backend/cuda/kernels/kernels_results.h"

typedef struct ExchangeWatch {
    ExchangeCounts *device;        /* counted there */
    volatile ExchangeCounts *host; /* and told here; pinned; NULL: not open */
    atomic_ullong begun;           /* exchanges that have been launched */
    /* of exchange_watch_look alone */
    ExchangeCounts seen;
    double still; /* seconds */
} ExchangeWatch;

typedef enum ExchangeState {
    EXCHANGE_WELL,    /* nothing is under way, or it gets on */
    EXCHANGE_BEFORE,  /* this GPU does not reach its next exchange */
    EXCHANGE_BETWEEN, /* it is in an exchange that does not end */
} ExchangeState;

/* Makes the counters. On failure: exchange_watch_close. Fails as cuda_memory_new. */
FshStatus exchange_watch_open(ExchangeWatch *watch, FshError *error);
/* Frees them, once the stream is idle. Zeroed is fine. */
void exchange_watch_close(ExchangeWatch *watch);

/* Enqueue the kernel in front of an exchange, and the one behind it. */
FshStatus exchange_watch_reach(const ExchangeWatch *watch, cudaStream_t stream, FshError *error);
FshStatus exchange_watch_pass(const ExchangeWatch *watch, cudaStream_t stream, FshError *error);
/* Notes that both have been launched, with all that lies before them. */
void exchange_watch_begin(ExchangeWatch *watch);

/* Looks at the counters, `passed` seconds after the last time. What stands still for most_seconds hangs; an
 * exchange has some seconds more, in which the rank that keeps it waiting speaks first. */
ExchangeState exchange_watch_look(ExchangeWatch *watch, double passed, double most_seconds);

#endif
