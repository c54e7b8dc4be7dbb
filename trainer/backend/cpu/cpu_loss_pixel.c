/* Losses of images. Forward: each row of each image leaves two sums in double, that of the loss's own terms
 * and that of the squares, which are added in the rows' order: the same for any number of threads. 8 bytes
 * read for a value; backward 8 read, 4 written. */
#include "trainer/backend/cpu/cpu_internal.h"

#include <math.h>

static const float charbonnier_square = 1e-6F; /* 1e-3 squared: Lai et al. 2017 */
static const double psnr_epsilon = 1e-8;       /* NAFNet's */

typedef struct PixelLoss {
    const CpuStep *step;
    LossKind kind;
    const float *prediction, *target, *valid;
    int64_t images, rows, row_values;
    double *sums;          /* [images * rows][2]: of the terms, of the squares */
    const double *factors; /* [images]: what d, or its direction, is multiplied by */
} PixelLoss;

/* Collects the operands of a step. first, valid: the places of prediction and valid among its inputs. */
static PixelLoss pixel_loss(const CpuStep *step, int first, int valid)
{
    const Tensor *image = cpu_input(step, first);
    return (PixelLoss){.step = step,
                       .kind = step->node->as.pixel_loss.kind,
                       .prediction = step->inputs[first],
                       .target = step->inputs[first + 1],
                       .valid = step->inputs[valid],
                       .images = image->shape[0],
                       .rows = image->shape[1],
                       .row_values = image->shape[2] * image->shape[3],
                       .sums = (double *)step->program->scratch};
}

static double weight_of(const PixelLoss *loss, int64_t image)
{
    return loss->valid ? (double)loss->valid[image] : 1;
}

static double total_weight(const PixelLoss *loss)
{
    double sum = 0;
    for (int64_t n = 0; n < loss->images; n++)
        sum += weight_of(loss, n);
    return sum;
}

/* Returns the number of values of one image. */
static double image_values(const PixelLoss *loss)
{
    return (double)(loss->rows * loss->row_values);
}

static FshStatus pixel_loss_prepare(CpuStep *step, FshError *error)
{
    const Tensor *image = cpu_input(step, 0);
    (void)error;
    step->scratch_bytes = (uint64_t)(image->shape[0] * image->shape[1] * 2) * sizeof(double);
    return FSH_OK;
}

static FshStatus pixel_loss_backward_prepare(CpuStep *step, FshError *error)
{
    (void)error;
    step->scratch_bytes =
        (uint64_t)cpu_input(step, PIXEL_LOSS_BACK_PREDICTION)->shape[0] * sizeof(double); /* factors */
    return FSH_OK;
}

static void sum_absolutes(const float *a, const float *b, int64_t count, double *terms, double *squares)
{
    double absolute = 0, square = 0;
#pragma omp simd reduction(+ : absolute, square)
    for (int64_t i = 0; i < count; i++) {
        const double d = (double)(a[i] - b[i]);
        absolute += fabs(d);
        square += d * d;
    }
    *terms = absolute;
    *squares = square;
}

static void sum_charbonnier(const float *a, const float *b, int64_t count, double *terms, double *squares)
{
    double root = 0, square = 0;
#pragma omp simd reduction(+ : root, square)
    for (int64_t i = 0; i < count; i++) {
        const double d = (double)(a[i] - b[i]);
        root += sqrt(d * d + (double)charbonnier_square);
        square += d * d;
    }
    *terms = root;
    *squares = square;
}

static void forward_part(void *context, int part, int64_t begin, int64_t end)
{
    const PixelLoss *loss = context;
    (void)part;
    for (int64_t row = begin; row < end; row++) {
        const int64_t at = row * loss->row_values;
        (loss->kind == LOSS_CHARBONNIER ? sum_charbonnier : sum_absolutes)(
            loss->prediction + at, loss->target + at, loss->row_values, &loss->sums[2 * row],
            &loss->sums[2 * row + 1]);
    }
}

