#include "trainer/report/class_counts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/csv.h"
#include "common/file.h"
#include "common/json_text.h"
#include "trainer/graph/graph.h"

/* ---- counting ---- */

FshStatus class_counts_reset(ClassCounts *counts, uint64_t classes, FshError *error)
{
    const bool has_confusion = classes <= CONFUSION_CLASSES_MAX;
    const size_t value_count = (size_t)(classes * (has_confusion ? 3 + classes : 3));
    if (counts->values && counts->classes == classes) {
        memset(counts->values, 0, value_count * sizeof *counts->values);
        return FSH_OK;
    }
    class_counts_free(counts);
    uint64_t *values = calloc(value_count + 1, sizeof *values);
    if (!values)
        return fsh_error_set(error, FSH_ERR_MEMORY, "counts of %" PRIu64 " classes: out of memory", classes);
    *counts = (ClassCounts){.classes = classes,
                            .values = values,
                            .value_count = value_count,
                            .samples = values,
                            .right = values + classes,
                            .taken = values + 2 * classes,
                            .confusion = has_confusion ? values + 3 * classes : NULL};
    return FSH_OK;
}

void class_counts_free(ClassCounts *counts)
{
    free(counts->values);
    *counts = (ClassCounts){0};
}

FshStatus class_counts_add(ClassCounts *counts, int64_t label, int64_t prediction, FshError *error)
{
    if (label == -1)
        return FSH_OK;
    if (label < 0 || (uint64_t)label >= counts->classes || prediction < 0 ||
        (uint64_t)prediction >= counts->classes)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "label %" PRId64 ", prediction %" PRId64 ": not among %" PRIu64 " classes",
                             label, prediction, counts->classes);
    counts->samples[label]++;
    counts->right[label] += label == prediction;
    counts->taken[prediction]++;
    if (counts->confusion)
        counts->confusion[(uint64_t)label * counts->classes + (uint64_t)prediction]++;
    return FSH_OK;
}

FshStatus class_counts_add_mask(ClassCounts *counts, const uint8_t *mask, const uint8_t *predictions,
                                size_t pixel_count, FshError *error)
{
    enum { VALUES = 256 };
    uint64_t *pairs = calloc((size_t)VALUES * VALUES, sizeof *pairs);
    FshStatus status = pairs ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory to count pixels");
    for (size_t i = 0; i < pixel_count && !status; i++)
        pairs[(size_t)mask[i] * VALUES + predictions[i]]++;
    for (size_t value = 0; value < VALUES && !status; value++)
        for (size_t taken = 0; taken < VALUES && !status; taken++) {
            const uint64_t count = pairs[value * VALUES + taken];
            if (!count || value == GRAPH_MASK_IGNORED)
                continue;
            if (value >= counts->classes || taken >= counts->classes) {
                status = fsh_error_set(error, FSH_ERR_MISMATCH,
                                       "a mask has the value %zu, and %zu was predicted: not among %" PRIu64
                                       " classes",
                                       value, taken, counts->classes);
                continue;
            }
            counts->samples[value] += count;
            counts->taken[taken] += count;
            counts->right[value] += value == taken ? count : 0;
            counts->confusion[value * counts->classes + taken] += count; /* of at most 255 classes */
        }
    free(pairs);
    return status;
}

void class_counts_merge(ClassCounts *counts, const ClassCounts *part)
{
    for (size_t i = 0; i < counts->value_count; i++)
        counts->values[i] += part->values[i];
}

double class_counts_mean_iou(const ClassCounts *counts)
{
    double sum = 0;
    uint64_t there = 0;
    for (uint64_t i = 0; i < counts->classes; i++) {
        const double iou = class_counts_row(counts, i).iou;
        sum += isnan(iou) ? 0 : iou;
        there += !isnan(iou);
    }
    return there ? sum / (double)there : NAN;
}

double class_counts_accuracy(const ClassCounts *counts)
{
    uint64_t samples = 0, right = 0;
    for (uint64_t i = 0; i < counts->classes; i++) {
        samples += counts->samples[i];
        right += counts->right[i];
    }
    return samples ? 100 * (double)right / (double)samples : NAN;
}

int64_t class_of_logits(const float *logits, uint64_t classes)
{
    uint64_t best = 0;
    for (uint64_t c = 1; c < classes; c++)
        if (logits[c] > logits[best] || (isnan(logits[best]) && !isnan(logits[c])))
            best = c;
    return (int64_t)best;
}

bool class_counts_any(const ClassCounts *counts)
{
    for (uint64_t i = 0; i < counts->classes; i++)
        if (counts->samples[i])
            return true;
    return false;
}

