#include "trainer/backend/cpu/cpu_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const CpuChannelKernels *kernels_of(const CpuStep *step)
{
    return step->kernels->channel;
}

/* Returns the channels of an image [.., C]. */
static int64_t channels_of(const Tensor *image)
{
    return image->shape[image->rank - 1];
}

static int64_t pixels_of(const Tensor *image)
{
    return tensor_count(image) / channels_of(image);
}

/* ---- sums over pixels ----
 *
 * Each part has in scratch `width` floats for a block of rows and `width` doubles for all of them; the parts
 * are added in their order. */

typedef struct SumPlan {
    int64_t width; /* sums */
    int64_t parts;
} SumPlan;

/* Returns the size of both vectors in floats, rounded up to whole cache lines. */
static int64_t part_floats(const SumPlan *plan)
{
    return (3 * plan->width + 15) / 16 * 16;
}

static FshStatus plan_sums(CpuStep *step, int64_t width, int64_t parts, FshError *error)
{
    SumPlan *plan = step->plan = malloc(sizeof *plan);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory");
    *plan = (SumPlan){width, parts};
    step->scratch_bytes = (uint64_t)(parts * part_floats(plan)) * sizeof(float);
    return FSH_OK;
}

static double *part_sums(const CpuStep *step, int64_t part)
{
    return (double *)(void *)((float *)step->program->scratch + part * part_floats(step->plan));
}

static float *part_block(const CpuStep *step, int64_t part)
{
    const SumPlan *plan = step->plan;
    return (float *)(void *)(part_sums(step, part) + plan->width);
}

static void clear_sums(const CpuStep *step)
{
    const SumPlan *plan = step->plan;
    for (int64_t part = 0; part < plan->parts; part++)
        memset(part_sums(step, part), 0, (size_t)plan->width * sizeof(double));
}

/* Adds up sums first..first + count of the parts begin..begin + parts and writes them to `to`, which may be
 * NULL. */
static void gather_sums(const CpuStep *step, int64_t begin, int64_t parts, int64_t first, int64_t count,
                        float *to)
{
    for (int64_t c = 0; to && c < count; c++) {
        double sum = 0;
        for (int64_t part = begin; part < begin + parts; part++)
            sum += part_sums(step, part)[first + c];
        to[c] = (float)sum;
    }
}

/* ---- scale ---- */

static void scale_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    (void)part;
    step->kernels->scale(cpu_read(step, 0, begin), step->node->as.scale.factor, cpu_write(step, 0, begin),
                         end - begin);
}

static FshStatus scale_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, tensor_count(cpu_output(step, 0)), scale_part, step);
    return FSH_OK;
}

/* ---- channel scale ---- */

static void channel_scale_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const int64_t channels = channels_of(cpu_input(step, 0)), first = begin * channels;
    (void)part;
    kernels_of(step)->scale(cpu_read(step, CHANNEL_X, first), step->inputs[CHANNEL_FACTORS],
                            cpu_read(step, CHANNEL_ADDEND, first), cpu_write(step, 0, first), end - begin,
                            channels);
}

static FshStatus channel_scale_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, pixels_of(cpu_input(step, 0)), channel_scale_part, step);
    return FSH_OK;
}

static FshStatus channel_scale_backward_prepare(CpuStep *step, FshError *error)
{
    return plan_sums(step, channels_of(cpu_input(step, 0)), step->program->backend->threads, error);
}

static void channel_scale_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const int64_t channels = channels_of(cpu_input(step, 0)), first = begin * channels;
    kernels_of(step)->scale_backward(cpu_read(step, CHANNEL_BACK_DY, first),
                                     cpu_read(step, CHANNEL_BACK_X, first),
                                     step->inputs[CHANNEL_BACK_FACTORS], cpu_write(step, 0, first),
                                     end - begin, channels, part_block(step, part), part_sums(step, part));
}

