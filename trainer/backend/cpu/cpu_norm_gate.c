#include "trainer/backend/cpu/cpu_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A batch norm whose result goes to squeeze and excitation alone: the loops of a batch norm, over the pixels
 * of each image by itself.
 *
 * With n = (x - mean) * scale + bias, f the factors of an image, p its pixels and d its gradient of the mean
 * of n:
 *
 *   mean of n    = (mean of x - mean) * scale + bias
 *   n f + addend = (x - mean) * (scale f) + bias f + addend
 *   df           = scale * sum g (x - mean) + bias * sum g
 *   dn           = g f + d / p,   sum dn = f sum g + d,
 *   sum dn (x - mean) = f sum g (x - mean) + d (mean of x - mean)
 *
 * and dx of dn is the batch norm's. So each direction reads x twice, and nothing of its size is written but
 * y, g and dx. */

/* How the images are dealt out: each in so many pieces, an item each. */
typedef struct GatePlan {
    int64_t images, pixels, channels, pieces; /* pixels of an image; pieces of an image */
    int64_t sampled;                          /* images that the statistics are of */
    int64_t stride;                           /* channels rounded up: floats from one vector to the next */
    int64_t threads;
} GatePlan;

/* Vectors of `stride` floats that each thread has: a block of sums (2), then coefficients. */
enum { BLOCK, MEAN = 2, SCALE, BIAS, FROM_X, CONSTANT, VECTORS };

/* Some pixels of one image, on one thread. */
typedef struct GatePiece {
    int64_t index, image, first, count; /* index: over all images; first: value in x; count: pixels */
    int thread;
} GatePiece;

typedef struct GateWork {
    const CpuStep *step;
    void (*run)(const CpuStep *step, const GatePiece *piece);
} GateWork;

static FshStatus prepare_images(CpuStep *step, int x, FshError *error)
{
    const Tensor *image = cpu_input(step, x);
    const int64_t threads = step->program->backend->threads, images = image->shape[0],
                  channels = image->shape[3], pixels = tensor_count(image) / images / channels;
    const int64_t pieces = (4 * threads + images - 1) / images, most = pixels < 8 ? pixels : 8;
    GatePlan *plan = step->plan = malloc(sizeof *plan);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory");
    *plan = (GatePlan){.images = images,
                       .pixels = pixels,
                       .channels = channels,
                       .pieces = pieces < most ? pieces : most,
                       .sampled = batch_norm_sampled(&step->node->as.norm.options, images),
                       .stride = (channels + 15) / 16 * 16,
                       .threads = threads};
    step->scratch_bytes = (uint64_t)(plan->threads * VECTORS * plan->stride) * sizeof(float) +
                          (uint64_t)(2 * channels * (images * plan->pieces + 1)) * sizeof(double);
    return FSH_OK;
}

static float *vector_of(const CpuStep *step, int thread, int which)
{
    const GatePlan *plan = step->plan;
    return (float *)step->program->scratch + (thread * VECTORS + which) * plan->stride;
}

/* Returns the sums of a piece, 2 * channels; those of the piece after the last are for pairs of channels. */
static double *sums_of(const CpuStep *step, int64_t piece)
{
    const GatePlan *plan = step->plan;
    return (double *)(void *)vector_of(step, (int)plan->threads, 0) + piece * 2 * plan->channels;
}

static double *channel_pairs(const CpuStep *step)
{
    const GatePlan *plan = step->plan;
    return sums_of(step, plan->images * plan->pieces);
}

/* Returns the first (0) or second (1) sum of a channel of an image. */
static double image_sum(const CpuStep *step, int64_t image, int which, int64_t c)
{
    const GatePlan *plan = step->plan;
    double sum = 0;
    for (int64_t piece = image * plan->pieces; piece < (image + 1) * plan->pieces; piece++)
        sum += sums_of(step, piece)[which * plan->channels + c];
    return sum;
}

static void pieces_part(void *context, int part, int64_t begin, int64_t end)
{
    const GateWork *work = context;
    const GatePlan *plan = work->step->plan;
    for (int64_t i = begin; i < end; i++) {
        const int64_t image = i / plan->pieces, k = i % plan->pieces, first = plan->pixels * k / plan->pieces;
        work->run(work->step, &(GatePiece){.index = i,
                                           .image = image,
                                           .first = (image * plan->pixels + first) * plan->channels,
                                           .count = plan->pixels * (k + 1) / plan->pieces - first,
                                           .thread = part});
    }
}

static void run_pieces(const CpuStep *step, void (*run)(const CpuStep *step, const GatePiece *piece))
{
    const GatePlan *plan = step->plan;
    cpu_parallel(step->program->backend, plan->images * plan->pieces, pieces_part, &(GateWork){step, run});
}

