/* kernels_update.h - the update of the parameters (optimizer.cu), which graph_optimizer.h
 * describes. Rules: kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_UPDATE_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_UPDATE_H

#include "trainer/backend/cuda/kernels/kernels.h"
#include "trainer/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the step of a matrix that Muon moves (trainer/graph/muon.h) is worked on: bf16 in scratch memory,
 * rows of pitch, at offsets from where kernel_update_scratch_bytes ends. */
typedef struct MuonMatrix {
    uint64_t step_offset_bytes;   /* where kernel_update writes it */
    uint64_t result_offset_bytes; /* where kernel_update_muon reads what became of it */
    int32_t rows, columns;        /* of the weight */
    int32_t pitch;                /* 0: the parameter is not Muon's */
    float scale;                  /* of the learning rate */
} MuonMatrix;

/* A parameter with its gradient, slots and copies, or a buffer with its average. Values, slots and float32
 * gradients are dense rows of `channels` values; narrow gradients and copies have a pitch (kernels.h), with
 * the same values at the same places in their rows. */
enum { UPDATE_COPIES_MAX = 2 };
typedef struct UpdateTensor {
    float *values;
    float *slots[OPTIMIZER_SLOT_COUNT]; /* NULL: not kept */
    void *gradient;                     /* NULL: a buffer; only kernel_update_join writes it */
    void *copies[UPDATE_COPIES_MAX];    /* narrow copies, written with the parameter; NULL: fewer */
    ElementType gradient_element, copy_elements[UPDATE_COPIES_MAX];
    int32_t channels, gradient_pitch, copy_pitch; /* all copies have one pitch */
    int32_t first_piece, piece_count;
    bool decays;
    MuonMatrix matrix;
    float rate, decay; /* factors of the learning rate and, where it decays, of the weight decay; else 0 */
} UpdateTensor;

/* The part of a tensor that one block works on. */
enum { UPDATE_PIECE = 4096 };
typedef struct UpdatePiece {
    int64_t first; /* a multiple of UPDATE_PIECE */
    int64_t row;   /* first = row * channels + column */
    int32_t column;
    int32_t count; /* UPDATE_PIECE at most */
    int32_t tensor;
} UpdatePiece;

/* All tensors and pieces of an update, in device memory. Parameters come before buffers, and so do their
 * pieces. */
typedef struct UpdateTable {
    const UpdateTensor *tensors;
    const UpdatePiece *pieces;
    int64_t parameter_count, parameter_pieces, piece_count;
    void *control; /* kernel_update_control_bytes, zeroed before the first run */
} UpdateTable;
uint64_t kernel_update_control_bytes(int64_t parameter_count);

/* Inputs and outputs of OP_UPDATE, f32 [1] each; NULL: absent. */
typedef struct UpdateNumbers {
    const float *learning_rate, *loss, *momentum;
    float *step, *micro, *scale, *tracker, *perturbed; /* in the State: read and written */
    float *gradient_norm, *updated;                    /* outputs */
} UpdateNumbers;

/* How a run treats its gradients. One process, and ranks that do not accumulate, let the device decide: it
 * counts the runs. Ranks that accumulate exchange the sum before the last run updates, so there the host says
 * which run this is. */
typedef enum UpdateRun {
    UPDATE_DECIDES,
    /* adds this rank's gradient to the sum, and counts. A loss that is no number makes the count negative,
     * and adds nothing */
    UPDATE_ACCUMULATES,
    UPDATE_JOINED,   /* updates with gradients that contain the sum, divided by the number of runs */
    UPDATE_PERTURBS, /* program_perturb: moves the parameters by this rank's gradient, and counts nothing */
    UPDATE_RUN_KINDS
} UpdateRun;

/* Returns a multiple of 256. */
uint64_t kernel_update_scratch_bytes(const UpdateTable *table);
/* Perturbs the parameters in place of an update (Optimizer.sam_rho), and keeps what they and the buffers
 * were: two launches. Where loss or gradient is no number the parameters stay. */
cudaError_t kernel_update_perturb(const Optimizer *optimizer, const UpdateTable *table,
                                  const UpdateNumbers *numbers, void *scratch, cudaStream_t stream);
/* Puts back what the last run has kept, if it perturbed: a launch in front of kernel_update. */
cudaError_t kernel_update_put_back(const UpdateTable *table, const UpdateNumbers *numbers,
                                   cudaStream_t stream);
/* Runs the update: two launches, lamb three. For muon it moves the rest, and leaves the steps of matrices;
 * scratch memory goes on with these then. */
cudaError_t kernel_update(const Optimizer *optimizer, const UpdateTable *table, const UpdateNumbers *numbers,
                          UpdateRun run, void *scratch, cudaStream_t stream);
/* The part of a matrix of Muon's, pads included, that one block works on. */
enum { MUON_SLAB = 4096 };
typedef struct MuonSlab {
    int64_t first; /* a multiple of MUON_SLAB */
    int32_t count; /* MUON_SLAB at most */
    int32_t tensor;
} MuonSlab;
/* Divides each step by its norm, and clears what pads it; matrices: where they begin in scratch memory. Then
 * come the products that make it orthogonal (lowering_muon.h), and kernel_update_muon. */
cudaError_t kernel_muon_normalize(const UpdateTable *table, const MuonSlab *slabs, int64_t slab_count,
                                  void *matrices, cudaStream_t stream);
/* Moves the matrices by their steps; arguments as kernel_update had them. */
cudaError_t kernel_update_muon(const Optimizer *optimizer, const UpdateTable *table,
                               const UpdateNumbers *numbers, UpdateRun run, void *scratch,
                               cudaStream_t stream);
/* Replaces each gradient by its sum with what was accumulated, divided by accumulation_steps: what ranks
 * exchange before UPDATE_JOINED. Sets *loss (NULL: absent) to NaN where the count of runs is negative. */
cudaError_t kernel_update_join(const Optimizer *optimizer, const UpdateTable *table,
                               const UpdateNumbers *numbers, float *loss, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
