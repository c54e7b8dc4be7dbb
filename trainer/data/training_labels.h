/* training_labels.h - labels that stand beside a dataset, in files of their own (--labels).
 *
 * Threads: none of its own. */
#ifndef FSHARD_TRAINER_DATA_TRAINING_LABELS_H
#define FSHARD_TRAINER_DATA_TRAINING_LABELS_H

#include "trainer/data/sample_labels.h"

/* The options of labels. */
typedef struct LabelSources {
    const char *path;            /* label_file.h; NULL: the records' own labels */
    const char *evaluation_path; /* of the split that is evaluated; NULL: path */
    const char *names;           /* a list of the classes, in their order; NULL: the file's */
    const char *columns;         /* as LabelFileOptions.columns */
    int kind;                    /* LabelKind, or negative: as the files have them */
} LabelSources;

/* The labels of a dataset in hand. Zeroed: those of the records. */
typedef struct TrainingLabels {
    const char *path; /* NULL: the records' own; borrowed */
    LabelKind kind;
    SampleLabels train, evaluation; /* of the splits that are open */
    LabelNames names;               /* of the classes, or numbers */
    LabelFit fit;
    char digest[33]; /* of the files and the list, in hexadecimal digits */
} TrainingLabels;

/* Reads the files and gives every sample of the splits its label; either split may be NULL, not both. sets:
 * the names of the datasets that the splits were joined of, or of the one.
 * FSH_ERR_MISMATCH: records without a label (the first of them are named, and all counted), a class that
 * evaluation has and training has not; what label_file_read, label_files_settle and sample_labels_make
 * return. On failure nothing is held. */
FshStatus training_labels_read(TrainingLabels *labels, const LabelSources *sources, const FshSplit *train,
                               const FshSplit *evaluation, char *const *sets, FshError *error);
/* Frees everything and zeroes the struct; a zeroed one is fine. */
void training_labels_free(TrainingLabels *labels);

/* Returns the labels of a split that is trained on or evaluated; NULL: they are the records' own. */
const SampleLabels *training_labels_of(const TrainingLabels *labels, bool training);

#endif
