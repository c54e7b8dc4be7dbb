#include "trainer/session/network.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/report/image_metrics.h"

/* ---- programs ---- */

static FshStatus find_tensors(NetworkProgram *part, TaskKind task, bool rows, FshError *error)
{
    static const char *const outputs[] = {
        [TASK_CLASSIFICATION] = "logits", [TASK_RESTORATION] = "restored", [TASK_SEGMENTATION] = "classes"};
    const bool classes = task == TASK_CLASSIFICATION;
    const struct {
        const char *name;
        TensorId *tensor;
        bool needed;
    } wanted[] = {
        {"image", &part->image, true},
        {"label", &part->label, classes && !rows},
        {"label_mixed", &part->label_mixed, false},
        {"mix", &part->mix, false},
        {"targets", &part->targets, rows},
        {"class_weights", &part->class_weights, false},
        {"positive_weights", &part->positive_weights, false},
        {"target", &part->target, !classes},
        {"valid", &part->valid, !classes || rows},
        {"learning_rate", &part->learning_rate, part->spec.training},
        {"momentum", &part->momentum, false},
        {outputs[task], &part->output, true},
        {"loss", &part->loss, true},
        {task == TASK_SEGMENTATION ? "sums" : "error", &part->error, !classes},
        {"gradient_norm", &part->gradient_norm, false},
        {"updated", &part->updated, false},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        *wanted[i].tensor = graph_find(part->graph, wanted[i].name);
        if (*wanted[i].tensor == TENSOR_NONE && wanted[i].needed)
            return fsh_error_set(error, FSH_ERR_LIBRARY,
                                 "the network has no tensor '%s'; this is a fault of ftrain", wanted[i].name);
    }
    return FSH_OK;
}

static size_t output_count(const NetworkProgram *part)
{
    return (size_t)tensor_count(graph_tensor(part->graph, part->output));
}

static FshStatus build_graph(NetworkProgram *part, const TrainPlan *plan, const ModelSpec *spec,
                             FshError *error)
{
    *part = (NetworkProgram){.spec = *spec};
    FshStatus status = model_graph(plan->model, spec, &plan->recipe, &part->graph, error);
    if (status)
        return fsh_error_prepend(error, "images of %lld x %lld pixels", (long long)spec->width,
                                 (long long)spec->height);
    status = find_tensors(part, plan->model->task, plan->recipe.rows, error);
    if (status)
        return status;
    if (spec->training)
        return FSH_OK;
    part->host_output =
        malloc(output_count(part) * data_type_bytes(graph_tensor(part->graph, part->output)->type));
    if (!part->host_output)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for what a batch of %lld gives",
                             (long long)spec->batch);
    return FSH_OK;
}

static FshStatus make_program(NetworkProgram *part, const TrainPlan *plan, State *state, FshError *error)
{
    FshStatus status = program_new(&part->program, state, part->graph, error);
    if (status == FSH_ERR_MISMATCH) /* with images of this size the network has weights of other shapes */
        fsh_error_advise(error,
                         "the weights of %s are for images of one size: give one to --train-crop-size and "
                         "--val-crop-size, without --progressive",
                         plan->model->name);
    if (status)
        return fsh_error_prepend(error, "batches of %lld images of %lld x %lld pixels",
                                 (long long)part->spec.batch, (long long)part->spec.width,
                                 (long long)part->spec.height);
    return FSH_OK;
}

/* Frees the program and its output. Its graph is freed later: programs and States refer to their graph. */
static void free_program(NetworkProgram *part)
{
    if (part->program)
        program_free(&part->program);
    free(part->host_output);
    part->host_output = NULL;
}

static void free_graph(NetworkProgram *part)
{
    if (part->graph)
        graph_free(&part->graph);
    *part = (NetworkProgram){0};
}

const Graph *network_graph(const Network *network)
{
    const size_t last = network->plan->edge_count;
    return last ? network->train[last - 1].graph : network->evaluation[NETWORK_TRAINED][0].graph;
}

static bool has_average(const TrainPlan *plan)
{
    return plan->recipe.optimizer.ema_decay > 0 && plan->train_count > 0;
}

