/* train_step.c - repeats one training step: forward, backward, update, on a synthetic batch that stays in
 * place. Used by train.sh and train_cpu.sh.
 *
 * usage: train_step time MODEL TYPE PIXELS BATCH STEPS [DEVICE]
 *            as JSON: the best and the median step, the processor time of the best, the least that a step
 *            could take (the sum over nodes, see profile.h); on a GPU also memory: planned_gib, what was
 *            planned for the step; memory_gib, all that the device has lost since it was opened, with kernels
 *        train_step profile MODEL TYPE PIXELS BATCH STEPS [DEVICE]
 *            where the time goes, by op and by layer, beside the least that each could take: for every node
 *            the best of the steps, which a shared machine disturbs least
 *        train_step memory MODEL TYPE PIXELS BATCH [DEVICE]
 *            bytes of the plan, as JSON
 *        train_step gradients MODEL TYPE PIXELS BATCH FOLDER [DEVICE]
 *            loss and gradients of one step, into FOLDER/TYPE.safetensors, with the weights of
 *            FOLDER/weights.safetensors (ten classes; depth and the like in its metadata) on the inputs of
 *            FOLDER/batch.safetensors (rounding.py makes them)
 * TYPE: f32, tf32 (on a GPU), bf16 or f16. DEVICE: cpu (the usual) or cuda. FSHARD_BENCH_PLANS: a folder for
 * cuDNN's plans. FSHARD_BENCH_NO_FUSE: fusions to leave out, as --no-fuse. FSHARD_BENCH_SYNC_BN, of any
 * value: --sync-bn. FSHARD_BENCH_NORM_SAMPLE: N of --norm-sample. FSHARD_BENCH_OPT: sgd (the usual, with
 * Nesterov's momentum), adamw or muon (with adamw for the rest). FSHARD_BENCH_OPTIONS: the network's own, as
 * "act-layer=mish self-attention=yes". Threads: those that OpenMP is given.
 *
 * Several processes with the environment of torchrun, mpirun or srun (scripts/device_ranks.sh), or
 * TRAIN_STEP_GPUS=N, which starts them, step together: images_per_second is of all, BATCH of each.
 *
 * A GPU runs asynchronously, so there STEPS steps are timed together, five times over. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/progress.h"
#include "trainer/backend/backend.h"
#include "trainer/backend/pixels.h"
#include "trainer/ranks/communicator.h"
#include "trainer/launch.h"
#include "trainer/report/profile.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/models/models.h"

enum { WARM_UP = 3, WARM_UP_GPU = 40, ROUNDS_GPU = 5, COUNT_MAX = 1000, PATH_BYTES = 4096 };

typedef struct Job {
    const Model *model;
    const char *device;
    DataType type;
    bool tf32;
    int64_t pixels, batch;
    int steps;
    const char *folder;   /* of gradients; NULL: weights and batch are synthetic */
    WeightsOrigin origin; /* of the folder's weights */
    Safetensors *inputs;  /* the folder's batch */
    double loss_scale;    /* in f16, at the beginning */
    RankPlace place;
    Communicator *communicator; /* NULL: one process */
    Graph *graph;
    Backend *backend;
    uint64_t free_bytes; /* on the device before anything was made; 0: unknown */
    State *state;
    Program *program;
} Job;

static bool on_cpu(const Job *job)
{
    return strcmp(job->device, "cpu") == 0;
}

/* Sets channels and classes to those of the data that the network is usually trained on, or the folder's. */
static void describe_data(const Job *job, ModelSpec *spec)
{
    static const char *const mnist[] = {"toynet", "conv8", NULL}, *const cifar[] = {"resnet9", "pyramidnet",
                                                                                    "airbench94",
                                                                                    "airbench96", NULL};
    spec->channels = 3;
    spec->classes = on_cpu(job) ? 20 : 1000;
    for (size_t i = 0; mnist[i]; i++)
        if (strcmp(job->model->name, mnist[i]) == 0) {
            spec->channels = 1;
            spec->classes = 10;
        }
    for (size_t i = 0; cifar[i] && !on_cpu(job); i++)
        if (strcmp(job->model->name, cifar[i]) == 0)
            spec->classes = 10;
    if (job->folder) {
        spec->classes = 10;
        spec->options = job->origin.options;
    }
}

