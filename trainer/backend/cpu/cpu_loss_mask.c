/* The loss of masks: cross-entropy of every pixel. Forward: each row of each image leaves three sums in
 * double, which are added in the rows' order: the same for any number of threads. For a pixel 4 K + 1
 * bytes are read and 1 is written; backward 4 K + 1 read, 4 K written. */
#include "trainer/backend/cpu/cpu_internal.h"

#include <math.h>

typedef struct MaskLoss {
    const float *logits, *valid;
    const uint8_t *mask;
    int64_t images, rows, columns, classes;
    double smoothing;
    double *sums;         /* forward: [images * rows][MASK_SUMS] */
    uint8_t *predictions; /* forward: [images, rows, columns] */
    int64_t *unknown; /* forward: [images * rows] the first pixel of the row whose value is no class; -1 */
    double share;     /* backward: of dloss for a pixel of an image of weight 1 */
    float *dlogits;
} MaskLoss;

/* Collects the operands of a step. first, valid: the places of logits and valid among its inputs. */
static MaskLoss mask_loss(const CpuStep *step, int first, int valid)
{
    const Tensor *logits = cpu_input(step, first);
    return (MaskLoss){.logits = step->inputs[first],
                      .mask = step->inputs[first + 1],
                      .valid = step->inputs[valid],
                      .images = logits->shape[0],
                      .rows = logits->shape[1],
                      .columns = logits->shape[2],
                      .classes = logits->shape[3],
                      .smoothing = (double)step->node->as.mask_loss.smoothing};
}

static double weight_of(const MaskLoss *loss, int64_t image)
{
    return loss->valid ? (double)loss->valid[image] : 1;
}

static FshStatus mask_loss_prepare(CpuStep *step, FshError *error)
{
    const Tensor *mask = cpu_input(step, MASK_LOSS_MASK);
    (void)error;
    step->scratch_bytes =
        (uint64_t)(mask->shape[0] * mask->shape[1]) * (MASK_SUMS * sizeof(double) + sizeof(int64_t));
    return FSH_OK;
}

/* Returns the class of the highest logit; of equals the lower one, and NaN is below every number. */
static int64_t best_class(const float *x, int64_t classes)
{
    int64_t best = 0;
    for (int64_t k = 1; k < classes; k++)
        if (x[k] > x[best] || (isnan(x[best]) && !isnan(x[k])))
            best = k;
    return best;
}

/* Returns the loss of a pixel of this class. */
static double pixel_loss(const MaskLoss *loss, const float *x, int64_t class, float largest)
{
    double sum = 0, sum_x = 0;
    for (int64_t k = 0; k < loss->classes; k++) {
        sum += (double)expf(x[k] - largest);
        sum_x += (double)(x[k] - largest);
    }
    return log(sum) - (1 - loss->smoothing) * (double)(x[class] - largest) -
           loss->smoothing / (double)loss->classes * sum_x;
}

static void forward_part(void *context, int part, int64_t begin, int64_t end)
{
    const MaskLoss *loss = context;
    (void)part;
    for (int64_t row = begin; row < end; row++) {
        double sums[MASK_SUMS] = {0};
        loss->unknown[row] = -1;
        for (int64_t pixel = row * loss->columns; pixel < (row + 1) * loss->columns; pixel++) {
            const float *x = loss->logits + pixel * loss->classes;
            const int64_t class = loss->mask[pixel], best = best_class(x, loss->classes);
            loss->predictions[pixel] = (uint8_t)best;
            if (class == GRAPH_MASK_IGNORED)
                continue;
            if (class >= loss->classes) {
                loss->unknown[row] = loss->unknown[row] < 0 ? pixel : loss->unknown[row];
                continue;
            }
            sums[MASK_SUM_LOSS] += pixel_loss(loss, x, class, x[best]);
            sums[MASK_SUM_PIXELS]++;
            sums[MASK_SUM_RIGHT] += best == class;
        }
        for (int i = 0; i < MASK_SUMS; i++)
            loss->sums[row * MASK_SUMS + i] = sums[i];
    }
}

static FshStatus check_values(const MaskLoss *loss, FshError *error)
{
    for (int64_t row = 0; row < loss->images * loss->rows; row++)
        if (loss->unknown[row] >= 0)
            return fsh_error_set(
                error, FSH_ERR_MISMATCH, "value %d in the mask of sample %lld; there are %lld classes",
                loss->mask[loss->unknown[row]], (long long)(row / loss->rows), (long long)loss->classes);
    return FSH_OK;
}

