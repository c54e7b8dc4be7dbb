/* network_steps.c - training steps: begun, and ended when their results have arrived. */
#include "trainer/session/network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

/* Results of a step, in this order; TENSOR_NONE if the network has no such tensor. */
enum { RESULT_LOSS, RESULT_OUTPUT, RESULT_NORM, RESULT_UPDATED, RESULT_COUNT };

static void list_results(const NetworkProgram *part, TensorId results[RESULT_COUNT])
{
    results[RESULT_LOSS] = part->loss;
    /* of rows of targets TENSOR_NONE: training measures their loss alone */
    results[RESULT_OUTPUT] = part->label != TENSOR_NONE ? part->output : part->error;
    results[RESULT_NORM] = part->gradient_norm;
    results[RESULT_UPDATED] = part->updated;
}

/* Returns how many runs a step has at most. */
static size_t runs_of_step(const NetworkProgram *part)
{
    return graph_find(part->graph, "optimizer.perturbed") != TENSOR_NONE ? 2 : 1;
}

static FshStatus ask_for_results(const Network *network, NetworkProgram *part, FshError *error)
{
    TensorId results[RESULT_COUNT], there[RESULT_COUNT];
    size_t count = 0;
    list_results(part, results);
    for (int i = 0; i < RESULT_COUNT; i++)
        if (results[i] != TENSOR_NONE)
            there[count++] = results[i];
    return program_results(part->program, there, count, runs_of_step(part) * network_steps_ahead(network),
                           error);
}

uint64_t network_result_bytes(const NetworkProgram *part, size_t ahead)
{
    TensorId results[RESULT_COUNT];
    uint64_t values = 0;
    list_results(part, results);
    for (int i = 0; i < RESULT_COUNT; i++)
        if (results[i] != TENSOR_NONE)
            values += (uint64_t)tensor_count(graph_tensor(part->graph, results[i]));
    return ahead * runs_of_step(part) * values * sizeof(float);
}

size_t network_steps_ahead(const Network *network)
{
    return backend_runs_ahead(network->backend) ? NETWORK_STEPS_AHEAD : 1;
}

FshStatus network_open_steps(Network *network, FshError *error)
{
    const size_t batch = (size_t)network->plan->train_spec.batch;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < network->plan->edge_count && !status; i++)
        status = ask_for_results(network, &network->train[i], error);
    for (size_t i = 0; i < NETWORK_STEPS_AHEAD && !status; i++) {
        NetworkStep *step = &network->steps[i];
        step->labels = calloc(batch, sizeof *step->labels);
        step->valid = calloc(batch, sizeof *step->valid);
        if (!step->labels || !step->valid)
            status =
                fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the labels of a batch of %zu", batch);
    }
    return status;
}

void network_close_steps(Network *network)
{
    for (size_t i = 0; i < NETWORK_STEPS_AHEAD; i++) {
        free(network->steps[i].labels);
        free(network->steps[i].valid);
        network->steps[i] = (NetworkStep){0};
    }
}

/* ---- a step ---- */

/* Writes one input to the program; does nothing for TENSOR_NONE. */
static FshStatus write_input(NetworkProgram *part, TensorId input, const void *values, FshError *error)
{
    if (input == TENSOR_NONE)
        return FSH_OK;
    const Tensor *tensor = graph_tensor(part->graph, input);
    return program_write(part->program, input, values,
                         (size_t)tensor_count(tensor) * data_type_bytes(tensor->type), error);
}

/* Makes the backend compute the pixels from recipes. */
static FshStatus write_recipes(NetworkProgram *part, const Batch *batch, FshError *error)
{
    FshStatus status =
        program_write_pixels(part->program, part->image, batch->store, 0, batch->recipes, error);
    if (!status && part->target != TENSOR_NONE)
        status = program_write_pixels(part->program, part->target, batch->store, 1, batch->recipes, error);
    return status;
}

/* Writes masks of nothing for images that have none. */
static FshStatus write_no_masks(NetworkProgram *part, FshError *error)
{
    const size_t count = (size_t)tensor_count(graph_tensor(part->graph, part->target));
    uint8_t *values = malloc(count + 1);
    if (!values)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a batch without masks");
    memset(values, GRAPH_MASK_IGNORED, count);
    FshStatus status = write_input(part, part->target, values, error);
    free(values);
    return status;
}

FshStatus network_write_batch(NetworkProgram *part, const Batch *batch, FshError *error)
{
    const bool masks =
        part->target != TENSOR_NONE && graph_tensor(part->graph, part->output)->type == DATA_U8;
    if (masks && !batch->target) {
        FshStatus written = write_no_masks(part, error);
        if (written)
            return written;
    }
    /* Without targets the loss is meaningless, but the tensor must be written. */
    const uint8_t *target = batch->target ? batch->target : batch->pixels;
    const struct {
        TensorId tensor;
        const void *values;
    } inputs[] = {
        {part->image, batch->pixels},
        {part->label, batch->labels},
        {part->label_mixed, batch->labels_mixed},
        {part->mix, batch->mix},
        {part->targets, batch->targets},
        {masks && !batch->target ? TENSOR_NONE : part->target, target},
        {part->valid, batch->valid},
    };
    FshStatus status = FSH_OK;
    for (size_t i = 0; !status && i < sizeof inputs / sizeof *inputs; i++)
        if (inputs[i].values || !batch->recipes) /* with recipes the host has no pixels */
            status = write_input(part, inputs[i].tensor, inputs[i].values, error);
    return !status && batch->recipes ? write_recipes(part, batch, error) : status;
}

/* Draws the factors of a drop path [batch, channels]: they follow from seed, turn, sample and path alone, so
 * that a run which goes on draws the same. */
