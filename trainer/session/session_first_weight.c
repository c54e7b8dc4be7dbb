/* session_first_weight.c - first values of a parameter that follow from images of the training split. */
#include <stdlib.h>

#include "common/pool.h"
#include "trainer/session/session.h"

enum { IMAGES_AT_A_TIME = 64 };

typedef struct FirstWeightTask {
    const TrainPlan *plan;
    const ModelFirstWeight *weight;
    Augmentation view;      /* images as evaluation sees them, at the size of training */
    uint64_t count;         /* images that are taken */
    size_t sum_count;       /* of a thread */
    double *sums;           /* [threads][sum_count] */
    uint8_t *pixels;        /* [threads][size, size, channels] */
    SampleLoader **loaders; /* [threads] */
    SampleChecksums checksums;
} FirstWeightTask;

static size_t pixel_count(const Augmentation *view)
{
    return (size_t)view->size * view->size * view->channels;
}

/* Adds image `index` of those that are taken. */
static FshStatus add_image(const FirstWeightTask *task, uint64_t index, int thread, FshError *error)
{
    const Augmentation *view = &task->view;
    const uint64_t step = task->plan->train_count / task->count;
    uint8_t *pixels = task->pixels + (size_t)thread * pixel_count(view);
    const ModelImage image = {pixels, view->size, view->size, view->channels};
    SampleInfo info;
    FshStatus status = sample_loader_open(task->loaders[thread], 0, index * step, &info, error);
    if (!status)
        status = sample_loader_render(task->loaders[thread], view, pixels, NULL, error);
    if (!status)
        task->weight->add(&image, task->sums + (size_t)thread * task->sum_count);
    return status && task->plan->skip_bad ? FSH_OK : status; /* the loader tells of it */
}

static FshStatus add_images(uint64_t item, int thread, void *context, FshError *error)
{
    const FirstWeightTask *task = context;
    const uint64_t first = item * IMAGES_AT_A_TIME, rest = task->count - first;
    FshStatus status = FSH_OK;
    for (uint64_t i = 0; i < rest && i < IMAGES_AT_A_TIME && !status; i++)
        status = add_image(task, first + i, thread, error);
    return status;
}

static FshStatus open_task(FirstWeightTask *task, const Session *session, FshError *error)
{
    const TrainPlan *plan = task->plan;
    const size_t threads = (size_t)plan->threads;
    const uint64_t wanted = task->weight->images;
    const SampleOptions samples = {
        .split = session->data.train, .kind = session->data.kind, .seed = plan->seed};
    task->view = augment_at_size(&plan->evaluation_augmentation, (uint32_t)plan->train_spec.height);
    task->count = plan->train_count < wanted ? plan->train_count : wanted;
    task->sum_count = task->weight->sum_count(plan->train_spec.channels);
    task->sums = calloc(threads * task->sum_count, sizeof *task->sums);
    task->pixels = malloc(threads * pixel_count(&task->view));
    task->loaders = calloc(threads, sizeof(SampleLoader *));
    FshStatus status = sample_checksums_make(&task->checksums, plan->train_count, error);
    if (!status && !(task->sums && task->pixels && task->loaders))
        status =
            fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %zu threads that read images", threads);
    for (size_t i = 0; i < threads && !status; i++)
        status = sample_loader_new(&task->loaders[i], &samples, &task->checksums, error);
    return status;
}

static void close_task(FirstWeightTask *task)
{
    for (int i = 0; i < task->plan->threads && task->loaders; i++)
        sample_loader_free(&task->loaders[i]);
    free(task->loaders);
    free(task->pixels);
    free(task->sums);
    sample_checksums_free(&task->checksums);
}

/* Adds up the threads' sums, and writes the parameter. */
static FshStatus write_weight(const FirstWeightTask *task, State *state, const Graph *graph, FshError *error)
{
    const ModelRecipe *recipe = &task->plan->recipe;
    const ModelPixelScale scale = {recipe->mean, recipe->deviation, task->plan->train_spec.channels};
    const TensorId id = graph_find(graph, task->weight->parameter);
    const size_t count = (size_t)tensor_count(graph_tensor(graph, id));
    float *values = calloc(count, sizeof *values);
    if (!values)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %s", task->weight->parameter);
    for (size_t i = task->sum_count; i < (size_t)task->plan->threads * task->sum_count; i++)
        task->sums[i % task->sum_count] += task->sums[i];
    task->weight->compute(task->sums, &scale, values);
    FshStatus status = state_write(state, task->weight->parameter, values, count, error);
    free(values);
    return status;
}

FshStatus session_find_first_weight(Session *session, FshError *error)
{
    const TrainPlan *plan = &session->plan;
    FirstWeightTask task = {.plan = plan, .weight = plan->model->first_weight};
    if (!task.weight)
        return FSH_OK;
    FshStatus status = open_task(&task, session, error);
    if (!status)
        status = pool_run(plan->threads, (task.count + IMAGES_AT_A_TIME - 1) / IMAGES_AT_A_TIME, add_images,
                          &task, error);
    if (!status)
        status = write_weight(&task, session->network.state, network_graph(&session->network), error);
    close_task(&task);
    return ranks_agree(session->communicator, status, error);
}
