#include "trainer/backend/cpu/cpu_internal.h"

#include <math.h>

/* The two losses of classes. A sample's target is mix (1 without) at its label and the rest at the other
 * label, all of it times 1 - smoothing, plus smoothing / K everywhere. Weights of classes: see
 * graph_class_loss. */
typedef struct ClassLoss {
    const CpuStep *step;
    const int64_t *labels, *labels_mixed;
    const float *mix;
    const float *weights; /* [classes]; NULL: 1 each */
    int64_t samples, classes;
    bool binary, binarizes;
    double smoothing, threshold, dloss;
    double weight_sum; /* of all classes */
    double counted;    /* samples that count; of the softmax: their weights */
} ClassLoss;

static double weight_of(const ClassLoss *loss, int64_t k)
{
    return loss->weights ? (double)loss->weights[k] : 1;
}

/* Collects the operands of a step. first: the place of the labels among its inputs. */
static ClassLoss class_loss(const CpuStep *step, int first)
{
    const Tensor *scores = cpu_input(step, first - 1);
    ClassLoss loss = {.step = step,
                      .labels = step->inputs[first],
                      .labels_mixed = step->inputs[first + 1],
                      .mix = step->inputs[first + 2],
                      .weights = step->inputs[first + 3],
                      .binary = step->node->op == OP_BINARY_CROSS_ENTROPY ||
                                step->node->op == OP_BINARY_CROSS_ENTROPY_BACKWARD,
                      .samples = scores->shape[0],
                      .classes = scores->shape[1],
                      .smoothing = (double)step->node->as.loss.smoothing,
                      .threshold = (double)step->node->as.loss.threshold,
                      .binarizes = step->node->as.loss.binarizes};
    for (int64_t k = 0; k < loss.classes; k++)
        loss.weight_sum += weight_of(&loss, k);
    return loss;
}

static double share_of_label(const ClassLoss *loss, int64_t n)
{
    return loss->mix ? (double)loss->mix[n] : 1;
}

/* Returns the weight of a sample that counts: that of its labels, in their shares. */
static double weight_of_labels(const ClassLoss *loss, int64_t n)
{
    const double share = share_of_label(loss, n);
    if (!loss->weights)
        return 1;
    const double of_label = share * weight_of(loss, loss->labels[n]);
    if (share == 1 || !loss->labels_mixed)
        return of_label;
    return of_label + (1 - share) * weight_of(loss, loss->labels_mixed[n]);
}

/* Returns the sum of target times weight over the classes; 1 without weights. */
static double weight_of_target(const ClassLoss *loss, int64_t n)
{
    return loss->weights ? (1 - loss->smoothing) * weight_of_labels(loss, n) +
                               loss->smoothing / (double)loss->classes * loss->weight_sum
                         : 1;
}

/* Sets what the sums over samples are divided by. The labels are within the classes. */
static void count_samples(ClassLoss *loss)
{
    for (int64_t n = 0; n < loss->samples; n++)
        if (loss->labels[n] != -1)
            loss->counted += loss->binary ? 1 : weight_of_labels(loss, n);
}

static double target_at(const ClassLoss *loss, int64_t n, int64_t k)
{
    const double share = share_of_label(loss, n);
    double target = k == loss->labels[n] ? share : 0;
    if (loss->labels_mixed && k == loss->labels_mixed[n])
        target += 1 - share;
    target = target * (1 - loss->smoothing) + loss->smoothing / (double)loss->classes;
    return !loss->binarizes ? target : target > loss->threshold ? 1 : 0;
}

static FshStatus check_label(const ClassLoss *loss, int64_t n, int64_t label, bool may_be_none,
                             FshError *error)
{
    if ((label >= 0 && label < loss->classes) || (may_be_none && label == -1))
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_MISMATCH, "label %lld of sample %lld; there are %lld classes",
                         (long long)label, (long long)n, (long long)loss->classes);
}

static FshStatus check_labels(const ClassLoss *loss, FshError *error)
{
    FshStatus status = FSH_OK;
    for (int64_t n = 0; !status && n < loss->samples; n++) {
        const double share = share_of_label(loss, n);
        status = check_label(loss, n, loss->labels[n], true, error);
        if (!status && !(share >= 0 && share <= 1))
            status = fsh_error_set(error, FSH_ERR_MISMATCH,
                                   "share %g of sample %lld's label; it must be 0 to 1", share, (long long)n);
        if (!status && loss->labels_mixed && loss->labels[n] != -1)
            status = check_label(loss, n, loss->labels_mixed[n], share == 1, error);
    }
    return status;
}

static double *sample_losses(const ClassLoss *loss)
{
    return (double *)loss->step->program->scratch;
}

static FshStatus class_loss_prepare(CpuStep *step, FshError *error)
{
    (void)error;
    step->scratch_bytes = (uint64_t)cpu_input(step, 0)->shape[0] * sizeof(double); /* loss of each sample */
    return FSH_OK;
}

static FshStatus run_class_loss(CpuStep *step, CpuPart part, double terms, FshError *error)
{
    ClassLoss loss = class_loss(step, 1);
    FshStatus status = check_labels(&loss, error);
    if (status)
        return status;
    count_samples(&loss);
    cpu_parallel(step->program->backend, loss.samples, part, &loss);
    double sum = 0;
    for (int64_t n = 0; n < loss.samples; n++)
        sum += sample_losses(&loss)[n];
    *(float *)step->outputs[0] = loss.counted > 0 ? (float)(sum / (loss.counted * terms)) : 0;
    return FSH_OK;
}

/* ---- softmax ---- */

/* Returns -sum weight target log p, with log p = x - largest - log sum exp(x - largest). sum_x: of weight
 * times (x - largest). */
