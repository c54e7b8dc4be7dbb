/* airbench.c - the CIFAR-10 speed nets of Keller Jordan (2024, "94 % on CIFAR-10 in 3.29 seconds on a single
 * GPU"; KellerJordan/cifar10-airbench), with the names of airbench94_muon.py: a 2x2 convolution that whitens
 * patches, frozen, with a trained bias; three groups of 3x3 convolutions that begin as the identity for the
 * first channels, each halved by a max pool, with GELU and with batch norms without a trained scale; then the
 * maximum over the remaining image (3 x 3 for 32 x 32), and a linear layer without bias, scaled down.
 *
 * The whitening filters follow from images, and are set before the first step: the eigenvectors of the second
 * moments of their patches, each divided by the root of its eigenvalue, and the negatives of all. */
#include "trainer/models/networks.h"

#include <math.h>
#include <stdio.h>

enum { GROUPS = 3, WHITENING_KERNEL = 2 };

typedef struct Airbench {
    int64_t channels[GROUPS];
    int convolutions; /* of a group */
    bool residual;    /* the last convolution of a group adds to what goes into the one before it */
    double momentum;  /* of the norms' running statistics */
    double scale;     /* of the logits */
} Airbench;

/* Builds a 3x3 convolution of a group, conv1 say, that begins as the identity for the first channels. */
static TensorId convolve(Graph *graph, const char *group, int number, TensorId x, int64_t channels)
{
    char own[16], name[GRAPH_NAME_MAX], weight[GRAPH_NAME_MAX];
    if (x == TENSOR_NONE)
        return x;
    const double fan_in = 9 * (double)graph_tensor(graph, x)->shape[3];
    (void)snprintf(own, sizeof own, "conv%d", number);
    model_join(name, group, own);
    x = graph_conv2d(graph, name, x, &(Conv2d){.channels = channels, .kernel = 3, .stride = 1, .padding = 1});
    graph_set_initializer(graph, model_join(weight, name, "weight"),
                          (Initializer){INIT_DIRAC, 1 / sqrt(fan_in)});
    return x;
}

/* Builds a batch norm of a group, norm1 say, whose scale stays 1. */
static TensorId normalize(Graph *graph, const char *group, int number, TensorId x, double momentum,
                          bool training)
{
    char own[16], name[GRAPH_NAME_MAX], weight[GRAPH_NAME_MAX];
    (void)snprintf(own, sizeof own, "norm%d", number);
    model_join(name, group, own);
    x = graph_batch_norm(graph, name, x,
                         &(BatchNorm){.training = training, .epsilon = 1e-12, .momentum = momentum});
    graph_freeze(graph, graph_find(graph, model_join(weight, name, "weight")));
    return x;
}

static TensorId build_group(Graph *graph, const Airbench *airbench, int group, TensorId x, bool training)
{
    char prefix[16];
    const int64_t channels = airbench->channels[group];
    TensorId shortcut = TENSOR_NONE;
    (void)snprintf(prefix, sizeof prefix, "layers.%d", group + 1);
    for (int i = 1; i <= airbench->convolutions; i++) {
        const bool last = i == airbench->convolutions;
        x = convolve(graph, prefix, i, x, channels);
        if (i == 1)
            x = graph_max_pool(graph, x, &(Pool2d){.kernel = 2, .stride = 2});
        x = normalize(graph, prefix, i, x, airbench->momentum, training);
        if (last && airbench->residual)
            x = graph_add(graph, x, shortcut);
        x = graph_gelu(graph, x);
        if (i == 1)
            shortcut = x;
    }
    return x;
}