/* Writes FOLDER/NAME.safetensors to path and returns it. */
static const char *file_in_folder(const Job *job, const char *name, char *path, size_t path_bytes)
{
    (void)snprintf(path, path_bytes, "%s/%s.safetensors", job->folder, name);
    return path;
}

static FshStatus open_folder(Job *job, FshError *error)
{
    char path[PATH_BYTES];
    float scale = 0;
    FshStatus status = weights_origin(file_in_folder(job, "weights", path, sizeof path), &job->origin, error);
    if (!status)
        status = safetensors_open(&job->inputs, file_in_folder(job, "batch", path, sizeof path), error);
    const SafetensorsEntry *entry = status ? NULL : safetensors_find(job->inputs, "loss_scale");
    if (!status && !entry)
        status = fsh_error_set(error, FSH_ERR_MISMATCH, "%s: it has no loss_scale", path);
    if (!status)
        status = safetensors_read_f32(entry, &scale, 1, error);
    job->loss_scale = (double)scale;
    return status;
}

static FshStatus choose_optimizer(Optimizer *optimizer, FshError *error)
{
    const char *name = getenv("FSHARD_BENCH_OPT");
    *optimizer = (Optimizer){.momentum = 0.9,
                             .nesterov = true,
                             .weight_decay = 1e-4,
                             .beta1 = 0.9,
                             .beta2 = 0.999,
                             .epsilon = 1e-8};
    optimizer->muon =
        (MuonRule){.rest = OPTIMIZER_ADAMW, .rest_rate = 1, .momentum = 0.95, .steps = 5, .nesterov = true};
    if (!name || strcmp(name, "sgd") == 0)
        return FSH_OK;
    optimizer->nesterov = false;
    optimizer->kind = strcmp(name, "muon") == 0 ? OPTIMIZER_MUON : OPTIMIZER_ADAMW;
    return optimizer->kind == OPTIMIZER_MUON || strcmp(name, "adamw") == 0
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_USAGE, "FSHARD_BENCH_OPT: '%s' is not sgd, adamw or muon",
                               name);
}

/* Returns of one image in how many norms take their statistics. */
static int norm_sample(void)
{
    const char *text = getenv("FSHARD_BENCH_NORM_SAMPLE");
    const int sample = text ? atoi(text) : 1;
    return sample > 1 ? sample : 1;
}

/* Sets options of the network, "NAME=VALUE NAME=VALUE", which `text` is cut into and must outlive. */
static FshStatus set_options(const Model *model, char *text, ModelValues *values, FshError *error)
{
    char *rest = NULL;
    for (char *name = strtok_r(text, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(name, '=');
        const ModelOption *option = NULL;
        size_t i = 0;
        if (value)
            *value++ = '\0';
        while ((option = model_option(i)) && strcmp(option->row.name, name) != 0)
            i++;
        if (!value || !option)
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "FSHARD_BENCH_OPTIONS: '%s' is no NAME=VALUE of a "
                                 "network",
                                 name);
        if (option->row.kind == OPTION_TEXT)
            values->at[i].text = value;
        else if (option->row.kind == OPTION_REAL)
            values->at[i].real = strtod(value, NULL);
        else
            values->at[i].integer = strtoll(value, NULL, 10);
    }
    return model_check_options(model, values, error);
}

