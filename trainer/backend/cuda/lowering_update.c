#include "trainer/backend/cuda/lowering.h"
#include "trainer/backend/cuda/kernels_update.h"

#include <stdlib.h>

typedef struct UpdatePlan {
    SgdPiece *pieces; /* owned, device memory */
    int64_t piece_count;
} UpdatePlan;

static void free_plan(void *plan)
{
    (void)cudaFree(((UpdatePlan *)plan)->pieces);
    free(plan);
}

/* Fills the table of pieces of every parameter that has optimizer state. Returns their number; NULL only
 * counts. */
static int64_t list_pieces(const CudaProgram *program, SgdPiece *pieces)
{
    const Graph *graph = program->base.graph;
    int64_t count = 0;
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *state = graph_tensor(graph, (TensorId)t);
        if (state->role != TENSOR_OPTIMIZER)
            continue;
        const int64_t elements = tensor_count(state);
        float *parameter = program->tensors[state->of].data, *momentum = program->tensors[t].data;
        const float *gradient = program->tensors[graph_gradient(graph, state->of)].data;
        for (int64_t at = 0; at < elements; at += SGD_PIECE, count++) {
            const int64_t length = elements - at < SGD_PIECE ? elements - at : SGD_PIECE;
            if (pieces)
                pieces[count] = (SgdPiece){parameter + at, momentum + at, gradient + at, (int32_t)length,
                                           graph_tensor(graph, state->of)->decays};
        }
    }
    return count;
}

/* What this backend does not do yet: anything but plain SGD. */
static FshStatus refuse_update(const Optimizer *o, FshError *error)
{
    const struct {
        bool asked;
        const char *name;
    } unknown[] = {
        {o->kind != OPTIMIZER_SGD, optimizer_names[o->kind]},
        {o->accumulation_steps > 1, "accumulation of gradients"},
        {o->clip_norm > 0, "gradient clipping"},
        {o->loss_scaling, "loss scaling"},
        {o->lookahead_steps > 0, "lookahead"},
        {o->ema_decay > 0, "averaging of weights"},
    };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (unknown[i].asked)
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                                 "the CUDA backend has no %s yet; use --device cpu, or sgd without it",
                                 unknown[i].name);
    return FSH_OK;
}

static FshStatus update_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    FshStatus status = refuse_update(&step->node->as.update, error);
    if (status)
        return status;
    UpdatePlan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the plan of an update");
    step_own(step, plan, free_plan);
    plan->piece_count = list_pieces(program, NULL);
    const size_t bytes = (size_t)plan->piece_count * sizeof(SgdPiece);
    if (bytes == 0)
        return fsh_error_set(error, FSH_ERR_USAGE, "no parameter has optimizer state");
    SgdPiece *pieces = calloc((size_t)plan->piece_count, sizeof *pieces);
    if (!pieces)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the table of parameters");
    (void)list_pieces(program, pieces);
    want_scratch(step, kernel_sgd_scratch_bytes(plan->piece_count));
    void *memory = NULL;
    status = cuda_memory_new(&memory, bytes, "the optimizer's table", error);
    plan->pieces = memory;
    if (!status)
        status = CUDA_TRY(
            cudaMemcpyAsync(memory, pieces, bytes, cudaMemcpyHostToDevice, program_backend(program)->stream),
            error);
    if (!status)
        status = CUDA_TRY(cudaStreamSynchronize(program_backend(program)->stream), error);
    free(pieces);
    return status;
}

static FshStatus update(const Step *step, cudaStream_t stream, FshError *error)
{
    const Optimizer *options = &step->node->as.update;
    const UpdatePlan *plan = step->plan;
    const SgdConstants constants = {(float)options->momentum, (float)options->weight_decay,
                                    options->nesterov};
    const SgdResults results = {out(step, 0), out(step, 1), in(step, 1)};
    return CUDA_TRY(kernel_sgd(plan->pieces, plan->piece_count, &constants, in(step, 0), maybe_in(step, 5),
                               &results, step->scratch, stream),
                    error);
}

const LoweringRow lowering_update[] = {
    {OP_UPDATE, {.prepare = update_prepare, .enqueue = update}},
    {OP_KIND_COUNT, {NULL}},
};