/* ---- the mean of the normalised image ---- */

static FshStatus norm_squeeze_prepare(CpuStep *step, FshError *error)
{
    return prepare_images(step, NORM_X, error);
}

/* Chooses a value of each channel near its mean: that of some pixels, spread over the images. It takes the
 * first thread's vectors. */
static void choose_shift(const CpuStep *step)
{
    enum { SHIFT_PIXELS_MAX = 64 };
    const GatePlan *plan = step->plan;
    float *shift = vector_of(step, 0, MEAN), *pixel = vector_of(step, 0, BLOCK);
    const int64_t pixels = plan->sampled * plan->pixels;
    const int64_t count = pixels < SHIFT_PIXELS_MAX ? pixels : SHIFT_PIXELS_MAX;
    memset(shift, 0, (size_t)plan->channels * sizeof *shift);
    for (int64_t i = 0; i < count; i++) {
        step->kernels->to_f32(cpu_read(step, NORM_X, pixels * i / count * plan->channels), pixel,
                              plan->channels);
        for (int64_t c = 0; c < plan->channels; c++)
            shift[c] += pixel[c] / (float)count;
    }
}

static void sums_piece(const CpuStep *step, const GatePiece *piece)
{
    const GatePlan *plan = step->plan;
    double *sums = sums_of(step, piece->index);
    memset(sums, 0, (size_t)(2 * plan->channels) * sizeof *sums);
    step->kernels->norm_sums(cpu_read(step, NORM_X, piece->first), vector_of(step, 0, MEAN), piece->count,
                             plan->channels, vector_of(step, piece->thread, BLOCK), sums);
}

/* Computes mean and variance of each channel over this rank's batch, or its sampled images. */
static void find_moments(const CpuStep *step)
{
    const GatePlan *plan = step->plan;
    const float *shift = vector_of(step, 0, MEAN);
    double *mean = channel_pairs(step), *variance = mean + plan->channels;
    const double count = (double)(plan->sampled * plan->pixels);
    memset(mean, 0, (size_t)(2 * plan->channels) * sizeof *mean);
    for (int64_t n = 0; n < plan->sampled; n++)
        for (int64_t c = 0; c < plan->channels; c++) {
            mean[c] += image_sum(step, n, 0, c);
            variance[c] += image_sum(step, n, 1, c);
        }
    for (int64_t c = 0; c < plan->channels; c++) {
        const double difference = mean[c] / count;
        variance[c] = fmax(variance[c] / count - difference * difference, 0);
        mean[c] = (double)shift[c] + difference;
    }
}

/* Computes the means of x and of the normalised image over the pixels of each image. */
static void find_image_means(const CpuStep *step)
{
    const GatePlan *plan = step->plan;
    const float *shift = vector_of(step, 0, MEAN), *mean = step->outputs[NORM_MEAN],
                *inverse_deviation = step->outputs[NORM_INVERSE_DEVIATION],
                *weight = step->inputs[NORM_WEIGHT], *bias = step->inputs[NORM_BIAS];
    float *image_means = step->outputs[NORM_IMAGE_MEANS], *row = vector_of(step, 0, BLOCK);
    for (int64_t n = 0; n < plan->images; n++, image_means += plan->channels) {
        for (int64_t c = 0; c < plan->channels; c++) {
            const double of_x = (double)shift[c] + image_sum(step, n, 0, c) / (double)plan->pixels;
            image_means[c] = (float)of_x;
            row[c] = (float)(of_x - (double)mean[c]) * (weight[c] * inverse_deviation[c]) + bias[c];
        }
        step->kernels->from_f32(row, cpu_write(step, NORM_Y, n * plan->channels), plan->channels);
    }
}

static FshStatus norm_squeeze_run(CpuStep *step, FshError *error)
{
    const GatePlan *plan = step->plan;
    FshStatus status = FSH_OK;
    choose_shift(step);
    run_pieces(step, sums_piece);
    if (step->node->as.norm.options.training) {
        find_moments(step);
        status = cpu_norm_batch_statistics(step, channel_pairs(step), plan->channels,
                                           plan->sampled * plan->pixels, error);
    } else {
        cpu_norm_running_statistics(step, plan->channels);
    }
    if (!status)
        find_image_means(step);
    return status;
}

/* ---- the normalised image times the gate ---- */

static FshStatus norm_gate_prepare(CpuStep *step, FshError *error)
{
    return prepare_images(step, NORM_GATE_X, error);
}

