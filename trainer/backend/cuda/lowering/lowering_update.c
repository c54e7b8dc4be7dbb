#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/kernels/kernels_update.h"
#include "trainer/backend/cuda/lowering/lowering_muon.h"
#include "trainer/backend/cuda/lowering/state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

static_assert((int)NARROW_COPIES_MAX == (int)UPDATE_COPIES_MAX, "the update writes every copy");

/* One piece of device memory: control, tensors, pieces. */
typedef struct UpdatePlan {
    UpdateTable table;
    void *memory;
    MuonPlan *muon; /* NULL: another optimizer */
} UpdatePlan;

/* The same on the host, as it is made. */
typedef struct TableDraft {
    UpdateTensor *tensors; /* [tensor_count] */
    UpdatePiece *pieces;   /* [piece_count] */
    int64_t tensor_count, parameter_count, piece_count, parameter_pieces;
    int32_t *tensor_of; /* [graph_tensor_count] of a parameter: its place in tensors */
} TableDraft;

static void free_plan(void *plan)
{
    cuda_memory_free(&((UpdatePlan *)plan)->memory);
    muon_plan_free(&((UpdatePlan *)plan)->muon);
    free(plan);
}

/* ---- the table ---- */

static int64_t pieces_of(int64_t elements)
{
    return (elements + UPDATE_PIECE - 1) / UPDATE_PIECE;
}

/* Adds a parameter or buffer without its slots to the table. */
static void add_tensor(const CudaProgram *program, TableDraft *draft, TensorId id)
{
    const Tensor *tensor = graph_tensor(program->base.graph, id);
    const DeviceTensor *values = &program->tensors[id];
    const int64_t pieces = pieces_of(tensor_count(tensor));
    draft->tensor_of[id] = (int32_t)draft->tensor_count;
    draft->tensors[draft->tensor_count++] =
        (UpdateTensor){.values = values->data,
                       .channels = (int32_t)values->pitch,
                       .first_piece = (int32_t)draft->piece_count,
                       .piece_count = (int32_t)pieces,
                       .decays = tensor->decays,
                       .rate = (float)tensor->rate,
                       .decay = tensor->decays ? (float)tensor->decay : 0};
    draft->piece_count += pieces;
}

static void add_gradient_and_copies(const CudaProgram *program, TableDraft *draft, TensorId id)
{
    const Graph *graph = program->base.graph;
    const DeviceTensor *gradient = &program->tensors[graph_gradient(graph, id)];
    const DeviceTensor *copies[NARROW_COPIES_MAX];
    const int count = cuda_state_narrow_copies(program->base.state, graph_tensor(graph, id)->name, copies);
    UpdateTensor *tensor = &draft->tensors[draft->tensor_of[id]];
    tensor->gradient = gradient->data;
    tensor->gradient_element = gradient->element;
    tensor->gradient_pitch = (int32_t)gradient->pitch;
    for (int k = 0; k < count; k++) {
        tensor->copies[k] = copies[k]->data;
        tensor->copy_elements[k] = copies[k]->element;
        tensor->copy_pitch = (int32_t)copies[k]->pitch;
    }
}

static void list_tensors(const CudaProgram *program, TableDraft *draft)
{
    const Graph *graph = program->base.graph;
    const size_t total = graph_tensor_count(graph);
    for (size_t t = 0; t < total; t++)
        if (graph_tensor(graph, (TensorId)t)->role == TENSOR_PARAMETER &&
            graph_gradient(graph, (TensorId)t) != TENSOR_NONE) {
            add_tensor(program, draft, (TensorId)t);
            add_gradient_and_copies(program, draft, (TensorId)t);
        }
    draft->parameter_count = draft->tensor_count;
    draft->parameter_pieces = draft->piece_count;
    for (size_t t = 0; t < total; t++) {
        const Tensor *slot = graph_tensor(graph, (TensorId)t);
        if (slot->role != TENSOR_OPTIMIZER)
            continue;
        if (graph_tensor(graph, slot->of)->role == TENSOR_BUFFER && draft->tensor_of[slot->of] < 0)
            add_tensor(program, draft, slot->of);
        draft->tensors[draft->tensor_of[slot->of]].slots[graph_optimizer_slot(graph, (TensorId)t)] =
            program->tensors[t].data;
    }
}

