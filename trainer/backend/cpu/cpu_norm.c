#include "trainer/backend/cpu/cpu_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/ranks/communicator.h"

/* Batch norm, each direction in two passes over the image: sums of each channel, then the result. Sums run
 * over 32 rows in float, over blocks of rows in double, over threads in the order of their parts.
 *
 * Forward sums are those of x - shift and its square, with a shift near the mean (the mean of some pixels
 * spread over the image), so that the variance does not vanish in rounding where the mean is large.
 *
 * With options.sample the statistics are of the first images alone. The forward sums run over their pixels,
 * the backward ones over all; of the result's gradient only that of their pixels passes through the
 * statistics (graph_set_norm_sample).
 *
 * With options.sync the ranks exchange two numbers of each channel in each direction, in double. They are
 * means over the ranks, of batches of one size, not sums: so all formulas keep the count of this rank's
 * pixels, and dweight and dbias are what the update's mean over the ranks leaves as it is. Only the unbiased
 * variance takes the pixels of all ranks. */

enum {
    /* with fewer channels several pixels become one row, so that loops are long enough for vectors */
    WIDTH_MIN = 64,
    SHIFT_PIXELS_MAX = 64 /* pixels that shift is the mean of */
};

/* Pixels that follow each other, as a matrix of rows x width, width = pixels in a row * channels, and a rest
 * of less than one row. */
typedef struct Stretch {
    int64_t begin; /* its first element */
    int64_t pixels, rows, rest_width;
} Stretch;

typedef struct NormShape {
    int64_t channels, width;
    Stretch whole, sampled, others; /* others: those that are not sampled */
    int64_t stride;                 /* width rounded up: from one vector in scratch to the next */
    int64_t parts;
} NormShape;

/* What the threads work on. */
typedef struct StretchWork {
    const CpuStep *step;
    const Stretch *stretch;
} StretchWork;

/* Vectors of `stride` floats in scratch: coefficients, then each part's. */
enum { MEAN, SCALE, BIAS, FROM_G, FROM_X, CONSTANT, ZERO, COEFFICIENT_COUNT };
enum {
    PART_BLOCK = 0, /* 2 vectors of float */
    PART_SUMS = 2,  /* 2 vectors of double */
    PART_REST = 6,  /* 2 vectors of double */
    PART_COUNT = 10
};

static float *coefficient(const CpuStep *step, int which)
{
    const NormShape *shape = step->plan;
    return (float *)step->program->scratch + which * shape->stride;
}

static float *part_vector(const CpuStep *step, int64_t part, int which)
{
    const NormShape *shape = step->plan;
    return coefficient(step, COEFFICIENT_COUNT) + (part * PART_COUNT + which) * shape->stride;
}

static Stretch stretch_of(int64_t first, int64_t pixels, int64_t channels, int64_t pixels_in_row)
{
    return (Stretch){.begin = first * channels,
                     .pixels = pixels,
                     .rows = pixels / pixels_in_row,
                     .rest_width = pixels % pixels_in_row * channels};
}

FshStatus cpu_norm_prepare(CpuStep *step, FshError *error)
{
    const bool is_bias = step->node->op == OP_BIAS_BACKWARD;
    const Tensor *x = cpu_input(step, step->node->op == OP_BATCH_NORM_BACKWARD ? NORM_BACK_X : 0);
    const int64_t channels = x->shape[x->rank - 1], pixels = tensor_count(x) / channels;
    const int64_t pixels_in_row = (WIDTH_MIN + channels - 1) / channels, images = x->shape[0];
    const int64_t sampled =
        is_bias ? pixels : pixels / images * batch_norm_sampled(&step->node->as.norm.options, images);
    NormShape *shape = step->plan = malloc(sizeof *shape);
    if (!shape)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory");
    *shape = (NormShape){.channels = channels,
                         .width = pixels_in_row * channels,
                         .whole = stretch_of(0, pixels, channels, pixels_in_row),
                         .sampled = stretch_of(0, sampled, channels, pixels_in_row),
                         .others = stretch_of(sampled, pixels - sampled, channels, pixels_in_row),
                         .parts = step->program->backend->threads};
    shape->stride = (shape->width + 15) / 16 * 16;
    step->scratch_bytes =
        (uint64_t)((COEFFICIENT_COUNT + PART_COUNT * shape->parts) * shape->stride) * sizeof(float) +
        (uint64_t)(2 * channels) * sizeof(double);
    return FSH_OK;
}