static TensorId build(Graph *graph, TensorId x, const ModelSpec *spec, const Airbench *airbench)
{
    const int64_t patch = spec->channels * WHITENING_KERNEL * WHITENING_KERNEL;
    x = graph_conv2d(graph, "whiten", x,
                     &(Conv2d){.channels = 2 * patch, .kernel = WHITENING_KERNEL, .stride = 1, .bias = true});
    graph_freeze(graph, graph_find(graph, "whiten.weight"));
    graph_set_initializer(graph, "whiten.bias", (Initializer){INIT_ZEROS, 0});
    x = graph_gelu(graph, x);
    for (int group = 0; group < GROUPS; group++)
        x = build_group(graph, airbench, group, x, spec->training);
    x = graph_linear(graph, "head", model_image_maximum(graph, x), spec->classes, false);
    graph_set_initializer(graph, "head.weight", (Initializer){INIT_UNIFORM, sqrt(3)}); /* deviation 1 */
    return graph_scale(graph, x, (float)airbench->scale);
}

static TensorId build_94(Graph *graph, TensorId x, const ModelSpec *spec)
{
    return build(graph, x, spec, &(Airbench){{64, 256, 256}, 2, false, 0.4, 1.0 / 256});
}

static TensorId build_96(Graph *graph, TensorId x, const ModelSpec *spec)
{
    return build(graph, x, spec, &(Airbench){{128, 384, 512}, 3, true, 0.1, 1.0 / 9});
}

/* ---- whitening ---- */

enum { CHANNELS_MAX = 3, PATCH_MAX = CHANNELS_MAX * WHITENING_KERNEL * WHITENING_KERNEL };
static const double whitening_epsilon = 5e-4;

/* Of patch_size rows and columns, at its top left. */
typedef double Matrix[PATCH_MAX][PATCH_MAX];

static int64_t patch_size(int64_t channels)
{
    return channels * WHITENING_KERNEL * WHITENING_KERNEL;
}

/* Returns the sums of the products of each two values of a patch, of each value, and the number of
 * patches. */
static size_t sum_count(int64_t channels)
{
    const size_t size = (size_t)patch_size(channels);
    return size * size + size + 1;
}

/* Adds a row of patches. In float32 its sums are exact: each is at most 255 * 255 * 257. */
static void add_row(const ModelImage *image, int64_t y, int64_t first, int64_t end, double *sums)
{
    float products[PATCH_MAX][PATCH_MAX] = {{0}}, values[PATCH_MAX] = {0}, patch[PATCH_MAX] = {0};
    const int64_t channels = image->channels, size = patch_size(channels);
    const int64_t half = channels * WHITENING_KERNEL; /* values of a row of a patch */
    for (int64_t x = first; x < end; x++) {
        for (int64_t i = 0; i < size; i++) {
            const int64_t row = y + i / half;
            patch[i] = image->pixels[(row * image->width + x) * channels + i % half];
        }
        for (int i = 0; i < PATCH_MAX; i++) {
            values[i] += patch[i];
            for (int k = 0; k < PATCH_MAX; k++)
                products[i][k] += patch[i] * patch[k];
        }
    }
    for (int64_t i = 0; i < size; i++) {
        sums[size * size + i] += (double)values[i];
        for (int64_t k = 0; k < size; k++)
            sums[i * size + k] += (double)products[i][k];
    }
    sums[size * size + size] += (double)(end - first);
}

static void add_patches(const ModelImage *image, double *sums)
{
    enum { EXACT = 256 };
    const int64_t width = image->width - WHITENING_KERNEL + 1;
    for (int64_t y = 0; y + WHITENING_KERNEL <= image->height; y++)
        for (int64_t first = 0; first < width; first += EXACT)
            add_row(image, y, first, first + EXACT < width ? first + EXACT : width, sums);
}

/* Turns columns p and q of a and of vectors, and rows of a, so that a[p][q] becomes 0. */
static void rotate(Matrix a, Matrix vectors, int64_t size, int64_t p, int64_t q)
{
    if (a[p][q] == 0)
        return;
    const double theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
    const double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    const double cosine = 1 / sqrt(t * t + 1), sine = t * cosine;
    for (int64_t i = 0; i < size; i++) {
        const double of_p = a[i][p], of_q = a[i][q], first = vectors[i][p], second = vectors[i][q];
        a[i][p] = cosine * of_p - sine * of_q;
        a[i][q] = sine * of_p + cosine * of_q;
        vectors[i][p] = cosine * first - sine * second;
        vectors[i][q] = sine * first + cosine * second;
    }
    for (int64_t i = 0; i < size; i++) {
        const double of_p = a[p][i], of_q = a[q][i];
        a[p][i] = cosine * of_p - sine * of_q;
        a[q][i] = sine * of_p + cosine * of_q;
    }
}