static void cut_tensor(const CudaProgram *program, TableDraft *draft, TensorId id)
{
    const int64_t elements = tensor_count(graph_tensor(program->base.graph, id));
    const UpdateTensor *tensor = &draft->tensors[draft->tensor_of[id]];
    for (int64_t k = 0; k < tensor->piece_count; k++) {
        const int64_t first = k * UPDATE_PIECE, rest = elements - first;
        draft->pieces[tensor->first_piece + k] =
            (UpdatePiece){.first = first,
                          .row = first / tensor->channels,
                          .column = (int32_t)(first % tensor->channels),
                          .count = (int32_t)(rest < UPDATE_PIECE ? rest : UPDATE_PIECE),
                          .tensor = draft->tensor_of[id]};
    }
}

static FshStatus draft_table(const CudaProgram *program, TableDraft *draft, FshError *error)
{
    const size_t total = graph_tensor_count(program->base.graph);
    draft->tensors = calloc(total, sizeof *draft->tensors);
    draft->tensor_of = malloc(total * sizeof *draft->tensor_of);
    if (!draft->tensors || !draft->tensor_of)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for an update of %zu tensors", total);
    for (size_t t = 0; t < total; t++)
        draft->tensor_of[t] = -1;
    list_tensors(program, draft);
    if (draft->piece_count == 0)
        return fsh_error_set(error, FSH_ERR_USAGE, "no parameter has a gradient");
    draft->pieces = calloc((size_t)draft->piece_count, sizeof *draft->pieces);
    if (!draft->pieces)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for an update in %lld pieces",
                             (long long)draft->piece_count);
    for (size_t t = 0; t < total; t++)
        if (draft->tensor_of[t] >= 0)
            cut_tensor(program, draft, (TensorId)t);
    return FSH_OK;
}

static uint64_t aligned(uint64_t bytes)
{
    const uint64_t mask = TENSOR_ALIGNMENT_BYTES - 1;
    return (bytes + mask) & ~mask;
}

/* Copies the draft to device memory. */
static FshStatus place_table(const CudaProgram *program, const TableDraft *draft, UpdatePlan *plan,
                             FshError *error)
{
    const uint64_t control_bytes = aligned(kernel_update_control_bytes(draft->parameter_count)),
                   tensor_bytes = (uint64_t)draft->tensor_count * sizeof *draft->tensors,
                   piece_bytes = (uint64_t)draft->piece_count * sizeof *draft->pieces;
    cudaStream_t stream = program_backend(program)->stream;
    FshStatus status = cuda_memory_new(&plan->memory, control_bytes + aligned(tensor_bytes) + piece_bytes,
                                       "the optimizer's table", error);
    if (status)
        return status;
    char *tensors = (char *)plan->memory + control_bytes, *pieces = tensors + aligned(tensor_bytes);
    plan->table = (UpdateTable){.tensors = (const UpdateTensor *)tensors,
                                .pieces = (const UpdatePiece *)pieces,
                                .parameter_count = draft->parameter_count,
                                .parameter_pieces = draft->parameter_pieces,
                                .piece_count = draft->piece_count,
                                .control = plan->memory};
    status = CUDA_TRY(cudaMemsetAsync(plan->memory, 0, control_bytes, stream), error);
    if (!status)
        status = CUDA_TRY(
            cudaMemcpyAsync(tensors, draft->tensors, tensor_bytes, cudaMemcpyHostToDevice, stream), error);
    if (!status)
        status = CUDA_TRY(cudaMemcpyAsync(pieces, draft->pieces, piece_bytes, cudaMemcpyHostToDevice, stream),
                          error);
    if (!status) /* the draft goes away */
        status = CUDA_TRY(cudaStreamSynchronize(stream), error);
    return status;
}

