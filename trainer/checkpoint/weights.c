#include "trainer/checkpoint/weights.h"

#include <inttypes.h>
#include <limits.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "trainer/report/metrics.h"
#include "trainer/checkpoint/state_file.h"

static const char class_names_key[] = "class_names";

/* ---- saving ---- */

static void format_numbers(char *buffer, size_t buffer_bytes, const double *numbers, uint32_t count)
{
    size_t length = 0;
    buffer[0] = '\0';
    for (uint32_t i = 0; i < count && length < buffer_bytes; i++)
        length +=
            (size_t)snprintf(buffer + length, buffer_bytes - length, "%s%.9g", i ? "," : "", numbers[i]);
}

/* Returns the metadata "shape", to be freed; NULL: no memory. */
static char *format_shape(const WeightsInfo *info)
{
    json_t *object = json_object();
    const bool wrote = object && model_write_shape(&info->spec->options, object) &&
                       !json_object_set_new(object, "val_crop_size", json_integer(info->crop)) &&
                       !json_object_set_new(object, "val_resize_size", json_integer(info->resize)) &&
                       (!info->interpolation ||
                        !json_object_set_new(object, "interpolation", json_string(info->interpolation))) &&
                       (!info->problem_type ||
                        !json_object_set_new(object, "problem_type", json_string(info->problem_type)));
    char *text = wrote ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

FshStatus weights_save(const char *path, State *state, const Graph *graph, const WeightsInfo *info,
                       FshError *error)
{
    enum { KNOWN_ALWAYS = 9, KNOWN_MAX = KNOWN_ALWAYS + 2 };
    char epoch[24], steps[24], metric[32], mean[128], deviation[128];
    (void)snprintf(epoch, sizeof epoch, "%" PRIu64, info->epoch);
    (void)snprintf(steps, sizeof steps, "%" PRIu64, info->steps);
    (void)snprintf(metric, sizeof metric, "%.4f", info->metric);
    format_numbers(mean, sizeof mean, info->mean, info->channels);
    format_numbers(deviation, sizeof deviation, info->deviation, info->channels);
    char *shape = format_shape(info);
    char *classes = info->class_count ? class_names_text(info->class_names, info->class_count) : NULL;
    FshStatus status = FSH_OK;
    if (!shape || (info->class_count && !classes)) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
        goto done;
    }
    /* "format" is what transformers and timm look for. */
    SafetensorsMetadata metadata[KNOWN_MAX] = {
        {"format", "pt"},
        {"writer", "fshard " FSHARD_VERSION},
        {"model", info->model},
        {"shape", shape},
        {"dataset", info->dataset_id},
        {"epoch", epoch},
        {"steps", steps},
        {"mean", mean},
        {"std", deviation},
    };
    size_t count = KNOWN_ALWAYS;
    if (info->metric_name)
        metadata[count++] = (SafetensorsMetadata){info->metric_name, metric};
    if (classes)
        metadata[count++] = (SafetensorsMetadata){class_names_key, classes};
    status = state_file_write(path, state, graph, STATE_NETWORK, info->steps, metadata, count, error);
done:
    free(classes);
    free(shape);
    return status;
}

/* ---- origin ---- */

static bool read_numbers(const char *text, double numbers[4], uint32_t *count_ret)
{
    uint32_t count = 0;
    while (text && *text && count < 4) {
        char *end = NULL;
        numbers[count] = strtod(text, &end);
        if (end == text || !isfinite(numbers[count]) || (*end && *end != ','))
            return false;
        count++;
        text = *end ? end + 1 : end;
    }
    *count_ret = count;
    return count > 0 && !*text;
}

static int64_t shape_number(const json_t *shape, const char *name)
{
    const json_int_t number = json_integer_value(json_object_get(shape, name));
    return number > 0 ? (int64_t)number : 0;
}

/* Reads what the network leaves open. The file may be hostile: values are checked when the network is
 * built. */
