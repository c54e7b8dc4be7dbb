#include "trainer/backend/cpu/cpu_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/progress.h"
#include "trainer/backend/memory_advice.h"

enum { ALIGNMENT = 64 };

/* The rows of all cpu_*.c files that compute ops. */
static const CpuOp *const families[] = {
    cpu_ops_box,    cpu_ops_tokens,     cpu_ops_channel,        cpu_ops_convolution,
    cpu_ops_loss,   cpu_ops_loss_pixel, cpu_ops_loss_mask,      cpu_ops_loss_target,
    cpu_ops_norm,   cpu_ops_norm_gate,  cpu_ops_norm_pool,      cpu_ops_pointwise,
    cpu_ops_update, cpu_ops_window,     cpu_ops_self_attention, NULL};

/* Returns the row of an op; NULL: this backend does not know it. */
static const CpuOp *find_op(OpKind op)
{
    for (const CpuOp *const *family = families; *family; family++)
        for (const CpuOp *row = *family; row->run; row++)
            if (row->op == op)
                return row;
    return NULL;
}

const Tensor *cpu_input(const CpuStep *step, int k)
{
    return graph_tensor(step->program->base.graph, step->node->inputs[k]);
}

const Tensor *cpu_output(const CpuStep *step, int k)
{
    return graph_tensor(step->program->base.graph, step->node->outputs[k]);
}

const void *cpu_read(const CpuStep *step, int k, int64_t index)
{
    const char *first = step->inputs[k];
    return first ? first + (uint64_t)index * data_type_bytes(cpu_input(step, k)->type) : NULL;
}

void *cpu_write(const CpuStep *step, int k, int64_t index)
{
    char *first = step->outputs[k];
    return first ? first + (uint64_t)index * data_type_bytes(cpu_output(step, k)->type) : NULL;
}

const CpuKernels *cpu_kernels(const CpuBackend *backend, DataType type)
{
    return type == DATA_BF16 ? backend->kernels_bf16 : backend->kernels;
}

/* ---- what the program shares with its State ---- */

static bool same_shape(const CpuVariable *variable, const Tensor *tensor)
{
    return variable->rank == tensor->rank &&
           memcmp(variable->shape, tensor->shape, (size_t)tensor->rank * sizeof *tensor->shape) == 0;
}

/* Finds the variable of every tensor of the graph that has one. */
static FshStatus match_variables(CpuProgram *program, FshError *error)
{
    const Graph *graph = program->base.graph;
    const CpuState *state = (const CpuState *)program->base.state;
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        const Tensor *owner = tensor->role == TENSOR_GRADIENT ? graph_tensor(graph, tensor->of) : tensor;
        if (!state_holds(owner->role))
            continue;
        const CpuVariable *variable = cpu_state_find(state, owner->name);
        char shape[96];
        if (!variable)
            return fsh_error_set(error, FSH_ERR_MISMATCH,
                                 "%s: the graph has it, and the parameters were made for a graph "
                                 "without it",
                                 owner->name);
        if (!same_shape(variable, owner) || variable->role != owner->role)
            return fsh_error_set(
                error, FSH_ERR_MISMATCH,
                "%s: the graph has it as [%s], unlike the graph that the parameters were made for",
                owner->name, tensor_shape_text(owner, shape, sizeof shape));
        program->variables[i] = variable;
    }
    for (size_t i = 0; i < state->variable_count; i++)
        if (state->variables[i].role == TENSOR_PARAMETER &&
            graph_find(graph, state->variables[i].name) == TENSOR_NONE)
            return fsh_error_set(error, FSH_ERR_MISMATCH,
                                 "%s: the parameters have it, and the graph does not",
                                 state->variables[i].name);
    return FSH_OK;
}

static bool has_gradients(const Graph *graph)
{
    for (size_t i = 0; i < graph_tensor_count(graph); i++)
        if (graph_tensor(graph, (TensorId)i)->role == TENSOR_GRADIENT)
            return true;
    return false;
}

FshStatus cpu_check_types(const Graph *graph, FshError *error)
{
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        FshStatus status = dnn_check_type(graph_tensor(graph, (TensorId)i)->type, error);
        if (status)
            return status;
    }
    return FSH_OK;
}

/* ---- memory ---- */

/* Takes bytes of what is free, which a page costs only when it is written: a run that does not fit would be
 * killed in its first step. grows: those that grow with the batch; fixed: the others. FSH_ERR_MEMORY: they
 * are not free. */
static FshStatus promise(CpuProgram *program, uint64_t grows, uint64_t fixed, FshError *error)
{
    const uint64_t bytes = grows + fixed;
    CpuBackend *backend = (CpuBackend *)program->base.state->backend;
    char wanted[32], left[32];
    const uint64_t taken = backend->promised_bytes;
    const uint64_t free_bytes = backend->free_bytes > taken ? backend->free_bytes - taken : 0;
    if (bytes > free_bytes) {
        const Graph *graph = program->base.graph;
        const BatchRoom room = {.use = memory_batch_use(graph),
                                .needed_bytes = grows,
                                .free_bytes = free_bytes > fixed ? free_bytes - fixed : 0};
        (void)fsh_error_set(error, FSH_ERR_MEMORY,
                            "cpu: activations and gradients take %s, and %s of memory are free",
                            progress_format_bytes(wanted, sizeof wanted, bytes),
                            progress_format_bytes(left, sizeof left, free_bytes));
        return memory_advise_batch(memory_batch_of(graph), &room, error);
    }
    program->promised_bytes = bytes;
    backend->promised_bytes += bytes;
    return FSH_OK;
}

