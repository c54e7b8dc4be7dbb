#include "trainer/session/session_batch.h"

#include "trainer/plan/batch_choice.h"

enum { FEW = 64, MANY = 256 }; /* images of the batches that are compared; even, for mixing */

static const double memory_share = 0.7; /* of what is free; the rest is for libraries and evaluation */

static FshStatus build(const Session *session, uint64_t batch, Graph **graph_ret, FshError *error)
{
    const TrainPlan *plan = &session->plan;
    ModelSpec spec = plan->train_spec;
    spec.batch = (int64_t)batch;
    *graph_ret = NULL;
    return model_graph(plan->model, &spec, &plan->recipe, graph_ret, error);
}

/* Sets *cost_ret to what the network's steps cost. */
static FshStatus find_cost(const Session *session, BatchCost *cost_ret, FshError *error)
{
    Graph *few = NULL, *many = NULL;
    FshStatus status = build(session, FEW, &few, error);
    if (!status)
        status = build(session, MANY, &many, error);
    if (!status)
        *cost_ret = batch_cost(few, FEW, many, MANY);
    graph_free(&few);
    graph_free(&many);
    return status;
}

/* Halves the batch until its step fits into free_bytes, but not below `least`. */
static FshStatus fit(const Session *session, uint64_t free_bytes, uint64_t least, uint64_t *batch,
                     FshError *error)
{
    MemoryUse use = {0};
    FshStatus status = FSH_OK;
    for (; *batch > least && !status; *batch /= 2) {
        Graph *graph = NULL;
        status = build(session, *batch, &graph, error);
        if (!status)
            status = backend_foresee("cuda", graph, NULL, &use, error);
        graph_free(&graph);
        if ((double)memory_total(&use) <= memory_share * (double)free_bytes)
            break;
    }
    return status;
}

/* Returns whether the batch is open, and a GPU the one that trains. */
static bool is_open(const Session *session, const TrainOptions *options)
{
    const TrainPlan *plan = &session->plan;
    return plan->device == DEVICE_CUDA && plan->train_count && plan->batch_is_chosen &&
           !plan->batch_is_kept && !options->data.bench_loader;
}

FshStatus session_choose_batch(Session *session, TrainOptions *options, Backend *backend, FshError *error)
{
    const TrainPlan *plan = &session->plan;
    uint64_t batch = 0, free_bytes = UINT64_MAX;
    if (!is_open(session, options))
        return FSH_OK;
    const uint64_t usual = plan_usual_batch(plan);
    FshStatus status = backend ? backend_free_memory(backend, &free_bytes, error) : FSH_OK;
    /* a network that cannot be built is refused later, by what opens it */
    if (!status && find_cost(session, &options->device_cost, NULL) == FSH_OK) {
        batch = batch_choose(&options->device_cost);
        status = fit(session, free_bytes, usual, &batch, error);
    }
    uint64_t short_of = UINT64_MAX - batch; /* the most of the ranks is short of the least batch */
    status = ranks_agree(session->communicator, status, error);
    if (!status)
        status = ranks_max_count(session->communicator, &short_of, error);
    if (status || short_of == UINT64_MAX)
        return status;
    options->device_batch = UINT64_MAX - short_of;
    return plan_make(&session->plan, options, plan->model, &session->data, error);
}
