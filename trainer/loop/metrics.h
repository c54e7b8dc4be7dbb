/* metrics.h - counts and means over batches. */
#ifndef FSHARD_TRAINER_LOOP_METRICS_H
#define FSHARD_TRAINER_LOOP_METRICS_H

#include <stdint.h>

/* Sums over the samples seen; padding and skipped samples (label -1) are not among them. */
typedef struct Metrics {
    uint64_t count;      /* samples */
    uint64_t top1, top5; /* of them, those whose label is the highest logit, among the five highest */
    double loss_sum;     /* mean loss of each batch times its samples */
} Metrics;

/* Adds one batch. logits [batch, classes] f32; labels [batch]; mean_loss over the labels that are not -1.
 * Among equal logits the lower class ranks higher; a label whose logit is NaN is right for neither. */
void metrics_add(Metrics *metrics, const float *logits, const int64_t *labels, uint64_t batch,
                 uint64_t classes, double mean_loss);

/* Adds what another one counted. */
void metrics_merge(Metrics *metrics, const Metrics *other);

/* Percent, and mean; 0 before the first sample. */
double metrics_top1(const Metrics *metrics);
double metrics_top5(const Metrics *metrics);
double metrics_loss(const Metrics *metrics);

#endif
