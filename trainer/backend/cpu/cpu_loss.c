#include "trainer/backend/cpu/cpu.h"

#include <math.h>

static bool counts(int64_t label)
{
    return label != -1;
}

static int64_t count_labels(const int64_t *labels, int64_t samples)
{
    int64_t valid = 0;
    for (int64_t n = 0; n < samples; n++)
        valid += counts(labels[n]);
    return valid;
}

FshStatus cpu_softmax_cross_entropy_prepare(CpuStep *step, FshError *error)
{
    (void)error;
    step->scratch_bytes = (uint64_t)cpu_input(step, 0)->shape[0] * sizeof(double); /* loss of each sample */
    return FSH_OK;
}

/* Loss and probabilities of samples begin..end. With log p = x - max - log sum exp(x - max):
 * loss = (1 - smoothing) * -log p[label] + smoothing / K * sum of -log p. */
static void loss_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const int64_t classes = cpu_input(step, 0)->shape[1];
    const int64_t *labels = step->inputs[1];
    const double smoothing = (double)step->node->as.loss.smoothing;
    double *losses = (double *)step->program->scratch;
    (void)part;
    for (int64_t n = begin; n < end; n++) {
        const float *x = (const float *)step->inputs[0] + n * classes;
        float *p = (float *)step->outputs[1] + n * classes;
        double sum = 0, sum_x = 0;
        float largest = x[0];
        for (int64_t k = 1; k < classes; k++)
            largest = x[k] > largest ? x[k] : largest;
        for (int64_t k = 0; k < classes; k++) {
            p[k] = expf(x[k] - largest);
            sum += (double)p[k];
            sum_x += (double)(x[k] - largest);
        }
        for (int64_t k = 0; k < classes; k++)
            p[k] = (float)((double)p[k] / sum);
        losses[n] = 0;
        if (counts(labels[n]))
            losses[n] = log(sum) - (1 - smoothing) * (double)(x[labels[n]] - largest) -
                        smoothing / (double)classes * sum_x;
    }
}

FshStatus cpu_softmax_cross_entropy_run(CpuStep *step, FshError *error)
{
    const Tensor *logits = cpu_input(step, 0);
    const int64_t *labels = step->inputs[1], samples = logits->shape[0];
    const double *losses = (const double *)step->program->scratch;
    for (int64_t n = 0; n < samples; n++)
        if (counts(labels[n]) && (labels[n] < 0 || labels[n] >= logits->shape[1]))
            return fsh_error_set(error, FSH_ERR_MISMATCH, "label %lld of sample %lld; there are %lld classes",
                                 (long long)labels[n], (long long)n, (long long)logits->shape[1]);
    cpu_parallel(step->program->backend, samples, loss_part, step);
    double sum = 0;
    for (int64_t n = 0; n < samples; n++)
        sum += losses[n];
    const int64_t valid = count_labels(labels, samples);
    *(float *)step->outputs[0] = valid ? (float)(sum / (double)valid) : 0;
    return FSH_OK;
}

/* dx = dloss / valid * (p - (1 - smoothing) at the label - smoothing / K), 0 for samples that do not count. */
FshStatus cpu_softmax_cross_entropy_backward_run(CpuStep *step, FshError *error)
{
    const Tensor *probabilities = cpu_input(step, 1);
    const int64_t samples = probabilities->shape[0], classes = probabilities->shape[1];
    const int64_t *labels = step->inputs[2];
    const int64_t valid = count_labels(labels, samples);
    const double factor = valid ? (double)*(const float *)step->inputs[0] / (double)valid : 0;
    const double smoothing = (double)step->node->as.loss.smoothing;
    (void)error;
    for (int64_t n = 0; n < samples; n++) {
        const float *p = (const float *)step->inputs[1] + n * classes;
        float *dx = (float *)step->outputs[0] + n * classes;
        const double here = counts(labels[n]) ? factor : 0;
        for (int64_t k = 0; k < classes; k++) {
            const double target = smoothing / (double)classes + (k == labels[n] ? 1 - smoothing : 0);
            dx[k] = (float)(here * ((double)p[k] - target));
        }
    }
    return FSH_OK;
}