static void draw_drop_path(const TrainPlan *plan, const Batch *batch, const Tensor *input, uint64_t path,
                           float *factors)
{
    enum { STREAM_DROP_PATH = 0x64726F70 };
    const int64_t channels = input->shape[1];
    for (int64_t i = 0; i < input->shape[0]; i++) {
        Random random;
        random_start(
            &random, plan->seed,
            random_stream(random_stream(batch->turns[i], batch->samples[i]), STREAM_DROP_PATH + path));
        const bool dropped = random_uniform(&random) < input->drop_rate;
        for (int64_t c = 0; c < channels; c++)
            factors[i * channels + c] = dropped ? 0 : 1 / (1 - input->drop_rate);
    }
}

/* Writes the inputs of graph_drop_path. */
static FshStatus write_drop_paths(const Network *network, NetworkProgram *part, const Batch *batch,
                                  FshError *error)
{
    FshStatus status = FSH_OK;
    uint64_t path = 0;
    for (size_t i = 0; i < graph_tensor_count(part->graph) && !status; i++) {
        const Tensor *input = graph_tensor(part->graph, (TensorId)i);
        if (input->role != TENSOR_INPUT || !(input->drop_rate > 0))
            continue;
        float *factors = malloc((size_t)tensor_count(input) * sizeof *factors);
        if (!factors)
            return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %s", input->name);
        draw_drop_path(network->plan, batch, input, path++, factors);
        status = write_input(part, (TensorId)i, factors, error);
        free(factors);
    }
    return status;
}

static NetworkProgram *program_for(Network *network, const Batch *batch)
{
    size_t i = 0;
    while (i + 1 < network->plan->edge_count && network->plan->edges[i] != batch->width)
        i++;
    return &network->train[i];
}

FshStatus network_write_step(Network *network, const Batch *batch, const StepRates *rates, FshError *error)
{
    NetworkProgram *part = program_for(network, batch);
    const float rate = (float)rates->learning_rate, momentum = (float)rates->momentum;
    FshStatus status = write_input(part, part->learning_rate, &rate, error);
    if (!status)
        status = write_input(part, part->momentum, &momentum, error);
    if (!status)
        status = write_input(part, part->class_weights, network->plan->class_weights, error);
    if (!status)
        status = write_input(part, part->positive_weights, network->plan->positive_weights, error);
    if (!status)
        status = write_drop_paths(network, part, batch, error);
    return status ? status : network_write_batch(part, batch, error);
}

FshStatus network_begin_step(Network *network, const Batch *batch, FshError *error)
{
    NetworkProgram *part = program_for(network, batch);
    NetworkStep *step = &network->steps[network->steps_begun % NETWORK_STEPS_AHEAD];
    const size_t count = (size_t)part->spec.batch;
    FshStatus status = FSH_OK;
    step->part = part;
    step->perturbs = network->perturbs;
    if (batch->labels)
        memcpy(step->labels, batch->labels, count * sizeof *step->labels);
    memcpy(step->valid, batch->valid, count * sizeof *step->valid);
    if (network->measures || part->measured_runs)
        status = program_profile(part->program, network->measures, NULL, 0, error);
    if (!status && step->perturbs)
        status = program_perturb(part->program, error);
    step->run = program_run_count(part->program);
    if (!status)
        status = program_run(part->program, error);
    if (network->measures && !status)
        part->measured_runs += step->perturbs ? 2 : 1;
    network->steps_begun += !status;
    return status;
}

/* Sets values to the results of a run of the step; NULL for those that the network does not have. */
static FshStatus collect(const NetworkStep *step, uint64_t run, const float *values[RESULT_COUNT],
                         FshError *error)
{
    TensorId results[RESULT_COUNT];
    const float *there[RESULT_COUNT];
    size_t count = 0;
    FshStatus status = program_collect(step->part->program, run, there, error);
    list_results(step->part, results);
    for (int i = 0; i < RESULT_COUNT && !status; i++)
        values[i] = results[i] != TENSOR_NONE ? there[count++] : NULL;
    return status;
}

FshStatus network_end_step(Network *network, Metrics *metrics, StepResult *result, FshError *error)
{
    const NetworkStep *step = &network->steps[network->steps_ended % NETWORK_STEPS_AHEAD];
    const ModelSpec *spec = &step->part->spec;
    const uint64_t count = (uint64_t)spec->batch;
    const float *values[RESULT_COUNT] = {NULL}, *shown[RESULT_COUNT] = {NULL};
    FshStatus status = collect(step, step->run - step->perturbs, shown, error);
    if (!status)
        status = collect(step, step->run, values, error);
    network->steps_ended++;
    if (status)
        return status;
    /* the perturbed network is none that anybody will use */
    const double loss = (double)*(isfinite(*values[RESULT_LOSS]) ? shown : values)[RESULT_LOSS];
    *result = (StepResult){
        .loss = loss,
        .gradient_norm = values[RESULT_NORM] ? (double)*values[RESULT_NORM] : (double)NAN,
        .updated = !values[RESULT_UPDATED] || *values[RESULT_UPDATED] > 0,
    };
    if (step->part->label != TENSOR_NONE)
        metrics_add_classes(metrics, shown[RESULT_OUTPUT], step->labels, count, (uint64_t)spec->classes,
                            loss);
    else if (step->part->targets != TENSOR_NONE)
        metrics_add_loss(metrics, step->valid, count, loss);
    else if (plan_is_masks(network->plan))
        metrics_add_masks(metrics, shown[RESULT_OUTPUT], step->valid, count, loss);
    else
        metrics_add_errors(metrics, shown[RESULT_OUTPUT], step->valid, count, loss);
    return FSH_OK;
}
