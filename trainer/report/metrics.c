#include "trainer/report/metrics.h"

#include <math.h>
#include <string.h>

const char *const metric_names[METRIC_COUNT] = {"loss", "top1", "top5", "psnr", "ssim", "input_psnr"};
const char *const metric_titles[METRIC_COUNT] = {"Loss", "Acc@1", "Acc@5", "PSNR", "SSIM", "input PSNR"};

bool metric_rises(Metric metric)
{
    return metric != METRIC_LOSS;
}

bool metric_is_shown(Metric metric, int64_t classes)
{
    enum { CLASSES_FOR_TOP5 = 10 };
    return metric != METRIC_TOP5 || classes >= CLASSES_FOR_TOP5;
}

/* Returns how many classes rank above the label. A NaN ranks above every number; a label whose own logit is
 * NaN ranks below all that counts, so that a diverged network is never right. */
static uint64_t rank_of(const float *logits, uint64_t classes, uint64_t label)
{
    float own = logits[label];
    uint64_t rank = 0;
    if (isnan(own))
        return UINT64_MAX;
    for (uint64_t c = 0; c < classes; c++)
        rank += !(logits[c] <= own) || (logits[c] == own && c < label);
    return rank;
}

void metrics_add_value(Metrics *metrics, Metric metric, double value)
{
    metrics->sums[metric] += value;
    metrics->measured |= 1U << metric;
}

void metrics_count(Metrics *metrics, uint64_t samples)
{
    metrics->count += samples;
}

void metrics_add_classes(Metrics *metrics, const float *logits, const int64_t *labels, uint64_t batch,
                         uint64_t classes, double mean_loss)
{
    uint64_t count = 0, top1 = 0, top5 = 0;
    for (uint64_t i = 0; i < batch; i++) {
        if (labels[i] < 0)
            continue;
        uint64_t rank = rank_of(logits + i * classes, classes, (uint64_t)labels[i]);
        top1 += rank < 1;
        top5 += rank < 5;
        count++;
    }
    metrics_count(metrics, count);
    metrics_add_value(metrics, METRIC_TOP1, (double)top1);
    metrics_add_value(metrics, METRIC_TOP5, (double)top5);
    metrics_add_value(metrics, METRIC_LOSS, count ? mean_loss * (double)count : 0);
}

void metrics_add_errors(Metrics *metrics, const float *errors, const float *valid, uint64_t batch,
                        double mean_loss)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < batch; i++) {
        if (!(valid[i] > 0))
            continue;
        const double psnr = errors[i] > 0 ? -10 * log10((double)errors[i]) : METRIC_PSNR_MOST;
        metrics_add_value(metrics, METRIC_PSNR, fmin(psnr, METRIC_PSNR_MOST));
        count++;
    }
    metrics_count(metrics, count);
    metrics_add_value(metrics, METRIC_LOSS, count ? mean_loss * (double)count : 0);
}

void metrics_merge(Metrics *metrics, const Metrics *other)
{
    metrics->count += other->count;
    metrics->measured |= other->measured;
    for (int i = 0; i < METRIC_COUNT; i++)
        metrics->sums[i] += other->sums[i];
}

bool metrics_has(const Metrics *metrics, Metric metric)
{
    return metrics->measured >> metric & 1;
}

double metrics_value(const Metrics *metrics, Metric metric)
{
    const double scale = metric == METRIC_TOP1 || metric == METRIC_TOP5 ? 100 : 1;
    return metrics->count ? scale * metrics->sums[metric] / (double)metrics->count : 0;
}
