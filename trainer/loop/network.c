#include "trainer/loop/network.h"

#include <stdlib.h>
#include <string.h>

/* auto: the best there is, and never a failure for want of a GPU. */
static FshStatus open_backend(Network *network, const char *device, int threads, FshError *error)
{
    const BackendOptions options = {.threads = threads};
    if (strcmp(device, "auto") != 0)
        return backend_open(&network->backend, device, &options, error);
    if (backend_open(&network->backend, "cuda", &options, NULL) == FSH_OK)
        return FSH_OK;
    return backend_open(&network->backend, "cpu", &options, error);
}

static FshStatus find_tensor(const Graph *graph, const char *name, TensorId *tensor_ret, FshError *error)
{
    *tensor_ret = graph_find(graph, name);
    if (*tensor_ret == TENSOR_NONE)
        return fsh_error_set(error, FSH_ERR_LIBRARY,
                             "the network has no tensor '%s'; this is a fault of ftrain", name);
    return FSH_OK;
}

static FshStatus build_graph(NetworkProgram *part, const TrainPlan *plan, const ModelSpec *spec,
                             FshError *error)
{
    part->spec = *spec;
    part->learning_rate = TENSOR_NONE;
    FshStatus status = model_graph(plan->model, spec, &plan->recipe, &part->graph, error);
    if (status)
        return fsh_error_prepend(error, "images of %lld pixels", (long long)spec->width);
    status = find_tensor(part->graph, "image", &part->image, error);
    if (!status)
        status = find_tensor(part->graph, "label", &part->label, error);
    if (!status)
        status = find_tensor(part->graph, "logits", &part->logits, error);
    if (!status)
        status = find_tensor(part->graph, "loss", &part->loss, error);
    if (!status && spec->training)
        status = find_tensor(part->graph, "learning_rate", &part->learning_rate, error);
    if (status)
        return status;
    part->host_logits = calloc((size_t)(spec->batch * spec->classes), sizeof *part->host_logits);
    if (!part->host_logits)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the logits of a batch of %lld",
                             (long long)spec->batch);
    return FSH_OK;
}

const Graph *network_graph(const Network *network)
{
    return network->train.graph ? network->train.graph : network->evaluation.graph;
}

FshStatus network_open(Network *network, const TrainPlan *plan, const char *device, FshError *error)
{
    *network = (Network){0};
    FshStatus status = open_backend(network, device, plan->threads, error);
    if (!status && plan->train_count)
        status = build_graph(&network->train, plan, &plan->train_spec, error);
    if (!status && plan->evaluation_count)
        status = build_graph(&network->evaluation, plan, &plan->evaluation_spec, error);
    if (!status)
        status = state_new(&network->state, network->backend, network_graph(network), error);
    if (!status && network->train.graph)
        status = program_new(&network->train.program, network->state, network->train.graph, error);
    if (!status && network->evaluation.graph)
        status = program_new(&network->evaluation.program, network->state, network->evaluation.graph, error);
    if (status)
        network_close(network);
    return status;
}

static void free_part(NetworkProgram *part)
{
    if (part->program)
        program_free(&part->program);
    free(part->host_logits);
}

void network_close(Network *network)
{
    free_part(&network->train);
    free_part(&network->evaluation);
    if (network->state)
        state_free(&network->state);
    /* Graphs outlive what was made from them. */
    if (network->train.graph)
        graph_free(&network->train.graph);
    if (network->evaluation.graph)
        graph_free(&network->evaluation.graph);
    if (network->backend)
        backend_close(&network->backend);
    *network = (Network){0};
}

FshStatus network_initialize(Network *network, uint64_t seed, FshError *error)
{
    return state_initialize(network->state, seed, error);
}

static FshStatus run_batch(NetworkProgram *part, const Batch *batch, Metrics *metrics, double *loss_ret,
                           FshError *error)
{
    size_t count = (size_t)part->spec.batch;
    size_t image_bytes = count * (size_t)(part->spec.height * part->spec.width * part->spec.channels);
    size_t logit_count = count * (size_t)part->spec.classes;
    float loss = 0;
    FshStatus status = program_write(part->program, part->image, batch->pixels, image_bytes, error);
    if (!status)
        status =
            program_write(part->program, part->label, batch->labels, count * sizeof *batch->labels, error);
    if (!status)
        status = program_run(part->program, error);
    if (!status)
        status = program_read(part->program, part->loss, &loss, sizeof loss, error);
    if (!status)
        status = program_read(part->program, part->logits, part->host_logits,
                              logit_count * sizeof *part->host_logits, error);
    if (status)
        return status;
    metrics_add(metrics, part->host_logits, batch->labels, count, (uint64_t)part->spec.classes, (double)loss);
    *loss_ret = (double)loss;
    return FSH_OK;
}

FshStatus network_train(Network *network, const Batch *batch, double learning_rate, Metrics *metrics,
                        double *loss_ret, FshError *error)
{
    NetworkProgram *part = &network->train;
    float rate = (float)learning_rate;
    FshStatus status = program_write(part->program, part->learning_rate, &rate, sizeof rate, error);
    if (!status)
        status = run_batch(part, batch, metrics, loss_ret, error);
    return status;
}

FshStatus network_evaluate(Network *network, const Batch *batch, Metrics *metrics, FshError *error)
{
    double loss;
    return run_batch(&network->evaluation, batch, metrics, &loss, error);
}
