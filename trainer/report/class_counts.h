/* class_counts.h - counts of an evaluation for each class: its samples, how many were predicted right,
 * and which class was predicted instead.
 *
 *   ClassCounts counts = {0};
 *   if (!class_counts_reset(&counts, 10, &error))
 *       … for each sample: class_counts_add(&counts, label, prediction, &error);
 *   class_counts_row(&counts, 3).recall;                                          // percent
 *   status = class_table_write(&counts, names, "run1/per_class.csv", &error);
 *   class_counts_free(&counts);
 *
 * Terms are scikit-learn's: recall is the share of a class's samples that were predicted right; precision
 * is the share of the predictions of a class that were right; f1 is their harmonic mean; iou (Jaccard's
 * index) the share of both, the class's samples and predictions, that was right. Threads: one. */
#ifndef FSHARD_TRAINER_REPORT_CLASS_COUNTS_H
#define FSHARD_TRAINER_REPORT_CLASS_COUNTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

enum {
    CONFUSION_CLASSES_MAX = 4096
}; /* with more classes there is no confusion matrix: it would take 128 MiB and more */

/* A zeroed struct has no classes. */
typedef struct ClassCounts {
    uint64_t classes;
    uint64_t *values;   /* all counts below in one array, for sums over ranks; owned */
    size_t value_count; /* of values */
    uint64_t *samples;  /* [classes]; points into values, as the others do */
    uint64_t *right;    /* [classes] */
    uint64_t *taken;    /* [classes]: how often the class was predicted, for samples of any class */
    /* [classes][classes]: samples of the first class that were predicted as the second; NULL above
     * CONFUSION_CLASSES_MAX */
    uint64_t *confusion;
    bool pixels; /* what is counted are the pixels of masks: tables have their IoU; set by the caller */
} ClassCounts;

/* Sets all counts to 0; keeps the memory if the number of classes is the same. FSH_ERR_MEMORY. */
FshStatus class_counts_reset(ClassCounts *counts, uint64_t classes, FshError *error);
void class_counts_free(ClassCounts *counts);

/* Counts one sample. Ignores a label of -1 (no label). FSH_ERR_MISMATCH: label or prediction is not a
 * class. */
FshStatus class_counts_add(ClassCounts *counts, int64_t label, int64_t prediction, FshError *error);

/* Counts the pixels of a mask by class and prediction; those of GRAPH_MASK_IGNORED do not count.
 * FSH_ERR_MISMATCH: a value or a prediction is not a class. */
FshStatus class_counts_add_mask(ClassCounts *counts, const uint8_t *mask, const uint8_t *predictions,
                                size_t pixel_count, FshError *error);
/* Adds the counts of part, which has as many classes. */
void class_counts_merge(ClassCounts *counts, const ClassCounts *part);
/* Returns the mean over the classes that occur, in masks or predictions, of their IoU, in percent; NaN
 * where none does. */
double class_counts_mean_iou(const ClassCounts *counts);
/* Returns the share of what was counted that was predicted right, in percent; NaN where nothing was. */
double class_counts_accuracy(const ClassCounts *counts);

/* Returns the class of the highest logit; among equal ones the lower class, as in metrics.h; NaN is below
 * every number. */
int64_t class_of_logits(const float *logits, uint64_t classes);

/* Returns whether at least one sample was counted. */
bool class_counts_any(const ClassCounts *counts);

typedef struct ClassRow {
    uint64_t samples, right, taken;
    double recall, precision, f1; /* percent; NaN where it is undefined: no samples, or never predicted */
    double iou; /* percent: right / (samples + taken - right); NaN where the class does not occur */
    /* the class most often predicted for its samples when wrong; -1: none, or not known */
    int64_t confused_with;
    uint64_t confused_count;
} ClassRow;

/* Returns the row of one class. */
ClassRow class_counts_row(const ClassCounts *counts, uint64_t label);

/* Writes per_class.csv, one row for each class in the dataset's order; names may be NULL. Replaces an
 * existing file. */
FshStatus class_table_write(const ClassCounts *counts, const char *const *names, const char *path,
                            FshError *error);
/* Returns the rows as an array of objects, a new reference, with null for undefined values; NULL: no
 * memory. */
json_t *class_table_json(const ClassCounts *counts, const char *const *names);

#endif