static FshStatus make(Job *job, FshError *error)
{
    char own_options[PATH_BYTES];
    const bool pairs = job->model->task == TASK_RESTORATION;
    ModelSpec spec = {.batch = job->batch, .height = job->pixels, .width = job->pixels, .training = true};
    ModelRecipe recipe = {.mean = {pairs ? 0 : 0.5, pairs ? 0 : 0.5, pairs ? 0 : 0.5},
                          .deviation = {pairs ? 1 : 0.25, pairs ? 1 : 0.25, pairs ? 1 : 0.25},
                          .loss = pairs ? LOSS_CHARBONNIER : LOSS_CROSS_ENTROPY,
                          .compute_type = job->type,
                          .sync_norms = getenv("FSHARD_BENCH_SYNC_BN") != NULL,
                          .norm_sample = norm_sample()};
    FshStatus status = choose_optimizer(&recipe.optimizer, error);
    if (status)
        return status;
    if (job->type == DATA_F16) {
        recipe.optimizer.loss_scaling = true;
        recipe.optimizer.scale_init = job->loss_scale;
        recipe.optimizer.scale_growth = 2;
        recipe.optimizer.scale_backoff = 0.5;
        recipe.optimizer.scale_interval = 2000;
    }
    describe_data(job, &spec);
    (void)snprintf(own_options, sizeof own_options, "%s",
                   getenv("FSHARD_BENCH_OPTIONS") ? getenv("FSHARD_BENCH_OPTIONS") : "");
    status = set_options(job->model, own_options, &spec.options, error);
    if (status)
        return status;
    const BackendOptions options = {.benchmark = true,
                                    .tf32 = job->tf32,
                                    .plan_cache = getenv("FSHARD_BENCH_PLANS"),
                                    .device_index = (int)job->place.local_rank};
    status = backend_open(&job->backend, job->device, &options, error);
    if (!status && backend_free_memory(job->backend, &job->free_bytes, NULL))
        job->free_bytes = 0;
    if (!status && job->place.world_size > 1)
        status = communicator_open(&job->communicator, &job->place, NULL, error);
    if (!status && job->communicator)
        status = backend_join(job->backend, job->communicator, error);
    if (!status) {
        recipe.fusions = backend_fusions(job->backend);
        status = fusions_leave_out(&recipe.fusions, getenv("FSHARD_BENCH_NO_FUSE"), job->device, error);
        if (status)
            (void)fsh_error_prepend(error, "FSHARD_BENCH_NO_FUSE");
    }
    if (!status)
        status = model_graph(job->model, &spec, &recipe, &job->graph, error);
    if (!status)
        status = state_new(&job->state, job->backend, job->graph, error);
    if (!status)
        status = state_initialize(job->state, 1, error);
    char path[PATH_BYTES];
    if (!status && job->folder)
        status = weights_load(file_in_folder(job, "weights", path, sizeof path), job->state, job->graph, NULL,
                              NULL, error);
    return status ? status : program_new(&job->program, job->state, job->graph, error);
}

/* Fills the tensor with synthetic values: bytes spread over all values; labels and masks over three classes,
 * which every network has; ones. */
static void make_up(const Tensor *tensor, void *values)
{
    const int64_t count = tensor_count(tensor);
    const bool mask = strcmp(tensor->name, "target") == 0 && tensor->shape[3] == 1;
    for (int64_t i = 0; i < count; i++)
        switch (tensor->type) {
        case DATA_U8:
            ((uint8_t *)values)[i] = (uint8_t)(mask ? (uint64_t)i % 3 : (uint64_t)i * 2654435761U >> 13);
            break;
        case DATA_I64:
            ((int64_t *)values)[i] = i % 3;
            break;
        default:
            ((float *)values)[i] = strcmp(tensor->name, "learning_rate") == 0 ? 0.01F : 1;
        }
}

/* Fills the tensor with what the folder's batch has under its name, else with synthetic values. */
static FshStatus find_input(const Job *job, const Tensor *tensor, void *values, FshError *error)
{
    const SafetensorsEntry *entry = job->inputs ? safetensors_find(job->inputs, tensor->name) : NULL;
    const size_t count = (size_t)tensor_count(tensor);
    make_up(tensor, values);
    if (!entry)
        return FSH_OK;
    float *floats = malloc(count * sizeof *floats);
    FshStatus status = floats ? safetensors_read_f32(entry, floats, count, error)
                              : fsh_error_set(error, FSH_ERR_MEMORY, "train_step: no memory");
    for (size_t i = 0; !status && i < count; i++)
        switch (tensor->type) {
        case DATA_U8:
            ((uint8_t *)values)[i] = (uint8_t)floats[i];
            break;
        case DATA_I64:
            ((int64_t *)values)[i] = (int64_t)floats[i];
            break;
        default:
            ((float *)values)[i] = floats[i];
        }
    free(floats);
    return status;
}

static FshStatus write_batch(const Job *job, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t t = 0; !status && t < graph_tensor_count(job->graph); t++) {
        const Tensor *tensor = graph_tensor(job->graph, (TensorId)t);
        if (tensor->role != TENSOR_INPUT)
            continue;
        const size_t bytes = (size_t)tensor_count(tensor) * data_type_bytes(tensor->type);
        void *values = malloc(bytes);
        if (!values)
            return fsh_error_set(error, FSH_ERR_MEMORY, "train_step: no memory");
        status = find_input(job, tensor, values, error);
        if (!status)
            status = program_write(job->program, (TensorId)t, values, bytes, error);
        free(values);
    }
    return status;
}

