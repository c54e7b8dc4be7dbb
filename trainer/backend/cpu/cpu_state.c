#include "trainer/backend/cpu/cpu_internal.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

/* Returns the convolution that reads a parameter as its weight, or NULL. */
static const Node *convolution_of(const Graph *graph, TensorId parameter)
{
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        if (node->op == OP_CONV2D && node->inputs[CONV_WEIGHT] == parameter)
            return node;
    }
    return NULL;
}

/* Chooses how a variable is stored: as the convolution that reads it likes; the optimizer's tensors like
 * their parameter; else plain. */
static FshStatus choose_layout(CpuState *state, CpuVariable *variable, const Graph *graph, TensorId id,
                               FshError *error)
{
    const Tensor *tensor = graph_tensor(graph, id);
    const TensorId parameter = tensor->role == TENSOR_OPTIMIZER ? tensor->of : id;
    const Node *node = tensor->role == TENSOR_BUFFER ? NULL : convolution_of(graph, parameter);
    const CpuBackend *backend = (const CpuBackend *)state->base.backend;
    FshStatus status;
    if (node && node->as.conv.options.groups > 1) {
        const int64_t groups = node->as.conv.options.groups;
        const int64_t shape[5] = {groups, tensor->shape[0] / groups, tensor->shape[1], tensor->shape[2],
                                  tensor->shape[3]};
        status = dnn_layout_plain(&variable->plain, 5, shape, error);
    } else {
        status = dnn_layout_plain(&variable->plain, tensor->rank, tensor->shape, error);
    }
    if (!status && node) {
        DnnConvolution convolution =
            cpu_convolution_geometry(graph_tensor(graph, node->inputs[0]),
                                     graph_tensor(graph, node->outputs[0]), &node->as.conv.options);
        status = cpu_depthwise_lays_weight(&convolution)
                     ? dnn_layout_by_taps(&variable->layout, variable->plain, error)
                     : dnn_layout_convolution(&variable->layout, backend->dnn, &convolution, error);
    } else if (!status) {
        status = dnn_layout_plain(&variable->layout, tensor->rank, tensor->shape, error);
    }
    return status ? fsh_error_prepend(error, "%s", tensor->name) : FSH_OK;
}

/* Appends all variables of a role that are frozen, or all others, each on its own cache lines. */
static FshStatus add_variables(CpuState *state, const Graph *graph, TensorRole role, bool frozen,
                               FshError *error)
{
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        if (tensor->role != role || tensor->frozen != frozen)
            continue;
        CpuVariable *variable = &state->variables[state->variable_count++];
        memcpy(variable->name, tensor->name, sizeof variable->name);
        variable->role = role;
        variable->rank = tensor->rank;
        memcpy(variable->shape, tensor->shape, sizeof variable->shape);
        variable->offset_bytes = state->value_bytes;
        FshStatus status = choose_layout(state, variable, graph, (TensorId)i, error);
        if (status)
            return status;
        state->value_bytes += (dnn_layout_bytes(variable->layout) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return FSH_OK;
}

FshStatus cpu_state_new(State **state_ret, Backend *backend, const Graph *graph, FshError *error)
{
    FshStatus status = FSH_OK;
    const int previous = cpu_threads_enter((const CpuBackend *)backend);
    CpuState *state = calloc(1, sizeof *state);
    if (!state)
        goto no_memory;
    state->base = (State){.backend = backend, .graph = graph};
    state->variables = calloc(graph_tensor_count(graph) + 1, sizeof *state->variables);
    if (!state->variables)
        goto no_memory;
    if ((status = cpu_check_types(graph, error)) ||
        (status = add_variables(state, graph, TENSOR_PARAMETER, false, error)))
        goto done;
    state->trained_bytes = state->value_bytes;
    if ((status = add_variables(state, graph, TENSOR_PARAMETER, true, error)))
        goto done;
    state->parameter_bytes = state->value_bytes;
    if ((status = add_variables(state, graph, TENSOR_BUFFER, false, error)) ||
        (status = add_variables(state, graph, TENSOR_OPTIMIZER, false, error)))
        goto done;
    state->values = cpu_memory_new(state->value_bytes);
    if (state->values)
        goto done;
no_memory:
    status = fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory for the network's %llu bytes of parameters",
                           (unsigned long long)(state ? state->value_bytes : 0));
done:
    cpu_threads_leave(previous);
    if (status)
        cpu_state_free(&state->base);
    else
        *state_ret = &state->base;
    return status;
}

void cpu_state_free(State *base)
{
    CpuState *state = (CpuState *)base;
    if (!state)
        return;
    for (size_t i = 0; i < state->variable_count; i++) {
        dnn_layout_free(&state->variables[i].plain);
        dnn_layout_free(&state->variables[i].layout);
    }
    free(state->variables);
    cpu_memory_free(state->values);
    cpu_memory_free(state->gradients);
    free(state);
}

const CpuVariable *cpu_state_find(const CpuState *state, const char *name)
{
    for (size_t i = 0; i < state->variable_count; i++)
        if (strcmp(state->variables[i].name, name) == 0)
            return &state->variables[i];
    return NULL;
}

FshStatus cpu_state_read(State *base, const char *name, float *values, size_t count, FshError *error)
{
    CpuState *state = (CpuState *)base;
    const CpuBackend *backend = (const CpuBackend *)base->backend;
    const CpuVariable *variable = cpu_state_find(state, name);
    (void)count; /* checked by state_read */
    const int previous = cpu_threads_enter(backend);
    FshStatus status = dnn_layout_convert(backend->dnn, variable->layout,
                                          (const float *)(state->values + variable->offset_bytes),
                                          variable->plain, values, error);
    cpu_threads_leave(previous);
    return status ? fsh_error_prepend(error, "%s", name) : FSH_OK;
}

FshStatus cpu_state_write(State *base, const char *name, const float *values, size_t count, FshError *error)
{
    CpuState *state = (CpuState *)base;
    const CpuBackend *backend = (const CpuBackend *)base->backend;
    const CpuVariable *variable = cpu_state_find(state, name);
    (void)count; /* checked by state_write */
    const int previous = cpu_threads_enter(backend);
    FshStatus status = dnn_layout_convert(backend->dnn, variable->plain, values, variable->layout,
                                          (float *)(state->values + variable->offset_bytes), error);
    cpu_threads_leave(previous);
    return status ? fsh_error_prepend(error, "%s", name) : FSH_OK;
}
