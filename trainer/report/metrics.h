/* metrics.h - what training and evaluation measure, summed over batches.
 *
 * One list serves every kind of target: classes have loss, top-1, top-5; pairs have loss, PSNR and, in
 * evaluation, SSIM and the PSNR of the unrestored input. Samples of several labels have loss and, in
 * evaluation, mean average precision and F1 (label_scores.h); numbers have loss and, in evaluation, mean
 * absolute error and the root of the mean squared error. Masks have loss, pixel accuracy and, in
 * evaluation, mean IoU (class_counts.h). Values are percent for top-1, top-5, mAP, F1, mean IoU and pixel
 * accuracy, dB for PSNR, and of numbers what they are in. */
#ifndef FSHARD_TRAINER_REPORT_METRICS_H
#define FSHARD_TRAINER_REPORT_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum Metric {
    METRIC_LOSS,
    METRIC_TOP1,
    METRIC_TOP5,
    METRIC_PSNR,
    METRIC_SSIM,
    METRIC_INPUT_PSNR,
    METRIC_MAP,
    METRIC_F1, /* the mean over classes (macro) */
    METRIC_F1_MICRO,
    METRIC_MAE,
    METRIC_RMSE,
    METRIC_MIOU,
    METRIC_PIXEL_ACCURACY,
    METRIC_COUNT
} Metric;

/* The PSNR of equal images in a mean, which needs a finite number. */
#define METRIC_PSNR_MOST 100.0

/* Names in files and options: "loss", "top1", "top5", "psnr", "ssim", "input_psnr", "map", "f1",
 * "f1_micro", "mae", "rmse", "miou", "pixel_accuracy". */
extern const char *const metric_names[METRIC_COUNT];
/* Titles in the log, as the peers write them: "Loss", "Acc@1", …. */
extern const char *const metric_titles[METRIC_COUNT];
/* Returns whether more is better. */
bool metric_rises(Metric metric);

/* Returns whether the metric is shown to people for a network of so many classes (0: pairs). Top-5 is not for
 * fewer than ten classes, where it says little; files for programs have it in any case. */
bool metric_is_shown(Metric metric, int64_t classes);

/* Sums over the samples seen, without padding and skipped samples (label -1, valid 0). */
typedef struct Metrics {
    uint64_t count;    /* samples */
    unsigned measured; /* one bit for each metric that was added */
    double sums
        /* of losses and dB; of samples predicted right, at first or among five */
        [METRIC_COUNT];
} Metrics;

/* Adds one batch. logits [batch, classes] f32; labels [batch]; mean_loss: over the labels that are not -1. Of
 * equal logits the lower class ranks higher; a label whose logit is NaN counts as wrong. */
void metrics_add_classes(Metrics *metrics, const float *logits, const int64_t *labels, uint64_t batch,
                         uint64_t classes, double mean_loss);
/* Adds one batch of pairs in training. errors [batch]: each image's mean squared error at full scale 0..1;
 * valid [batch]. */
void metrics_add_errors(Metrics *metrics, const float *errors, const float *valid, uint64_t batch,
                        double mean_loss);
/* Adds the loss of one batch alone, over the samples that are valid; valid [batch]. */
void metrics_add_loss(Metrics *metrics, const float *valid, uint64_t batch, double mean_loss);
/* Adds the errors of one batch of numbers: outputs and targets [batch, width], the loss apart. A sample's is
 * the mean over its numbers. */
void metrics_add_numbers(Metrics *metrics, const float *outputs, const float *targets, const float *valid,
                         uint64_t batch, uint64_t width);
/* Adds one batch of masks in training. sums [batch, MASK_SUMS]: graph_mask_loss_sums'; valid [batch];
 * mean_loss: over the pixels that count. */
void metrics_add_masks(Metrics *metrics, const float *sums, const float *valid, uint64_t batch,
                       double mean_loss);
/* Sets a metric to a value that was measured over all samples, which must be counted. */
void metrics_set(Metrics *metrics, Metric metric, double value);
/* Adds one value of one image. The caller counts images with metrics_count. */
void metrics_add_value(Metrics *metrics, Metric metric, double value);
void metrics_count(Metrics *metrics, uint64_t samples);

/* Writes what was measured beside the loss for people: "top-1 71.20 %, top-5 90.10 %". Returns text. */
const char *metrics_tell(const Metrics *metrics, int64_t classes, char *text, size_t text_bytes);

/* Adds the sums of another. */
void metrics_merge(Metrics *metrics, const Metrics *other);

/* Returns whether at least one batch had the metric. */
bool metrics_has(const Metrics *metrics, Metric metric);
/* Returns the mean: percent, dB, loss; 0 before the first sample. */
double metrics_value(const Metrics *metrics, Metric metric);

#endif
