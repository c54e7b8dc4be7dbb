#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/kernels/kernels_excite.h"
#include "trainer/backend/cuda/lowering/weight_copies.h"

static FshStatus excite_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    FshStatus status = FSH_OK;
    for (int i = 1; i < step->node->input_count && !status; i++)
        if (node_reads_copy(program->base.graph, step->node, i))
            status = lowering_narrow_weight(program, step, i, error);
    return status;
}

static FshStatus excite(const Step *step, cudaStream_t stream, FshError *error)
{
    const ExciteLayers layers = {.weight1 = in(step, EXCITE_WEIGHT1),
                                 .weight2 = in(step, EXCITE_WEIGHT2),
                                 .bias1 = in(step, EXCITE_BIAS1),
                                 .bias2 = in(step, EXCITE_BIAS2),
                                 .activation = step->node->as.excite.activation};
    return CUDA_TRY(kernel_excite(in(step, EXCITE_X), &layers, out(step, EXCITE_GATES),
                                  out(step, EXCITE_SUMS), out(step, EXCITE_HIDDEN), stream),
                    error);
}

static FshStatus excite_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const ExciteLayers layers = {.weight1 = in(step, EXCITE_BACK_WEIGHT1),
                                 .weight2 = in(step, EXCITE_BACK_WEIGHT2),
                                 .activation = step->node->as.excite.activation};
    const ExciteGradient gradient = {.dgates = in(step, EXCITE_BACK_DGATES),
                                     .gates = in(step, EXCITE_BACK_GATES),
                                     .sums = in(step, EXCITE_BACK_SUMS),
                                     .dlogits = out(step, EXCITE_BACK_DLOGITS),
                                     .dsums = out(step, EXCITE_BACK_DSUMS),
                                     .dx = out(step, EXCITE_BACK_DX)};
    return CUDA_TRY(kernel_excite_backward(&gradient, &layers, stream), error);
}

static FshStatus excite_backward_weight(const Step *step, cudaStream_t stream, FshError *error)
{
    const ExciteWeights layers[2] = {{.left = in(step, EXCITE_WEIGHT_DSUMS),
                                      .right = in(step, EXCITE_WEIGHT_X),
                                      .weight = maybe_out(step, EXCITE_DWEIGHT1),
                                      .bias = maybe_out(step, EXCITE_DBIAS1)},
                                     {.left = in(step, EXCITE_WEIGHT_DLOGITS),
                                      .right = in(step, EXCITE_WEIGHT_HIDDEN),
                                      .weight = maybe_out(step, EXCITE_DWEIGHT2),
                                      .bias = maybe_out(step, EXCITE_DBIAS2)}};
    return CUDA_TRY(kernel_excite_weights(layers, stream), error);
}

const LoweringRow lowering_excite[] = {
    {OP_EXCITE, {.prepare = excite_prepare, .enqueue = excite}},
    {OP_EXCITE_BACKWARD, {.prepare = excite_prepare, .enqueue = excite_backward}},
    {OP_EXCITE_BACKWARD_WEIGHT, {.enqueue = excite_backward_weight}},
    {OP_KIND_COUNT, {NULL}},
};
