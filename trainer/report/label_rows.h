/* label_rows.h - rows of class_rows.h for images of several labels, and for numbers. Internal to
 * class_rows.c.
 *
 *   several labels  key,labels,predictions,cat,dog,…   labels as "cat|dog"; predictions: those above a
 * half; then
 *                                                      the probability of each, a sigmoid's
 *   numbers         key,age_target,…,age,…
 *   JSON            {"key": "a", "labels": ["cat"], "predictions": ["cat"], "probabilities": {"cat": 0.98,
 * …}}
 *                   {"key": "a", "targets": {"age": 3}, "predictions": {"age": 3.2}}
 *
 * Threads: as class_rows.h. */
#ifndef FSHARD_TRAINER_REPORT_LABEL_ROWS_H
#define FSHARD_TRAINER_REPORT_LABEL_ROWS_H

#include "trainer/report/class_rows.h"

/* Append the header line, without its end; the cells after the key. */
FshStatus label_rows_head(const ClassRows *rows, Buffer *text, FshError *error);
FshStatus label_rows_cells(ClassRows *rows, const float *targets, const float *outputs, Buffer *text,
                           FshError *error);
/* Adds the members after the key to an object. Returns false without memory. */
bool label_rows_members(const ClassRows *rows, const float *targets, const float *outputs, json_t *object);
/* Writes what the network says for people: "cat 98.0 %, dog 71.2 %", or "age 3.2". Returns text. */
const char *label_rows_tell(const ClassRows *rows, const float *outputs, char *text, size_t text_bytes);

#endif
