#include "trainer/loop/session.h"

#include <string.h>

#include "common/interrupt.h"
#include "common/progress.h"
#include "trainer/loop/weights.h"

enum { PROBLEMS_TOLD_MAX = 20 }; /* one by one; a broken disk would fill the log */

static FshStatus open_loader(Session *session, bool training, Loader **loader, FshError *error)
{
    const TrainPlan *plan = &session->plan;
    LoaderOptions options = {
        .split = training ? session->data.train : session->data.evaluation,
        .augmentation = training ? plan->train_augmentation : plan->evaluation_augmentation,
        .batch = (uint64_t)(training ? plan->train_spec.batch : plan->evaluation_spec.batch),
        .world_size = 1,
        .seed = plan->seed,
        .training = training,
        .workers = plan->workers,
        .batches_ahead = plan->batches_ahead,
        .skip_bad = plan->skip_bad,
    };
    memcpy(options.fill, plan->fill, sizeof options.fill);
    return loader_new(loader, &options, error);
}

/* Evaluation needs no --model where the weights name their network; one that contradicts them is a mistake. */
static FshStatus plan_session(Session *session, const TrainOptions *options, FshError *error)
{
    TrainOptions settled = *options;
    if (options->evaluate) {
        const Model *named;
        FshStatus status = weights_model(options->weights, &named, error);
        if (status)
            return status;
        if (named && options->model_given && model_find(options->model) &&
            strcmp(options->model, named->name) != 0)
            return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: these are %s weights; add --model %s",
                                 options->weights, named->name, named->name);
        if (named && !options->model_given)
            settled.model = named->name;
    }
    return plan_make(&session->plan, &settled, &session->data, error);
}

FshStatus session_open(Session *session, const TrainOptions *options, FshError *error)
{
    *session = (Session){0};
    console_open(&session->console, stderr, options->program.quiet);
    FshStatus status =
        classification_open(&session->data, options->shards, options->evaluate ? NULL : options->train_split,
                            options->val_split, error);
    if (!status)
        status = plan_session(session, options, error);
    if (!status)
        status = network_open(&session->network, &session->plan, options->device, error);
    if (!status)
        status = network_initialize(&session->network, session->plan.seed, error);
    if (!status && options->weights)
        status =
            weights_load(options->weights, session->network.state, network_graph(&session->network), error);
    if (!status && session->data.train)
        status = open_loader(session, true, &session->train, error);
    if (!status && session->data.evaluation)
        status = open_loader(session, false, &session->evaluation, error);
    if (status)
        session_close(session);
    return status;
}

void session_close(Session *session)
{
    console_clear(&session->console);
    loader_free(&session->train);
    loader_free(&session->evaluation);
    network_close(&session->network);
    classification_close(&session->data);
    *session = (Session){0};
}

static void print_plan_line(void *context, const char *line)
{
    console_line(context, "%s", line);
}

void session_describe(Session *session)
{
    const TrainPlan *plan = &session->plan;
    const Graph *graph = network_graph(&session->network);
    const ModelSpec *spec = session->network.train.graph ? &plan->train_spec : &plan->evaluation_spec;
    console_line(&session->console, "ftrain (fshard) %s", FSHARD_VERSION);
    plan_describe(plan, &session->data, print_plan_line, &session->console);
    console_line(&session->console, "network: %s, %.2f M parameters, %.3f GFLOP an image forward",
                 plan->model->name, (double)graph_parameter_count(graph) / 1e6,
                 (double)graph_forward_flops(graph) / 1e9 / (double)spec->batch);
    console_line(&session->console, "device: %s; loader: %d thread%s, %zu batches ahead",
                 backend_description(session->network.backend), plan->workers, plan->workers == 1 ? "" : "s",
                 plan->batches_ahead);
}

static FshStatus cache_split(Session *session, const FshSplit *split, FshError *error)
{
    const TrainPlan *plan = &session->plan;
    FshResidency residency;
    char resident[32], whole[32];
    FshStatus status = fsh_split_cache(split, plan->cache, plan->threads, error);
    if (!status)
        status = fsh_split_residency(split, &residency, error);
    if (status)
        return fsh_error_prepend(error, "%s: --cache", fsh_path(session->data.dataset));
    const char *locked = plan->cache == FSH_CACHE_LOCK ? ", locked" : "";
    (void)progress_format_bytes(whole, sizeof whole, residency.bytes);
    if (residency.known)
        console_line(&session->console, "%s: %s of %s resident%s", split->info->name,
                     progress_format_bytes(resident, sizeof resident, residency.resident_bytes), whole,
                     locked);
    else
        console_line(
            &session->console,
            "%s: %s read into memory%s; how much of it stays is not told, for the files are not yours",
            split->info->name, whole, locked);
    return FSH_OK;
}

FshStatus session_cache(Session *session, FshError *error)
{
    const FshSplit *const splits[] = {session->data.train, session->data.evaluation};
    FshStatus status = FSH_OK;
    for (int i = 0; i < 2 && !status && session->plan.cache != FSH_CACHE_NONE; i++) {
        if (splits[i])
            status = cache_split(session, splits[i], error);
    }
    return status;
}

static uint64_t problem_count(Loader *loader)
{
    return loader ? loader_problem_count(loader) : 0;
}

uint64_t session_problem_count(const Session *session)
{
    return problem_count(session->train) + problem_count(session->evaluation);
}

void session_tell_problems(Session *session)
{
    Loader *const loaders[] = {session->train, session->evaluation};
    for (int i = 0; i < 2; i++) {
        char message[1024];
        for (uint64_t n = session->told_of[i]; n < problem_count(loaders[i]); n++) {
            session->told_of[i] = n + 1;
            if (session->problems_told++ < PROBLEMS_TOLD_MAX &&
                loader_problem(loaders[i], n, message, sizeof message))
                console_warning(&session->console, "%s; skipped", message);
            else if (session->problems_told == PROBLEMS_TOLD_MAX + 1)
                console_warning(&session->console,
                                "more samples are skipped, which are only counted; see fverify");
        }
    }
}

FshStatus session_evaluate(Session *session, Metrics *metrics, FshError *error)
{
    uint64_t steps = session->plan.evaluation_steps;
    FshStatus status = FSH_OK;
    *metrics = (Metrics){0};
    loader_start(session->evaluation, 0, steps);
    for (uint64_t step = 0; !status && step < steps; step++) {
        const Batch *batch;
        if (interrupt_requested())
            return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted while evaluating");
        status = loader_next(session->evaluation, &batch, error);
        if (!status)
            status = network_evaluate(&session->network, batch, metrics, error);
        session_tell_problems(session);
        console_evaluating(&session->console, step, steps);
    }
    if (!status && metrics->count == 0)
        status =
            fsh_error_set(error, FSH_ERR_CORRUPT, "%s: no sample of split '%s' could be read; see fverify",
                          fsh_path(session->data.dataset), session->data.evaluation->info->name);
    return status;
}
