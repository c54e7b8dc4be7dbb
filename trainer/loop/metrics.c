#include "trainer/loop/metrics.h"

#include <math.h>

/* How many classes stand before the label's. NaN ranks above every number, and as the label's own logit behind any
 * place that counts, so that a network gone bad is never right. */
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

void metrics_add(Metrics *metrics, const float *logits, const int64_t *labels, uint64_t batch,
                 uint64_t classes, double mean_loss)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < batch; i++) {
        if (labels[i] < 0)
            continue;
        uint64_t rank = rank_of(logits + i * classes, classes, (uint64_t)labels[i]);
        metrics->top1 += rank < 1;
        metrics->top5 += rank < 5;
        count++;
    }
    metrics->count += count;
    metrics->loss_sum += count ? mean_loss * (double)count : 0;
}

void metrics_merge(Metrics *metrics, const Metrics *other)
{
    metrics->count += other->count;
    metrics->top1 += other->top1;
    metrics->top5 += other->top5;
    metrics->loss_sum += other->loss_sum;
}

static double share(double part, uint64_t count)
{
    return count ? part / (double)count : 0;
}

double metrics_top1(const Metrics *metrics)
{
    return 100 * share((double)metrics->top1, metrics->count);
}

double metrics_top5(const Metrics *metrics)
{
    return 100 * share((double)metrics->top5, metrics->count);
}

double metrics_loss(const Metrics *metrics)
{
    return share(metrics->loss_sum, metrics->count);
}
