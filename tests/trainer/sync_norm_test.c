/* Batch norms over the batches of several ranks, on the CPU: the gradient of one norm against the joint batch
 * in float64, and the updates of a network that is smooth, so that no rounding decides which way a ReLU goes.
 * Ranks are processes; what they find lies in memory that all share. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/rank_processes.h"
#include "trainer/backend/backend.h"
#include "trainer/ranks/communicator.h"

enum { RANKS_MOST = 4, TENSORS_MOST = 128, VALUES_MOST = 1 << 14, CHANNELS = 3, CLASSES = 5 };

/* What the ranks do. */
typedef struct Job {
    int ranks, threads, steps;
    int64_t batch; /* of all ranks together */
    int64_t edge;  /* of the images */
    double offset; /* added to all values but targets; they differ by about 1 */
    bool own_statistics;
    bool pools; /* smooth_network has a max pool behind a norm */
    int sample; /* statistics of one image in so many, of each rank's first; 0: of all */
    Graph *(*make)(const struct Job *job, int64_t batch);
} Job;

/* Weights and gradients of each rank; gradients are means over the ranks. */
typedef struct Found {
    float values[RANKS_MOST][VALUES_MOST];
    char names[TENSORS_MOST][GRAPH_NAME_MAX];
    size_t begins[TENSORS_MOST + 1], tensor_count, weight_values;
} Found;

/* Returns an element of an image of the joint batch. Samples differ in brightness, and so do the ranks'
 * batches. */
static float value_of(double offset, int64_t sample, int64_t element)
{
    Random random;
    random_start(&random, 3, (uint64_t)(sample * 100000 + element));
    return (float)(offset + 0.1 * (double)sample + 2 * random_uniform(&random) - 1);
}

/* ---- a rank ---- */

/* Ends a rank that has failed: cmocka is the parent's. */
static void must(FshStatus status, const FshError *error)
{
    if (!status)
        return;
    (void)fprintf(stderr, "%s\n", error->message);
    _exit(1);
}

/* Fills an input with this rank's share of the joint batch. */
static void write_share(Program *program, TensorId id, const Job *job, int rank)
{
    static float values[VALUES_MOST];
    static int64_t labels[VALUES_MOST];
    FshError error = {0};
    const Tensor *tensor = graph_tensor(program->graph, id);
    const int64_t count = tensor_count(tensor), samples = tensor->shape[0], each = count / samples;
    const bool is_rate = strcmp(tensor->name, "learning_rate") == 0;
    const double offset = strcmp(tensor->name, "target") == 0 ? 0 : job->offset;
    if (count > VALUES_MOST)
        _exit(2);
    for (int64_t i = 0; i < count; i++) {
        const int64_t sample = rank * samples + i / each;
        labels[i] = sample % CLASSES;
        values[i] = is_rate ? 0.02F : value_of(offset, sample, i % each);
    }
    const bool is_label = tensor->type == DATA_I64;
    must(program_write(program, id, is_label ? (void *)labels : (void *)values,
                       (size_t)count * data_type_bytes(tensor->type), &error),
         &error);
}

static void read_tensor(Program *program, TensorId id, int rank, Found *found)
{
    FshError error = {0};
    const Tensor *tensor = graph_tensor(program->graph, id);
    const size_t count = (size_t)tensor_count(tensor), begin = found->begins[found->tensor_count];
    if (found->tensor_count == TENSORS_MOST || begin + count > VALUES_MOST)
        _exit(2);
    float *values = found->values[rank] + begin;
    must(tensor->role == TENSOR_GRADIENT ? program_read(program, id, values, count * sizeof *values, &error)
                                         : state_read(program->state, tensor->name, values, count, &error),
         &error);
    (void)snprintf(found->names[found->tensor_count], GRAPH_NAME_MAX, "%s", tensor->name);
    found->begins[++found->tensor_count] = begin + count;
}