static FshStatus channel_scale_backward_run(CpuStep *step, FshError *error)
{
    const SumPlan *plan = step->plan;
    (void)error;
    clear_sums(step);
    cpu_parallel(step->program->backend, pixels_of(cpu_input(step, 0)), channel_scale_backward_part, step);
    gather_sums(step, 0, plan->parts, 0, plan->width, step->outputs[CHANNEL_BACK_DFACTORS]);
    return FSH_OK;
}

/* ---- channel multiply: a channel scale with factors of each sample ---- */

/* Each image is summed in so many pieces, whatever the threads. */
enum { PIECES = 8 };

/* Some pixels of one image of input 0. */
typedef struct Piece {
    int64_t index, sample;   /* index: over all images */
    int part;                /* of cpu_parallel: pieces of one run after each other */
    int64_t first;           /* value in the input */
    int64_t count, channels; /* pixels, and values of each */
} Piece;

typedef struct PieceWork {
    const CpuStep *step;
    void (*run)(const CpuStep *step, const Piece *piece);
} PieceWork;

static void pieces_part(void *context, int part, int64_t begin, int64_t end)
{
    const PieceWork *work = context;
    const Tensor *image = cpu_input(work->step, 0);
    const int64_t pixels = image->shape[1] * image->shape[2], channels = channels_of(image);
    for (int64_t i = begin; i < end; i++) {
        const int64_t sample = i / PIECES, k = i % PIECES, first = pixels * k / PIECES;
        work->run(work->step, &(Piece){.index = i,
                                       .sample = sample,
                                       .part = part,
                                       .first = (sample * pixels + first) * channels,
                                       .count = pixels * (k + 1) / PIECES - first,
                                       .channels = channels});
    }
}

/* Runs the work on every piece of every image, on all threads. */
static void run_pieces(const CpuStep *step, void (*run)(const CpuStep *step, const Piece *piece))
{
    cpu_parallel(step->program->backend, cpu_input(step, 0)->shape[0] * PIECES, pieces_part,
                 &(PieceWork){step, run});
}

static void channel_multiply_piece(const CpuStep *step, const Piece *piece)
{
    kernels_of(step)->scale(cpu_read(step, 0, piece->first),
                            (const float *)step->inputs[CHANNEL_FACTORS] + piece->sample * piece->channels,
                            NULL, cpu_write(step, 0, piece->first), piece->count, piece->channels);
}

static FshStatus channel_multiply_run(CpuStep *step, FshError *error)
{
    (void)error;
    run_pieces(step, channel_multiply_piece);
    return FSH_OK;
}

static FshStatus channel_multiply_backward_prepare(CpuStep *step, FshError *error)
{
    const Tensor *image = cpu_input(step, 0);
    return plan_sums(step, channels_of(image), image->shape[0] * PIECES, error);
}

static void channel_multiply_backward_piece(const CpuStep *step, const Piece *piece)
{
    kernels_of(step)->scale_backward(
        cpu_read(step, CHANNEL_BACK_DY, piece->first), cpu_read(step, CHANNEL_BACK_X, piece->first),
        (const float *)step->inputs[CHANNEL_BACK_FACTORS] + piece->sample * piece->channels,
        cpu_write(step, 0, piece->first), piece->count, piece->channels, part_block(step, piece->index),
        part_sums(step, piece->index));
}

static FshStatus channel_multiply_backward_run(CpuStep *step, FshError *error)
{
    const SumPlan *plan = step->plan;
    const int64_t samples = cpu_input(step, 0)->shape[0];
    float *ds = step->outputs[CHANNEL_BACK_DFACTORS];
    (void)error;
    clear_sums(step);
    run_pieces(step, channel_multiply_backward_piece);
    for (int64_t n = 0; ds && n < samples; n++)
        gather_sums(step, n * PIECES, PIECES, 0, plan->width, ds + n * plan->width);
    return FSH_OK;
}

/* ---- sums of pieces, and rows of floats ---- */

/* Plans `sums` sums of each channel of a piece and, behind them, `rows` floats for each channel of each
 * sample and one row of zeros. */
