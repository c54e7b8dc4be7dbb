/* Images a second of one training step on the GPU, synthetic batch, and where the time goes, by op. No test:
 * scripts/device.sh runs it. usage: cuda_step_time [MODEL PIXELS BATCH]     default: resnet18 160 256 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/progress.h"
#include "trainer/backend/backend.h"
#include "trainer/models/models.h"

enum { WARM_UP = 5, TIMED = 30, PROFILED = 5, CLASSES = 1000 };

typedef struct Job {
    Graph *graph;
    Backend *backend;
    State *state;
    Program *program;
} Job;

static FshStatus start(Job *job, const char *model, int64_t pixels, int64_t batch, bool benchmark,
                       FshError *error)
{
    const BackendOptions options = {.benchmark = benchmark};
    const ModelSpec spec = {.batch = batch,
                            .height = pixels,
                            .width = pixels,
                            .channels = 3,
                            .classes = CLASSES,
                            .training = true};
    const ModelRecipe recipe = {.mean = {0.5, 0.5, 0.5},
                                .deviation = {0.25, 0.25, 0.25},
                                .optimizer = {.momentum = 0.9, .weight_decay = 1e-4}};
    FshStatus status = model_graph(model_find(model), &spec, &recipe, &job->graph, error);
    if (!status)
        status = backend_open(&job->backend, "cuda", &options, error);
    if (!status)
        status = state_new(&job->state, job->backend, job->graph, error);
    if (!status)
        status = state_initialize(job->state, 1, error);
    if (!status)
        status = program_new(&job->program, job->state, job->graph, error);
    return status;
}

static void end(Job *job)
{
    program_free(&job->program);
    state_free(&job->state);
    backend_close(&job->backend);
    graph_free(&job->graph);
}

static FshStatus write_batch(Job *job, int64_t pixels, int64_t batch, FshError *error)
{
    const size_t bytes = (size_t)(batch * pixels * pixels * 3);
    uint8_t *image = malloc(bytes);
    int64_t *label = malloc((size_t)batch * sizeof *label);
    const float learning_rate = 0.01F;
    FshStatus status = FSH_ERR_MEMORY;
    if (image && label) {
        for (size_t i = 0; i < bytes; i++)
            image[i] = (uint8_t)(i * 2654435761U >> 13);
        for (int64_t i = 0; i < batch; i++)
            label[i] = i * 37 % CLASSES;
        status = program_write(job->program, graph_find(job->graph, "image"), image, bytes, error);
        if (!status)
            status = program_write(job->program, graph_find(job->graph, "label"), label,
                                   (size_t)batch * sizeof *label, error);
        if (!status)
            status = program_write(job->program, graph_find(job->graph, "learning_rate"), &learning_rate,
                                   sizeof learning_rate, error);
    }
    free(image);
    free(label);
    return status;
}

/* Runs and waits. */
static FshStatus run(Job *job, int times, float *loss_ret, FshError *error)
{
    FshStatus status = FSH_OK;
    for (int i = 0; i < times && !status; i++)
        status = program_run(job->program, error);
    if (!status)
        status =
            program_read(job->program, graph_find(job->graph, "loss"), loss_ret, sizeof *loss_ret, error);
    return status;
}

static FshStatus print_profile(Job *job, FshError *error)
{
    const size_t node_count = graph_node_count(job->graph);
    double *seconds = calloc(node_count, sizeof *seconds);
    float loss = 0;
    FshStatus status = seconds ? program_profile(job->program, true, NULL, 0, error) : FSH_ERR_MEMORY;
    if (!status)
        status = run(job, PROFILED, &loss, error);
    if (!status)
        status = program_profile(job->program, false, seconds, node_count, error);
    for (int op = 0; op < OP_KIND_COUNT && !status; op++) {
        double sum = 0;
        int nodes = 0;
        for (size_t n = 0; n < node_count; n++)
            if (graph_node(job->graph, (NodeId)n)->op == (OpKind)op) {
                sum += seconds[n];
                nodes++;
            }
        if (nodes)
            printf("  %-32s %3d nodes %8.3f ms\n", op_name((OpKind)op), nodes, sum / PROFILED * 1e3);
    }
    free(seconds);
    return status;
}

static FshStatus measure(const char *model, int64_t pixels, int64_t batch, bool benchmark, FshError *error)
{
    Job job = {NULL, NULL, NULL, NULL};
    float loss = 0;
    uint64_t arena_bytes = 0, scratch_bytes = 0;
    char arena[32], scratch[32];
    const double began = progress_now_seconds();
    FshStatus status = start(&job, model, pixels, batch, benchmark, error);
    const double ready = progress_now_seconds();
    if (!status)
        status = write_batch(&job, pixels, batch, error);
    if (!status)
        status = run(&job, WARM_UP, &loss, error);
    const double warm = progress_now_seconds();
    if (!status)
        status = run(&job, TIMED, &loss, error);
    if (!status) {
        const double step = (progress_now_seconds() - warm) / TIMED;
        program_memory(job.program, &arena_bytes, &scratch_bytes);
        printf("%s, %d px, batch %d, f32, plans %s: %.2f ms a step, %.0f images/s; loss %.3f; activations "
               "%s, scratch %s; ready in %.1f s\n",
               model, (int)pixels, (int)batch, benchmark ? "timed" : "first", step * 1e3,
               (double)batch / step, (double)loss, progress_format_bytes(arena, sizeof arena, arena_bytes),
               progress_format_bytes(scratch, sizeof scratch, scratch_bytes), ready - began);
        status = print_profile(&job, error);
    }
    end(&job);
    return status;
}

int main(int argc, char **argv)
{
    const char *model = argc > 3 ? argv[1] : "resnet18";
    const int64_t pixels = argc > 3 ? strtoll(argv[2], NULL, 10) : 160,
                  batch = argc > 3 ? strtoll(argv[3], NULL, 10) : 256;
    for (int benchmark = 0; benchmark < 2; benchmark++) {
        FshError error = {0};
        if (measure(model, pixels, batch, benchmark, &error)) {
            fprintf(stderr, "cuda_step_time: %s\n", error.message);
            return 1;
        }
    }
    return 0;
}