static FshStatus mask_loss_run(CpuStep *step, FshError *error)
{
    MaskLoss loss = mask_loss(step, MASK_LOSS_LOGITS, MASK_LOSS_VALID);
    float *loss_ret = step->outputs[MASK_LOSS_LOSS], *sums_ret = step->outputs[MASK_LOSS_SUMS];
    double sum = 0, pixels = 0;
    loss.sums = (double *)step->program->scratch;
    loss.unknown = (int64_t *)(loss.sums + loss.images * loss.rows * MASK_SUMS);
    loss.predictions = step->outputs[MASK_LOSS_CLASSES];
    cpu_parallel(step->program->backend, loss.images * loss.rows, forward_part, &loss);
    FshStatus status = check_values(&loss, error);
    for (int64_t n = 0; n < loss.images && !status; n++) {
        double of_image[MASK_SUMS] = {0};
        for (int64_t i = n * loss.rows * MASK_SUMS; i < (n + 1) * loss.rows * MASK_SUMS; i++)
            of_image[i % MASK_SUMS] += loss.sums[i];
        for (int i = 0; i < MASK_SUMS; i++)
            sums_ret[n * MASK_SUMS + i] = (float)of_image[i];
        /* What is left out may be anything, NaN too. */
        if (weight_of(&loss, n) == 0)
            continue;
        sum += weight_of(&loss, n) * of_image[MASK_SUM_LOSS];
        pixels += weight_of(&loss, n) * (double)sums_ret[n * MASK_SUMS + MASK_SUM_PIXELS];
    }
    *loss_ret = pixels > 0 ? (float)(sum / pixels) : 0;
    return status;
}

/* ---- backward ---- */

/* Computes dx[k] = factor * (softmax(x)[k] - target[k]); dx may be x. */
static void pixel_gradient(const MaskLoss *loss, const float *x, int64_t class, float factor, float *dx)
{
    const float largest = x[best_class(x, loss->classes)];
    const float spread = (float)(loss->smoothing / (double)loss->classes);
    float sum = 0;
    for (int64_t k = 0; k < loss->classes; k++) {
        dx[k] = expf(x[k] - largest);
        sum += dx[k];
    }
    for (int64_t k = 0; k < loss->classes; k++)
        dx[k] = factor * (dx[k] / sum - spread);
    dx[class] -= factor * (float)(1 - loss->smoothing);
}

static void backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const MaskLoss *loss = context;
    (void)part;
    for (int64_t row = begin; row < end; row++) {
        const float factor = (float)(loss->share * weight_of(loss, row / loss->rows));
        for (int64_t pixel = row * loss->columns; pixel < (row + 1) * loss->columns; pixel++) {
            const float *x = loss->logits + pixel * loss->classes;
            float *dx = loss->dlogits + pixel * loss->classes;
            if (factor != 0 && loss->mask[pixel] < loss->classes) {
                pixel_gradient(loss, x, loss->mask[pixel], factor, dx);
                continue;
            }
            for (int64_t k = 0; k < loss->classes; k++) /* left out, whatever lies there */
                dx[k] = 0;
        }
    }
}

static FshStatus mask_loss_backward_run(CpuStep *step, FshError *error)
{
    MaskLoss loss = mask_loss(step, MASK_LOSS_BACK_LOGITS, MASK_LOSS_BACK_VALID);
    const float *sums = step->inputs[MASK_LOSS_BACK_SUMS];
    double pixels = 0;
    (void)error;
    for (int64_t n = 0; n < loss.images; n++)
        pixels += weight_of(&loss, n) * (double)sums[n * MASK_SUMS + MASK_SUM_PIXELS];
    loss.share = pixels > 0 ? (double)*(const float *)step->inputs[MASK_LOSS_BACK_DLOSS] / pixels : 0;
    loss.dlogits = step->outputs[0];
    cpu_parallel(step->program->backend, loss.images * loss.rows, backward_part, &loss);
    return FSH_OK;
}

const CpuOp cpu_ops_loss_mask[] = {
    {OP_MASK_LOSS, .prepare = mask_loss_prepare, .run = mask_loss_run},
    {OP_MASK_LOSS_BACKWARD, .run = mask_loss_backward_run},
    {OP_KIND_COUNT, NULL, NULL},
};
