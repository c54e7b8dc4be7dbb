/* sample_labels.h - what the samples of a split are to be told by, where a file of labels says it.
 *
 * Threads: constant once made. */
#ifndef FSHARD_TRAINER_DATA_SAMPLE_LABELS_H
#define FSHARD_TRAINER_DATA_SAMPLE_LABELS_H

#include "formats/fshard.h"
#include "trainer/data/label_file.h"

typedef struct SampleLabels {
    LabelKind kind;
    uint64_t sample_count; /* of the split */
    size_t width;          /* classes, or numbers of a sample */
    int64_t *classes;      /* LABELS_ONE: [sample_count]; FSH_NO_LABEL: it has no label */
    /* LABELS_MANY: sample i has the classes members[starts[i]] up to members[starts[i + 1]] */
    uint64_t *starts;
    uint32_t *members;
    float *numbers; /* LABELS_NUMBERS: [sample_count][width] */
} SampleLabels;

enum { LABEL_KEYS_TOLD = 5 };

/* How the records of splits and the rows of a file fit. */
typedef struct LabelFit {
    uint64_t records, without;                  /* records looked up, and those that have no row */
    uint64_t rows, unused;                      /* rows, and those that no record has */
    char first_without[400], first_unused[400]; /* the keys of the first few of them, "'a', 'b', 'c'" */
} LabelFit;

/* Looks up every sample of a split in a file that is settled, with `width` classes or numbers. used: a bit
 * for each row, set where a record has it; a row that has one already is refused. sets: the names of the
 * datasets that the split was joined of (fsh_join), or of the one. fit: added to.
 * FSH_ERR_MISMATCH: two records have one row. FSH_ERR_MEMORY; what fsh_sample_get returns. On failure
 * nothing is held. */
FshStatus sample_labels_make(SampleLabels *labels, const FshSplit *split, char *const *sets,
                             const LabelFile *file, size_t width, uint8_t *used, LabelFit *fit,
                             FshError *error);
/* Counts the rows of the file that no record has. */
void sample_labels_end_fit(const LabelFile *file, const uint8_t *used, LabelFit *fit);
/* Frees everything and zeroes the struct; a zeroed one is fine. */
void sample_labels_free(SampleLabels *labels);

/* Adds the samples of each class to counts, [width]; of LABELS_MANY one for each class of a sample. */
void sample_labels_count(const SampleLabels *labels, uint64_t *counts);
/* Writes the targets of a sample: 1 for each class that it has and 0 for the others, or its numbers. places:
 * of the file's classes or columns among the row's, as TrainingData.label_places; NULL: the same. row:
 * [row_width]. */
void sample_labels_row(const SampleLabels *labels, uint64_t sample, const int32_t *places, float *row,
                       size_t row_width);

#endif