/* Returns the processor seconds of all threads. */
static double processor_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Reads the loss, and so waits for all steps that were started. */
static FshStatus read_loss(const Job *job, float *loss, FshError *error)
{
    return program_read(job->program, graph_find(job->graph, "loss"), loss, sizeof *loss, error);
}

/* Times each step. *processor_ret is set to the processor seconds of the step that took the fewest. */
static FshStatus run_steps(const Job *job, int steps, double *seconds, double *processor_ret, FshError *error)
{
    FshStatus status = FSH_OK;
    *processor_ret = INFINITY;
    for (int i = 0; !status && i < steps; i++) {
        const double before = progress_now_seconds(), processor = processor_seconds();
        status = program_run(job->program, error);
        seconds[i] = progress_now_seconds() - before;
        *processor_ret = fmin(*processor_ret, processor_seconds() - processor);
    }
    return status;
}

/* Times the rounds, in seconds per step, with the device busy all the time. */
static FshStatus run_rounds(const Job *job, double *seconds, double *processor_ret, FshError *error)
{
    float loss;
    FshStatus status = FSH_OK;
    for (int i = 0; !status && i < WARM_UP_GPU; i++)
        status = program_run(job->program, error);
    if (!status)
        status = read_loss(job, &loss, error);
    *processor_ret = INFINITY;
    for (int round = 0; !status && round < ROUNDS_GPU; round++) {
        const double before = progress_now_seconds(), processor = processor_seconds();
        for (int i = 0; !status && i < job->steps; i++)
            status = program_run(job->program, error);
        if (!status)
            status = read_loss(job, &loss, error);
        seconds[round] = (progress_now_seconds() - before) / job->steps;
        *processor_ret = fmin(*processor_ret, (processor_seconds() - processor) / job->steps);
    }
    return status;
}

