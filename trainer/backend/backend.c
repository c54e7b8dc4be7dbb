#include "trainer/backend/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"
#include "trainer/backend/backend_plugin.h"
#include "trainer/backend/host_copy.h"
#include "trainer/backend/initial_values.h"
#include "trainer/graph/memory_plan.h"

FshStatus backend_open(Backend **backend, const char *device, const BackendOptions *options, FshError *error)
{
    const BackendInterface *interface = NULL;
    *backend = NULL;
    FshStatus status = backend_find(device, true, &interface, error);
    status = status ? status : interface->open(backend, options, error);
    if (!status)
        (*backend)->threads = cpu_jobs(options->threads);
    return status;
}

FshStatus backend_device_count(const char *device, int *count_ret, FshError *error)
{
    const BackendInterface *interface = NULL;
    *count_ret = 1;
    FshStatus status = backend_find(device, true, &interface, error);
    return status || !interface->device_count ? status : interface->device_count(count_ret, error);
}

FshStatus backend_join(Backend *backend, struct Communicator *communicator, FshError *error)
{
    if (!backend->interface->join)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: this backend cannot train with several ranks",
                             backend->interface->device);
    return backend->interface->join(backend, communicator, error);
}

void backend_close(Backend **backend)
{
    if (!backend || !*backend)
        return;
    (*backend)->interface->close(*backend);
    *backend = NULL;
}

const char *backend_description(const Backend *backend)
{
    return backend->description;
}

const char *backend_warning(const Backend *backend)
{
    return backend->interface->warning ? backend->interface->warning(backend) : NULL;
}

bool backend_bus_id(const Backend *backend, char text[BACKEND_BUS_ID_MAX])
{
    return backend->interface->bus_id && backend->interface->bus_id(backend, text);
}

unsigned backend_fusions(const Backend *backend)
{
    return backend->interface->fusions;
}

FshStatus backend_rates(Backend *backend, DataType type, BackendRates *rates, FshError *error)
{
    return backend->interface->rates(backend, type, rates, error);
}

/* ---- memory ---- */

const char *const memory_kind_names[MEMORY_KINDS] = {"weights",     "weight_copies", "gradients",
                                                     "activations", "scratch",       "inputs",
                                                     "results",     "device_images", "pinned"};

uint64_t memory_total(const MemoryUse *use)
{
    uint64_t bytes = 0;
    for (int kind = 0; kind < MEMORY_KINDS; kind++)
        bytes += kind == MEMORY_PINNED ? 0 : use->bytes[kind];
    return bytes;
}

uint64_t memory_of_role(const Graph *graph, TensorRole role)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < graph_tensor_count(graph); i++)
        if (graph_tensor(graph, (TensorId)i)->role == role)
            bytes += memory_packed_bytes(graph, (TensorId)i, NULL);
    return bytes;
}

/* Counts what a State takes as the graph has it. Gradients are the State's: all programs share them. */
static void graph_state_memory(const Graph *graph, MemoryUse *use)
{
    use->bytes[MEMORY_WEIGHTS] += memory_of_role(graph, TENSOR_PARAMETER) +
                                  memory_of_role(graph, TENSOR_BUFFER) +
                                  memory_of_role(graph, TENSOR_OPTIMIZER);
    use->bytes[MEMORY_GRADIENTS] += memory_of_role(graph, TENSOR_GRADIENT);
}

static FshStatus foresee_plainly(const Graph *graph, MemoryUse *use, FshError *error)
{
    MemoryPlan plan = {0};
    FshStatus status = memory_plan_make(graph, memory_packed_bytes, NULL, NULL, &plan, error);
    if (!status) {
        graph_state_memory(graph, use);
        use->bytes[MEMORY_ACTIVATIONS] += plan.arena_bytes;
        use->bytes[MEMORY_INPUTS] += memory_of_role(graph, TENSOR_INPUT);
    }
    memory_plan_free(&plan);
    return status;
}