/* Returns two numbers of each channel, in scratch: first those of all channels, then the second ones. */
static double *channel_pairs(const CpuStep *step)
{
    const NormShape *shape = step->plan;
    return (double *)part_vector(step, shape->parts, 0);
}

uint64_t cpu_norm_ranks(const CpuStep *step)
{
    const Communicator *communicator = step->program->backend->communicator;
    const bool several = step->node->as.norm.options.sync && communicator;
    return several ? communicator_place(communicator)->world_size : 1;
}

FshStatus cpu_norm_average(const CpuStep *step, double *pairs, int64_t channels, FshError *error)
{
    const uint64_t ranks = cpu_norm_ranks(step);
    const size_t count = 2 * (size_t)channels;
    if (ranks == 1)
        return FSH_OK;
    FshStatus status = communicator_sum_f64(step->program->backend->communicator, pairs, count, error);
    for (size_t i = 0; i < count && !status; i++)
        pairs[i] /= (double)ranks;
    return status;
}

/* Runs work over a stretch. Its items are the rows of the matrix; the rest counts as one more. */
static void run_over(const CpuStep *step, const Stretch *stretch, CpuPart work)
{
    StretchWork over = {step, stretch};
    cpu_parallel(step->program->backend, stretch->rows + (stretch->rest_width > 0), work, &over);
}

/* Repeats the first `channels` values over the width. */
static void repeat(const NormShape *shape, float *values)
{
    for (int64_t i = shape->channels; i < shape->width; i++)
        values[i] = values[i - shape->channels];
}

static void clear_sums(const CpuStep *step)
{
    const NormShape *shape = step->plan;
    for (int64_t part = 0; part < shape->parts; part++)
        memset(part_vector(step, part, PART_SUMS), 0, (size_t)(2 * shape->width) * sizeof(double));
}

/* Adds the sums of a rest, whose second half stands at its own width, to the part's. */
static void join_rest(const CpuStep *step, int64_t part, int64_t rest_width)
{
    const NormShape *shape = step->plan;
    double *sums = (double *)part_vector(step, part, PART_SUMS);
    const double *rest = (const double *)part_vector(step, part, PART_REST);
    for (int64_t i = 0; i < rest_width; i++) {
        sums[i] += rest[i];
        sums[shape->width + i] += rest[rest_width + i];
    }
}

/* Returns the first (0) or second (1) sum of channel c, over all parts and the pixels of a row. */
static double total(const CpuStep *step, int which, int64_t c)
{
    const NormShape *shape = step->plan;
    double sum = 0;
    for (int64_t part = 0; part < shape->parts; part++) {
        const double *sums = (const double *)part_vector(step, part, PART_SUMS) + which * shape->width;
        for (int64_t i = c; i < shape->width; i += shape->channels)
            sum += sums[i];
    }
    return sum;
}

/* ---- forward ---- */

static void choose_shift(const CpuStep *step, float *shift)
{
    const NormShape *shape = step->plan;
    float *pixel = part_vector(step, 0, PART_BLOCK);
    const int64_t pixels = shape->sampled.pixels;
    const int64_t count = pixels < SHIFT_PIXELS_MAX ? pixels : SHIFT_PIXELS_MAX;
    memset(shift, 0, (size_t)shape->channels * sizeof *shift);
    for (int64_t i = 0; i < count; i++) {
        step->kernels->to_f32(cpu_read(step, 0, pixels * i / count * shape->channels), pixel,
                              shape->channels);
        for (int64_t c = 0; c < shape->channels; c++)
            shift[c] += pixel[c] / (float)count;
    }
    repeat(shape, shift);
}

