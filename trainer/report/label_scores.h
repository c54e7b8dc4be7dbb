/* label_scores.h - what a network says of every sample and class of an evaluation of several labels, and how
 * right that is.
 *
 *   LabelScores scores = {0};
 *   status = label_scores_reset(&scores, samples, classes, &error);
 *   label_scores_add(&scores, sample, logits, targets);              // of each sample
 *   status = label_scores_measure(&scores, &error);                  // then scores.rows, mean_ap, f1, …
 *   label_scores_free(&scores);
 *
 * Average precision is scikit-learn's average_precision_score: the sum over the thresholds of the gain in
 * recall times the precision there, equal scores at one threshold. A class without a sample has none, and
 * does not count in the mean. Precision, recall and F1 are of a probability above a half; F1's mean over all
 * classes is 0 for a class that was neither there nor predicted (zero_division=0). Threads: one. */
#ifndef FSHARD_TRAINER_REPORT_LABEL_SCORES_H
#define FSHARD_TRAINER_REPORT_LABEL_SCORES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

typedef struct LabelScoreRow {
    uint64_t samples, taken, right;                  /* that have the class, that are said to, and both */
    double average_precision, precision, recall, f1; /* percent; NaN where it is undefined */
} LabelScoreRow;

/* A zeroed struct is empty. */
typedef struct LabelScores {
    uint64_t samples, classes;
    /* A value for each sample and class, in one array for sums over ranks, which have different samples: two
     * codes of 32 bits in each word, 0 where the sample was not evaluated. Owned. */
    uint64_t *words;
    size_t word_count;
    LabelScoreRow *rows;                         /* [classes], of label_scores_measure; owned */
    double mean_average_precision, f1, f1_micro; /* percent */
    uint64_t evaluated;                          /* samples */
} LabelScores;

/* Forgets all samples; keeps the memory if it fits. FSH_ERR_MEMORY. */
FshStatus label_scores_reset(LabelScores *scores, uint64_t samples, uint64_t classes, FshError *error);
/* Notes one sample: its logits, and targets that are 1 or 0, [classes] each. */
void label_scores_add(LabelScores *scores, uint64_t sample, const float *logits, const float *targets);
/* Measures what was noted, or what was noted of the samples first to end - 1 alone. FSH_ERR_MEMORY. */
FshStatus label_scores_measure(LabelScores *scores, FshError *error);
FshStatus label_scores_measure_part(LabelScores *scores, uint64_t first, uint64_t end, FshError *error);
/* Frees what the struct owns and zeroes it. */
void label_scores_free(LabelScores *scores);

/* Writes per_class.csv, one row for each class; names may be NULL. Replaces an existing file. */
FshStatus label_scores_write(const LabelScores *scores, const char *const *names, const char *path,
                             FshError *error);
/* Returns the rows as an array of objects, a new reference, with null for undefined values; NULL: no
 * memory. */
json_t *label_scores_json(const LabelScores *scores, const char *const *names);

#endif