static FshStatus plan_sums_and_rows(CpuStep *step, int64_t sums, int64_t rows, FshError *error)
{
    const Tensor *image = cpu_input(step, 0);
    const int64_t channels = channels_of(image);
    FshStatus status = plan_sums(step, sums * channels, image->shape[0] * PIECES, error);
    step->scratch_bytes += (uint64_t)((rows * image->shape[0] + 1) * channels) * sizeof(float);
    return status;
}

/* Returns row i of the floats behind the sums, of all samples each. */
static float *row_of_samples(const CpuStep *step, int64_t i)
{
    const SumPlan *plan = step->plan;
    const Tensor *image = cpu_input(step, 0);
    return (float *)step->program->scratch + plan->parts * part_floats(plan) +
           i * image->shape[0] * channels_of(image);
}

/* ---- gate ---- */

static void gate_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const int64_t channels = channels_of(cpu_output(step, GATE_PRODUCTS));
    (void)part;
    kernels_of(step)->gate(cpu_read(step, 0, 2 * begin * channels),
                           cpu_write(step, GATE_PRODUCTS, begin * channels), end - begin, channels);
}

static bool has_means(const CpuStep *step)
{
    return step->node->output_count > GATE_MEANS;
}

/* Plans the sums of y and of its squares, which norm_sums makes beside them. */
static FshStatus gate_prepare(CpuStep *step, FshError *error)
{
    return has_means(step) ? plan_sums_and_rows(step, 1, 0, error) : FSH_OK;
}

enum { GATE_ROWS = 32 }; /* pixels that stay in the cache between two loops */

static void gate_piece(const CpuStep *step, const Piece *piece)
{
    const int64_t channels = piece->channels / 2;
    for (int64_t i = 0; i < piece->count; i += GATE_ROWS) {
        const int64_t rows = piece->count - i < GATE_ROWS ? piece->count - i : GATE_ROWS;
        const int64_t first = piece->first + i * piece->channels;
        void *y = cpu_write(step, GATE_PRODUCTS, first / 2);
        kernels_of(step)->gate(cpu_read(step, 0, first), y, rows, channels);
        step->kernels->norm_sums(y, row_of_samples(step, 0), rows, channels, part_block(step, piece->index),
                                 part_sums(step, piece->index));
    }
}

static FshStatus gate_run(CpuStep *step, FshError *error)
{
    const Tensor *y = cpu_output(step, GATE_PRODUCTS);
    const int64_t channels = channels_of(y);
    (void)error;
    if (!has_means(step)) {
        cpu_parallel(step->program->backend, pixels_of(y), gate_part, step);
        return FSH_OK;
    }
    float *sums = part_block(step, 0), factor = 1 / (float)(y->shape[1] * y->shape[2]);
    clear_sums(step);
    memset(row_of_samples(step, 0), 0, (size_t)channels * sizeof(float));
    run_pieces(step, gate_piece);
    for (int64_t n = 0; n < y->shape[0]; n++) {
        gather_sums(step, n * PIECES, PIECES, 0, channels, sums);
        for (int64_t c = 0; c < channels; c++)
            sums[c] *= factor;
        step->kernels->from_f32(sums, cpu_write(step, GATE_MEANS, n * channels), channels);
    }
    return FSH_OK;
}

static void gate_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const int64_t channels = channels_of(cpu_input(step, 0));
    (void)part;
    kernels_of(step)->gate_backward(cpu_read(step, 0, begin * channels),
                                    cpu_read(step, GATE_BACK_X, 2 * begin * channels),
                                    cpu_write(step, 0, 2 * begin * channels), end - begin, channels);
}

static bool has_terms(const CpuStep *step)
{
    return step->node->inputs[GATE_BACK_FACTORS] != TENSOR_NONE ||
           step->node->inputs[GATE_BACK_DMEANS] != TENSOR_NONE;
}

/* Plans, for each part, rows of factors and of what is added, and the gradients of some pixels. */
static FshStatus gate_backward_prepare(CpuStep *step, FshError *error)
{
    (void)error;
    if (has_terms(step))
        step->scratch_bytes =
            (uint64_t)(step->program->backend->threads * (GATE_ROWS + 2) * channels_of(cpu_input(step, 0))) *
            sizeof(float);
    return FSH_OK;
}

