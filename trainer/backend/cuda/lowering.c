#include "trainer/backend/cuda/lowering.h"

static const LoweringRow *const files[] = {
    lowering_pointwise, lowering_window, lowering_norm,   lowering_convolution,
    lowering_linear,    lowering_loss,   lowering_update,
};

const Lowering *lowering_of(OpKind op)
{
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        for (const LoweringRow *row = files[f]; row->op != OP_KIND_COUNT; row++)
            if (row->op == op)
                return &row->lowering;
    return NULL;
}