static FshStatus allocate(CpuProgram *program, FshError *error)
{
    const Graph *graph = program->base.graph;
    CpuState *state = (CpuState *)program->base.state;
    uint64_t input_bytes = 0;
    FshStatus status = memory_plan_make(graph, memory_packed_bytes, NULL, NULL, &program->plan, error);
    if (status)
        return status;
    for (size_t i = 0; i < graph_tensor_count(graph); i++)
        if (graph_tensor(graph, (TensorId)i)->role == TENSOR_INPUT) {
            program->input_offsets[i] = input_bytes;
            input_bytes +=
                (memory_packed_bytes(graph, (TensorId)i, NULL) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        }
    const bool needs_gradients = has_gradients(graph) && !state->gradients;
    status = promise(program, input_bytes + program->plan.arena_bytes,
                     needs_gradients ? state->parameter_bytes : 0, error);
    if (status)
        return status;
    program->inputs = cpu_memory_new(input_bytes);
    program->arena = cpu_memory_new(program->plan.arena_bytes);
    program->base.arena_bytes = program->plan.arena_bytes;
    if (needs_gradients)
        state->gradients = cpu_memory_new(state->parameter_bytes);
    if (!program->inputs || !program->arena || (needs_gradients && !state->gradients)) {
        char bytes[32];
        return fsh_error_set(error, FSH_ERR_MEMORY,
                             "cpu: no memory for %s of activations; use a smaller batch",
                             progress_format_bytes(bytes, sizeof bytes, program->plan.arena_bytes));
    }
    return FSH_OK;
}

/* Returns where a tensor lies; NULL for TENSOR_NONE. */
static void *address(const CpuProgram *program, TensorId id)
{
    const CpuState *state = (const CpuState *)program->base.state;
    if (id == TENSOR_NONE)
        return NULL;
    switch (graph_tensor(program->base.graph, id)->role) {
    case TENSOR_INPUT:
        return program->inputs + program->input_offsets[id];
    case TENSOR_ACTIVATION:
        return program->arena + program->plan.offset_bytes[id];
    case TENSOR_GRADIENT:
        return state->gradients + program->variables[id]->offset_bytes;
    case TENSOR_PARAMETER:
    case TENSOR_BUFFER:
    case TENSOR_OPTIMIZER:
        break;
    }
    return state->values + program->variables[id]->offset_bytes;
}

/* ---- making and running ---- */

/* Puts "layer1.0.conv1: conv2d of [64 x 16 x 16 x 64]: " before a message. */
static FshStatus say_where(const CpuStep *step, FshError *error)
{
    char shape[96] = "";
    if (step->node->input_count)
        tensor_shape_text(cpu_input(step, 0), shape, sizeof shape);
    return fsh_error_prepend(error, "%s: %s of [%s]", step->node->name, op_name(step->node->op), shape);
}

static FshStatus make_step(CpuProgram *program, NodeId id, FshError *error)
{
    CpuStep *step = &program->steps[id];
    const Node *node = graph_node(program->base.graph, id);
    step->node = node;
    step->program = program;
    for (int k = 0; k < node->input_count; k++)
        step->inputs[k] = address(program, node->inputs[k]);
    for (int k = 0; k < node->output_count; k++)
        step->outputs[k] = address(program, node->outputs[k]);
    const CpuOp *op = find_op(node->op);
    if (!op)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: the CPU backend has no %s", node->name,
                             op_name(node->op));
    step->run = op->run;
    const TensorId typed = node->output_count && step->outputs[0] ? node->outputs[0] : node->inputs[0];
    step->kernels = cpu_kernels(program->backend, graph_tensor(program->base.graph, typed)->type);
    FshStatus status = op->prepare ? op->prepare(step, error) : FSH_OK;
    if (!status && step->primitive)
        step->scratch_bytes = dnn_primitive_scratch_bytes(step->primitive);
    if (!status && step->scratch_bytes > program->base.scratch_bytes)
        program->base.scratch_bytes = step->scratch_bytes;
    return status ? say_where(step, error) : FSH_OK;
}

/* Makes one scratch memory for all steps, which run one after the other, and binds them to it. */
static FshStatus share_scratch(CpuProgram *program, FshError *error)
{
    FshStatus status = FSH_OK;
    program->scratch = cpu_memory_new(program->base.scratch_bytes);
    if (!program->scratch)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory for %llu bytes of scratch",
                             (unsigned long long)program->base.scratch_bytes);
    for (size_t i = 0; !status && i < graph_node_count(program->base.graph); i++) {
        CpuStep *step = &program->steps[i];
        if (step->primitive)
            status = dnn_primitive_set_scratch(step->primitive, program->scratch, error);
        else if (step->bind_scratch)
            status = step->bind_scratch(step, error);
    }
    return status;
}