static void gate_backward_piece(const CpuStep *step, const Piece *piece)
{
    const int64_t channels = piece->channels, of_sample = piece->sample * channels;
    const Tensor *dy = cpu_input(step, GATE_BACK_DY);
    const float *given = step->inputs[GATE_BACK_FACTORS], pixels = (float)(dy->shape[1] * dy->shape[2]);
    float *factors = (float *)step->program->scratch + piece->part * (GATE_ROWS + 2) * channels,
          *shift = factors + channels, *gradients = shift + channels;
    for (int64_t c = 0; c < channels; c++) {
        factors[c] = given ? given[of_sample + c] : 1;
        shift[c] = 0;
    }
    if (step->inputs[GATE_BACK_DMEANS])
        step->kernels->to_f32(cpu_read(step, GATE_BACK_DMEANS, of_sample), shift, channels);
    for (int64_t c = 0; c < channels; c++)
        shift[c] /= pixels;
    for (int64_t i = 0; i < piece->count; i += GATE_ROWS) {
        const int64_t rows = piece->count - i < GATE_ROWS ? piece->count - i : GATE_ROWS;
        const int64_t first = piece->first + i * channels;
        kernels_of(step)->scale_shift(cpu_read(step, GATE_BACK_DY, first), factors, shift, gradients, rows,
                                      channels);
        kernels_of(step)->gate_backward(gradients, cpu_read(step, GATE_BACK_X, 2 * first),
                                        cpu_write(step, GATE_BACK_DX, 2 * first), rows, channels);
    }
}

static FshStatus gate_backward_run(CpuStep *step, FshError *error)
{
    (void)error;
    if (has_terms(step))
        run_pieces(step, gate_backward_piece);
    else
        cpu_parallel(step->program->backend, pixels_of(cpu_input(step, 0)), gate_backward_part, step);
    return FSH_OK;
}

/* ---- layer norm ---- */

static void layer_norm_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const LayerNormRows norm = {.x = step->inputs[0],
                                .weight = step->inputs[LAYER_NORM_WEIGHT],
                                .bias = step->inputs[LAYER_NORM_BIAS],
                                .y = step->outputs[0],
                                .mean = step->outputs[LAYER_NORM_MEAN],
                                .inverse = step->outputs[LAYER_NORM_INVERSE_DEVIATION],
                                .epsilon = step->node->as.layer_norm.epsilon};
    (void)part;
    kernels_of(step)->layer_norm(&norm, begin, end - begin, channels_of(cpu_input(step, 0)));
}

static FshStatus layer_norm_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, pixels_of(cpu_input(step, 0)), layer_norm_part, step);
    return FSH_OK;
}

static FshStatus layer_norm_backward_prepare(CpuStep *step, FshError *error)
{
    return plan_sums(step, 2 * channels_of(cpu_input(step, 0)), step->program->backend->threads, error);
}

static void layer_norm_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const LayerNormRows norm = {.dy = step->inputs[0],
                                .x = step->inputs[LAYER_NORM_BACK_X],
                                .weight = step->inputs[LAYER_NORM_BACK_WEIGHT],
                                .mean = step->inputs[LAYER_NORM_BACK_MEAN],
                                .inverse = step->inputs[LAYER_NORM_BACK_INVERSE_DEVIATION],
                                .addend = step->inputs[LAYER_NORM_BACK_ADDEND],
                                .dx = step->outputs[0]};
    kernels_of(step)->layer_norm_backward(&norm, begin, end - begin, channels_of(cpu_input(step, 0)),
                                          part_block(step, part), part_sums(step, part));
}

static FshStatus layer_norm_backward_run(CpuStep *step, FshError *error)
{
    const SumPlan *plan = step->plan;
    const int64_t channels = plan->width / 2;
    (void)error;
    clear_sums(step);
    cpu_parallel(step->program->backend, pixels_of(cpu_input(step, 0)), layer_norm_backward_part, step);
    gather_sums(step, 0, plan->parts, 0, channels, step->outputs[LAYER_NORM_BACK_DWEIGHT]);
    gather_sums(step, 0, plan->parts, channels, channels, step->outputs[LAYER_NORM_BACK_DBIAS]);
    return FSH_OK;
}