static void read_shape(const Safetensors *file, WeightsOrigin *origin)
{
    const char *text = safetensors_metadata(file, "shape");
    origin->shape = text ? json_loads(text, 0, NULL) : NULL;
    model_read_shape(origin->shape, &origin->options);
    origin->crop = shape_number(origin->shape, "val_crop_size");
    origin->resize = shape_number(origin->shape, "val_resize_size");
    origin->interpolation = json_string_value(json_object_get(origin->shape, "interpolation"));
    origin->problem_type = json_string_value(json_object_get(origin->shape, "problem_type"));
}

static void read_normalisation(const Safetensors *file, WeightsOrigin *origin)
{
    uint32_t means = 0, deviations = 0;
    double mean[4], deviation[4];
    origin->normalised = read_numbers(safetensors_metadata(file, "mean"), mean, &means) &&
                         read_numbers(safetensors_metadata(file, "std"), deviation, &deviations) &&
                         means == deviations;
    for (uint32_t c = 0; origin->normalised && c < means; c++) {
        origin->normalised = deviation[c] > 0;
        origin->mean[c] = mean[c];
        origin->deviation[c] = deviation[c];
    }
    origin->channels = origin->normalised ? means : 0;
}

/* Reads the epoch, and the metric that the file has under its name. */
static void read_training(const Safetensors *file, WeightsOrigin *origin)
{
    const char *epoch = safetensors_metadata(file, "epoch");
    char *end = NULL;
    if (epoch && *epoch >= '0' && *epoch <= '9') {
        origin->epoch = strtoull(epoch, &end, 10);
        origin->trained = *end == '\0';
    }
    for (int i = 0; i < METRIC_COUNT && !origin->metric_name; i++) {
        const char *metric = safetensors_metadata(file, metric_names[i]);
        if (!metric)
            continue;
        origin->metric = strtod(metric, &end);
        origin->metric_name = end != metric ? metric_names[i] : NULL;
    }
}

/* Refuses a folder. If it is a run's, the message names the weights in it. */
static FshStatus refuse_folder(const char *path, FshError *error)
{
    static const char *const names[] = {"model_best.safetensors", "last.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char inside[PATH_MAX];
        if (file_join(inside, sizeof inside, path, names[i], NULL) == FSH_OK && file_exists(inside))
            return fsh_error_set(error, FSH_ERR_USAGE, "--weights: %s is a folder; its weights are %s", path,
                                 inside);
    }
    return fsh_error_set(error, FSH_ERR_USAGE, "--weights: %s is a folder; name a file of weights", path);
}

FshStatus weights_origin(const char *path, WeightsOrigin *origin, FshError *error)
{
    Safetensors *file = NULL;
    *origin = (WeightsOrigin){0};
    if (file_is_folder(path))
        return refuse_folder(path, error);
    FshStatus status = safetensors_open(&file, path, error);
    if (status)
        return status;
    const char *name = safetensors_metadata(file, "model");
    const char *classes = safetensors_metadata(file, class_names_key);
    origin->model = name ? model_find(name) : NULL;
    read_training(file, origin);
    read_shape(file, origin);
    read_normalisation(file, origin);
    if (classes)
        status = class_names_parse(&origin->classes, classes, error);
    safetensors_close(&file);
    if (status)
        weights_origin_free(origin);
    return status ? fsh_error_prepend(error, "%s", path) : FSH_OK;
}

void weights_origin_free(WeightsOrigin *origin)
{
    class_names_free(&origin->classes);
    json_decref(origin->shape);
    *origin = (WeightsOrigin){0};
}

/* ---- loading ---- */

/* Returns the linear layer that makes the logits. NULL: the graph has none. */
static const Node *find_head(const Graph *graph)
{
    for (size_t i = graph_node_count(graph); i-- > 0;) {
        const Node *node = graph_node(graph, (NodeId)i);
        if (node->op == OP_LINEAR)
            return node;
    }
    return NULL;
}

enum { HEAD_TENSORS = 2 }; /* weight and bias */

