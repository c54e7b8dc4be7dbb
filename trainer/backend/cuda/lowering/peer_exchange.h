/* peer_exchange.h - small means over the GPUs of one host, through each other's memory: what NCCL takes 9 us
 * for. The kernel and its protocol: peers.cu.
 *
 * Each rank has a box in its GPU's memory, which the others map (CUDA IPC). That needs GPUs that see each
 * other: all ranks on one host, peer access between all of them, and none hidden from another rank. They must
 * be the same card, so that all take the same launches. Where it is not so, or NCCL_P2P_DISABLE says that it
 * does not work, there is no exchange, and callers use NCCL.
 *
 * A kernel waits for the other ranks. When one of them is lost, peer_exchange_stop sets it free. The launch
 * of a norm of small images holds all multiprocessors meanwhile. So no rank may first have to end other work,
 * on another stream, for which that rank waits too (an all-reduce of NCCL beside backward).
 *
 * Threads: that of the backend; peer_exchange_stop from any. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_PEER_EXCHANGE_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_PEER_EXCHANGE_H

#include "trainer/backend/cuda/lowering/device_ranks.h"

typedef struct PeerExchange PeerExchange;

/* Opens the boxes of all ranks. Every rank calls it. *exchange_ret is NULL, on all ranks, where there can be
 * no exchange. Fails as the communicator does. */
FshStatus peer_exchange_open(PeerExchange **exchange_ret, Communicator *communicator, FshError *error);
/* Frees the exchange once the stream is idle. The other ranks' kernels must have ended or been stopped. NULL
 * is fine. */
void peer_exchange_close(PeerExchange *exchange);
/* Ends the waiting of all kernels, now and later. NULL is fine. */
void peer_exchange_stop(PeerExchange *exchange);

/* Returns the boxes, for kernels that exchange something among other things; NULL if exchange is NULL. */
const PeerBoxes *peer_exchange_boxes(const PeerExchange *exchange);
/* Returns whether peer_exchange_mean takes these pieces: at most two, all f32 or all f64, and not too many
 * values; false if exchange is NULL. */
bool peer_exchange_takes(const PeerExchange *exchange, const RankMean *pieces, int piece_count);
/* Enqueues one kernel that replaces all values of the pieces by their means over the ranks. It may be
 * recorded into a graph from the first time on. */
FshStatus peer_exchange_mean(const PeerExchange *exchange, const RankMean *pieces, int piece_count,
                             cudaStream_t stream, FshError *error);

#endif