/* Returns whether there is a graph of evaluation. With an average of the weights there is one even without an
 * evaluation split: the average needs a State, and --dry-run shows its memory. */
static bool has_evaluation(const TrainPlan *plan)
{
    return plan->evaluation_count > 0 || plan->recipe.optimizer.ema_decay > 0;
}

/* Makes the programs for evaluation, and the States that do not exist yet, each from an evaluation graph,
 * which has no optimizer. Those graphs are kept. */
static FshStatus open_evaluation(Network *network, FshError *error)
{
    const TrainPlan *plan = network->plan;
    NetworkProgram *part = &network->evaluation[NETWORK_TRAINED][0];
    NetworkProgram *averaged = &network->evaluation[NETWORK_AVERAGED][0];
    FshStatus status = build_graph(part, plan, &plan->evaluation_spec, error);
    if (!status && !network->state)
        status = state_new(&network->state, network->backend, part->graph, error);
    if (!status)
        status = make_program(part, plan, network->state, error);
    if (status || !has_average(plan))
        return status;
    status = build_graph(averaged, plan, &plan->evaluation_spec, error);
    if (!status)
        status = state_new(&network->average, network->backend, averaged->graph, error);
    if (!status)
        status = make_program(averaged, plan, network->average, error);
    return status;
}

static FshStatus build_training(Network *network, const TrainPlan *plan, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; !status && i < plan->edge_count; i++) {
        ModelSpec spec = plan->train_spec;
        spec.height = spec.width = plan->edges[i];
        status = build_graph(&network->train[i], plan, &spec, error);
    }
    return status;
}

static FshStatus foresee(NetworkProgram *part, const TrainPlan *plan, FshError *error)
{
    FshStatus status =
        backend_foresee(train_device_name(plan->device), part->graph, NULL, &part->foreseen, error);
    const bool host = plan->device == DEVICE_CPU;
    const uint64_t results =
        part->spec.training ? network_result_bytes(part, host ? 1 : NETWORK_STEPS_AHEAD) : 0;
    part->foreseen.bytes[MEMORY_RESULTS] += results;
    part->foreseen.bytes[MEMORY_PINNED] += host ? 0 : results;
    return status;
}

FshStatus network_foresee(Network *network, const TrainPlan *plan, FshError *error)
{
    *network = (Network){.plan = plan};
    FshStatus status = build_training(network, plan, error);
    for (size_t i = 0; !status && i < plan->edge_count; i++)
        status = foresee(&network->train[i], plan, error);
    for (int weights = 0; !status && has_evaluation(plan) && weights < (has_average(plan) ? 2 : 1);
         weights++) {
        NetworkProgram *part = &network->evaluation[weights][0];
        status = build_graph(part, plan, &plan->evaluation_spec, error);
        if (!status)
            status = foresee(part, plan, error);
    }
    if (status)
        network_close(network);
    return status;
}