static void sums_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = ((const StretchWork *)context)->step;
    const Stretch *stretch = ((const StretchWork *)context)->stretch;
    const NormShape *shape = step->plan;
    const float *shift = coefficient(step, MEAN);
    float *block = part_vector(step, part, PART_BLOCK);
    const int64_t rows = (end < stretch->rows ? end : stretch->rows) - begin;
    step->kernels->norm_sums(cpu_read(step, 0, begin * shape->width), shift, rows, shape->width, block,
                             (double *)part_vector(step, part, PART_SUMS));
    if (end <= stretch->rows)
        return;
    double *rest = (double *)part_vector(step, part, PART_REST);
    memset(rest, 0, (size_t)(2 * stretch->rest_width) * sizeof *rest);
    step->kernels->norm_sums(cpu_read(step, 0, stretch->rows * shape->width), shift, 1, stretch->rest_width,
                             block, rest);
    join_rest(step, part, stretch->rest_width);
}

/* Computes mean and variance of each channel over this rank's batch, or its sampled images, into
 * channel_pairs. */
static void find_moments(CpuStep *step)
{
    const NormShape *shape = step->plan;
    float *shift = coefficient(step, MEAN);
    double *mean = channel_pairs(step), *variance = mean + shape->channels;
    const double count = (double)shape->sampled.pixels;
    choose_shift(step, shift);
    clear_sums(step);
    run_over(step, &shape->sampled, sums_part);
    for (int64_t c = 0; c < shape->channels; c++) {
        const double difference = total(step, 0, c) / count;
        mean[c] = (double)shift[c] + difference;
        variance[c] = fmax(total(step, 1, c) / count - difference * difference, 0);
    }
}

/* Makes mean and variance of this rank's batch those of the batches of all ranks, which exchange the means of
 * x and of its square. */
static FshStatus share_moments(const CpuStep *step, double *mean, int64_t channels, FshError *error)
{
    double *variance = mean + channels;
    if (cpu_norm_ranks(step) == 1)
        return FSH_OK;
    for (int64_t c = 0; c < channels; c++)
        variance[c] += mean[c] * mean[c];
    FshStatus status = cpu_norm_average(step, mean, channels, error);
    for (int64_t c = 0; c < channels && !status; c++)
        variance[c] = fmax(variance[c] - mean[c] * mean[c], 0);
    return status;
}

FshStatus cpu_norm_batch_statistics(CpuStep *step, double *moments, int64_t channels, int64_t pixels,
                                    FshError *error)
{
    const BatchNorm *options = &step->node->as.norm.options;
    float *mean = step->outputs[NORM_MEAN], *inverse_deviation = step->outputs[NORM_INVERSE_DEVIATION];
    float *running_mean = step->outputs[NORM_MOVED_MEAN], *running_var = step->outputs[NORM_MOVED_VAR];
    const float *layer_bias = step->inputs[NORM_LAYER_BIAS];
    const double count = (double)pixels * (double)cpu_norm_ranks(step);
    const double *batch_mean = moments, *variance = moments + channels;
    FshStatus status = share_moments(step, moments, channels, error);
    for (int64_t c = 0; c < channels && !status; c++) {
        const double unbiased = count > 1 ? variance[c] * count / (count - 1) : variance[c];
        mean[c] = (float)batch_mean[c];
        inverse_deviation[c] = (float)(1 / sqrt(variance[c] + options->epsilon));
        const double moved = batch_mean[c] + (layer_bias ? (double)layer_bias[c] : 0);
        running_mean[c] =
            (float)((1 - options->momentum) * (double)running_mean[c] + options->momentum * moved);
        running_var[c] =
            (float)((1 - options->momentum) * (double)running_var[c] + options->momentum * unbiased);
    }
    return status;
}