/* Notes all weights, then all gradients. Every rank notes the same names and places. */
static void read_all(Program *program, Communicator *communicator, int rank, Found *found)
{
    FshError error = {0};
    Found own = {.tensor_count = 0};
    for (int pass = 0; pass < 2; pass++) {
        for (size_t t = 0; t < graph_tensor_count(program->graph); t++) {
            const Tensor *tensor = graph_tensor(program->graph, (TensorId)t);
            if (pass == 0 ? tensor_is_weight(tensor) : tensor->role == TENSOR_GRADIENT)
                read_tensor(program, (TensorId)t, rank, &own);
        }
        own.weight_values = pass == 0 ? own.begins[own.tensor_count] : own.weight_values;
    }
    float *gradients = own.values[rank] + own.weight_values;
    if (communicator)
        must(communicator_mean_f32(communicator, gradients, own.begins[own.tensor_count] - own.weight_values,
                                   &error),
             &error);
    memcpy(found->values[rank], own.values[rank], sizeof own.values[rank]);
    if (rank > 0)
        return;
    memcpy(found->names, own.names, sizeof own.names);
    memcpy(found->begins, own.begins, sizeof own.begins);
    found->tensor_count = own.tensor_count;
    found->weight_values = own.weight_values;
}

/* What the ranks are to do and where they leave what they find: those of the run under way. */
static const Job *current_job;
static Found *current_found;

static int work(const RankPlace *place)
{
    const Job *job = current_job;
    FshError error = {0};
    Communicator *communicator = NULL;
    Backend *backend = NULL;
    State *state = NULL;
    Program *program = NULL;
    Graph *graph = job->make(job, job->batch / job->ranks);
    must(graph_check(graph, &error), &error);
    must(backend_open(&backend, "cpu", &(BackendOptions){.threads = job->threads}, &error), &error);
    if (job->ranks > 1) {
        must(communicator_open(&communicator, place, NULL, &error), &error);
        must(backend_join(backend, communicator, &error), &error);
    }
    must(state_new(&state, backend, graph, &error), &error);
    must(state_initialize(state, 5, &error), &error);
    must(program_new(&program, state, graph, &error), &error);
    for (size_t t = 0; t < graph_tensor_count(graph); t++)
        if (graph_tensor(graph, (TensorId)t)->role == TENSOR_INPUT)
            write_share(program, (TensorId)t, job, (int)place->rank);
    for (int step = 0; step < job->steps; step++)
        must(program_run(program, &error), &error);
    read_all(program, communicator, (int)place->rank, current_found);
    program_free(&program);
    state_free(&state);
    graph_free(&graph);
    backend_close(&backend);
    communicator_close(&communicator);
    return 0;
}