static void norm_gate_piece(const CpuStep *step, const GatePiece *piece)
{
    const GatePlan *plan = step->plan;
    const float *weight = step->inputs[NORM_GATE_WEIGHT], *bias = step->inputs[NORM_GATE_BIAS],
                *inverse_deviation = step->inputs[NORM_GATE_INVERSE_DEVIATION],
                *factors = (const float *)step->inputs[NORM_GATE_FACTORS] + piece->image * plan->channels;
    float *scales = vector_of(step, piece->thread, SCALE), *biases = vector_of(step, piece->thread, BIAS);
    for (int64_t c = 0; c < plan->channels; c++) {
        scales[c] = weight[c] * inverse_deviation[c] * factors[c];
        biases[c] = bias[c] * factors[c];
    }
    const NormForward norm = {.x = cpu_read(step, NORM_GATE_X, piece->first),
                              .addend = cpu_read(step, NORM_GATE_ADDEND, piece->first),
                              .y = cpu_write(step, 0, piece->first),
                              .mean = step->inputs[NORM_GATE_MEAN],
                              .scale = scales,
                              .bias = biases,
                              .activation = step->node->as.norm.activation,
                              .slope = step->node->as.norm.slope};
    step->kernels->norm_forward(&norm, 0, piece->count, plan->channels);
}

static FshStatus norm_gate_run(CpuStep *step, FshError *error)
{
    (void)error;
    run_pieces(step, norm_gate_piece);
    return FSH_OK;
}

/* ---- gradients of the gate ---- */

static FshStatus norm_gate_backward_prepare(CpuStep *step, FshError *error)
{
    return prepare_images(step, NORM_BACK_X, error);
}

static void norm_gate_backward_piece(const CpuStep *step, const GatePiece *piece)
{
    const GatePlan *plan = step->plan;
    double *sums = sums_of(step, piece->index);
    /* scale and bias do not count: y tells where the activation was on */
    const NormBackward norm = {.dy = cpu_read(step, NORM_BACK_DY, piece->first),
                               .dy2 = cpu_read(step, NORM_BACK_DY2, piece->first),
                               .x = cpu_read(step, NORM_BACK_X, piece->first),
                               .y = cpu_read(step, NORM_BACK_Y, piece->first),
                               .g = cpu_write(step, NORM_GATE_BACK_G, piece->first),
                               .mean = step->inputs[NORM_BACK_MEAN],
                               .scale = step->inputs[NORM_BACK_WEIGHT],
                               .bias = step->inputs[NORM_BACK_BIAS],
                               .activation = step->node->as.norm.activation,
                               .slope = step->node->as.norm.slope};
    memset(sums, 0, (size_t)(2 * plan->channels) * sizeof *sums);
    step->kernels->norm_backward_sums(&norm, 0, piece->count, plan->channels,
                                      vector_of(step, piece->thread, BLOCK), sums);
}

static FshStatus norm_gate_backward_run(CpuStep *step, FshError *error)
{
    const GatePlan *plan = step->plan;
    const float *weight = step->inputs[NORM_BACK_WEIGHT], *bias = step->inputs[NORM_BACK_BIAS],
                *inverse_deviation = step->inputs[NORM_BACK_INVERSE_DEVIATION];
    float *dfactors = step->outputs[NORM_GATE_BACK_DFACTORS], *sums = step->outputs[NORM_GATE_BACK_SUMS],
          *products = sums + plan->images * plan->channels;
    (void)error;
    run_pieces(step, norm_gate_backward_piece);
    for (int64_t n = 0; n < plan->images; n++)
        for (int64_t c = 0; c < plan->channels; c++) {
            const double sum = image_sum(step, n, 0, c), product = image_sum(step, n, 1, c);
            *sums++ = (float)sum;
            *products++ = (float)product;
            *dfactors++ =
                (float)(product * (double)inverse_deviation[c] * (double)weight[c] + sum * (double)bias[c]);
        }
    return FSH_OK;
}

/* ---- gradients of the norm ---- */

static FshStatus norm_squeeze_backward_prepare(CpuStep *step, FshError *error)
{
    return prepare_images(step, NORM_SQUEEZE_BACK_X, error);
}

/* Computes the sums of dn and of dn x' over the pixels, into channel_pairs; their means over the ranks where
 * the statistics are of several. */