FshStatus cpu_program_new(Program **program_ret, State *state, const Graph *graph, FshError *error)
{
    const size_t tensors = graph_tensor_count(graph), nodes = graph_node_count(graph);
    const CpuBackend *backend = (const CpuBackend *)state->backend;
    FshStatus status = FSH_OK;
    CpuProgram *program = calloc(1, sizeof *program);
    if (!program)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory");
    const int previous = cpu_threads_enter(backend);
    program->base = (Program){.state = state, .graph = graph};
    program->backend = backend;
    program->steps = calloc(nodes + 1, sizeof *program->steps);
    program->seconds = calloc(nodes + 1, sizeof *program->seconds);
    program->input_offsets = calloc(tensors + 1, sizeof *program->input_offsets);
    program->variables = calloc(tensors + 1, sizeof(const CpuVariable *));
    if (!program->steps || !program->seconds || !program->input_offsets || !program->variables)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory for %zu nodes", nodes);
    if (!status)
        status = cpu_check_types(graph, error);
    if (!status)
        status = match_variables(program, error);
    if (!status)
        status = allocate(program, error);
    for (size_t i = 0; !status && i < nodes; i++)
        status = make_step(program, (NodeId)i, error);
    if (!status)
        status = share_scratch(program, error);
    cpu_threads_leave(previous);
    if (status)
        cpu_program_free(&program->base);
    else
        *program_ret = &program->base;
    return status;
}

void cpu_program_free(Program *base)
{
    CpuProgram *program = (CpuProgram *)base;
    for (size_t i = 0; program->steps && i < graph_node_count(base->graph); i++) {
        CpuStep *step = &program->steps[i];
        if (step->release)
            step->release(step);
        dnn_primitive_free(&step->primitive);
        free(step->plan);
    }
    free(program->steps);
    free(program->seconds);
    free(program->input_offsets);
    free(program->variables);
    ((CpuBackend *)base->state->backend)->promised_bytes -= program->promised_bytes;
    cpu_memory_free(program->inputs);
    cpu_memory_free(program->arena);
    cpu_memory_free(program->scratch);
    memory_plan_free(&program->plan);
    free(program);
}

FshStatus cpu_program_write(Program *base, TensorId input, const void *values, size_t bytes, FshError *error)
{
    (void)error;
    memcpy(address((CpuProgram *)base, input), values, bytes);
    return FSH_OK;
}

FshStatus cpu_program_run(Program *base, bool perturbs, FshError *error)
{
    CpuProgram *program = (CpuProgram *)base;
    program->perturbs = perturbs;
    const size_t nodes = graph_node_count(base->graph);
    const int previous = cpu_threads_enter(program->backend);
    FshStatus status = FSH_OK;
    double before = program->measures ? progress_now_seconds() : 0;
    for (size_t i = 0; !status && i < nodes; i++) {
        CpuStep *step = &program->steps[i];
        status = step->run(step, error);
        if (status)
            (void)say_where(step, error);
        if (program->measures) {
            const double now = progress_now_seconds();
            program->seconds[i] += now - before;
            before = now;
        }
    }
    program->measured |= program->measures;
    cpu_threads_leave(previous);
    return status;
}

FshStatus cpu_program_read(Program *base, TensorId id, void *values, size_t bytes, FshError *error)
{
    CpuProgram *program = (CpuProgram *)base;
    const Tensor *tensor = graph_tensor(base->graph, id);
    const CpuVariable *variable = program->variables[id];
    if (!variable) {
        memcpy(values, address(program, id), bytes);
        return FSH_OK;
    }
    const int previous = cpu_threads_enter(program->backend);
    FshStatus status = dnn_layout_convert(program->backend->dnn, variable->layout, address(program, id),
                                          variable->plain, values, error);
    cpu_threads_leave(previous);
    return status ? fsh_error_prepend(error, "%s", tensor->name) : FSH_OK;
}

const char *cpu_program_node_engine(const Program *base, NodeId node)
{
    const CpuStep *step = &((const CpuProgram *)base)->steps[node];
    return step->engine ? step->engine : step->primitive ? "onednn" : "loop";
}

FshStatus cpu_program_profile(Program *base, bool enable, double *seconds, size_t node_count, FshError *error)
{
    CpuProgram *program = (CpuProgram *)base;
    if (seconds && !program->measured)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "cpu: no run was measured; switch profiling on before the runs");
    if (seconds)
        memcpy(seconds, program->seconds, node_count * sizeof *seconds);
    program->measures = enable;
    return FSH_OK;
}

FshStatus cpu_program_poison(Program *base, FshError *error)
{
    CpuProgram *program = (CpuProgram *)base;
    CpuState *state = (CpuState *)base->state;
    (void)error;
    /* All bits set: NaN as float, 255 as an index. */
    memset(program->arena, 0xFF, base->arena_bytes);
    memset(program->scratch, 0xFF, base->scratch_bytes);
    if (state->gradients)
        memset(state->gradients, 0xFF, state->parameter_bytes);
    return FSH_OK;
}