/* Sets names, NULL-terminated, to the names of the last layer's tensors. Returns how many there are. */
static size_t head_parts(const Graph *graph, const char *names[HEAD_TENSORS + 1])
{
    const Node *head = find_head(graph);
    size_t count = 0;
    for (int input = 1; head && input < head->input_count && count < HEAD_TENSORS; input++)
        if (head->inputs[input] != TENSOR_NONE)
            names[count++] = graph_tensor(graph, head->inputs[input])->name;
    names[count] = NULL;
    return count;
}

/* Returns whether the file lacks the last layer, as a backbone does, or has it with the same inputs and
 * another number of outputs. */
static bool has_other_classes(const Safetensors *file, const Graph *graph, const Node *head)
{
    const Tensor *weight = graph_tensor(graph, head->inputs[CONV_WEIGHT]);
    const SafetensorsEntry *entry = safetensors_find(file, weight->name);
    if (!entry)
        return head->input_count <= CONV_BIAS || head->inputs[CONV_BIAS] == TENSOR_NONE ||
               !safetensors_find(file, graph_tensor(graph, head->inputs[CONV_BIAS])->name);
    return entry && entry->rank == 2 && entry->shape[0] != (uint64_t)weight->shape[0] &&
           entry->shape[1] == (uint64_t)weight->shape[1];
}

/* Builds *graph_ret for the names of its tensors; its size does not matter. */
static FshStatus build_graph(const Model *model, const WeightsOrigin *origin, Graph **graph_ret,
                             FshError *error)
{
    enum { EDGE = 64, CLASSES = 2 };
    ModelSpec spec = {.batch = 1,
                      .height = EDGE,
                      .width = EDGE,
                      .channels = origin->channels == 1 ? 1 : 3,
                      .classes = model->task != TASK_RESTORATION ? CLASSES : 0};
    if (model == origin->model)
        spec.options = origin->options;
    const ModelRecipe recipe = {.deviation = {1, 1, 1, 1}};
    return model_graph(model, &spec, &recipe, graph_ret, error);
}

FshStatus weights_class_count(const char *path, const Model *model, const WeightsOrigin *origin,
                              uint64_t *class_count_ret, FshError *error)
{
    Safetensors *file = NULL;
    Graph *graph = NULL;
    *class_count_ret = origin->classes.count;
    if (model->task == TASK_RESTORATION || origin->classes.count)
        return FSH_OK;
    if (model->task == TASK_SEGMENTATION)
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "%s: does not name the classes of its masks (class_names), as weights of %s that "
            "ftrain writes do",
            path, model->name);
    FshStatus status = build_graph(model, origin, &graph, error);
    if (!status)
        status = safetensors_open(&file, path, error);
    if (!status) {
        const Node *head = find_head(graph);
        const char *name = head ? graph_tensor(graph, head->inputs[CONV_WEIGHT])->name : "";
        const SafetensorsEntry *entry = safetensors_find(file, name);
        if (entry && entry->rank == 2)
            *class_count_ret = entry->shape[0];
        else
            status = fsh_error_set(error, FSH_ERR_MISMATCH, "%s: has no layer %s, the last of %s", path, name,
                                   model->name);
    }
    safetensors_close(&file);
    graph_free(&graph);
    return status;
}

/* Returns whether the file has the network's tensors by name and shape; the number of classes does not
 * matter. by_name: shapes that are not those of the network's default options do not matter either. */
static bool has_network(const char *path, const Safetensors *file, const Model *model, uint32_t channels,
                        bool by_name)
{
    const WeightsOrigin origin = {.channels = channels};
    const char *left_out[HEAD_TENSORS + 1] = {NULL};
    Graph *graph = NULL;
    bool has = build_graph(model, &origin, &graph, NULL) == FSH_OK;
    if (has) {
        (void)head_parts(graph, left_out);
        has = by_name ? model_has_shapes(model) && state_file_has_names(file, graph, STATE_NETWORK)
                      : state_file_check(path, file, graph, STATE_NETWORK, left_out, NULL) == FSH_OK;
    }
    graph_free(&graph);
    return has;
}

