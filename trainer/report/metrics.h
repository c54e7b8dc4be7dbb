/* metrics.h - what training and evaluation measure, summed over batches.
 *
 * One list for both kinds of dataset: classes have loss, top-1, top-5; pairs have loss, PSNR and, in
 * evaluation, SSIM and the PSNR of the input as it came. Values are percent for top-1 and top-5, dB for
 * PSNR. */
#ifndef FSHARD_TRAINER_REPORT_METRICS_H
#define FSHARD_TRAINER_REPORT_METRICS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum Metric {
    METRIC_LOSS,
    METRIC_TOP1,
    METRIC_TOP5,
    METRIC_PSNR,
    METRIC_SSIM,
    METRIC_INPUT_PSNR,
    METRIC_COUNT
} Metric;

/* What counts for the PSNR of images that are equal: a mean needs a number. */
#define METRIC_PSNR_MOST 100.0

/* "loss", "top1", "top5", "psnr", "ssim", "input_psnr": in files and options. */
extern const char *const metric_names[METRIC_COUNT];
/* "Loss", "Acc@1", …: in the log, as the peers write it. */
extern const char *const metric_titles[METRIC_COUNT];
/* METRIC_COUNT if there is none of this name. */
Metric metric_find(const char *name);
/* True where more is better. */
bool metric_rises(Metric metric);

/* Returns whether people are shown the metric of a network of so many classes (0: pairs): among fewer than
 * ten the five likeliest say next to nothing. Files for programs have it all the same. */
bool metric_is_shown(Metric metric, int64_t classes);

/* Sums over the samples seen; padding and skipped samples (label -1, valid 0) are not among them. */
typedef struct Metrics {
    uint64_t count;    /* samples */
    unsigned measured; /* bit of each metric that was added */
    double sums
        /* of loss and dB; of samples whose label is the highest logit, among the five highest */
        [METRIC_COUNT];
} Metrics;

/* Adds one batch. logits [batch, classes] f32; labels [batch]; mean_loss over the labels that are not -1.
 * Among equal logits the lower class ranks higher; a label whose logit is NaN is right for neither. */
void metrics_add_classes(Metrics *metrics, const float *logits, const int64_t *labels, uint64_t batch,
                         uint64_t classes, double mean_loss);
/* Adds one batch of pairs in training: errors [batch], each image's mean squared error of full scale 0..1;
 * valid [batch]. */
void metrics_add_errors(Metrics *metrics, const float *errors, const float *valid, uint64_t batch,
                        double mean_loss);
/* Adds one value of one image; the caller counts images (metrics_count). */
void metrics_add_value(Metrics *metrics, Metric metric, double value);
void metrics_count(Metrics *metrics, uint64_t samples);

/* Adds what another one counted. */
void metrics_merge(Metrics *metrics, const Metrics *other);

/* True where at least one batch had it. */
bool metrics_has(const Metrics *metrics, Metric metric);
/* Percent, dB, mean loss; 0 before the first sample. */
double metrics_value(const Metrics *metrics, Metric metric);

#endif