/* Returns the program whose graph the State of these weights is made from. */
static const NetworkProgram *origin_of(const Network *network, NetworkWeights weights)
{
    const size_t last = network->plan->edge_count;
    return weights == NETWORK_TRAINED && last ? &network->train[last - 1] : &network->evaluation[weights][0];
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Returns whether the foreseen programs of a State have its gradients, once: those of the CPU. */
static bool shares_gradients(const Network *network)
{
    return network->plan->device == DEVICE_CPU;
}

/* Adds the memory foreseen for a State. Programs of one State share its copies, except for biases that one of
 * them may leave out: the larger number counts. */
static void add_foreseen_state(const Network *network, NetworkWeights weights, MemoryUse *use)
{
    const NetworkProgram *evaluation = &network->evaluation[weights][0],
                         *origin = origin_of(network, weights);
    use->bytes[MEMORY_WEIGHTS] += origin->foreseen.bytes[MEMORY_WEIGHTS];
    use->bytes[MEMORY_COPIES] +=
        larger(origin->foreseen.bytes[MEMORY_COPIES], evaluation->foreseen.bytes[MEMORY_COPIES]);
    if (shares_gradients(network))
        use->bytes[MEMORY_GRADIENTS] += origin->foreseen.bytes[MEMORY_GRADIENTS];
}

void network_state_memory(const Network *network, NetworkWeights weights, MemoryUse *use)
{
    const State *state = weights == NETWORK_AVERAGED ? network->average : network->state;
    if (state)
        state_memory(state, use);
    else if (!network->backend)
        add_foreseen_state(network, weights, use);
}

void network_program_memory(const Network *network, const NetworkProgram *part, MemoryUse *use)
{
    if (part->program)
        program_memory(part->program, use);
    for (int kind = 0; kind < MEMORY_KINDS && !network->backend; kind++)
        if (kind != MEMORY_WEIGHTS && kind != MEMORY_COPIES &&
            !(kind == MEMORY_GRADIENTS && shares_gradients(network)))
            use->bytes[kind] += part->foreseen.bytes[kind];
}

FshStatus network_open(Network *network, Backend **backend, const TrainPlan *plan, FshError *error)
{
    *network = (Network){.plan = plan, .backend = *backend};
    *backend = NULL;
    FshStatus status = build_training(network, plan, error);
    if (!status && plan->edge_count)
        status = state_new(&network->state, network->backend, network_graph(network), error);
    for (size_t i = 0; !status && i < plan->edge_count; i++)
        status = make_program(&network->train[i], plan, network->state, error);
    if (!status && plan->edge_count)
        status = network_open_steps(network, error);
    if (!status && has_evaluation(plan))
        status = open_evaluation(network, error);
    if (status)
        network_close(network);
    return status;
}

void network_close(Network *network)
{
    network_close_steps(network);
    for (size_t i = 0; i < PLAN_EDGES_MAX; i++)
        free_program(&network->train[i]);
    for (size_t i = 0; i < 2 * (size_t)NETWORK_SIZES_KEPT; i++)
        free_program(&network->evaluation[i / NETWORK_SIZES_KEPT][i % NETWORK_SIZES_KEPT]);
    if (network->state)
        state_free(&network->state);
    if (network->average)
        state_free(&network->average);
    for (size_t i = 0; i < PLAN_EDGES_MAX; i++)
        free_graph(&network->train[i]);
    for (size_t i = 0; i < 2 * (size_t)NETWORK_SIZES_KEPT; i++)
        free_graph(&network->evaluation[i / NETWORK_SIZES_KEPT][i % NETWORK_SIZES_KEPT]);
    if (network->backend)
        backend_close(&network->backend);
    free(network->view_pixels);
    free(network->view_sum);
    free(network->pixels);
    *network = (Network){0};
}

FshStatus network_initialize(Network *network, uint64_t seed, FshError *error)
{
    return state_initialize(network->state, seed, error);
}

/* ---- evaluation ---- */

static FshStatus open_size(Network *network, NetworkWeights weights, NetworkProgram *part,
                           const ModelSpec *spec, FshError *error)
{
    FshStatus status = build_graph(part, network->plan, spec, error);
    if (!status)
        status = make_program(part, network->plan,
                              weights == NETWORK_AVERAGED ? network->average : network->state, error);
    if (status) {
        free_program(part);
        free_graph(part);
    }
    return status;
}

/* Frees every evaluation program except the first for each kind of weights. Returns true if any was freed. */
static bool forget_sizes(Network *network)
{
    bool any = false;
    for (size_t i = 0; i < 2 * (size_t)NETWORK_SIZES_KEPT; i++) {
        NetworkProgram *part = &network->evaluation[i / NETWORK_SIZES_KEPT][i % NETWORK_SIZES_KEPT];
        if (i % NETWORK_SIZES_KEPT == 0 || !part->program)
            continue;
        free_program(part);
        free_graph(part);
        any = true;
    }
    return any;
}

/* Sets *part_ret to the evaluation program for the batch's image size: an existing one, or a new one in place
 * of the least recently used. The first keeps its graph, from which the State was made. */
static FshStatus find_evaluation(Network *network, NetworkWeights weights, const Batch *batch,
                                 NetworkProgram **part_ret, FshError *error)
{
    NetworkProgram *parts = network->evaluation[weights], *oldest = &parts[1];
    network->clock++;
    for (int i = 0; i < NETWORK_SIZES_KEPT; i++) {
        NetworkProgram *part = &parts[i];
        if (part->program && part->spec.height == batch->height && part->spec.width == batch->width) {
            part->used = network->clock;
            *part_ret = part;
            return FSH_OK;
        }
        if (i > 0 && part->used < oldest->used)
            oldest = part;
    }
    free_program(oldest);
    free_graph(oldest);
    ModelSpec spec = network->plan->evaluation_spec;
    spec.height = batch->height;
    spec.width = batch->width;
    FshStatus status = open_size(network, weights, oldest, &spec, error);
    if (status == FSH_ERR_MEMORY && forget_sizes(network)) /* programs kept only for speed make room */
        status = open_size(network, weights, oldest, &spec, error);
    if (status)
        return status;
    oldest->used = network->clock;
    *part_ret = oldest;
    return FSH_OK;
}

/* Converts floats in [0, 1] to bytes in place, rounding to nearest. Returns the bytes. */
static const uint8_t *to_pixels(float *values, size_t count)
{
    uint8_t *pixels = (uint8_t *)values;
    for (size_t i = 0; i < count; i++) {
        const float level = values[i] * 255;
        pixels[i] = level > 0 ? (uint8_t)(level < 255 ? lrintf(level) : 255) : 0; /* NaN becomes 0 */
    }
    return pixels;
}

static FshStatus measure_pair(const Network *network, const uint8_t *restored, const uint8_t *target,
                              const uint8_t *input, const ImageSize *size, Evaluated *evaluated,
                              FshError *error)
{
    const TrainPlan *plan = network->plan;
    const ImageMetricOptions options = {.crop_border = plan->crop_border, .y_channel = plan->y_channel};
    FshStatus status = image_metrics_psnr(restored, target, size, &options, &evaluated->psnr, error);
    if (!status)
        status = image_metrics_ssim(restored, target, size, &options, &evaluated->ssim, error);
    if (!status)
        status = image_metrics_psnr(input, target, size, &options, &evaluated->input_psnr, error);
    return status;
}

static FshStatus add_pairs(const Network *network, NetworkProgram *part, const Batch *batch, double loss,
                           Metrics *metrics, Evaluated *evaluated, FshError *error)
{
    const ImageSize size = {batch->width, batch->height, (uint32_t)part->spec.channels};
    const size_t pixels = (size_t)size.height * size.width * size.channels;
    FshStatus status = FSH_OK;
    evaluated->restored = to_pixels(part->host_output, output_count(part));
    for (size_t i = 0; !status && batch->target && i < (size_t)part->spec.batch; i++) {
        if (!(batch->valid[i] > 0))
            continue;
        status = measure_pair(network, evaluated->restored + i * pixels, batch->target + i * pixels,
                              batch->pixels + i * pixels, &size, evaluated, error);
        if (status)
            break;
        metrics_add_value(metrics, METRIC_PSNR, fmin(evaluated->psnr, METRIC_PSNR_MOST));
        metrics_add_value(metrics, METRIC_SSIM, evaluated->ssim);
        metrics_add_value(metrics, METRIC_INPUT_PSNR, fmin(evaluated->input_psnr, METRIC_PSNR_MOST));
        metrics_add_value(metrics, METRIC_LOSS, loss);
        metrics_count(metrics, 1);
    }
    return status;
}

/* Adds the loss of the images of masks; what their pixels tell, the session counts. */
static void add_masks(const NetworkProgram *part, const Batch *batch, double loss, Metrics *metrics,
                      Evaluated *evaluated)
{
    evaluated->classes = part->host_output;
    if (batch->target)
        metrics_add_loss(metrics, batch->valid, (uint64_t)part->spec.batch, loss);
}

static void add_rows(const Network *network, const NetworkProgram *part, const Batch *batch, double loss,
                     Metrics *metrics)
{
    const uint64_t samples = (uint64_t)part->spec.batch;
    metrics_add_loss(metrics, batch->valid, samples, loss);
    if (network->plan->label_kind == LABELS_NUMBERS)
        metrics_add_numbers(metrics, part->host_output, batch->targets, batch->valid, samples,
                            (uint64_t)part->spec.classes);
}

FshStatus network_evaluate(Network *network, NetworkWeights weights, const Batch *batch, Metrics *metrics,
                           Evaluated *evaluated, FshError *error)
{
    NetworkProgram *part = NULL;
    Evaluated unused;
    float loss = 0;
    Evaluated *result = evaluated ? evaluated : &unused;
    *result = (Evaluated){0};
    FshStatus status = find_evaluation(network, weights, batch, &part, error);
    if (!status)
        status = network_run_views(network, part, batch, &loss, error);
    if (status)
        return status;
    result->output = plan_is_masks(network->plan) ? NULL : part->host_output;
    if (plan_is_masks(network->plan))
        add_masks(part, batch, (double)loss, metrics, result);
    else if (part->label != TENSOR_NONE)
        metrics_add_classes(metrics, part->host_output, batch->labels, (uint64_t)part->spec.batch,
                            (uint64_t)part->spec.classes, (double)loss);
    else if (part->targets != TENSOR_NONE)
        add_rows(network, part, batch, (double)loss, metrics);
    else
        status = add_pairs(network, part, batch, (double)loss, metrics, result, error);
    return status;
}

FshStatus network_foresee_pixel(const Network *network, double *bytes_ret, FshError *error)
{
    enum { EDGE = 512 };
    NetworkProgram part = {0};
    MemoryUse use = {0};
    ModelSpec spec = network->plan->evaluation_spec;
    spec.height = spec.width = EDGE;
    FshStatus status = build_graph(&part, network->plan, &spec, error);
    if (!status)
        status = backend_foresee(train_device_name(network->plan->device), part.graph, NULL, &use, error);
    free_program(&part);
    free_graph(&part);
    /* The weights do not grow with the image; the output that the host reads back does. */
    const uint64_t bytes = memory_total(&use) - use.bytes[MEMORY_WEIGHTS] - use.bytes[MEMORY_COPIES];
    *bytes_ret = (double)bytes / ((double)EDGE * EDGE) + (double)(spec.channels * (int64_t)sizeof(float));
    return status;
}

FshStatus network_read_pixels(Network *network, NetworkWeights weights, const Batch *batch,
                              const uint8_t **pixels_ret, FshError *error)
{
    NetworkProgram *part = NULL;
    FshStatus status = find_evaluation(network, weights, batch, &part, error);
    if (status)
        return status;
    const size_t bytes = (size_t)tensor_count(graph_tensor(part->graph, part->image));
    if (network->pixels_bytes < bytes) {
        free(network->pixels);
        network->pixels = malloc(bytes);
        network->pixels_bytes = network->pixels ? bytes : 0;
    }
    if (!network->pixels)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the pixels of a batch");
    *pixels_ret = network->pixels;
    return program_read(part->program, part->image, network->pixels, bytes, error);
}

/* ---- the average of the weights ---- */

FshStatus network_take_average(Network *network, FshError *error)
{
    const Graph *graph = network->evaluation[NETWORK_AVERAGED][0].graph;
    FshStatus status = FSH_OK;
    float *values = NULL;
    size_t most = 0;
    for (size_t i = 0; !status && i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        if (!tensor_is_weight(tensor))
            continue;
        const size_t count = (size_t)tensor_count(tensor);
        char name[GRAPH_NAME_MAX + 8];
        (void)snprintf(name, sizeof name, "%s.ema", tensor->name);
        if (graph_find(network_graph(network), name) == TENSOR_NONE) /* a frozen one stays as it is */
            (void)snprintf(name, sizeof name, "%s", tensor->name);
        if (count > most) {
            free(values);
            values = malloc(count * sizeof *values);
            most = values ? count : 0;
        }
        status = values ? state_read(network->state, name, values, count, error)
                        : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %s", name);
        if (!status)
            status = state_write(network->average, tensor->name, values, count, error);
    }
    free(values);
    return status;
}
