#include "tests/trainer/rank_job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void check(FshStatus status, const FshError *error)
{
    if (!status)
        return;
    (void)fprintf(stderr, "%s\n", error->message);
    _exit(3);
}

/* Returns one convolution under a squared error: the gradient of a mean over samples. */
static Graph *small_graph(int64_t batch, const Optimizer *update)
{
    FshError error = {0};
    const int64_t shape[4] = {batch, 4, 4, 3};
    Optimizer optimizer = *update;
    optimizer.kind = OPTIMIZER_SGD;
    optimizer.momentum = 0.9;
    Graph *graph = graph_new();
    TensorId x = graph_input(graph, "x", DATA_F32, 4, shape);
    TensorId target = graph_input(graph, "target", DATA_F32, 4, (int64_t[]){batch, 4, 4, 5});
    TensorId valid = graph_input(graph, "valid", DATA_F32, 1, shape);
    x = graph_conv2d(graph, "conv", x, &(Conv2d){.channels = 5, .kernel = 3, .stride = 1, .padding = 1});
    TensorId loss = graph_pixel_loss(graph, x, target, valid, LOSS_MSE);
    graph_keep(graph, loss, "loss");
    optimizer.learning_rate = graph_input(graph, "learning_rate", DATA_F32, 1, (int64_t[]){1});
    graph_differentiate(graph, loss);
    graph_update(graph, &optimizer);
    check(graph_check(graph, &error), &error);
    return graph;
}

Job job_open(const char *device, int rank, const char *name, int64_t batch, const Optimizer *update,
             const CommunicatorOptions *options)
{
    Job job = {.graph = small_graph(batch, update)};
    FshError error = {0};
    RankPlace place = {.rank = (uint64_t)rank,
                       .world_size = RANK_JOBS,
                       .local_rank = (uint64_t)rank,
                       .local_world = RANK_JOBS,
                       .launcher = "test"};
    (void)snprintf(place.job, sizeof place.job, "test-%s-%ld", name, (long)getppid());
    const BackendOptions backend = {.threads = 1, .device_index = rank % RANK_JOBS};
    check(backend_open(&job.backend, device, &backend, &error), &error);
    if (rank < RANK_JOBS) {
        check(communicator_open(&job.communicator, &place, options, &error), &error);
        check(backend_join(job.backend, job.communicator, &error), &error);
    }
    check(state_new(&job.state, job.backend, job.graph, &error), &error);
    check(state_initialize(job.state, 1, &error), &error);
    check(program_new(&job.program, job.state, job.graph, &error), &error);
    return job;
}

void job_close(Job *job)
{
    program_free(&job->program);
    state_free(&job->state);
    backend_close(&job->backend);
    communicator_close(&job->communicator);
    graph_free(&job->graph);
}

static void write_input(const Job *job, const char *name, const float *values)
{
    FshError error = {0};
    const TensorId id = graph_find(job->graph, name);
    const size_t count = (size_t)tensor_count(graph_tensor(job->graph, id));
    check(program_write(job->program, id, values, count * sizeof *values, &error), &error);
}

void write_samples(const Job *job, int64_t first, bool numbers)
{
    const int64_t batch = graph_tensor(job->graph, graph_find(job->graph, "x"))->shape[0];
    float *x = malloc((size_t)batch * 4 * 4 * 5 * sizeof *x), rate = 0.125F;
    if (!x)
        _exit(3);
    for (int64_t i = 0; i < batch * 48; i++)
        x[i] = (float)((first * 48 + i) * 37 % 101) / 101;
    if (!numbers)
        x[0] = NAN;
    write_input(job, "x", x);
    for (int64_t i = 0; i < batch * 80; i++)
        x[i] = (float)((first * 80 + i) * 53 % 97) / 97;
    write_input(job, "target", x);
    for (int64_t i = 0; i < batch; i++)
        x[i] = 1;
    write_input(job, "valid", x);
    write_input(job, "learning_rate", &rate);
    free(x);
}
