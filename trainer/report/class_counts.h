/* class_counts.h - what an evaluation says of each class: how many samples, how many of them right, what is
 * taken for what.
 *
 *   ClassCounts counts = {0};
 *   if (!class_counts_reset(&counts, 10, &error))
 *       … for each sample: class_counts_add(&counts, label, prediction, &error);
 *   class_counts_row(&counts, 3).recall;                                          // percent
 *   status = class_table_write(&counts, names, "run1/per_class.csv", &error);
 *   class_counts_free(&counts);
 *
 * Words are scikit-learn's: of the samples of a class, recall is the share that was known; of the samples
 * that were taken for the class, precision is the share that was of it; f1 is their harmonic mean. Threads:
 * one. */
#ifndef FSHARD_TRAINER_REPORT_CLASS_COUNTS_H
#define FSHARD_TRAINER_REPORT_CLASS_COUNTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

enum {
    CONFUSION_CLASSES_MAX = 4096
}; /* with more there is no table of confusion: it would be of 128 MiB and above */

/* Zeroed: of no class. */
typedef struct ClassCounts {
    uint64_t classes;
    uint64_t *values;   /* all of the counts below in one piece, for sums over ranks; owned */
    size_t value_count; /* of them */
    uint64_t *samples;  /* [classes]; points into values, as the others do */
    uint64_t *right;    /* [classes] */
    uint64_t *taken;    /* [classes]: samples of any class that were taken for this one */
    /* [classes][classes]: samples of the first that were taken for the second; NULL above
     * CONFUSION_CLASSES_MAX */
    uint64_t *confusion;
} ClassCounts;

/* Sets all counts to 0; memory is kept where the number of classes is the same. FSH_ERR_MEMORY. */
FshStatus class_counts_reset(ClassCounts *counts, uint64_t classes, FshError *error);
void class_counts_free(ClassCounts *counts);

/* Counts one sample. A label of -1 (no label) is left out. FSH_ERR_MISMATCH: label or prediction is not among
 * the classes. */
FshStatus class_counts_add(ClassCounts *counts, int64_t label, int64_t prediction, FshError *error);

/* Returns the class of the highest logit; among equal ones the lower class, as in metrics.h; NaN is below
 * every number. */
int64_t class_of_logits(const float *logits, uint64_t classes);

/* True where at least one sample was counted. */
bool class_counts_any(const ClassCounts *counts);

typedef struct ClassRow {
    uint64_t samples, right, taken;
    double recall, precision,
        f1; /* percent; NaN where nothing can be said: no samples, or none taken for it */
    /* what its samples were most often taken for when wrong; -1: none were, or not known */
    int64_t confused_with;
    uint64_t confused_count;
} ClassRow;

/* Returns what is known of one class. */
ClassRow class_counts_row(const ClassCounts *counts, uint64_t label);

/* Writes per_class.csv: a row for each class, in the dataset's order; names may be NULL. A file that is there
 * is replaced. */
FshStatus class_table_write(const ClassCounts *counts, const char *const *names, const char *path,
                            FshError *error);
/* Returns the same as an array of objects, a new reference; NULL: no memory. What nothing can be said of is
 * null. */
json_t *class_table_json(const ClassCounts *counts, const char *const *names);

#endif