/* ---- telling ---- */

ClassRow class_counts_row(const ClassCounts *counts, uint64_t label)
{
    ClassRow row = {.samples = counts->samples[label],
                    .right = counts->right[label],
                    .taken = counts->taken[label],
                    .confused_with = -1};
    row.recall = row.samples ? 100 * (double)row.right / (double)row.samples : NAN;
    row.precision = row.taken ? 100 * (double)row.right / (double)row.taken : NAN;
    /* 2 right / (samples + taken): 0, not unknown, for a class that no sample was taken for */
    row.f1 = row.samples ? 200 * (double)row.right / (double)(row.samples + row.taken) : NAN;
    row.iou = row.samples + row.taken
                  ? 100 * (double)row.right / (double)(row.samples + row.taken - row.right)
                  : NAN;
    for (uint64_t i = 0; counts->confusion && i < counts->classes; i++) {
        const uint64_t count = counts->confusion[label * counts->classes + i];
        if (i == label || count <= row.confused_count)
            continue;
        row.confused_with = (int64_t)i;
        row.confused_count = count;
    }
    return row;
}

/* Appends the class's name as a cell, or its number without names. */
static FshStatus append_name(Buffer *text, const char *const *names, uint64_t class, FshError *error)
{
    char number[32];
    if (names)
        return csv_append_text(text, names[class], strlen(names[class]), error);
    (void)snprintf(number, sizeof number, "%" PRIu64, class);
    return buffer_append_text(text, number, error);
}

static FshStatus append_row(Buffer *text, const ClassCounts *counts, const char *const *names, uint64_t class,
                            FshError *error)
{
    const ClassRow row = class_counts_row(counts, class);
    char cells[96];
    (void)snprintf(cells, sizeof cells, "%" PRIu64 ",", class);
    FshStatus status = buffer_append_text(text, cells, error);
    if (!status)
        status = append_name(text, names, class, error);
    (void)snprintf(cells, sizeof cells, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64, row.samples, row.right,
                   row.taken);
    if (!status)
        status = buffer_append_text(text, cells, error);
    if (!status)
        status = csv_append_number(text, row.recall, 6, error);
    if (!status)
        status = csv_append_number(text, row.precision, 6, error);
    if (!status)
        status = csv_append_number(text, row.f1, 6, error);
    if (!status)
        status = buffer_append_text(text, ",", error);
    if (!status && row.confused_with >= 0)
        status = append_name(text, names, (uint64_t)row.confused_with, error);
    (void)snprintf(cells, sizeof cells, ",%" PRIu64, row.confused_count);
    if (!status)
        status = buffer_append_text(text, cells, error);
    if (!status && counts->pixels)
        status = csv_append_number(text, row.iou, 6, error);
    return status ? status : buffer_append_text(text, "\n", error);
}

FshStatus class_table_write(const ClassCounts *counts, const char *const *names, const char *path,
                            FshError *error)
{
    Buffer text = {0};
    FshStatus status = buffer_append_text(
        &text, "index,class,samples,correct,predicted,recall,precision,f1,confused_with,confused_count",
        error);
    if (!status)
        status = buffer_append_text(&text, counts->pixels ? ",iou\n" : "\n", error);
    for (uint64_t i = 0; i < counts->classes && !status; i++)
        status = append_row(&text, counts, names, i, error);
    if (!status)
        status = file_write_atomic(path, text.bytes, text.length, true, false, error);
    buffer_free(&text);
    return status;
}

static json_t *name_json(const char *const *names, int64_t class)
{
    if (class < 0)
        return json_null();
    return names ? json_text(names[class]) : json_integer((json_int_t) class);
}

json_t *class_table_json(const ClassCounts *counts, const char *const *names)
{
    json_t *array = json_array();
    for (uint64_t i = 0; array && i < counts->classes; i++) {
        const ClassRow row = class_counts_row(counts, i);
        json_t *object = json_pack(
            "{s:I, s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:I}", "index", (json_int_t)i, "class",
            name_json(names, (int64_t)i), "samples", (json_int_t)row.samples, "correct",
            (json_int_t)row.right, "predicted", (json_int_t)row.taken, "recall", json_number(row.recall),
            "precision", json_number(row.precision), "f1", json_number(row.f1), "confused_with",
            name_json(names, row.confused_with), "confused_count", (json_int_t)row.confused_count);
        if (object && counts->pixels)
            (void)json_object_set_new(object, "iou", json_number(row.iou));
        if (!object || json_array_append_new(array, object)) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}
