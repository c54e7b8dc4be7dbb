/* class_rows.h - a classifier's prediction for an image as a row of a table: CSV (RFC 4180) or JSON lines.
 *
 *   CSV     key,label,prediction,probability,prediction2,probability2,…,prediction5,probability5
 *   JSON    {"key": "cat/1", "label": "cat", "top5": [{"class": "cat", "probability": 0.98}, …]}
 *
 * A row has the five likeliest classes, or fewer if there are fewer, the likeliest first. Probabilities are
 * those of a softmax; if the network gives NaN the cell is empty, in JSON null. Rows of several labels,
 * and of numbers, are others: label_rows.h. */
#ifndef FSHARD_TRAINER_REPORT_CLASS_ROWS_H
#define FSHARD_TRAINER_REPORT_CLASS_ROWS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/file.h"

enum { CLASS_ROWS_LIKELIEST = 5 };

/* What the network's outputs are. */
typedef enum RowsOf { ROWS_OF_CLASSES, ROWS_OF_LABELS, ROWS_OF_NUMBERS } RowsOf;

/* What is known of an image. */
typedef struct RowTruth {
    int64_t label;        /* ROWS_OF_CLASSES; -1: not known */
    const float *targets; /* else, [classes]; NULL: not known */
} RowTruth;

typedef struct ClassRows {
    RowsOf of;
    const char *key_name; /* the first column: "key" */
    bool json;            /* JSON lines; false: CSV */
    bool labelled;        /* the labels of the images are known */
    char *const *names;   /* of the classes; borrowed */
    int64_t classes;
    uint64_t formulas; /* how many text cells of the CSV rows so far a spreadsheet would run as formulas
                        * (csv.h) */
} ClassRows;

/* Appends the header line; JSON lines have none. */
FshStatus class_rows_head(const ClassRows *rows, Buffer *text, FshError *error);

/* Appends the row of an image: its key, what is known of it if rows are labelled, and what follows from
 * `classes` logits. */
FshStatus class_rows_add(ClassRows *rows, const char *key, size_t key_bytes, const RowTruth *truth,
                         const float *logits, Buffer *text, FshError *error);

/* Returns the row of an image as an object, a new reference, be the table CSV or JSON; NULL: no memory. */
json_t *class_rows_json(const ClassRows *rows, const char *key, const RowTruth *truth, const float *logits);

/* Writes the likeliest classes for people: "tench 93.1 %, goldfish 4.2 %". Returns text. */
const char *class_rows_tell(const ClassRows *rows, const float *logits, char *text, size_t text_bytes);

#endif