void cpu_norm_running_statistics(CpuStep *step, int64_t channels)
{
    float *mean = step->outputs[NORM_MEAN], *inverse_deviation = step->outputs[NORM_INVERSE_DEVIATION];
    const float *running_mean = step->inputs[NORM_RUNNING_MEAN],
                *running_var = step->inputs[NORM_RUNNING_VAR];
    for (int64_t c = 0; c < channels; c++) {
        mean[c] = running_mean[c];
        inverse_deviation[c] =
            (float)(1 / sqrt((double)running_var[c] + step->node->as.norm.options.epsilon));
    }
}

/* Sets the coefficients of y = (x - mean) * scale + bias, for both directions. */
static void set_coefficients(const CpuStep *step, const float *mean, const float *inverse_deviation,
                             const float *weight, const float *bias)
{
    const NormShape *shape = step->plan;
    for (int64_t c = 0; c < shape->channels; c++) {
        coefficient(step, MEAN)[c] = mean[c];
        coefficient(step, SCALE)[c] = weight[c] * inverse_deviation[c];
        coefficient(step, BIAS)[c] = bias[c];
    }
    repeat(shape, coefficient(step, MEAN));
    repeat(shape, coefficient(step, SCALE));
    repeat(shape, coefficient(step, BIAS));
}

/* Returns the matrices from element `offset` on. */
static NormForward forward_arguments(const CpuStep *step, int64_t offset)
{
    return (NormForward){.x = cpu_read(step, 0, offset),
                         .addend = cpu_read(step, NORM_ADDEND, offset),
                         .y = cpu_write(step, 0, offset),
                         .mean = coefficient(step, MEAN),
                         .scale = coefficient(step, SCALE),
                         .bias = coefficient(step, BIAS),
                         .activation = step->node->as.norm.activation,
                         .slope = step->node->as.norm.slope};
}

static void forward_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = ((const StretchWork *)context)->step;
    const Stretch *stretch = ((const StretchWork *)context)->stretch;
    const NormShape *shape = step->plan;
    const int64_t rows = (end < stretch->rows ? end : stretch->rows) - begin;
    const NormForward whole = forward_arguments(step, 0);
    (void)part;
    step->kernels->norm_forward(&whole, begin, rows, shape->width);
    if (end <= stretch->rows)
        return;
    const NormForward last = forward_arguments(step, stretch->rows * shape->width);
    step->kernels->norm_forward(&last, 0, 1, stretch->rest_width);
}

FshStatus cpu_norm_statistics(CpuStep *step, FshError *error)
{
    const NormShape *shape = step->plan;
    FshStatus status = FSH_OK;
    if (step->node->as.norm.options.training) {
        find_moments(step);
        status = cpu_norm_batch_statistics(step, channel_pairs(step), shape->channels, shape->sampled.pixels,
                                           error);
    } else {
        cpu_norm_running_statistics(step, shape->channels);
    }
    if (status)
        return status;
    set_coefficients(step, step->outputs[NORM_MEAN], step->outputs[NORM_INVERSE_DEVIATION],
                     step->inputs[NORM_WEIGHT], step->inputs[NORM_BIAS]);
    return FSH_OK;
}

CpuNormChannels cpu_norm_channels(const CpuStep *step)
{
    return (CpuNormChannels){coefficient(step, MEAN), coefficient(step, SCALE), coefficient(step, BIAS)};
}

static FshStatus batch_norm_run(CpuStep *step, FshError *error)
{
    const NormShape *shape = step->plan;
    FshStatus status = cpu_norm_statistics(step, error);
    if (!status)
        run_over(step, &shape->whole, forward_part);
    return status;
}

/* ---- backward ---- */

