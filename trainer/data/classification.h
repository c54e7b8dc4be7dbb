/* classification.h - a dataset as a classifier needs it: checked, and its images' size known.
 *
 * Threads: constant once opened. */
#ifndef FSHARD_TRAINER_DATA_CLASSIFICATION_H
#define FSHARD_TRAINER_DATA_CLASSIFICATION_H

#include "formats/fshard.h"

typedef struct Classification {
    FshDataset *dataset;                   /* owned */
    const FshSplit *train;                 /* NULL where none was asked for */
    const FshSplit *evaluation;            /* NULL: the dataset has none */
    int64_t class_count;                   /* at least 2 */
    uint32_t channels;                     /* 1 or 3 */
    double mean[4], standard_deviation[4]; /* of full scale; a deviation is at least one grey level */
    bool measured;                         /* they are the dataset's; else ImageNet's, for it has none */
    uint32_t short_edge;                   /* pixels: the median over images taken evenly from the split */
    bool uniform;                          /* every image of the dataset is a square of this edge */
} Classification;

/* Opens path (a dataset folder or its dataset.json).
 * train_split: its name, or NULL to open none. evaluation_split: its name; NULL: "val", else "test", else
 * none. FSH_ERR_NOT_FOUND: no such dataset or split. FSH_ERR_MISMATCH: pairs, fewer than two classes, a
 * sample without a label or with one beyond the classes (named by shard, record and key), an evaluation class
 * that training has no sample of, an empty split. On failure nothing is held. */
FshStatus classification_open(Classification *classification, const char *path, const char *train_split,
                              const char *evaluation_split, FshError *error);
/* Frees what it owns; zeroed is fine. */
void classification_close(Classification *classification);

#endif
