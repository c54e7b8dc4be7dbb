#include "trainer/checkpoint/state_file.h"
#include "common/text.h"
#include "trainer/checkpoint/position_grid.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char batches_suffix[] = ".num_batches_tracked";

/* Returns whether a tensor of this name holds what steps gather for the next update. */
static bool is_gathered(const char *name)
{
    char suffix[32];
    (void)snprintf(suffix, sizeof suffix, ".%s", optimizer_slot_names[SLOT_ACCUMULATED]);
    return text_has_suffix(name, suffix) || strcmp(name, "optimizer.micro") == 0;
}

/* Returns whether a tensor of this name holds something between the two runs of a step with sam alone. */
static bool is_within_step(const char *name)
{
    char suffix[32];
    (void)snprintf(suffix, sizeof suffix, ".%s", optimizer_slot_names[SLOT_UNPERTURBED]);
    return text_has_suffix(name, suffix) || strcmp(name, "optimizer.perturbed") == 0;
}

/* Returns whether the tensor belongs to the part. */
static bool part_has(StatePart part, const Tensor *tensor)
{
    if (part == STATE_NETWORK)
        return tensor_is_weight(tensor);
    return state_holds(tensor->role) && !is_within_step(tensor->name) &&
           (part == STATE_ALL || !is_gathered(tensor->name));
}

static bool is_left_out(const char *const *left_out, const char *name)
{
    for (; left_out && *left_out; left_out++)
        if (strcmp(*left_out, name) == 0)
            return true;
    return false;
}

/* ---- writing ---- */

typedef struct Writing {
    State *state;
    uint64_t batches;
    SafetensorsTensor *tensors;
    size_t count;
    char (*counter_names)[GRAPH_NAME_MAX + sizeof batches_suffix];
    size_t counter_count;
} Writing;

static void list_tensors(Writing *writing, const Graph *graph, StatePart part)
{
    static const char suffix[] = ".running_var";
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        if (!part_has(part, tensor))
            continue;
        SafetensorsTensor *listed = &writing->tensors[writing->count++];
        *listed = (SafetensorsTensor){.name = tensor->name, .type = SAFETENSORS_F32};
        for (int d = 0; d < tensor->rank; d++)
            if (tensor->shape[d] != 1 || !tensor->saved_without_ones)
                listed->shape[listed->rank++] = (uint64_t)tensor->shape[d];
        if (tensor->role != TENSOR_BUFFER || !text_has_suffix(tensor->name, suffix))
            continue;
        char *name = writing->counter_names[writing->counter_count++];
        (void)snprintf(name, sizeof *writing->counter_names, "%.*s%s",
                       (int)(strlen(tensor->name) - strlen(suffix)), tensor->name, batches_suffix);
        writing->tensors[writing->count++] = (SafetensorsTensor){.name = name, .type = SAFETENSORS_I64};
    }
}

static FshStatus write_tensor(size_t number, void *values, void *context, FshError *error)
{
    const Writing *writing = context;
    const SafetensorsTensor *tensor = &writing->tensors[number];
    if (tensor->type == SAFETENSORS_I64) {
        const int64_t batches = (int64_t)writing->batches;
        memcpy(values, &batches, sizeof batches);
        return FSH_OK;
    }
    size_t count = 1;
    for (int d = 0; d < tensor->rank; d++)
        count *= (size_t)tensor->shape[d];
    return state_read(writing->state, tensor->name, values, count, error);
}

FshStatus state_file_write(const char *path, State *state, const Graph *graph, StatePart part,
                           uint64_t batches, const SafetensorsMetadata *metadata, size_t metadata_count,
                           FshError *error)
{
    const size_t most = 2 * graph_tensor_count(graph) + 1;
    FshStatus status;
    Writing writing = {.state = state,
                       .batches = batches,
                       .tensors = calloc(most, sizeof *writing.tensors),
                       .counter_names = calloc(most, sizeof *writing.counter_names)};
    if (!writing.tensors || !writing.counter_names) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
        goto done;
    }
    list_tensors(&writing, graph, part);
    status = safetensors_write(path, writing.tensors, writing.count, metadata, metadata_count, write_tensor,
                               &writing, error);
done:
    free(writing.tensors);
    free(writing.counter_names);
    return status;
}

uint64_t state_file_bytes(const Graph *graph, StatePart part)
{
    enum {
        HEADER_BYTES = 65536,
        ROW_BYTES = 2 * (GRAPH_NAME_MAX + 128)
    }; /* the notes; a tensor and its counter */
    uint64_t bytes = HEADER_BYTES;
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        if (part_has(part, tensor))
            bytes += (uint64_t)tensor_count(tensor) * sizeof(float) + ROW_BYTES;
    }
    return bytes;
}

/* ---- reading ---- */

static const char *format_shape(char *buffer, size_t buffer_bytes, int rank, const int64_t *shape)
{
    size_t length = (size_t)snprintf(buffer, buffer_bytes, "[");
    for (int d = 0; d < rank && length < buffer_bytes; d++)
        length +=
            (size_t)snprintf(buffer + length, buffer_bytes - length, "%s%" PRId64, d ? ", " : "", shape[d]);
    if (length < buffer_bytes)
        (void)snprintf(buffer + length, buffer_bytes - length, "]");
    return buffer;
}