static NormBackward backward_arguments(const CpuStep *step, int64_t offset)
{
    const bool of_norm = step->node->op == OP_BATCH_NORM_BACKWARD;
    return (NormBackward){.dy = cpu_read(step, NORM_BACK_DY, offset),
                          .x = cpu_read(step, of_norm ? NORM_BACK_X : 0, offset),
                          .dy2 = cpu_read(step, NORM_BACK_DY2, offset),
                          .y = cpu_read(step, NORM_BACK_Y, offset),
                          .g = cpu_write(step, NORM_BACK_G, offset),
                          .dx = cpu_write(step, 0, offset),
                          .mean = coefficient(step, MEAN),
                          .scale = coefficient(step, SCALE),
                          .bias = coefficient(step, BIAS),
                          .activation = step->node->as.norm.activation,
                          .slope = step->node->as.norm.slope,
                          .from_g = coefficient(step, FROM_G),
                          .from_x = coefficient(step, FROM_X),
                          .constant = coefficient(step, CONSTANT)};
}

static void backward_sums_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = ((const StretchWork *)context)->step;
    const Stretch *stretch = ((const StretchWork *)context)->stretch;
    const NormShape *shape = step->plan;
    const int64_t rows = (end < stretch->rows ? end : stretch->rows) - begin;
    const NormBackward whole = backward_arguments(step, 0);
    float *block = part_vector(step, part, PART_BLOCK);
    step->kernels->norm_backward_sums(&whole, begin, rows, shape->width, block,
                                      (double *)part_vector(step, part, PART_SUMS));
    if (end <= stretch->rows)
        return;
    const NormBackward last = backward_arguments(step, stretch->rows * shape->width);
    double *rest = (double *)part_vector(step, part, PART_REST);
    memset(rest, 0, (size_t)(2 * stretch->rest_width) * sizeof *rest);
    step->kernels->norm_backward_sums(&last, 0, 1, stretch->rest_width, block, rest);
    join_rest(step, part, stretch->rest_width);
}

/* Returns the matrices of a stretch from its element `offset` on, with what of its gradient passes through
 * the statistics. */
static NormBackward apply_arguments(const CpuStep *step, const Stretch *stretch, int64_t offset)
{
    NormBackward arguments = backward_arguments(step, stretch->begin + offset);
    if (stretch->begin > 0)
        arguments.from_x = arguments.constant = coefficient(step, ZERO);
    return arguments;
}

static void backward_apply_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = ((const StretchWork *)context)->step;
    const Stretch *stretch = ((const StretchWork *)context)->stretch;
    const NormShape *shape = step->plan;
    const int64_t rows = (end < stretch->rows ? end : stretch->rows) - begin;
    const NormBackward whole = apply_arguments(step, stretch, 0);
    (void)part;
    step->kernels->norm_backward_apply(&whole, begin, rows, shape->width);
    if (end <= stretch->rows)
        return;
    const NormBackward last = apply_arguments(step, stretch, stretch->rows * shape->width);
    step->kernels->norm_backward_apply(&last, 0, 1, stretch->rest_width);
}

/* Computes the sums of g and of g x' over the pixels, into channel_pairs; their means over the ranks where
 * the statistics are of several. */
static FshStatus find_backward_sums(CpuStep *step, FshError *error)
{
    const NormShape *shape = step->plan;
    const float *inverse_deviation = step->inputs[NORM_BACK_INVERSE_DEVIATION];
    double *sum_g = channel_pairs(step), *sum_gx = sum_g + shape->channels;
    clear_sums(step);
    run_over(step, &shape->whole, backward_sums_part);
    for (int64_t c = 0; c < shape->channels; c++) {
        sum_g[c] = total(step, 0, c);
        sum_gx[c] = inverse_deviation ? total(step, 1, c) * (double)inverse_deviation[c] : 0;
    }
    return cpu_norm_average(step, channel_pairs(step), shape->channels, error);
}

