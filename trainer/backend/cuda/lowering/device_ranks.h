/* device_ranks.h - the GPUs of several ranks: their gradients become means through NCCL, on the stream of the
 * step, inside the recorded graph.
 *
 * NCCL is loaded (dlopen) when ranks join: it is 200 MB that one process has no use for.
 *
 * A rank that ends or freezes leaves the others' GPUs waiting for it, but no call here and no wait for the
 * stream lasts for ever because of that. From before NCCL connects until the backend closes, a thread looks
 * after the others, and after NCCL itself; when a rank is gone it gives up: it aborts the communication,
 * which makes NCCL's kernels return, so that whoever waits for the stream or an event comes back within a
 * second. NCCL's own calls do not block (ncclConfig_t.blocking is 0): what they begin is waited for here, and
 * that wait ends with the same verdict. What the GPUs hold after that is worth nothing, and
 * device_ranks_check says why.
 *
 * The thread looks at this rank's GPU, too (exchange_watch.h): one that has been given a step and does not
 * get on with it for the timeout of the ranks, 10 seconds at least, is a loss that it tells all others. Its
 * own process then hangs in the driver until somebody kills it. Where batch norms exchange within the step,
 * GPUs wait for each other there, and nobody is named. Calls of NCCL that have not been enqueued yet are
 * given up after COMMUNICATOR_PATIENCE_SECONDS.
 *
 * NCCL's abort comes back only when no recorded graph with its kernels is left: programs are freed before the
 * ranks leave.
 *
 * Threads: that of the backend. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_DEVICE_RANKS_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_DEVICE_RANKS_H

#include "trainer/backend/cuda/kernels/kernels_peers.h"
#include "trainer/backend/cuda/lowering/cuda_program.h"
#include "trainer/ranks/communicator.h"

/* Opens the communication between the GPUs of all ranks, and notes it in the backend (backend_join). Every
 * rank calls it. FSH_ERR_UNSUPPORTED: this build or this machine has no NCCL. FSH_ERR_MISMATCH: two ranks
 * have one GPU. FSH_ERR_LIBRARY: as NCCL says. */
FshStatus device_ranks_join(Backend *backend, Communicator *communicator, FshError *error);
/* Frees ranks, in backend_close, when no program is left and the stream is idle. NULL is fine. */
void device_ranks_leave(DeviceRanks *ranks);
/* Returns FSH_OK, or the reason after the communication was given up: FSH_ERR_PEER, "rank 1 of 2 (host gpu07,
 * process 4711) has ended", or FSH_ERR_LIBRARY. Programs that exchange ask before they enqueue and after they
 * have waited. ranks NULL: one rank, FSH_OK. */
FshStatus device_ranks_check(DeviceRanks *ranks, FshError *error);

/* Values in device memory that become their means over the ranks. */
typedef enum RankNumber { RANK_F32, RANK_F64, RANK_BF16, RANK_F16 } RankNumber;
typedef struct RankMean {
    void *values;
    uint64_t count; /* 0: there are none */
    RankNumber number;
} RankMean;

/* Enqueues one exchange that replaces all values of the pieces by their means over the ranks: of a few
 * numbers through the memory of peers, where that is possible (peer_exchange.h), else through NCCL. NCCL
 * connects ranks in the first exchange of a kind: that must not be recorded into a graph. ranks NULL: one
 * rank, nothing is enqueued. */
FshStatus device_ranks_mean(DeviceRanks *ranks, const RankMean *pieces, int piece_count, cudaStream_t stream,
                            FshError *error);
/* Does so for the gradients of a step, so that a GPU that hangs is found out. Once it has been launched,
 * device_ranks_begun is called, for a recorded graph with each launch. */
FshStatus device_ranks_share(DeviceRanks *ranks, const RankMean *pieces, int piece_count, cudaStream_t stream,
                             FshError *error);
void device_ranks_begun(DeviceRanks *ranks);
/* Returns what kernels need that exchange means with the other ranks themselves; NULL: they cannot. */
const PeerBoxes *device_ranks_boxes(DeviceRanks *ranks);
/* Returns how many ranks there are; ranks NULL: 1. */
uint64_t device_ranks_count(const DeviceRanks *ranks);

#endif
