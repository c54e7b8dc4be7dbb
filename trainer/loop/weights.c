#include "trainer/loop/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/loop/safetensors.h"

static const char batches_suffix[] = ".num_batches_tracked";

/* "bn1.running_var" has a counter beside it: its length without the last part, or 0. */
static size_t counted_layer(const char *name)
{
    static const char suffix[] = ".running_var";
    size_t length = strlen(name), suffix_length = sizeof suffix - 1;
    bool counted = length > suffix_length && strcmp(name + length - suffix_length, suffix) == 0;
    return counted ? length - suffix_length : 0;
}

/* ---- saving ---- */

typedef struct Saving {
    State *state;
    uint64_t steps;
    SafetensorsTensor *tensors;
    size_t count;
    char (*counter_names)[GRAPH_NAME_MAX + sizeof batches_suffix];
    size_t counter_count;
} Saving;

static void list_tensors(Saving *saving, const Graph *graph)
{
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        if (!tensor_is_weight(tensor))
            continue;
        SafetensorsTensor *listed = &saving->tensors[saving->count++];
        *listed = (SafetensorsTensor){.name = tensor->name, .type = SAFETENSORS_F32, .rank = tensor->rank};
        for (int d = 0; d < tensor->rank; d++)
            listed->shape[d] = (uint64_t)tensor->shape[d];
        size_t layer_length = counted_layer(tensor->name);
        if (!layer_length)
            continue;
        char *name = saving->counter_names[saving->counter_count++];
        (void)snprintf(name, sizeof *saving->counter_names, "%.*s%s", (int)layer_length, tensor->name,
                       batches_suffix);
        saving->tensors[saving->count++] = (SafetensorsTensor){.name = name, .type = SAFETENSORS_I64};
    }
}

static FshStatus read_tensor(size_t number, void *values, void *context, FshError *error)
{
    const Saving *saving = context;
    const SafetensorsTensor *tensor = &saving->tensors[number];
    if (tensor->type == SAFETENSORS_I64) {
        int64_t steps = (int64_t)saving->steps;
        memcpy(values, &steps, sizeof steps);
        return FSH_OK;
    }
    size_t count = 1;
    for (int d = 0; d < tensor->rank; d++)
        count *= (size_t)tensor->shape[d];
    return state_read(saving->state, tensor->name, values, count, error);
}

FshStatus weights_save(const char *path, State *state, const Graph *graph, const WeightsInfo *info,
                       FshError *error)
{
    size_t most = 2 * graph_tensor_count(graph) + 1;
    Saving saving = {.state = state,
                     .steps = info->steps,
                     .tensors = calloc(most, sizeof *saving.tensors),
                     .counter_names = calloc(most, sizeof *saving.counter_names)};
    FshStatus status;
    if (!saving.tensors || !saving.counter_names) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
        goto done;
    }
    list_tensors(&saving, graph);
    char epoch[24], steps[24], top1[32];
    (void)snprintf(epoch, sizeof epoch, "%" PRIu64, info->epoch);
    (void)snprintf(steps, sizeof steps, "%" PRIu64, info->steps);
    (void)snprintf(top1, sizeof top1, "%.4f", info->top1);
    /* "format": what transformers and timm look for. */
    const SafetensorsMetadata metadata[] = {
        {"format", "pt"},       {"writer", "fshard " FSHARD_VERSION},
        {"model", info->model}, {"dataset", info->dataset_id},
        {"epoch", epoch},       {"steps", steps},
        {"top1", top1}, /* last: only where it is known */
    };
    size_t metadata_count = sizeof metadata / sizeof *metadata - (info->top1 < 0);
    status = safetensors_write(path, saving.tensors, saving.count, metadata, metadata_count, read_tensor,
                               &saving, error);
done:
    free(saving.tensors);
    free(saving.counter_names);
    return status;
}

/* ---- loading ---- */

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

/* For "it holds …": the model that wrote the file, if it says. */
static const char *held_network(const Safetensors *file)
{
    const char *model = safetensors_metadata(file, "model");
    return model ? model : "another network";
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
    int64_t stored[SAFETENSORS_RANK_MAX];
    bool same = entry->rank == tensor->rank;
    for (int d = 0; d < entry->rank; d++) {
        stored[d] = (int64_t)entry->shape[d];
        same = same && stored[d] == tensor->shape[d];
    }
    if (same)
        return FSH_OK;
    char there[128], wanted[128];
    return fsh_error_set(
        error, FSH_ERR_MISMATCH,
        "%s: %s is %s, the network has %s; it was trained with another model, image size or number of "
        "classes",
        path, tensor->name, format_shape(there, sizeof there, entry->rank, stored),
        format_shape(wanted, sizeof wanted, tensor->rank, tensor->shape));
}

static FshStatus check_unknown(const char *path, const Safetensors *file, const Graph *graph, FshError *error)
{
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const char *name = safetensors_entry(file, i)->name;
        size_t length = strlen(name), suffix_length = sizeof batches_suffix - 1;
        bool counter = length > suffix_length && strcmp(name + length - suffix_length, batches_suffix) == 0;
        TensorId tensor = graph_find(graph, name);
        if (!counter && (tensor == TENSOR_NONE || !tensor_is_weight(graph_tensor(graph, tensor))))
            return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: the network has no tensor %s; it holds %.64s",
                                 path, name, held_network(file));
    }
    return FSH_OK;
}

static FshStatus load_tensor(const char *path, const Safetensors *file, State *state, const Tensor *tensor,
                             FshError *error)
{
    size_t count = (size_t)tensor_count(tensor);
    float *values = malloc(count * sizeof *values + 1);
    if (!values)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory for %s", path, tensor->name);
    FshStatus status = safetensors_read_f32(safetensors_find(file, tensor->name), values, count, error);
    if (!status)
        status = state_write(state, tensor->name, values, count, error);
    free(values);
    return status ? fsh_error_prepend(error, "%s", path) : FSH_OK;
}

FshStatus weights_model(const char *path, const Model **model_ret, FshError *error)
{
    Safetensors *file = NULL;
    FshStatus status = safetensors_open(&file, path, error);
    const char *name = status ? NULL : safetensors_metadata(file, "model");
    *model_ret = name ? model_find(name) : NULL;
    safetensors_close(&file);
    return status;
}

FshStatus weights_load(const char *path, State *state, const Graph *graph, FshError *error)
{
    Safetensors *file = NULL;
    FshStatus status = safetensors_open(&file, path, error);
    for (size_t i = 0; !status && i < graph_tensor_count(graph); i++)
        if (tensor_is_weight(graph_tensor(graph, (TensorId)i)))
            status = check_tensor(path, file, graph_tensor(graph, (TensorId)i), error);
    if (!status)
        status = check_unknown(path, file, graph, error);
    for (size_t i = 0; !status && i < graph_tensor_count(graph); i++)
        if (tensor_is_weight(graph_tensor(graph, (TensorId)i)))
            status = load_tensor(path, file, state, graph_tensor(graph, (TensorId)i), error);
    safetensors_close(&file);
    return status;
}