FshStatus backend_foresee(const char *device, const Graph *graph, unsigned *fusions_ret, MemoryUse *use,
                          FshError *error)
{
    const BackendInterface *interface = NULL;
    MemoryUse unwanted = {0};
    unsigned fusions = 0;
    if (!use)
        use = &unwanted;
    FshStatus status = backend_find(device, false, &interface, error);
    if (!status && interface->foresee)
        status = interface->foresee(graph, &fusions, use, error);
    else if (!status && graph)
        status = foresee_plainly(graph, use, error);
    if (!status && fusions_ret)
        *fusions_ret = interface->foresee ? fusions : interface->fusions;
    return status;
}

/* ---- state ---- */

FshStatus state_new(State **state, Backend *backend, const Graph *graph, FshError *error)
{
    *state = NULL;
    FshStatus status = graph_check(graph, error);
    return status ? status : backend->interface->state_new(state, backend, graph, error);
}

void state_free(State **state)
{
    if (!state || !*state)
        return;
    (*state)->backend->interface->state_free(*state);
    *state = NULL;
}

void state_memory(const State *state, MemoryUse *use)
{
    const BackendInterface *interface = state->backend->interface;
    if (interface->state_memory)
        interface->state_memory(state, use);
    else
        graph_state_memory(state->graph, use);
}

/* Values of tensors that are drawn together, more only where one tensor has more: 16 MB. */
enum { DRAWN_TOGETHER = 1 << 22 };

/* Draws and writes the tensors of a group, whose values fit into memory. */
static FshStatus draw_group(State *state, InitialValues *group, size_t count, uint64_t seed, float *memory,
                            FshError *error)
{
    for (size_t i = 0; i < count; i++) {
        group[i].values = memory;
        memory += tensor_count(group[i].tensor);
    }
    FshStatus status = initial_values_draw(group, count, seed, state->backend->threads, error);
    for (size_t i = 0; i < count && !status; i++)
        status = state_write(state, group[i].tensor->name, group[i].values,
                             (size_t)tensor_count(group[i].tensor), error);
    return status;
}

FshStatus state_initialize(State *state, uint64_t seed, FshError *error)
{
    const Graph *graph = state->graph;
    const size_t tensor_most = graph_tensor_count(graph);
    InitialValues *held = calloc(tensor_most + 1, sizeof *held);
    size_t count = 0, most = DRAWN_TOGETHER;
    for (size_t i = 0; held && i < tensor_most; i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        if (!state_holds(tensor->role))
            continue;
        held[count++].tensor = tensor;
        most = (size_t)tensor_count(tensor) > most ? (size_t)tensor_count(tensor) : most;
    }
    float *values = held ? malloc(most * sizeof *values) : NULL;
    FshStatus status = FSH_OK;
    if (!values)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "no memory for %zu initial weights", most);
    for (size_t begin = 0, end = 0; begin < count && !status; begin = end) {
        size_t drawn = 0;
        while (end < count && drawn + (size_t)tensor_count(held[end].tensor) <= most)
            drawn += (size_t)tensor_count(held[end++].tensor);
        status = draw_group(state, held + begin, end - begin, seed, values, error);
    }
    free(values);
    free(held);
    return status;
}

/* Finds the tensor of this name that lives in the State, and checks its size against count. */
static FshStatus check_state_tensor(const State *state, const char *name, size_t count, FshError *error)
{
    char shape[96];
    TensorId id = graph_find(state->graph, name);
    const Tensor *tensor = id == TENSOR_NONE ? NULL : graph_tensor(state->graph, id);
    if (!tensor || !state_holds(tensor->role))
        return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                             "%s: the network has no parameter or buffer of this name", name);
    if ((size_t)tensor_count(tensor) != count)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: %zu values given, but its shape is [%s]", name,
                             count, tensor_shape_text(tensor, shape, sizeof shape));
    return FSH_OK;
}

FshStatus state_read(State *state, const char *name, float *values, size_t count, FshError *error)
{
    FshStatus status = check_state_tensor(state, name, count, error);
    return status ? status : state->backend->interface->state_read(state, name, values, count, error);
}

FshStatus state_write(State *state, const char *name, const float *values, size_t count, FshError *error)
{
    FshStatus status = check_state_tensor(state, name, count, error);
    state->changes++;
    return status ? status : state->backend->interface->state_write(state, name, values, count, error);
}