/* Runs the ranks. Returns what they have found, for forget. */
static Found *run(const Job *job)
{
    current_job = job;
    current_found = mmap(NULL, sizeof(Found), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(current_found != MAP_FAILED);
    rank_processes_run((uint64_t)job->ranks, "sync-norm", work);
    return current_found;
}

static void forget(Found *found)
{
    (void)munmap(found, sizeof *found);
}

/* Returns what rank 0 has found under this name. */
static const float *named(const Found *found, const char *name)
{
    size_t t = 0;
    while (t < found->tensor_count && strcmp(found->names[t], name) != 0)
        t++;
    if (t == found->tensor_count)
        fail_msg("no tensor %s", name);
    return found->values[0] + found->begins[t];
}

/* ---- the gradient of one norm ---- */

static Graph *one_norm(const Job *job, int64_t batch)
{
    const int64_t shape[4] = {batch, job->edge, job->edge, CHANNELS};
    const Initializer uniform = {INIT_UNIFORM, 1};
    Graph *graph = graph_new();
    graph_set_sync_norms(graph, !job->own_statistics);
    graph_set_norm_sample(graph, job->sample);
    TensorId x = graph_input(graph, "x", DATA_F32, 4, shape);
    TensorId target = graph_input(graph, "target", DATA_F32, 4, shape);
    TensorId z = graph_conv2d(graph, "conv", x, &(Conv2d){.channels = CHANNELS, .kernel = 1, .stride = 1});
    TensorId y = graph_batch_norm(graph, "bn", z, &(BatchNorm){.training = true});
    TensorId loss = graph_pixel_loss(graph, y, target, TENSOR_NONE, LOSS_MSE);
    graph_keep(graph, loss, "loss");
    graph_set_initializer(graph, "conv.weight", uniform);
    graph_set_initializer(graph, "bn.weight", uniform);
    graph_set_initializer(graph, "bn.bias", uniform);
    graph_fuse(graph, FUSE_ALL);
    graph_differentiate(graph, loss);
    graph_fuse_backward(graph, FUSE_ALL);
    return graph;
}

/* The same in float64, of the joint batch. Values of a pixel: [pixels][CHANNELS]. */
typedef struct Joint {
    double mean[CHANNELS], var[CHANNELS]; /* var: unbiased */
    double dweight[CHANNELS], dbias[CHANNELS], dconv[CHANNELS * CHANNELS];
} Joint;

static double convolved(const Job *job, const float *weight, int64_t sample, int64_t pixel, int c)
{
    double z = 0;
    for (int k = 0; k < CHANNELS; k++)
        z += (double)weight[c * CHANNELS + k] * (double)value_of(job->offset, sample, pixel * CHANNELS + k);
    return z;
}

/* Returns whether the statistics are of this sample too. */
static bool is_sampled(const Job *job, int64_t sample)
{
    const int64_t each = job->batch / job->ranks;
    return job->sample < 2 || sample % each < (each > job->sample ? each / job->sample : 1);
}

static void differentiate_channel(const Job *job, const Found *found, int c, Joint *joint)
{
    const float *conv = named(found, "conv.weight");
    const double weight = (double)named(found, "bn.weight")[c], bias = (double)named(found, "bn.bias")[c];
    const int64_t pixels = job->edge * job->edge;
    const double all = (double)(pixels * job->batch);
    double count = 0, sum = 0, squares = 0;
    for (int64_t i = 0; i < job->batch * pixels; i++) {
        count += is_sampled(job, i / pixels);
        sum += is_sampled(job, i / pixels) ? convolved(job, conv, i / pixels, i % pixels, c) : 0;
    }
    const double mean = sum / count;
    for (int64_t i = 0; i < job->batch * pixels; i++)
        squares +=
            is_sampled(job, i / pixels) ? pow(convolved(job, conv, i / pixels, i % pixels, c) - mean, 2) : 0;
    const double inverse = 1 / sqrt(squares / count + 1e-5);
    joint->mean[c] = mean;
    joint->var[c] = squares / (count - 1);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < job->batch * pixels; i++) {
            const double x = (convolved(job, conv, i / pixels, i % pixels, c) - mean) * inverse;
            const double target = (double)value_of(0, i / pixels, i % pixels * CHANNELS + c);
            const double dy = 2 * (x * weight + bias - target) / (all * CHANNELS);
            if (pass == 0) {
                joint->dbias[c] += dy;
                joint->dweight[c] += dy * x;
                continue;
            }
            const double through = joint->dbias[c] / count + x * joint->dweight[c] / count;
            const double dz = weight * inverse * (dy - (is_sampled(job, i / pixels) ? through : 0));
            for (int k = 0; k < CHANNELS; k++)
                joint->dconv[c * CHANNELS + k] +=
                    dz * (double)value_of(job->offset, i / pixels, i % pixels * CHANNELS + k);
        }
}

static void compare(const Job *job, const char *what, const float *values, const double *wanted, int count,
                    double bound)
{
    double far = 0, square = 0;
    for (int i = 0; i < count; i++) {
        far += pow((double)values[i] - wanted[i], 2);
        square += wanted[i] * wanted[i];
    }
    if (!(sqrt(far) <= bound * sqrt(square)))
        fail_msg("%d ranks, batch %lld, edge %lld, offset %g: %s is %g from the joint batch's", job->ranks,
                 (long long)job->batch, (long long)job->edge, job->offset, what, sqrt(far / square));
}

