/* kernels_peers.h - means over the GPUs of one host that see each other's memory (peers.cu). Rules:
 * kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_PEERS_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_PEERS_H

#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PEERS_MAX = 16, PEER_VALUES_MAX = 8192 /* in one exchange */ };

/* Where the ranks of a host leave values for each other. */
typedef struct PeerBoxes {
    int rank, ranks;
    double share; /* 1 / ranks */
    /* Each rank's box, as this device sees it; all zeros before the first exchange. */
    uint64_t *boxes[PEERS_MAX];
    /* Of this device: the exchanges made so far, 0 before the first. Ranks make the same ones in the same
     * order, and so have the same number. */
    uint32_t *made;
    const int *ends; /* in pinned memory of the host: where it is not 0 no kernel waits any longer */
} PeerBoxes;

/* Returns the bytes of a box. */
uint64_t kernel_peer_box_bytes(int ranks);

/* Values in device memory, f32 or f64, that become their means over the ranks. */
typedef struct PeerPiece {
    void *values;
    int count;
} PeerPiece;

/* Replaces the values of both pieces (the second may have none; PEER_VALUES_MAX together) by their means over
 * the ranks, added in float64 in the order of the ranks: the same bits on all. Every rank enqueues it; the
 * kernel waits for the others. What is there after `ends` is of no use. */
cudaError_t kernel_peer_mean(const PeerBoxes *boxes, const PeerPiece pieces[2], bool is_f64,
                             cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