static FshStatus find_backward_sums(const CpuStep *step, FshError *error)
{
    const GatePlan *plan = step->plan;
    const float *mean = step->inputs[NORM_SQUEEZE_BACK_MEAN],
                *inverse_deviation = step->inputs[NORM_SQUEEZE_BACK_INVERSE_DEVIATION],
                *factors = step->inputs[NORM_SQUEEZE_BACK_FACTORS],
                *sums = step->inputs[NORM_SQUEEZE_BACK_SUMS],
                *products = sums + plan->images * plan->channels,
                *image_means = step->inputs[NORM_SQUEEZE_BACK_IMAGE_MEANS];
    float *dy = vector_of(step, 0, CONSTANT);
    double *sum = channel_pairs(step), *product = sum + plan->channels;
    memset(sum, 0, (size_t)(2 * plan->channels) * sizeof *sum);
    for (int64_t n = 0, i = 0; n < plan->images; n++) {
        step->kernels->to_f32(cpu_read(step, NORM_SQUEEZE_BACK_DY, i), dy, plan->channels);
        for (int64_t c = 0; c < plan->channels; c++, i++) {
            sum[c] += (double)factors[i] * (double)sums[i] + (double)dy[c];
            product[c] += (double)factors[i] * (double)products[i] +
                          (double)dy[c] * ((double)image_means[i] - (double)mean[c]);
        }
    }
    for (int64_t c = 0; c < plan->channels; c++)
        product[c] *= (double)inverse_deviation[c];
    return cpu_norm_average(step, sum, plan->channels, error);
}

static void norm_squeeze_backward_piece(const CpuStep *step, const GatePiece *piece)
{
    const GatePlan *plan = step->plan;
    const float *weight = step->inputs[NORM_SQUEEZE_BACK_WEIGHT],
                *inverse_deviation = step->inputs[NORM_SQUEEZE_BACK_INVERSE_DEVIATION],
                *factors =
                    (const float *)step->inputs[NORM_SQUEEZE_BACK_FACTORS] + piece->image * plan->channels;
    float *from_g = vector_of(step, piece->thread, SCALE), *from_x = vector_of(step, piece->thread, FROM_X),
          *constant = vector_of(step, piece->thread, CONSTANT);
    const double *sum = channel_pairs(step), *product = sum + plan->channels;
    const bool moves = step->node->as.norm.options.training && piece->image < plan->sampled;
    const double share = moves ? 1 / (double)(plan->sampled * plan->pixels) : 0;
    step->kernels->to_f32(cpu_read(step, NORM_SQUEEZE_BACK_DY, piece->image * plan->channels), constant,
                          plan->channels);
    for (int64_t c = 0; c < plan->channels; c++) {
        const double inverse = (double)inverse_deviation[c], scale = (double)weight[c] * inverse;
        from_g[c] = (float)scale * factors[c];
        from_x[c] = (float)(-scale * inverse * product[c] * share);
        constant[c] = (float)(scale * ((double)constant[c] / (double)plan->pixels - sum[c] * share));
    }
    const NormBackward norm = {.dy = cpu_read(step, NORM_SQUEEZE_BACK_G, piece->first),
                               .x = cpu_read(step, NORM_SQUEEZE_BACK_X, piece->first),
                               .dx = cpu_write(step, NORM_BACK_DX, piece->first),
                               .mean = step->inputs[NORM_SQUEEZE_BACK_MEAN],
                               .scale = from_g, /* neither counts: g has passed the activation */
                               .bias = from_g,
                               .from_g = from_g,
                               .from_x = from_x,
                               .constant = constant};
    step->kernels->norm_backward_apply(&norm, 0, piece->count, plan->channels);
}

static FshStatus norm_squeeze_backward_run(CpuStep *step, FshError *error)
{
    const GatePlan *plan = step->plan;
    float *dweight = step->outputs[NORM_BACK_DWEIGHT], *dbias = step->outputs[NORM_BACK_DBIAS];
    FshStatus status = find_backward_sums(step, error);
    if (status)
        return status;
    for (int64_t c = 0; c < plan->channels; c++) {
        dbias[c] = (float)channel_pairs(step)[c];
        dweight[c] = (float)channel_pairs(step)[plan->channels + c];
    }
    if (step->outputs[NORM_BACK_DX])
        run_pieces(step, norm_squeeze_backward_piece);
    return FSH_OK;
}

const CpuOp cpu_ops_norm_gate[] = {
    {OP_NORM_SQUEEZE, .prepare = norm_squeeze_prepare, .run = norm_squeeze_run},
    {OP_NORM_SQUEEZE_BACKWARD, .prepare = norm_squeeze_backward_prepare, .run = norm_squeeze_backward_run},
    {OP_NORM_GATE, .prepare = norm_gate_prepare, .run = norm_gate_run},
    {OP_NORM_GATE_BACKWARD, .prepare = norm_gate_backward_prepare, .run = norm_gate_backward_run},
    {OP_KIND_COUNT, NULL, NULL},
};
