/* lowering_muon.h - the products of Muon on a GPU: all matrices of a graph in a few groups of one size
 * (muon_groups.h), three batched products of bf16 for each group and step of Newton and Schulz. The steps
 * come from kernel_update and go to kernel_update_muon, in scratch memory:
 *
 *   every group's matrices; the same again, to and fro with the first; the gram matrices of the largest
 *   group; the polynomials of these; cuBLASLt's workspace.
 *
 * Reads are 2 bytes, and so are writes. The operations of a matrix of r rows and c columns, r <= c: 4 r^2 c +
 * 2 r^3 in each step; padding adds some (muon_groups_make weighs them against launches). */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_LOWERING_MUON_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_LOWERING_MUON_H

#include "trainer/backend/cuda/lowering/cuda_program.h"

typedef struct MuonPlan MuonPlan;

/* Plans the products of the parameters of a program that are Muon's; tensor_of [graph_tensor_count] says
 * where each stands in `tensors`, the update's list, whose `matrix` is filled. */
FshStatus muon_plan_new(MuonPlan **plan_ret, const CudaProgram *program, const MuonRule *rule,
                        const int32_t *tensor_of, UpdateTensor *tensors, FshError *error);
void muon_plan_free(MuonPlan **plan);
uint64_t muon_plan_scratch_bytes(const MuonPlan *plan);
/* Writes "52 matrices in 7 batches, 290 GFLOP" to buffer. */
void muon_plan_tell(const MuonPlan *plan, char *buffer, size_t buffer_bytes);
/* Enqueues the products; scratch: muon_plan_scratch_bytes, TENSOR_ALIGNMENT_BYTES aligned. */
FshStatus muon_plan_run(const MuonPlan *plan, const UpdateTable *table, void *scratch, cudaStream_t stream,
                        FshError *error);

#endif