static int by_value(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Returns how much of the device's memory network and step have taken, for any purpose; 0 on the CPU. */
static double taken_gib(const Job *job)
{
    uint64_t left = 0;
    if (!job->free_bytes || backend_free_memory(job->backend, &left, NULL) || left > job->free_bytes)
        return 0;
    return (double)(job->free_bytes - left) / (1 << 30);
}

/* Returns the memory planned for the step on the device, without what libraries take for themselves. */
static double planned_gib(const Job *job)
{
    MemoryUse use = {0};
    state_memory(job->state, &use);
    program_memory(job->program, &use);
    return (double)memory_total(&use) / (1 << 30);
}

/* Sets *seconds_ret to the sum of each node's least time. Takes some memory meanwhile. */
static FshStatus find_floor(const Job *job, double *seconds_ret, FshError *error)
{
    Profile profile = {0};
    BackendRates rates = {0};
    double *no_times = calloc(graph_node_count(job->graph), sizeof *no_times);
    FshStatus status = no_times ? backend_rates(job->backend, job->type, &rates, error)
                                : fsh_error_set(error, FSH_ERR_MEMORY, "train_step: no memory");
    if (!status)
        status = profile_make(&profile, job->graph, no_times, 1, &rates, error);
    *seconds_ret = profile.floor_seconds;
    profile_free(&profile);
    free(no_times);
    return status;
}

static FshStatus time_steps(Job *job, FshError *error)
{
    double seconds[COUNT_MAX], processor;
    float loss = NAN;
    FshStatus status;
    const int count = on_cpu(job) ? job->steps : ROUNDS_GPU;
    if (on_cpu(job)) {
        status = run_steps(job, WARM_UP, seconds, &processor, error);
        if (!status)
            status = run_steps(job, job->steps, seconds, &processor, error);
    } else {
        status = run_rounds(job, seconds, &processor, error);
    }
    if (!status)
        status = read_loss(job, &loss, error);
    const double taken = taken_gib(job);
    double floor_seconds = 0;
    if (!status && job->place.rank == 0)
        (void)find_floor(job, &floor_seconds, error); /* 0: there was no room to measure the rates */
    if (status || job->place.rank > 0)
        return status;
    qsort(seconds, (size_t)count, sizeof *seconds, by_value);
    const double images = (double)(job->batch * (int64_t)job->place.world_size);
    printf("{\"model\": \"%s\", \"type\": \"%s\", \"ranks\": %d, \"best_ms\": %.3f, \"median_ms\": %.3f, "
           "\"processor_ms\": %.3f, \"images_per_second\": %.0f, \"loss\": %.4f",
           job->model->name, job->tf32 ? "tf32" : data_type_name(job->type), (int)job->place.world_size,
           seconds[0] * 1e3, seconds[count / 2] * 1e3, processor * 1e3, images / seconds[count / 2],
           (double)loss);
    if (norm_sample() > 1)
        printf(", \"norm_sample\": %d", norm_sample());
    if (!on_cpu(job))
        printf(", \"memory_gib\": %.2f, \"planned_gib\": %.2f", taken, planned_gib(job));
    printf(", \"floor_ms\": %.3f}\n", floor_seconds * 1e3);
    return FSH_OK;
}

/* Prints the profile, each layer beside its least time. */
static FshStatus print_profile(const Job *job, const double *seconds, FshError *error)
{
    Profile profile;
    BackendRates rates = {0};
    FshStatus status = backend_rates(job->backend, job->type, &rates, error);
    if (!status)
        status = profile_make(&profile, job->graph, seconds, 1, &rates, error);
    if (status)
        return status;
    profile_print(&profile, stdout);
    profile_free(&profile);
    return FSH_OK;
}

static FshStatus profile_steps(Job *job, FshError *error)
{
    const size_t nodes = graph_node_count(job->graph);
    double step, processor, *sums = calloc(3 * nodes, sizeof *sums), *before = sums + nodes,
                            *best = before + nodes;
    if (!sums)
        return fsh_error_set(error, FSH_ERR_MEMORY, "train_step: no memory");
    FshStatus status = program_profile(job->program, true, NULL, 0, error);
    for (int i = 0; !status && i < WARM_UP + job->steps; i++) {
        status = run_steps(job, 1, &step, &processor, error);
        if (!status)
            status = program_profile(job->program, true, sums, nodes, error);
        for (size_t n = 0; !status && n < nodes; n++) {
            const double took = sums[n] - before[n];
            best[n] = i <= WARM_UP ? took : fmin(best[n], took);
            before[n] = sums[n];
        }
    }
    if (!status && job->place.rank == 0)
        status = print_profile(job, best, error);
    free(sums);
    return status;
}

static FshStatus print_memory(Job *job, FshError *error)
{
    MemoryUse use = {0};
    (void)error;
    state_memory(job->state, &use);
    program_memory(job->program, &use);
    printf("{\"model\": \"%s\", \"type\": \"%s\"", job->model->name, data_type_name(job->type));
    for (int kind = 0; kind < MEMORY_KINDS; kind++)
        printf(", \"%s_bytes\": %llu", memory_kind_names[kind], (unsigned long long)use.bytes[kind]);
    printf("}\n");
    return FSH_OK;
}

typedef struct GradientList {
    const Job *job;
    TensorId *gradients;
} GradientList;

/* Reads a gradient of the loss, undoing the loss scale. Number 0 is the loss. */
static FshStatus read_gradient(size_t number, void *values, void *context, FshError *error)
{
    const GradientList *list = context;
    const Job *job = list->job;
    if (number == 0)
        return read_loss(job, values, error);
    const TensorId gradient = list->gradients[number];
    const size_t count = (size_t)tensor_count(graph_tensor(job->graph, gradient));
    const float scale = job->type == DATA_F16 ? (float)job->loss_scale : 1;
    FshStatus status = program_read(job->program, gradient, values, count * sizeof(float), error);
    for (size_t i = 0; !status && i < count; i++)
        ((float *)values)[i] /= scale;
    return status;
}

/* Writes the gradients under the names of their parameters. */
static FshStatus write_gradients(Job *job, FshError *error)
{
    const size_t count_max = graph_tensor_count(job->graph) + 1;
    SafetensorsTensor *tensors = calloc(count_max, sizeof *tensors);
    GradientList list = {job, calloc(count_max, sizeof *list.gradients)};
    char path[PATH_BYTES];
    size_t count = 1;
    FshStatus status = tensors && list.gradients
                           ? program_run(job->program, error)
                           : fsh_error_set(error, FSH_ERR_MEMORY, "train_step: no memory");
    if (!status)
        tensors[0] = (SafetensorsTensor){.name = "loss", .type = SAFETENSORS_F32, .rank = 1, .shape = {1}};
    for (size_t t = 0; !status && t < graph_tensor_count(job->graph); t++) {
        const Tensor *tensor = graph_tensor(job->graph, (TensorId)t);
        const TensorId gradient =
            tensor->role == TENSOR_PARAMETER ? graph_gradient(job->graph, (TensorId)t) : TENSOR_NONE;
        if (gradient == TENSOR_NONE)
            continue;
        tensors[count] =
            (SafetensorsTensor){.name = tensor->name, .type = SAFETENSORS_F32, .rank = tensor->rank};
        for (int axis = 0; axis < tensor->rank; axis++)
            tensors[count].shape[axis] = (uint64_t)tensor->shape[axis];
        list.gradients[count++] = gradient;
    }
    if (!status)
        status = safetensors_write(
            file_in_folder(job, job->tf32 ? "tf32" : data_type_name(job->type), path, sizeof path), tensors,
            count, NULL, 0, read_gradient, &list, error);
    free(tensors);
    free(list.gradients);
    return status;
}

/* Starts N processes for TRAIN_STEP_GPUS=N, and finds the place of each. Only those return; the process that
 * started them ends here. */
static FshStatus find_place(RankPlace *place, FshError *error)
{
    const char *text = getenv("TRAIN_STEP_GPUS");
    const int count = text ? (int)strtol(text, NULL, 10) : 1;
    bool is_parent = false;
    Launcher launcher;
    LaunchEnd end;
    *place = (RankPlace){.world_size = 1, .local_world = 1};
    FshStatus status = count > 1 ? launcher_open(&launcher, error) : FSH_OK;
    if (!status && count > 1)
        status = launcher_run(&launcher, place, count, &is_parent, &end, error);
    if (is_parent && !status)
        exit(end.exit_status);
    return status ? status : rank_place_from_environment(place, NULL, error);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int arguments;
        FshStatus (*run)(Job *job, FshError *error);
    } commands[] = {{"time", 7, time_steps},
                    {"profile", 7, profile_steps},
                    {"memory", 6, print_memory},
                    {"gradients", 7, write_gradients}};
    enum { COMMANDS = sizeof commands / sizeof *commands };
    static const struct {
        const char *name;
        DataType type;
    } types[] = {{"f32", DATA_F32}, {"tf32", DATA_F32}, {"bf16", DATA_BF16}, {"f16", DATA_F16}};
    FshError error = {0};
    size_t c = 0, t = 0;
    while (c < COMMANDS && (argc < 2 || strcmp(argv[1], commands[c].name) != 0))
        c++;
    while (t < 4 && (argc < 4 || strcmp(argv[3], types[t].name) != 0))
        t++;
    if (c == COMMANDS || t == 4 || (argc != commands[c].arguments && argc != commands[c].arguments + 1) ||
        !model_find(argv[2])) {
        (void)fprintf(stderr,
                      "usage: train_step time|profile MODEL f32|tf32|bf16|f16 PIXELS BATCH STEPS [cpu|cuda]\n"
                      "       train_step memory MODEL f32|tf32|bf16|f16 PIXELS BATCH [cpu|cuda]\n"
                      "       train_step gradients MODEL f32|tf32|bf16|f16 PIXELS BATCH FOLDER [cpu|cuda]\n");
        return 2;
    }
    const int arguments = commands[c].arguments;
    Job job = {.model = model_find(argv[2]),
               .device = argc > arguments ? argv[arguments] : "cpu",
               .type = types[t].type,
               .tf32 = t == 1,
               .pixels = strtoll(argv[4], NULL, 10),
               .batch = strtoll(argv[5], NULL, 10),
               .loss_scale = 65536,
               .steps = arguments > 6 ? (int)strtol(argv[6], NULL, 10) : 1};
    job.steps = job.steps < 1 ? 1 : job.steps > COUNT_MAX ? COUNT_MAX : job.steps;
    if (commands[c].run == write_gradients)
        job.folder = argv[6];
    FshStatus status = find_place(&job.place, &error);
    if (!status && job.folder)
        status = open_folder(&job, &error);
    if (!status)
        status = make(&job, &error);
    if (!status)
        status = write_batch(&job, &error);
    if (!status)
        status = commands[c].run(&job, &error);
    program_free(&job.program);
    state_free(&job.state);
    backend_close(&job.backend);
    communicator_close(&job.communicator);
    graph_free(&job.graph);
    safetensors_close(&job.inputs);
    weights_origin_free(&job.origin);
    if (status)
        (void)fprintf(stderr, "train_step: %s\n", error.message);
    return status ? 1 : 0;
}
