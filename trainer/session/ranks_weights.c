#include "trainer/session/ranks_weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include <xxhash.h>

#include "trainer/session/ranks_agree.h"

static bool is_shared(const Tensor *tensor)
{
    return tensor->role == TENSOR_BUFFER && tensor_is_weight(tensor);
}

/* Sets *values_ret to room for the values of the largest parameter or buffer; owned by the caller. */
static FshStatus make_room(const Graph *graph, float **values_ret, FshError *error)
{
    size_t most = 0;
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        const bool held = tensor->role == TENSOR_PARAMETER || is_shared(tensor);
        if (held && (size_t)tensor_count(tensor) > most)
            most = (size_t)tensor_count(tensor);
    }
    *values_ret = malloc((most + 1) * sizeof **values_ret);
    return *values_ret
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %zu values of a tensor", most);
}

/* Returns FSH_OK if all ranks are well, `mine` if this one is not, and FSH_ERR_PEER if another one is not: so
 * that all make the exchange that follows, or none does. Unlike ranks_agree it heeds no signal, since a state
 * is saved after one. */
static FshStatus all_well(Communicator *communicator, FshStatus mine, FshError *error)
{
    uint64_t failed = mine != FSH_OK;
    FshStatus told = communicator_max_u64(communicator, &failed, 1, mine ? NULL : error);
    if (mine || told)
        return mine ? mine : told;
    return failed ? fsh_error_set(error, FSH_ERR_PEER, "another rank cannot read its state, and says why")
                  : FSH_OK;
}

/* Makes the values of a tensor the same on all ranks. */
typedef FshStatus (*Exchange)(Communicator *communicator, float *values, size_t count, FshError *error);

/* Exchanges the values of all of the state's tensors that is_one chooses. All ranks fail at the same tensor,
 * if one does: those before it are exchanged. */
static FshStatus exchange_tensors(Communicator *communicator, State *state, const Graph *graph,
                                  bool (*is_one)(const Graph *, TensorId), Exchange exchange, FshError *error)
{
    float *values = NULL;
    FshStatus mine = make_room(graph, &values, error), status = FSH_OK;
    for (size_t i = 0; i < graph_tensor_count(graph) && !status; i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        const size_t count = (size_t)tensor_count(tensor);
        if (!is_one(graph, (TensorId)i))
            continue;
        if (!mine)
            mine = state_read(state, tensor->name, values, count, error);
        status = all_well(communicator, mine, error);
        if (!status)
            status = exchange(communicator, values, count, error);
        if (!status)
            mine = state_write(state, tensor->name, values, count, error);
    }
    free(values);
    return status ? status : all_well(communicator, mine, error);
}

static bool is_buffer(const Graph *graph, TensorId id)
{
    return is_shared(graph_tensor(graph, id));
}

static FshStatus take_first(Communicator *communicator, float *values, size_t count, FshError *error)
{
    return communicator_broadcast(communicator, 0, values, count * sizeof *values, error);
}

FshStatus ranks_share_buffers(Communicator *communicator, State *state, const Graph *graph, FshError *error)
{
    return communicator ? exchange_tensors(communicator, state, graph, is_buffer, take_first, error) : FSH_OK;
}

static bool is_accumulated(const Graph *graph, TensorId id)
{
    return graph_tensor(graph, id)->role == TENSOR_OPTIMIZER &&
           graph_optimizer_slot(graph, id) == SLOT_ACCUMULATED;
}

FshStatus ranks_share_accumulated(Communicator *communicator, State *state, const Graph *graph,
                                  FshError *error)
{
    static const char counter[] = "optimizer.micro";
    float micro = 0;
    if (!communicator || graph_find(graph, counter) == TENSOR_NONE)
        return FSH_OK;
    FshStatus status = all_well(communicator, state_read(state, counter, &micro, 1, error), error);
    uint64_t refused = micro < 0;
    if (status || micro == 0) /* that on all ranks */
        return status;
    status = communicator_max_u64(communicator, &refused, 1, error);
    micro = refused ? -fabsf(micro) : micro;
    if (!status)
        status = all_well(communicator, state_write(state, counter, &micro, 1, error), error);
    if (!status)
        status = exchange_tensors(communicator, state, graph, is_accumulated, communicator_mean_f32, error);
    return status;
}

/* Sets *hash_ret to the hash of all parameters, in the graph's order. */
static FshStatus hash_parameters(State *state, const Graph *graph, uint64_t *hash_ret, FshError *error)
{
    float *values = NULL;
    XXH3_state_t *hash = XXH3_createState();
    FshStatus status = make_room(graph, &values, error);
    if (!status && (!hash || XXH3_64bits_reset(hash) == XXH_ERROR))
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a hash of the weights");
    for (size_t i = 0; i < graph_tensor_count(graph) && !status; i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        const size_t count = (size_t)tensor_count(tensor);
        if (tensor->role != TENSOR_PARAMETER)
            continue;
        status = state_read(state, tensor->name, values, count, error);
        if (!status)
            (void)XXH3_64bits_update(hash, values, count * sizeof *values);
    }
    *hash_ret = status ? 0 : XXH3_64bits_digest(hash);
    (void)XXH3_freeState(hash);
    free(values);
    return status;
}

FshStatus ranks_check_weights(Communicator *communicator, State *state, const Graph *graph,
                              const char *advice, FshError *error)
{
    uint64_t mine = 0, first = 0, rank = 0;
    if (!communicator)
        return FSH_OK;
    FshStatus status = all_well(communicator, hash_parameters(state, graph, &mine, error), error);
    first = mine;
    if (!status)
        status = communicator_broadcast(communicator, 0, &first, sizeof first, error);
    if (!status)
        status = ranks_lowest(communicator, mine != first, &rank, error);
    if (status || rank == communicator_place(communicator)->world_size)
        return status;
    status = fsh_error_set(error, FSH_ERR_MISMATCH,
                           "the weights of rank %" PRIu64 " are not those of rank 0%s", rank, advice);
    ranks_leave_to_first(communicator, error);
    return status;
}