const Model *weights_recognise(const char *path)
{
    Safetensors *file = NULL;
    const Model *found = NULL, *model = NULL;
    if (safetensors_open(&file, path, NULL))
        return NULL;
    /* resnext50_32x4d has the names of resnet50, whose options make any width of it */
    for (int by_name = 0; !found && by_name < 2; by_name++)
        for (size_t i = 0; !found && (model = model_at(i)); i++)
            if (has_network(path, file, model, 3, by_name) || has_network(path, file, model, 1, by_name))
                found = model;
    safetensors_close(&file);
    return found;
}

/* Checks that the file has this tensor of the last layer, with `rows` rows. */
static FshStatus check_rows(const char *path, const Safetensors *file, const Tensor *tensor, uint64_t rows,
                            FshError *error)
{
    const SafetensorsEntry *entry = safetensors_find(file, tensor->name);
    const uint64_t row = (uint64_t)(tensor_count(tensor) / tensor->shape[0]);
    if (!entry)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: has no tensor %s", path, tensor->name);
    if (!safetensors_type_is_float(entry->type) || entry->rank < 1 || entry->shape[0] != rows ||
        entry->count != rows * row)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: %s is not %" PRIu64 " rows of %" PRIu64 " numbers, one for each class that "
                             "it names",
                             path, tensor->name, rows, row);
    return FSH_OK;
}

/* Sets a tensor of the last layer from the file's rows. */
static FshStatus read_rows(const char *path, const Safetensors *file, State *state, const Tensor *tensor,
                           const WeightsHead *head, FshError *error)
{
    const size_t count = (size_t)tensor_count(tensor), rows = (size_t)tensor->shape[0], row = count / rows;
    float *all = malloc(head->file_rows * row * sizeof *all + 1),
          *values = malloc(count * sizeof *values + 1);
    FshStatus status =
        all && values
            ? safetensors_read_f32(safetensors_find(file, tensor->name), all, head->file_rows * row, error)
            : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %s", tensor->name);
    for (size_t i = 0; !status && i < rows; i++)
        memcpy(values + i * row, all + (size_t)head->rows[i] * row, row * sizeof *values);
    if (!status)
        status = state_write(state, tensor->name, values, count, error);
    free(values);
    free(all);
    return status ? fsh_error_prepend(error, "%s", path) : FSH_OK;
}

FshStatus weights_load(const char *path, State *state, const Graph *graph, const WeightsHead *head,
                       const char **kept_head_ret, FshError *error)
{
    Safetensors *file = NULL;
    const char *names[HEAD_TENSORS + 1] = {NULL};
    const Node *layer = find_head(graph);
    const size_t part_count = head_parts(graph, names);
    FshStatus status = safetensors_open(&file, path, error);
    if (kept_head_ret)
        *kept_head_ret = NULL;
    const bool keeps =
        !status && layer && head &&
        (head->anew || (head->anew_if_other && !head->rows && has_other_classes(file, graph, layer)));
    const bool by_rows = !status && layer && head && head->rows && !keeps;
    const char *const *left_out = keeps || by_rows ? names : NULL;
    if (keeps && kept_head_ret)
        *kept_head_ret = layer->name;
    if (!status)
        status = state_file_check(path, file, graph, STATE_NETWORK, left_out, error);
    for (size_t i = 0; !status && by_rows && i < part_count; i++)
        status = check_rows(path, file, graph_tensor(graph, layer->inputs[i + 1]), head->file_rows, error);
    if (!status)
        status = state_file_read(path, file, state, graph, STATE_NETWORK, left_out, error);
    for (size_t i = 0; !status && by_rows && i < part_count; i++)
        status = read_rows(path, file, state, graph_tensor(graph, layer->inputs[i + 1]), head, error);
    safetensors_close(&file);
    return status;
}
