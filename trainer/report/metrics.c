#include "trainer/report/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trainer/graph/graph.h"

const char *const metric_names[METRIC_COUNT] = {
    "loss", "top1",     "top5", "psnr", "ssim", "input_psnr",    "map",
    "f1",   "f1_micro", "mae",  "rmse", "miou", "pixel_accuracy"};
const char *const metric_titles[METRIC_COUNT] = {"Loss",       "Acc@1", "Acc@5", "PSNR",     "SSIM",
                                                 "input PSNR", "mAP",   "F1",    "micro F1", "MAE",
                                                 "RMSE",       "mIoU",  "PixAcc"};

bool metric_rises(Metric metric)
{
    return metric != METRIC_LOSS && metric != METRIC_MAE && metric != METRIC_RMSE;
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

void metrics_add_masks(Metrics *metrics, const float *sums, const float *valid, uint64_t batch,
                       double mean_loss)
{
    uint64_t count = 0;
    double pixels = 0, right = 0;
    for (uint64_t i = 0; i < batch; i++) {
        if (!(valid[i] > 0))
            continue;
        pixels += (double)sums[i * MASK_SUMS + MASK_SUM_PIXELS];
        right += (double)sums[i * MASK_SUMS + MASK_SUM_RIGHT];
        count++;
    }
    metrics_count(metrics, count);
    metrics_add_value(metrics, METRIC_PIXEL_ACCURACY, pixels > 0 ? right / pixels * (double)count : 0);
    metrics_add_value(metrics, METRIC_LOSS, count ? mean_loss * (double)count : 0);
}

void metrics_add_loss(Metrics *metrics, const float *valid, uint64_t batch, double mean_loss)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < batch; i++)
        count += valid[i] > 0;
    metrics_count(metrics, count);
    metrics_add_value(metrics, METRIC_LOSS, count ? mean_loss * (double)count : 0);
}

void metrics_add_numbers(Metrics *metrics, const float *outputs, const float *targets, const float *valid,
                         uint64_t batch, uint64_t width)
{
    for (uint64_t i = 0; i < batch; i++) {
        double absolute = 0, squared = 0;
        if (!(valid[i] > 0))
            continue;
        for (uint64_t k = i * width; k < (i + 1) * width; k++) {
            const double d = (double)outputs[k] - (double)targets[k];
            absolute += fabs(d);
            squared += d * d;
        }
        metrics_add_value(metrics, METRIC_MAE, absolute / (double)width);
        metrics_add_value(metrics, METRIC_RMSE, squared / (double)width);
    }
}

/* Returns what a mean is multiplied by to be shown. */
static double scale_of(Metric metric)
{
    const bool percent = metric == METRIC_TOP1 || metric == METRIC_TOP5 || metric == METRIC_MAP ||
                         metric == METRIC_F1 || metric == METRIC_F1_MICRO || metric == METRIC_MIOU ||
                         metric == METRIC_PIXEL_ACCURACY;
    return percent ? 100 : 1;
}

void metrics_set(Metrics *metrics, Metric metric, double value)
{
    metrics->sums[metric] = value / scale_of(metric) * (double)metrics->count;
    metrics->measured |= 1U << metric;
}

const char *metrics_tell(const Metrics *metrics, int64_t classes, char *text, size_t text_bytes)
{
    static const struct {
        const char *name, *unit;
        Metric metric;
        int digits;
    } shown[] = {{"top-1", " %", METRIC_TOP1, 2},
                 {"top-5", " %", METRIC_TOP5, 2},
                 {"PSNR", " dB", METRIC_PSNR, 2},
                 {"SSIM", "", METRIC_SSIM, 4},
                 {"input", " dB", METRIC_INPUT_PSNR, 2},
                 {"mAP", " %", METRIC_MAP, 2},
                 {"F1", " %", METRIC_F1, 2},
                 {"micro F1", " %", METRIC_F1_MICRO, 2},
                 {"MAE", "", METRIC_MAE, 4},
                 {"RMSE", "", METRIC_RMSE, 4},
                 {"mIoU", " %", METRIC_MIOU, 2},
                 {"pixel accuracy", " %", METRIC_PIXEL_ACCURACY, 2}};
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof shown / sizeof *shown && length < text_bytes; i++)
        if (metrics_has(metrics, shown[i].metric) && metric_is_shown(shown[i].metric, classes))
            length += (size_t)snprintf(text + length, text_bytes - length, "%s%s %.*f%s", length ? ", " : "",
                                       shown[i].name, shown[i].digits,
                                       metrics_value(metrics, shown[i].metric), shown[i].unit);
    return text;
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
    const double mean =
        metrics->count ? scale_of(metric) * metrics->sums[metric] / (double)metrics->count : 0;
    return metric == METRIC_RMSE ? sqrt(mean) : mean;
}
