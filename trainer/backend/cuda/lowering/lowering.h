/* lowering.h - how each op becomes device work: what the lowering_*.c files share.
 *
 * Each file lowers the ops of one topic and exports them as rows; lowering.c joins the files. A new op is a
 * row in the file of its topic. An op of which no file has a row is refused by name when a program is
 * made. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_LOWERING_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_LOWERING_H

#include "trainer/backend/cuda/kernels/kernels_window.h"
#include "trainer/backend/cuda/lowering/cuda_program.h"

typedef struct LoweringRow {
    OpKind op;
    Lowering lowering;
} LoweringRow;

/* Replaces input i, a weight in the State, by its narrow copy (state.h) where input 0 is narrow: for prepare.
 * FSH_ERR_MEMORY, FSH_ERR_LIBRARY. */
FshStatus lowering_narrow_weight(const CudaProgram *program, Step *step, int i, FshError *error);

/* Returns whether the norm that reads these sums, CONV_SUMS of a convolution, needs them in memory: it
 * exchanges them with other ranks, or pools its result, and has no one launch for statistics and result. */
bool lowering_sums_are_wanted(const CudaProgram *program, TensorId sums);

/* Returns the pool as kernels have it (lowering_window.c). */
PoolShape lowering_pool_shape(const Pool2d *pool);

/* Enqueues what makes the gradients of this rank the mean of all runs since the last update, and the loss NaN
 * if one of theirs was: in front of an exchange, where step, of OP_UPDATE, is UPDATE_JOINED. */
FshStatus lowering_update_join(const Step *step, cudaStream_t stream, FshError *error);

/* Each ends with OP_KIND_COUNT. */
extern const LoweringRow lowering_pointwise[], lowering_channel[], lowering_window[], lowering_norm[],
    lowering_conv_norm[], lowering_convolution[], lowering_linear[], lowering_tokens[],
    lowering_self_attention[], lowering_stem[], lowering_loss[], lowering_update[];

/* Return operand i of the step's node in device memory: i is a name of graph_ops.h for the op, NORM_ADDEND,
 * …, or 0 for the one operand of an op that has no names. in and out are for operands that are always there,
 * maybe_in and maybe_out return NULL for an optional one that is absent. */
static inline const DeviceTensor *in(const Step *step, int i)
{
    return &step->inputs[i];
}

static inline const DeviceTensor *out(const Step *step, int i)
{
    return &step->outputs[i];
}

static inline const DeviceTensor *maybe_in(const Step *step, int i)
{
    return step->inputs[i].data ? &step->inputs[i] : NULL;
}

static inline const DeviceTensor *maybe_out(const Step *step, int i)
{
    return step->outputs[i].data ? &step->outputs[i] : NULL;
}

static inline void want_scratch(Step *step, uint64_t bytes)
{
    if (bytes > step->scratch_bytes)
        step->scratch_bytes = bytes;
}

#endif