/* Makes a diagonal, its eigenvalues; column k of vectors becomes the eigenvector of a[k][k] (Jacobi 1846: a
 * dozen rows are exact after a few sweeps). */
static void find_eigenvectors(Matrix a, Matrix vectors, int64_t size)
{
    enum { SWEEPS = 12 };
    for (int64_t i = 0; i < size; i++)
        for (int64_t k = 0; k < size; k++)
            vectors[i][k] = i == k;
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int64_t p = 0; p < size; p++)
            for (int64_t q = p + 1; q < size; q++)
                rotate(a, vectors, size, p, q);
}

/* Returns the mean product of values i and k of a patch as the network sees them. */
static double mean_product(const double *sums, const ModelPixelScale *scale, int64_t i, int64_t k)
{
    const int64_t size = patch_size(scale->channels), of_i = i % scale->channels, of_k = k % scale->channels;
    const double *values = sums + size * size, count = values[size] > 0 ? values[size] : 1;
    const double product = sums[i * size + k] / count / (255.0 * 255.0);
    const double first = values[i] / count / 255, second = values[k] / count / 255;
    return (product - first * scale->mean[of_k] - second * scale->mean[of_i] +
            scale->mean[of_i] * scale->mean[of_k]) /
           (scale->deviation[of_i] * scale->deviation[of_k]);
}

/* Makes the filters [2 size, channels, 2, 2] in the order of their eigenvalues, the least first. */
static void compute_whitening(const double *sums, const ModelPixelScale *scale, float *filters)
{
    Matrix covariance = {{0}}, vectors = {{0}};
    const int64_t channels = scale->channels, size = patch_size(channels);
    const int64_t area = WHITENING_KERNEL * WHITENING_KERNEL;
    for (int64_t i = 0; i < size; i++)
        for (int64_t k = 0; k < size; k++)
            covariance[i][k] = mean_product(sums, scale, i, k);
    find_eigenvectors(covariance, vectors, size);
    for (int64_t k = 0; k < size; k++) {
        int64_t place = 0; /* among the filters: eigenvectors with a smaller eigenvalue come before it */
        for (int64_t i = 0; i < size; i++)
            place += covariance[i][i] < covariance[k][k] || (covariance[i][i] == covariance[k][k] && i < k);
        const double factor = 1 / sqrt(fmax(covariance[k][k], 0) + whitening_epsilon);
        for (int64_t i = 0; i < size; i++) { /* i: (row, column, channel); a filter: (channel, row, column) */
            const int64_t at = i % channels * area + i / channels;
            filters[place * size + at] = (float)(vectors[i][k] * factor);
            filters[(size + place) * size + at] = -filters[place * size + at];
        }
    }
}

static const ModelFirstWeight whitening = {.parameter = "whiten.weight",
                                           .images = 5000,
                                           .sum_count = sum_count,
                                           .add = add_patches,
                                           .compute = compute_whitening};

/* ---- the rows ---- */

const Model airbench_models[] = {
    {.name = "airbench94",
     .summary = "the CIFAR-10 speed net of airbench94_muon (Jordan 2024)",
     .task = TASK_CLASSIFICATION,
     .batch_norm = true,
     .build = build_94,
     .first_weight = &whitening},
    {.name = "airbench96",
     .summary = "the wider and deeper net of airbench96 (Jordan 2024)",
     .task = TASK_CLASSIFICATION,
     .batch_norm = true,
     .build = build_96,
     .first_weight = &whitening},
    {0},
};