/* Compares one norm with the joint batch. Roundings grow with the distance of the values from 0. */
static void compare_with_joint(const Job *job)
{
    Joint joint = {.mean = {0}};
    Found *found = run(job);
    float mean[CHANNELS], var[CHANNELS]; /* the running ones began as 0 and 1 and moved by a tenth */
    const double bound = 1e-6 * (1 + job->offset);
    for (int c = 0; c < CHANNELS; c++) {
        differentiate_channel(job, found, c, &joint);
        mean[c] = named(found, "bn.running_mean")[c] * 10;
        var[c] = named(found, "bn.running_var")[c] * 10 - 9;
    }
    compare(job, "running_mean", mean, joint.mean, CHANNELS, 1e-6);
    compare(job, "running_var", var, joint.var, CHANNELS, 1e-5);
    compare(job, "bn.weight.grad", named(found, "bn.weight.grad"), joint.dweight, CHANNELS, bound);
    compare(job, "bn.bias.grad", named(found, "bn.bias.grad"), joint.dbias, CHANNELS, bound);
    compare(job, "conv.weight.grad", named(found, "conv.weight.grad"), joint.dconv, CHANNELS * CHANNELS,
            10 * bound);
    forget(found);
}

TEST(test_gradients_of_a_norm_are_those_of_the_joint_batch)
{
    static const struct {
        int64_t edge; /* of images without a whole row of vectors, and of larger ones */
        double offset;
    } cases[] = {{1, 0}, {4, 0}, {4, 3}, {7, 0}, {7, 33}};
    for (int ranks = 1; ranks <= RANKS_MOST; ranks++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const Job job = {.ranks = ranks,
                             .threads = 1 + ranks % 2,
                             .steps = 1,
                             .batch = 12,
                             .edge = cases[i].edge,
                             .offset = cases[i].offset,
                             .make = one_norm};
            compare_with_joint(&job);
        }
}

TEST(test_gradients_of_a_norm_that_samples_are_those_of_the_joint_batch)
{
    static const struct {
        int sample;
        int64_t batch, edge; /* 5 images: two in every five, and one where there are fewer */
        double offset;
    } cases[] = {{2, 12, 4, 0}, {3, 12, 7, 3}, {2, 60, 1, 0}, {8, 60, 5, 0}, {50, 12, 7, 33}, {1, 12, 4, 0}};
    for (int ranks = 1; ranks <= RANKS_MOST; ranks++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const Job job = {.ranks = ranks,
                             .threads = 1 + ranks % 2,
                             .steps = 1,
                             .batch = cases[i].batch,
                             .edge = cases[i].edge,
                             .offset = cases[i].offset,
                             .sample = cases[i].sample,
                             .make = one_norm};
            compare_with_joint(&job);
        }
}