/* ---- the step ---- */

static FshStatus prepare_muon(const CudaProgram *program, Step *step, TableDraft *draft, FshError *error)
{
    UpdatePlan *plan = step->plan;
    FshStatus status = muon_plan_new(&plan->muon, program, &step->node->as.update.muon, draft->tensor_of,
                                     draft->tensors, error);
    if (status)
        return status;
    (void)snprintf(step->engine, sizeof step->engine, "kernel cublaslt");
    muon_plan_tell(plan->muon, step->told, sizeof step->told);
    return FSH_OK;
}

static FshStatus update_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    TableDraft draft = {0};
    UpdatePlan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the plan of an update");
    step_own(step, plan, free_plan);
    FshStatus status = draft_table(program, &draft, error);
    if (!status && step->node->as.update.kind == OPTIMIZER_MUON)
        status = prepare_muon(program, step, &draft, error);
    if (!status)
        status = place_table(program, &draft, plan, error);
    if (!status) {
        want_scratch(step, kernel_update_scratch_bytes(&plan->table) +
                               (plan->muon ? muon_plan_scratch_bytes(plan->muon) : 0));
        step->narrow_known = cuda_state_narrow_count(program->base.state);
    }
    free(draft.tensors);
    free(draft.pieces);
    free(draft.tensor_of);
    return status;
}

static float *number(const DeviceTensor *tensor)
{
    return tensor->data;
}

static UpdateNumbers numbers_of(const Step *step)
{
    return (UpdateNumbers){.learning_rate = number(in(step, UPDATE_LEARNING_RATE)),
                           .step = number(in(step, UPDATE_STEP)),
                           .micro = number(in(step, UPDATE_MICRO)),
                           .scale = number(in(step, UPDATE_SCALE)),
                           .tracker = number(in(step, UPDATE_TRACKER)),
                           .loss = number(in(step, UPDATE_LOSS)),
                           .momentum = number(in(step, UPDATE_MOMENTUM)),
                           .perturbed = number(in(step, UPDATE_PERTURBED)),
                           .gradient_norm = number(out(step, UPDATE_GRADIENT_NORM)),
                           .updated = number(out(step, UPDATE_UPDATED))};
}

static FshStatus update(const Step *step, cudaStream_t stream, FshError *error)
{
    const UpdatePlan *plan = step->plan;
    const UpdateNumbers numbers = numbers_of(step);
    const Optimizer *optimizer = &step->node->as.update;
    char *matrices = (char *)step->scratch + kernel_update_scratch_bytes(&plan->table);
    FshStatus status = FSH_OK;
    if (step->run == UPDATE_PERTURBS)
        return CUDA_TRY(kernel_update_perturb(optimizer, &plan->table, &numbers, step->scratch, stream),
                        error);
    if (optimizer->sam_rho > 0)
        status = CUDA_TRY(kernel_update_put_back(&plan->table, &numbers, stream), error);
    if (!status)
        status = CUDA_TRY(kernel_update(optimizer, &plan->table, &numbers, step->run, step->scratch, stream),
                          error);
    if (status || !plan->muon || step->run == UPDATE_ACCUMULATES)
        return status;
    status = muon_plan_run(plan->muon, &plan->table, matrices, stream, error);
    return status ? status
                  : CUDA_TRY(kernel_update_muon(optimizer, &plan->table, &numbers, step->run, step->scratch,
                                                stream),
                             error);
}

FshStatus lowering_update_join(const Step *step, cudaStream_t stream, FshError *error)
{
    const UpdatePlan *plan = step->plan;
    const UpdateNumbers numbers = numbers_of(step);
    return CUDA_TRY(kernel_update_join(&step->node->as.update, &plan->table, &numbers,
                                       number(in(step, UPDATE_LOSS)), stream),
                    error);
}

const LoweringRow lowering_update[] = {
    {OP_UPDATE, {.prepare = update_prepare, .enqueue = update}},
    {OP_KIND_COUNT, {NULL}},
};
