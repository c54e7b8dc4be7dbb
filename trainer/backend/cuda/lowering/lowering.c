#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/lowering/state.h"

static const LoweringRow *const files[] = {
    lowering_pointwise,
    lowering_channel,
    lowering_window,
    lowering_norm,
    lowering_conv_norm,
    lowering_convolution,
    lowering_linear,
    lowering_tokens,
    lowering_self_attention,
    lowering_stem,
    lowering_loss,
    lowering_update,
    NULL,
};

const Lowering *lowering_of(OpKind op)
{
    for (const LoweringRow *const *file = files; *file; file++)
        for (const LoweringRow *row = *file; row->op != OP_KIND_COUNT; row++)
            if (row->op == op)
                return &row->lowering;
    return NULL;
}

FshStatus lowering_narrow_weight(const CudaProgram *program, Step *step, int i, FshError *error)
{
    const Graph *graph = program->base.graph;
    const ElementType element = element_of_type(graph_product_type(graph, step->node));
    if (!element_is_narrow(element))
        return FSH_OK;
    const Tensor *weight = graph_tensor(graph, step->node->inputs[i]);
    const DeviceTensor *narrow = cuda_state_narrow(program->base.state, weight->name, element, error);
    if (!narrow)
        return error ? error->status : FSH_ERR_MEMORY;
    step->inputs[i] = *narrow;
    return FSH_OK;
}