/* ---- response norm: pieces as of channel multiply, then a pass with the factors that follow ---- */

static FshStatus response_norm_prepare(CpuStep *step, FshError *error)
{
    return plan_sums_and_rows(step, 1, 1, error);
}

static FshStatus response_norm_backward_prepare(CpuStep *step, FshError *error)
{
    return plan_sums_and_rows(step, 3, 2, error);
}

/* Sets factors to 1 + weight * norms / mean of norms. Returns the mean, with epsilon. */
static double response_factors(const CpuStep *step, const float *weight, const float *norms, float *factors)
{
    const int64_t channels = channels_of(cpu_input(step, 0));
    double mean = 0;
    for (int64_t c = 0; c < channels; c++)
        mean += (double)norms[c] / (double)channels;
    mean += (double)step->node->as.layer_norm.epsilon;
    for (int64_t c = 0; c < channels; c++)
        factors[c] = (float)(1 + (double)weight[c] * (double)norms[c] / mean);
    return mean;
}

static void response_sums_piece(const CpuStep *step, const Piece *piece)
{
    const void *x = cpu_read(step, RESPONSE_NORM_X, piece->first);
    kernels_of(step)->scale_backward(x, x, NULL, NULL, piece->count, piece->channels,
                                     part_block(step, piece->index), part_sums(step, piece->index));
}

static void response_norm_piece(const CpuStep *step, const Piece *piece)
{
    kernels_of(step)->scale_shift(
        cpu_read(step, RESPONSE_NORM_X, piece->first),
        row_of_samples(step, 0) + piece->sample * piece->channels, step->inputs[RESPONSE_NORM_BIAS],
        cpu_write(step, RESPONSE_NORM_Y, piece->first), piece->count, piece->channels);
}

static FshStatus response_norm_run(CpuStep *step, FshError *error)
{
    const SumPlan *plan = step->plan;
    const int64_t channels = plan->width;
    (void)error;
    clear_sums(step);
    run_pieces(step, response_sums_piece);
    for (int64_t n = 0; n < cpu_input(step, 0)->shape[0]; n++) {
        float *norms = (float *)step->outputs[RESPONSE_NORM_NORMS] + n * channels;
        gather_sums(step, n * PIECES, PIECES, 0, channels, norms);
        for (int64_t c = 0; c < channels; c++)
            norms[c] = sqrtf(norms[c]);
        (void)response_factors(step, step->inputs[RESPONSE_NORM_WEIGHT], norms,
                               row_of_samples(step, 0) + n * channels);
    }
    run_pieces(step, response_norm_piece);
    return FSH_OK;
}

/* Computes dx = dy * factors and the sums of dy * x and of dy. */
static void response_back_sums_piece(const CpuStep *step, const Piece *piece)
{
    const void *dy = cpu_read(step, RESPONSE_NORM_BACK_DY, piece->first);
    double *sums = part_sums(step, piece->index);
    step->kernels->norm_sums(dy, row_of_samples(step, 2), piece->count, piece->channels,
                             part_block(step, piece->index), sums + piece->channels);
    kernels_of(step)->scale_backward(dy, cpu_read(step, RESPONSE_NORM_BACK_X, piece->first),
                                     row_of_samples(step, 0) + piece->sample * piece->channels,
                                     cpu_write(step, RESPONSE_NORM_BACK_DX, piece->first), piece->count,
                                     piece->channels, part_block(step, piece->index), sums);
}

/* Adds what x changes by its norm to dx. */
static void response_back_piece(const CpuStep *step, const Piece *piece)
{
    void *dx = cpu_write(step, RESPONSE_NORM_BACK_DX, piece->first);
    kernels_of(step)->scale(cpu_read(step, RESPONSE_NORM_BACK_X, piece->first),
                            row_of_samples(step, 1) + piece->sample * piece->channels, dx, dx, piece->count,
                            piece->channels);
}