/* Makes dweight, dbias and the coefficients of dx from the sums. */
static void use_backward_sums(const CpuStep *step)
{
    const NormShape *shape = step->plan;
    const float *weight = step->inputs[NORM_BACK_WEIGHT],
                *inverse_deviation = step->inputs[NORM_BACK_INVERSE_DEVIATION];
    float *dweight = step->outputs[NORM_BACK_DWEIGHT], *dbias = step->outputs[NORM_BACK_DBIAS];
    const double *sum_g = channel_pairs(step), *sum_gx = sum_g + shape->channels;
    const double count = (double)shape->sampled.pixels;
    const bool training = step->node->as.norm.options.training;
    for (int64_t c = 0; c < shape->channels; c++) {
        const double inverse = (double)inverse_deviation[c], factor = (double)weight[c] * inverse;
        if (dweight)
            dweight[c] = (float)sum_gx[c];
        if (dbias)
            dbias[c] = (float)sum_g[c];
        coefficient(step, FROM_G)[c] = (float)factor;
        coefficient(step, FROM_X)[c] = training ? (float)(-factor * inverse * sum_gx[c] / count) : 0;
        coefficient(step, CONSTANT)[c] = training ? (float)(-factor * sum_g[c] / count) : 0;
    }
    repeat(shape, coefficient(step, FROM_G));
    repeat(shape, coefficient(step, FROM_X));
    repeat(shape, coefficient(step, CONSTANT));
    memset(coefficient(step, ZERO), 0, (size_t)shape->width * sizeof(float));
}

/* Computes, with g the gradient after the activation, n pixels and x' = (x - mean) * inverse_deviation (Ioffe
 * and Szegedy 2015):
 *
 *   dbias = sum g;  dweight = sum g x';  dx = weight * inverse_deviation * (g - dbias / n - x' dweight / n)
 *
 * and without the last two terms where mean and deviation are the running ones, which do not depend on x.
 * With options.sample n counts the sampled pixels, and the others have no such terms. */
static FshStatus batch_norm_backward_run(CpuStep *step, FshError *error)
{
    const NormShape *shape = step->plan;
    set_coefficients(step, step->inputs[NORM_BACK_MEAN], step->inputs[NORM_BACK_INVERSE_DEVIATION],
                     step->inputs[NORM_BACK_WEIGHT], step->inputs[NORM_BACK_BIAS]);
    FshStatus status = find_backward_sums(step, error);
    if (status)
        return status;
    use_backward_sums(step);
    if (step->outputs[NORM_BACK_DLAYER_BIAS])
        memset(step->outputs[NORM_BACK_DLAYER_BIAS], 0, (size_t)shape->channels * sizeof(float));
    if (step->outputs[0])
        run_over(step, &shape->sampled, backward_apply_part);
    if (step->outputs[0] && shape->others.pixels)
        run_over(step, &shape->others, backward_apply_part);
    return FSH_OK;
}

static FshStatus bias_prepare(CpuStep *step, FshError *error)
{
    step->kernels = cpu_kernels(step->program->backend, cpu_input(step, 0)->type); /* the result is f32 */
    return cpu_norm_prepare(step, error);
}

/* Computes dbias = sum dy, by the sums of a norm of dy itself. */
static FshStatus bias_backward_run(CpuStep *step, FshError *error)
{
    const NormShape *shape = step->plan;
    float *dbias = step->outputs[0];
    memset(coefficient(step, 0), 0, (size_t)(COEFFICIENT_COUNT * shape->stride) * sizeof(float));
    FshStatus status = find_backward_sums(step, error);
    for (int64_t c = 0; c < shape->channels && !status; c++)
        dbias[c] = (float)channel_pairs(step)[c];
    return status;
}

const CpuOp cpu_ops_norm[] = {
    {OP_BATCH_NORM, .prepare = cpu_norm_prepare, .run = batch_norm_run},
    {OP_BATCH_NORM_BACKWARD, .prepare = cpu_norm_prepare, .run = batch_norm_backward_run},
    {OP_BIAS_BACKWARD, .prepare = bias_prepare, .run = bias_backward_run},
    {OP_KIND_COUNT, NULL, NULL},
};