/* Returns the model that wrote the file, to follow "it holds …". */
static const char *held_network(const Safetensors *file)
{
    const char *model = safetensors_metadata(file, "model");
    if (!model && safetensors_metadata(file, "fshard.checkpoint"))
        return "the state of a run; last.safetensors beside it has weights";
    return model ? model : "another network";
}

/* Returns whether two shapes are the same apart from ones: [1, C, 1, 1] and [C] hold the same numbers in the
 * same order. */
static bool same_but_ones(int rank, const int64_t *shape, int other_rank, const int64_t *other)
{
    int i = 0, k = 0;
    for (;;) {
        while (i < rank && shape[i] == 1)
            i++;
        while (k < other_rank && other[k] == 1)
            k++;
        if (i == rank || k == other_rank)
            return i == rank && k == other_rank;
        if (shape[i++] != other[k++])
            return false;
    }
}

static FshStatus check_tensor(const char *path, const Safetensors *file, const Tensor *tensor,
                              FshError *error)
{
    const SafetensorsEntry *entry = safetensors_find(file, tensor->name);
    if (!entry)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: has no tensor %s; it holds %.64s", path,
                             tensor->name, held_network(file));
    if (!safetensors_type_is_float(entry->type))
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: %s is %s; weights are floating-point numbers",
                             path, tensor->name, safetensors_type_name(entry->type));
    int64_t stored[SAFETENSORS_RANK_MAX] = {0};
    for (int d = 0; d < entry->rank; d++)
        stored[d] = (int64_t)entry->shape[d];
    if (same_but_ones(entry->rank, stored, tensor->rank, tensor->shape) || position_grid_edge(entry, tensor))
        return FSH_OK;
    char there[128], wanted[128];
    return fsh_error_set(
        error, FSH_ERR_MISMATCH,
        "%s: %s is %s, the network has %s; it was trained with another model, width, image size or number of "
        "classes",
        path, tensor->name, format_shape(there, sizeof there, entry->rank, stored),
        format_shape(wanted, sizeof wanted, tensor->rank, tensor->shape));
}

/* Returns the first tensor of the file that is not in the part. NULL: there is none. */
static const char *find_unknown(const Safetensors *file, const Graph *graph, StatePart part)
{
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const char *name = safetensors_entry(file, i)->name;
        const TensorId tensor = graph_find(graph, name);
        if (!text_has_suffix(name, batches_suffix) && !(part == STATE_AT_UPDATE && is_gathered(name)) &&
            (tensor == TENSOR_NONE || !part_has(part, graph_tensor(graph, tensor))))
            return name;
    }
    return NULL;
}

bool state_file_has_names(const Safetensors *file, const Graph *graph, StatePart part)
{
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        if (part_has(part, tensor) && !safetensors_find(file, tensor->name))
            return false;
    }
    return !find_unknown(file, graph, part);
}

FshStatus state_file_check(const char *path, const Safetensors *file, const Graph *graph, StatePart part,
                           const char *const *left_out, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; !status && i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        if (part_has(part, tensor) && !is_left_out(left_out, tensor->name))
            status = check_tensor(path, file, tensor, error);
    }
    const char *unknown = status ? NULL : find_unknown(file, graph, part);
    if (unknown)
        status = fsh_error_set(error, FSH_ERR_MISMATCH, "%s: the network has no tensor %s; it holds %.64s",
                               path, unknown, held_network(file));
    return status ? status : safetensors_check(file, path, error);
}

FshStatus state_file_values(const SafetensorsEntry *entry, const Tensor *tensor, float *values,
                            FshError *error)
{
    const size_t count = (size_t)tensor_count(tensor), stored_count = (size_t)entry->count;
    if (stored_count == count)
        return safetensors_read_f32(entry, values, count, error);
    float *stored = malloc(stored_count * sizeof *stored + 1);
    FshStatus status = stored ? safetensors_read_f32(entry, stored, stored_count, error)
                              : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %s", tensor->name);
    if (!status)
        status = position_grid_resample(tensor, position_grid_edge(entry, tensor), stored, values, error);
    free(stored);
    return status;
}

static FshStatus read_tensor(const char *path, const Safetensors *file, State *state, const Tensor *tensor,
                             FshError *error)
{
    const size_t count = (size_t)tensor_count(tensor);
    float *values = malloc(count * sizeof *values + 1);
    if (!values)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory for %s", path, tensor->name);
    FshStatus status = state_file_values(safetensors_find(file, tensor->name), tensor, values, error);
    if (!status)
        status = state_write(state, tensor->name, values, count, error);
    free(values);
    return status ? fsh_error_prepend(error, "%s", path) : FSH_OK;
}

FshStatus state_file_read(const char *path, const Safetensors *file, State *state, const Graph *graph,
                          StatePart part, const char *const *left_out, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; !status && i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        if (part_has(part, tensor) && !is_left_out(left_out, tensor->name))
            status = read_tensor(path, file, state, tensor, error);
    }
    return status;
}