/* Returns the loss of one image from its sums. */
static double image_loss(const PixelLoss *loss, double terms, double squares)
{
    const double mean_square = squares / image_values(loss);
    switch (loss->kind) {
    case LOSS_MSE:
        return mean_square;
    case LOSS_PSNR:
        return 10 / log(10) * log(mean_square + psnr_epsilon);
    default:
        return terms / image_values(loss);
    }
}

static FshStatus pixel_loss_run(CpuStep *step, FshError *error)
{
    PixelLoss loss = pixel_loss(step, 0, 2);
    float *loss_ret = step->outputs[PIXEL_LOSS_LOSS], *errors_ret = step->outputs[PIXEL_LOSS_ERRORS];
    const double weights = total_weight(&loss);
    double sum = 0;
    (void)error;
    cpu_parallel(step->program->backend, loss.images * loss.rows, forward_part, &loss);
    for (int64_t n = 0; n < loss.images; n++) {
        double terms = 0, squares = 0;
        for (int64_t row = n * loss.rows; row < (n + 1) * loss.rows; row++) {
            terms += loss.sums[2 * row];
            squares += loss.sums[2 * row + 1];
        }
        errors_ret[n] = (float)(squares / image_values(&loss));
        /* What is left out may be anything, NaN too. */
        if (weight_of(&loss, n) != 0)
            sum += weight_of(&loss, n) * image_loss(&loss, terms, squares);
    }
    *loss_ret = weights > 0 ? (float)(sum / weights) : 0;
    return FSH_OK;
}

/* ---- backward ---- */

/* Computes d loss / d prediction = factor * d (mse, psnr), * sign d (l1), * d / sqrt(d^2 + e^2)
 * (charbonnier). */
static void backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const PixelLoss *loss = context;
    float *dx = loss->step->outputs[0];
    (void)part;
    for (int64_t row = begin; row < end; row++) {
        const float *a = loss->prediction + row * loss->row_values,
                    *b = loss->target + row * loss->row_values;
        float *out = dx + row * loss->row_values;
        const float factor = (float)loss->factors[row / loss->rows];
        if (factor == 0) { /* left out, whatever lies there */
            for (int64_t i = 0; i < loss->row_values; i++)
                out[i] = 0;
        } else if (loss->kind == LOSS_L1) {
#pragma omp simd
            for (int64_t i = 0; i < loss->row_values; i++)
                out[i] = a[i] > b[i] ? factor : a[i] < b[i] ? -factor : (a[i] - b[i]) * factor;
        } else if (loss->kind == LOSS_CHARBONNIER) {
#pragma omp simd
            for (int64_t i = 0; i < loss->row_values; i++) {
                const float d = a[i] - b[i];
                out[i] = factor * d / sqrtf(d * d + charbonnier_square);
            }
        } else {
#pragma omp simd
            for (int64_t i = 0; i < loss->row_values; i++)
                out[i] = factor * (a[i] - b[i]);
        }
    }
}

static FshStatus pixel_loss_backward_run(CpuStep *step, FshError *error)
{
    PixelLoss loss = pixel_loss(step, 1, 4);
    const float *errors = step->inputs[PIXEL_LOSS_BACK_ERRORS];
    double *factors = (double *)step->program->scratch;
    const double weights = total_weight(&loss), dloss = (double)*(const float *)step->inputs[0];
    (void)error;
    for (int64_t n = 0; n < loss.images; n++) {
        const double share = weights > 0 ? dloss * weight_of(&loss, n) / weights / image_values(&loss) : 0;
        factors[n] = share;
        if (loss.kind == LOSS_MSE)
            factors[n] = 2 * share;
        else if (loss.kind == LOSS_PSNR && share != 0)
            factors[n] = 2 * share * 10 / log(10) / ((double)errors[n] + psnr_epsilon);
    }
    loss.factors = factors;
    cpu_parallel(step->program->backend, loss.images * loss.rows, backward_part, &loss);
    return FSH_OK;
}

const CpuOp cpu_ops_loss_pixel[] = {
    {OP_PIXEL_LOSS, .prepare = pixel_loss_prepare, .run = pixel_loss_run},
    {OP_PIXEL_LOSS_BACKWARD, .prepare = pixel_loss_backward_prepare, .run = pixel_loss_backward_run},
    {OP_KIND_COUNT, NULL, NULL},
};
