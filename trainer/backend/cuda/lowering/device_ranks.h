/* device_ranks.h - the GPUs of several ranks: their gradients become means through NCCL, on the stream of the
 * step, inside the recorded graph.
 *
 * NCCL is loaded (dlopen) when ranks join: it is 200 MB that one process has no use for. A rank that ends
 * leaves the others' GPUs waiting for it, and no call of theirs would come back: a thread looks after the
 * others, and when one is gone it aborts the communication, which sets the GPUs free. What they then hold is
 * worth nothing; the next exchange of the hosts says so.
 *
 * Threads: that of the backend. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_DEVICE_RANKS_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_DEVICE_RANKS_H

#include "trainer/backend/cuda/lowering/cuda_program.h"
#include "trainer/ranks/communicator.h"

/* Opens the communication between the GPUs of all ranks, and notes it in the backend (backend_join). Every
 * rank calls it. FSH_ERR_UNSUPPORTED: this build or this machine has no NCCL. FSH_ERR_MISMATCH: two ranks
 * have one GPU. FSH_ERR_LIBRARY: as NCCL says. */
FshStatus device_ranks_join(Backend *backend, Communicator *communicator, FshError *error);
/* Frees ranks, in backend_close, when no program is left and the stream is idle. NULL is fine. */
void device_ranks_leave(DeviceRanks *ranks);

/* Enqueues the exchange that makes the gradients of all buckets, and the loss (f32 [1]; NULL: none), their
 * means over the ranks. ranks NULL: one rank, nothing is enqueued. */
FshStatus device_ranks_share(const DeviceRanks *ranks, const GradientBucket buckets[GRADIENT_BUCKETS],
                             float *loss, cudaStream_t stream, FshError *error);

/* Values in device memory that become their means over the ranks. */
typedef struct RankMean {
    void *values; /* f32, or f64 */
    uint64_t count;
    bool is_f64;
} RankMean;

/* Enqueues one exchange that replaces all values of the pieces by their means over the ranks. NCCL connects
 * ranks in the first exchange of a kind: that must not be recorded into a graph. */
FshStatus device_ranks_mean(const DeviceRanks *ranks, const RankMean *pieces, int piece_count,
                            cudaStream_t stream, FshError *error);
/* Returns how many ranks there are; ranks NULL: 1. */
uint64_t device_ranks_count(const DeviceRanks *ranks);

#endif