/* Makes of the sums of sample n the slopes by which x goes into dx, and adds its part to dweight. */
static void response_slopes(const CpuStep *step, int64_t n, double mean, float *dweight)
{
    const int64_t channels = channels_of(cpu_input(step, 0));
    const float *weight = step->inputs[RESPONSE_NORM_BACK_WEIGHT],
                *norms = (const float *)step->inputs[RESPONSE_NORM_BACK_NORMS] + n * channels;
    float *slopes = row_of_samples(step, 1) + n * channels;
    double of_mean = 0;
    gather_sums(step, n * PIECES, PIECES, 0, channels, slopes);
    for (int64_t c = 0; c < channels; c++) {
        of_mean += (double)slopes[c] * (double)weight[c] * (double)norms[c];
        if (dweight)
            dweight[c] += (float)((double)slopes[c] * (double)norms[c] / mean);
    }
    of_mean /= (double)channels * mean * mean;
    for (int64_t c = 0; c < channels; c++)
        slopes[c] = norms[c] > 0
                        ? (float)(((double)weight[c] * (double)slopes[c] / mean - of_mean) / (double)norms[c])
                        : 0;
}

static FshStatus response_norm_backward_run(CpuStep *step, FshError *error)
{
    const SumPlan *plan = step->plan;
    const int64_t channels = plan->width / 3, samples = cpu_input(step, 0)->shape[0];
    const float *norms = step->inputs[RESPONSE_NORM_BACK_NORMS];
    float *dweight = step->outputs[RESPONSE_NORM_BACK_DWEIGHT];
    (void)error;
    clear_sums(step);
    memset(row_of_samples(step, 2), 0, (size_t)channels * sizeof(float));
    for (int64_t n = 0; n < samples; n++)
        (void)response_factors(step, step->inputs[RESPONSE_NORM_BACK_WEIGHT], norms + n * channels,
                               row_of_samples(step, 0) + n * channels);
    run_pieces(step, response_back_sums_piece);
    if (dweight)
        memset(dweight, 0, (size_t)channels * sizeof *dweight);
    for (int64_t n = 0; n < samples; n++) {
        const double mean = response_factors(step, step->inputs[RESPONSE_NORM_BACK_WEIGHT],
                                             norms + n * channels, row_of_samples(step, 0) + n * channels);
        response_slopes(step, n, mean, dweight);
    }
    gather_sums(step, 0, plan->parts, channels, channels, step->outputs[RESPONSE_NORM_BACK_DBIAS]);
    if (step->outputs[RESPONSE_NORM_BACK_DX])
        run_pieces(step, response_back_piece);
    return FSH_OK;
}

const CpuOp cpu_ops_channel[] = {
    {OP_SCALE, .run = scale_run},
    {OP_CHANNEL_SCALE, .run = channel_scale_run},
    {OP_CHANNEL_SCALE_BACKWARD, .prepare = channel_scale_backward_prepare, .run = channel_scale_backward_run},
    {OP_CHANNEL_MULTIPLY, .run = channel_multiply_run},
    {OP_CHANNEL_MULTIPLY_BACKWARD, .prepare = channel_multiply_backward_prepare,
     .run = channel_multiply_backward_run},
    {OP_GATE, .prepare = gate_prepare, .run = gate_run},
    {OP_GATE_BACKWARD, .prepare = gate_backward_prepare, .run = gate_backward_run},
    {OP_LAYER_NORM, .run = layer_norm_run},
    {OP_LAYER_NORM_BACKWARD, .prepare = layer_norm_backward_prepare, .run = layer_norm_backward_run},
    {OP_RESPONSE_NORM, .prepare = response_norm_prepare, .run = response_norm_run},
    {OP_RESPONSE_NORM_BACKWARD, .prepare = response_norm_backward_prepare, .run = response_norm_backward_run},
    {OP_KIND_COUNT, NULL, NULL},
};