TEST(test_one_value_of_each_channel_has_no_variance)
{
    const BatchNorm norm = {.training = true, .sample = 4};
    FshError error = {0};
    Graph *graph = graph_new();
    TensorId x = graph_input(graph, "x", DATA_F32, 2, (int64_t[]){7, CHANNELS});
    graph_batch_norm(graph, "bn", x, &norm);
    assert_int_equal(graph_check(graph, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "more than one value for each channel, not that of one image of [7 x 3]");
    graph_free(&graph);
}

/* One sample of one pixel in each rank: with a batch of its own a norm has no variance. */
TEST(test_a_rank_may_have_one_value_of_each_channel)
{
    const Job job = {.ranks = 4, .threads = 1, .steps = 1, .batch = 4, .edge = 1, .make = one_norm};
    compare_with_joint(&job);
}

/* ---- updates ---- */

/* Returns a network with every place in which norms are fused. Its leaky ReLUs hardly bend, and SiLU not at
 * all. */
static Graph *smooth_network(const Job *job, int64_t batch)
{
    const int64_t shape[4] = {batch, job->edge, job->edge, CHANNELS};
    const BatchNorm norm = {.training = true};
    const Conv2d conv = {.channels = 8, .kernel = 3, .stride = 1, .padding = 1};
    Optimizer optimizer = {.kind = OPTIMIZER_SGD, .momentum = 0.9, .weight_decay = 5e-4};
    Graph *graph = graph_new();
    graph_set_sync_norms(graph, !job->own_statistics);
    TensorId image = graph_input(graph, "x", DATA_F32, 4, shape);
    TensorId label = graph_input(graph, "label", DATA_I64, 1, &batch);
    TensorId x = graph_conv2d(graph, "conv1", image,
                              &(Conv2d){.channels = 8, .kernel = 3, .stride = 1, .padding = 1, .bias = true});
    x = graph_leaky_relu(graph, graph_batch_norm(graph, "bn1", x, &norm), 0.999F);
    if (job->pools)
        x = graph_max_pool(graph, x, &(Pool2d){.kernel = 3, .stride = 2, .padding = 1});
    graph_set_pool_least(graph, 1);
    TensorId y = graph_batch_norm(graph, "bn2", graph_conv2d(graph, "conv2", x, &conv), &norm);
    x = graph_leaky_relu(graph, graph_add(graph, y, x), 0.999F);
    y = graph_batch_norm(graph, "bn3", graph_conv2d(graph, "conv3", x, &conv), &norm);
    x = graph_silu(graph, graph_add(graph, y, x));
    y = graph_batch_norm(graph, "bn5", graph_conv2d(graph, "conv4", x, &conv), &norm);
    TensorId s = graph_linear(graph, "squeeze", graph_global_avg_pool(graph, y), 4, true);
    s = graph_sigmoid(graph, graph_linear(graph, "excite", graph_silu(graph, s), 8, true));
    y = graph_add(graph, graph_channel_multiply(graph, y, s), x);
    x = graph_avg_pool(graph, graph_leaky_relu(graph, y, 0.999F), &(Pool2d){.kernel = 2, .stride = 2});
    x = graph_linear(graph, "wide", graph_flatten(graph, x), 16, true);
    x = graph_silu(graph, graph_batch_norm(graph, "bn4", x, &norm));
    TensorId loss = graph_softmax_cross_entropy(graph, graph_linear(graph, "fc", x, CLASSES, true), label,
                                                TENSOR_NONE, TENSOR_NONE, 0.1F);
    graph_keep(graph, loss, "loss");
    graph_fuse(graph, FUSE_ALL);
    optimizer.learning_rate = graph_input(graph, "learning_rate", DATA_F32, 1, (int64_t[]){1});
    graph_differentiate(graph, loss);
    graph_fuse_backward(graph, FUSE_ALL);
    graph_update(graph, &optimizer);
    return graph;
}

/* Returns how far all weights of a are from those of b. */
static double distance(const Found *a, const Found *b)
{
    double far = 0, square = 0;
    assert_int_equal(a->weight_values, b->weight_values);
    for (size_t i = 0; i < b->weight_values; i++) {
        far += pow((double)a->values[0][i] - (double)b->values[0][i], 2);
        square += (double)b->values[0][i] * (double)b->values[0][i];
    }
    return sqrt(far / square);
}

/* Returns how far the ranks' weights are from those of one process after so many steps. */
static double far_from_one(int ranks, int threads, int steps, bool own_statistics, bool pools)
{
    Job job = {.ranks = ranks,
               .threads = threads,
               .steps = steps,
               .batch = 12,
               .edge = 12,
               .own_statistics = own_statistics,
               .pools = pools,
               .make = smooth_network};
    Found *several = run(&job);
    for (int rank = 1; rank < ranks; rank++) /* running statistics too, but for those of their own */
        if (!own_statistics)
            assert_memory_equal(several->values[0], several->values[rank],
                                several->weight_values * sizeof(float));
    job.ranks = job.threads = 1;
    Found *one = run(&job);
    const double far = distance(several, one);
    forget(several);
    forget(one);
    return far;
}

static void compare_with_one(bool pools)
{
    const double threads = far_from_one(1, 2, 3, false, pools);
    for (int ranks = 2; ranks <= RANKS_MOST; ranks++) {
        const double once = far_from_one(ranks, 1, 1, false, pools),
                     thrice = far_from_one(ranks, 1, 3, false, pools),
                     own = far_from_one(ranks, 1, 1, true, pools);
        print_message("%d ranks: one update %.2g, three %.2g (two threads %.2g); norms of their own %.2g\n",
                      ranks, once, thrice, threads, own);
        if (!(once < 1e-6) || !(thrice < 4 * threads))
            fail_msg("%d ranks are %g and %g from one process, two threads %g", ranks, once, thrice, threads);
        assert_true(own > 1e-4); /* the bounds tell */
    }
}

TEST(test_ranks_update_as_one_process_does)
{
    compare_with_one(false);
}

TEST(test_ranks_pool_as_one_process_does)
{
    compare_with_one(true);
}
