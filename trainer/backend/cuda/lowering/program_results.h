/* program_results.h - what runs leave for the host, without stopping the device.
 *
 * After each run one kernel gathers its results into a slot in device memory; a stream of its own brings the
 * slot to pinned memory while the next run computes; who wants the results waits for that copy alone. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_PROGRAM_RESULTS_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_PROGRAM_RESULTS_H

#include "trainer/backend/cuda/kernels/kernels_results.h"
#include "trainer/backend/cuda/lowering/tensors.h"

typedef struct ResultRing {
    void *device, *host; /* [depth][slot_floats] f32; host is pinned */
    ResultSources sources;
    cudaStream_t stream; /* device to host */
    cudaEvent_t gathered[PROGRAM_DEPTH_MAX], landed[PROGRAM_DEPTH_MAX];
    /* LossGuard in device memory; NULL: the program has no update that reads a loss, or it scales it */
    void *guard;
} ResultRing;

/* Makes what a program needs from its beginning: the guard of its update. On failure: result_ring_free. */
FshStatus result_ring_make(ResultRing *ring, const Graph *graph, cudaStream_t work, FshError *error);
/* Frees the ring when the work is done. Zeroed is fine. */
void result_ring_free(ResultRing *ring);
/* Sets the ring up as program->results say. Waits for the runs under way. */
FshStatus result_ring_set(ResultRing *ring, const Program *program, const DeviceTensor *tensors,
                          cudaStream_t work, FshError *error);

/* Enqueues what comes before this node if it is the update: the guard. */
FshStatus result_ring_guard(const ResultRing *ring, const Node *node, const DeviceTensor *tensors,
                            cudaStream_t work, FshError *error);
/* Enqueues, after the steps of a run, the copy of results to the slot of run program->results.run_count. */
FshStatus result_ring_send(ResultRing *ring, const Program *program, cudaStream_t work, FshError *error);
FshStatus result_ring_collect(const ResultRing *ring, const Program *program, size_t slot,
                              const float **values, FshError *error);

#endif