static double softmax_loss(const ClassLoss *loss, int64_t n, const float *x, float largest, double sum,
                           double sum_x)
{
    const int64_t label = loss->labels[n];
    const double share = share_of_label(loss, n);
    double of_labels = share * weight_of(loss, label) * (double)(x[label] - largest);
    if (loss->labels_mixed && share != 1) {
        const int64_t other = loss->labels_mixed[n];
        of_labels += (1 - share) * weight_of(loss, other) * (double)(x[other] - largest);
    }
    return weight_of_target(loss, n) * log(sum) - (1 - loss->smoothing) * of_labels -
           loss->smoothing / (double)loss->classes * sum_x;
}

static void softmax_part(void *context, int part, int64_t begin, int64_t end)
{
    const ClassLoss *loss = context;
    const int64_t classes = loss->classes;
    (void)part;
    for (int64_t n = begin; n < end; n++) {
        const float *x = (const float *)loss->step->inputs[0] + n * classes;
        float *p = (float *)loss->step->outputs[CLASS_LOSS_PROBABILITIES] + n * classes;
        double sum = 0, sum_x = 0;
        float largest = x[0];
        for (int64_t k = 1; k < classes; k++)
            largest = x[k] > largest ? x[k] : largest;
        for (int64_t k = 0; k < classes; k++) {
            p[k] = expf(x[k] - largest);
            sum += (double)p[k];
            sum_x += weight_of(loss, k) * (double)(x[k] - largest);
        }
        for (int64_t k = 0; k < classes; k++)
            p[k] = (float)((double)p[k] / sum);
        sample_losses(loss)[n] = loss->labels[n] == -1 ? 0 : softmax_loss(loss, n, x, largest, sum, sum_x);
    }
}

static FshStatus softmax_cross_entropy_run(CpuStep *step, FshError *error)
{
    return run_class_loss(step, softmax_part, 1, error);
}

/* ---- binary ---- */

/* Returns what divides the sum over the classes; scores: the place of a tensor [N, K] among the inputs. */
static double binary_terms(const CpuStep *step, int scores)
{
    return step->node->as.loss.sums ? 1 : (double)cpu_input(step, scores)->shape[1];
}

/* Computes max(x, 0) - x t + log(1 + exp(-|x|)), which overflows for no x. */
static void binary_part(void *context, int part, int64_t begin, int64_t end)
{
    const ClassLoss *loss = context;
    (void)part;
    for (int64_t n = begin; n < end; n++) {
        const float *x = (const float *)loss->step->inputs[0] + n * loss->classes;
        float *p = (float *)loss->step->outputs[CLASS_LOSS_PROBABILITIES] + n * loss->classes;
        double sum = 0;
        for (int64_t k = 0; k < loss->classes; k++) {
            const float small = expf(-fabsf(x[k]));
            p[k] = (x[k] < 0 ? small : 1) / (1 + small);
            sum += weight_of(loss, k) * ((double)(x[k] < 0 ? 0 : x[k]) -
                                         (double)x[k] * target_at(loss, n, k) + (double)log1pf(small));
        }
        sample_losses(loss)[n] = loss->labels[n] == -1 ? 0 : sum;
    }
}

static FshStatus binary_cross_entropy_run(CpuStep *step, FshError *error)
{
    return run_class_loss(step, binary_part, binary_terms(step, 0), error);
}

/* ---- backward ---- */

/* Computes dx = dloss / (what counts * terms) * (p - target), 0 for samples that do not count: the gradient
 * of both losses. The target has the weight of its class, p that of the sample, or of its class (binary). */
static void backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const ClassLoss *loss = context;
    (void)part;
    for (int64_t n = begin; n < end; n++) {
        const float *p = (const float *)loss->step->inputs[CLASS_LOSS_BACK_PROBABILITIES] + n * loss->classes;
        float *dx = (float *)loss->step->outputs[0] + n * loss->classes;
        const bool counts = loss->labels[n] != -1; /* one left out may hold anything, NaN too */
        const double of_sample = counts && !loss->binary ? weight_of_target(loss, n) : 1;
        for (int64_t k = 0; k < loss->classes; k++) {
            const double weight = weight_of(loss, k), of_p = loss->binary ? weight : of_sample;
            dx[k] =
                counts ? (float)(loss->dloss * (of_p * (double)p[k] - weight * target_at(loss, n, k))) : 0;
        }
    }
}

static FshStatus run_backward(CpuStep *step, double terms)
{
    ClassLoss loss = class_loss(step, 2);
    count_samples(&loss);
    loss.dloss = loss.counted > 0 ? (double)*(const float *)step->inputs[0] / (loss.counted * terms) : 0;
    cpu_parallel(step->program->backend, loss.samples, backward_part, &loss);
    return FSH_OK;
}

static FshStatus softmax_cross_entropy_backward_run(CpuStep *step, FshError *error)
{
    (void)error;
    return run_backward(step, 1);
}

static FshStatus binary_cross_entropy_backward_run(CpuStep *step, FshError *error)
{
    (void)error;
    return run_backward(step, binary_terms(step, CLASS_LOSS_BACK_PROBABILITIES));
}

const CpuOp cpu_ops_loss[] = {
    {OP_SOFTMAX_CROSS_ENTROPY, .prepare = class_loss_prepare, .run = softmax_cross_entropy_run},
    {OP_SOFTMAX_CROSS_ENTROPY_BACKWARD, .run = softmax_cross_entropy_backward_run},
    {OP_BINARY_CROSS_ENTROPY, .prepare = class_loss_prepare, .run = binary_cross_entropy_run},
    {OP_BINARY_CROSS_ENTROPY_BACKWARD, .run = binary_cross_entropy_backward_run},
    {OP_KIND_COUNT, NULL, NULL},
};