FshStatus state_copy_new(State **copy_ret, State *state, FshError *error)
{
    const BackendInterface *interface = state->backend->interface;
    *copy_ret = NULL;
    return interface->state_copy_new ? interface->state_copy_new(copy_ret, state, error)
                                     : host_copy_new(copy_ret, state, error);
}

FshStatus state_copy_take(State *copy, State *state, FshError *error)
{
    const BackendInterface *interface = state->backend->interface;
    return interface->state_copy_take ? interface->state_copy_take(copy, state, error)
                                      : host_copy_take(copy, state, error);
}

uint64_t state_changes(const State *state)
{
    return state->changes;
}

/* ---- program ---- */

FshStatus program_new(Program **program, State *state, const Graph *graph, FshError *error)
{
    *program = NULL;
    FshStatus status = graph_check(graph, error);
    return status ? status : state->backend->interface->program_new(program, state, graph, error);
}

void program_free(Program **program)
{
    if (!program || !*program)
        return;
    free((*program)->results.memory);
    (*program)->results.memory = NULL;
    (*program)->state->backend->interface->program_free(*program);
    *program = NULL;
}

static const BackendInterface *interface_of(const Program *program)
{
    return program->state->backend->interface;
}

/* Finds a tensor of the program's graph, and checks its size against bytes. */
static FshStatus check_tensor(const Program *program, TensorId id, size_t bytes, FshError *error)
{
    char shape[96];
    if (id < 0 || (size_t)id >= graph_tensor_count(program->graph))
        return fsh_error_set(error, FSH_ERR_USAGE, "program: no tensor %d in its graph", (int)id);
    const Tensor *tensor = graph_tensor(program->graph, id);
    if ((size_t)tensor_count(tensor) * data_type_bytes(tensor->type) != bytes)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: %zu bytes given, but it is %s [%s]", tensor->name,
                             bytes, data_type_name(tensor->type),
                             tensor_shape_text(tensor, shape, sizeof shape));
    return FSH_OK;
}

FshStatus program_write(Program *program, TensorId input, const void *values, size_t bytes, FshError *error)
{
    FshStatus status = check_tensor(program, input, bytes, error);
    if (status)
        return status;
    const Tensor *tensor = graph_tensor(program->graph, input);
    if (tensor->role != TENSOR_INPUT)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: is no input of the program; it cannot be written",
                             tensor->name);
    return interface_of(program)->program_write(program, input, values, bytes, error);
}

/* ---- results ---- */

bool backend_runs_ahead(const Backend *backend)
{
    return backend->interface->program_collect != NULL;
}

static FshStatus check_kept(const Program *program, TensorId id, FshError *error)
{
    const Tensor *tensor = graph_tensor(program->graph, id);
    if (tensor->keep || tensor->role == TENSOR_GRADIENT)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_USAGE, "%s: is not kept after a run; mark it with graph_keep",
                         tensor->name);
}

static FshStatus check_result(const Program *program, TensorId id, FshError *error)
{
    if (id < 0 || (size_t)id >= graph_tensor_count(program->graph))
        return fsh_error_set(error, FSH_ERR_USAGE, "program: no tensor %d in its graph", (int)id);
    const Tensor *tensor = graph_tensor(program->graph, id);
    if (tensor->type != DATA_F32 || tensor->role == TENSOR_GRADIENT)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: only kept f32 activations can be collected",
                             tensor->name);
    return check_kept(program, id, error);
}

FshStatus program_results(Program *program, const TensorId *tensors, size_t count, size_t depth,
                          FshError *error)
{
    ProgramResults results = {.count = count, .depth = depth};
    FshStatus status = FSH_OK;
    if (count > PROGRAM_RESULTS_MAX || depth < 1 || depth > PROGRAM_DEPTH_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "program: %zu results of %zu runs; at most %d of 1 to %d",
                             count, depth, PROGRAM_RESULTS_MAX, PROGRAM_DEPTH_MAX);
    for (size_t i = 0; i < count && !status; i++) {
        status = check_result(program, tensors[i], error);
        if (status)
            return status;
        results.tensors[i] = tensors[i];
        results.first_float[i] = results.slot_floats;
        results.slot_floats += (size_t)tensor_count(graph_tensor(program->graph, tensors[i]));
    }
    free(program->results.memory);
    program->results = results;
    if (backend_runs_ahead(program->state->backend)) {
        status = interface_of(program)->program_results(program, error);
    } else if (count) {
        program->results.memory = calloc(depth * results.slot_floats, sizeof *results.memory);
        if (!program->results.memory)
            status = fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the results of %zu runs", depth);
    }
    if (status)
        program->results = (ProgramResults){0};
    return status;
}

