#include "trainer/backend/host_copy.h"

#include <stdlib.h>
#include <string.h>

typedef struct HostCopy {
    State base;
    Backend backend; /* of the copy alone: it can read and free */
    size_t *first;   /* [tensor_count] where each tensor of the State begins in values */
    float *values;
} HostCopy;

static FshStatus read_copy(State *state, const char *name, float *values, size_t count, FshError *error)
{
    const HostCopy *copy = (const HostCopy *)state;
    (void)error;
    memcpy(values, copy->values + copy->first[graph_find(state->graph, name)], count * sizeof *values);
    return FSH_OK;
}

static void free_copy(State *state)
{
    HostCopy *copy = (HostCopy *)state;
    free(copy->first);
    free(copy->values);
    free(copy);
}

static const BackendInterface interface = {
    .device = "host copy", .state_read = read_copy, .state_free = free_copy};

FshStatus host_copy_new(State **copy_ret, State *state, FshError *error)
{
    const size_t tensors = graph_tensor_count(state->graph);
    size_t values = 0;
    HostCopy *copy = calloc(1, sizeof *copy);
    if (!copy)
        goto no_memory;
    *copy = (HostCopy){.base.graph = state->graph, .backend.interface = &interface};
    copy->base.backend = &copy->backend;
    copy->first = calloc(tensors + 1, sizeof *copy->first);
    if (!copy->first)
        goto no_memory;
    for (size_t t = 0; t < tensors; t++) {
        const Tensor *tensor = graph_tensor(state->graph, (TensorId)t);
        copy->first[t] = values;
        values += state_holds(tensor->role) ? (size_t)tensor_count(tensor) : 0;
    }
    copy->values = malloc(values * sizeof *copy->values + 1);
    if (!copy->values)
        goto no_memory;
    *copy_ret = &copy->base;
    return FSH_OK;
no_memory:
    if (copy)
        free_copy(&copy->base);
    return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a copy of the weights");
}

FshStatus host_copy_take(State *copy, State *state, FshError *error)
{
    HostCopy *own = (HostCopy *)copy;
    FshStatus status = FSH_OK;
    for (size_t t = 0; !status && t < graph_tensor_count(state->graph); t++) {
        const Tensor *tensor = graph_tensor(state->graph, (TensorId)t);
        if (state_holds(tensor->role))
            status = state_read(state, tensor->name, own->values + own->first[t],
                                (size_t)tensor_count(tensor), error);
    }
    return status;
}