static FshStatus read_results(Program *program, FshError *error)
{
    const ProgramResults *results = &program->results;
    float *slot = results->memory + results->run_count % results->depth * results->slot_floats;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < results->count && !status; i++) {
        const size_t end = i + 1 < results->count ? results->first_float[i + 1] : results->slot_floats;
        status =
            interface_of(program)->program_read(program, results->tensors[i], slot + results->first_float[i],
                                                (end - results->first_float[i]) * sizeof *slot, error);
    }
    return status;
}

static FshStatus run(Program *program, bool perturbs, FshError *error)
{
    program->state->changes++;
    FshStatus status = interface_of(program)->program_run(program, perturbs, error);
    if (!status && program->results.memory)
        status = read_results(program, error);
    program->results.run_count += !status;
    return status;
}

FshStatus program_run(Program *program, FshError *error)
{
    return run(program, false, error);
}

FshStatus program_perturb(Program *program, FshError *error)
{
    if (graph_find(program->graph, "optimizer.perturbed") == TENSOR_NONE)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "program: its update perturbs nothing (Optimizer.sam_rho)");
    return run(program, true, error);
}

FshStatus program_collect(Program *program, uint64_t run, const float **values, FshError *error)
{
    const ProgramResults *results = &program->results;
    const float *slot = NULL;
    FshStatus status = FSH_OK;
    if (!results->count || run >= results->run_count || results->run_count - run > results->depth)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "program: results of run %llu asked; it has made %llu and keeps the last %zu",
                             (unsigned long long)run, (unsigned long long)results->run_count,
                             results->count ? results->depth : 0);
    if (results->memory)
        slot = results->memory + run % results->depth * results->slot_floats;
    else
        status =
            interface_of(program)->program_collect(program, (size_t)(run % results->depth), &slot, error);
    for (size_t i = 0; i < results->count && !status; i++)
        values[i] = slot + results->first_float[i];
    return status;
}

uint64_t program_run_count(const Program *program)
{
    return program->results.run_count;
}

FshStatus program_read(Program *program, TensorId tensor, void *values, size_t bytes, FshError *error)
{
    FshStatus status = check_tensor(program, tensor, bytes, error);
    if (status)
        return status;
    if (graph_tensor(program->graph, tensor)->role != TENSOR_INPUT)
        status = check_kept(program, tensor, error);
    if (status)
        return status;
    return interface_of(program)->program_read(program, tensor, values, bytes, error);
}

void program_memory(const Program *program, MemoryUse *use)
{
    const ProgramResults *results = &program->results;
    if (interface_of(program)->program_memory) {
        interface_of(program)->program_memory(program, use);
        return;
    }
    use->bytes[MEMORY_ACTIVATIONS] += program->arena_bytes;
    use->bytes[MEMORY_SCRATCH] += program->scratch_bytes;
    use->bytes[MEMORY_INPUTS] += memory_of_role(program->graph, TENSOR_INPUT);
    use->bytes[MEMORY_RESULTS] += results->depth * results->slot_floats * sizeof(float);
}

const char *program_node_plan(const Program *program, NodeId node)
{
    const BackendInterface *interface = interface_of(program);
    return interface->program_node_plan ? interface->program_node_plan(program, node) : "";
}

const char *program_node_engine(const Program *program, NodeId node)
{
    return interface_of(program)->program_node_engine(program, node);
}

FshStatus program_profile(Program *program, bool enable, double *seconds, size_t node_count, FshError *error)
{
    if (seconds && node_count != graph_node_count(program->graph))
        return fsh_error_set(error, FSH_ERR_MISMATCH, "program: times of %zu nodes asked, and it has %zu",
                             node_count, graph_node_count(program->graph));
    return interface_of(program)->program_profile(program, enable, seconds, node_count, error);
}

FshStatus program_poison(Program *program, FshError *error)
{
    return interface_of(program)->program_poison(program, error);
}
