#include "trainer/report/class_rows.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/csv.h"
#include "common/json_text.h"
#include "common/text.h"
#include "trainer/report/label_rows.h"

/* ---- what is likely ---- */

/* Returns whether the first logit ranks above the second; NaN is below every number, as in class_counts.h. */
static bool is_above(float a, float b)
{
    return a > b || (isnan(b) && !isnan(a));
}

/* Finds the indices of the highest logits in descending order; of equal ones the lower index first. Returns
 * how many. */
static int find_likeliest(const float *logits, int64_t classes, int64_t likeliest[CLASS_ROWS_LIKELIEST])
{
    int count = 0;
    for (int64_t c = 0; c < classes; c++) {
        int place = count;
        while (place > 0 && is_above(logits[c], logits[likeliest[place - 1]]))
            place--;
        if (place == CLASS_ROWS_LIKELIEST)
            continue;
        count = count < CLASS_ROWS_LIKELIEST ? count + 1 : count;
        memmove(&likeliest[place + 1], &likeliest[place], (size_t)(count - place - 1) * sizeof *likeliest);
        likeliest[place] = c;
    }
    return count;
}

/* Returns the softmax probability of the chosen class; NaN logits count as none. NaN if it is undefined. */
static double probability_of(const float *logits, int64_t classes, int64_t chosen)
{
    double sum = isnan(logits[chosen]) ? NAN : 1;
    for (int64_t c = 0; c < classes; c++)
        if (c != chosen && !isnan(logits[c]))
            sum += exp((double)logits[c] - (double)logits[chosen]);
    return 1 / sum;
}

static const char *name_of(const ClassRows *rows, int64_t label)
{
    return label >= 0 && label < rows->classes ? rows->names[label] : "";
}

/* ---- CSV ---- */

FSH_PRINTF(2, 4) static FshStatus add(Buffer *text, const char *format, FshError *error, ...);

static FshStatus add(Buffer *text, const char *format, FshError *error, ...)
{
    char piece[128];
    va_list arguments;
    va_start(arguments, error);
    const int length = vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    return buffer_append(text, piece, length < 0 ? 0 : (size_t)length, error);
}

static FshStatus add_cell(ClassRows *rows, const char *cell, size_t bytes, Buffer *text, FshError *error)
{
    rows->formulas += csv_is_formula(cell, bytes);
    return csv_append_text(text, cell, bytes, error);
}

static int column_count(const ClassRows *rows)
{
    return rows->classes < CLASS_ROWS_LIKELIEST ? (int)rows->classes : CLASS_ROWS_LIKELIEST;
}

FshStatus class_rows_head(const ClassRows *rows, Buffer *text, FshError *error)
{
    FshStatus status = FSH_OK;
    if (rows->json)
        return FSH_OK;
    if (rows->of != ROWS_OF_CLASSES) {
        status = add(text, "%s", error, rows->key_name);
        if (!status)
            status = label_rows_head(rows, text, error);
        return status ? status : buffer_append(text, "\n", 1, error);
    }
    status = add(text, "%s%s,prediction,probability", error, rows->key_name, rows->labelled ? ",label" : "");
    for (int i = 1; i < column_count(rows) && !status; i++)
        status = add(text, ",prediction%d,probability%d", error, i + 1, i + 1);
    return status ? status : buffer_append(text, "\n", 1, error);
}

/* Appends the cells after the key. */
static FshStatus add_likeliest(ClassRows *rows, int64_t label, const float *logits, Buffer *text,
                               FshError *error)
{
    int64_t likeliest[CLASS_ROWS_LIKELIEST] = {0};
    const int count = find_likeliest(logits, rows->classes, likeliest);
    const char *name = name_of(rows, label);
    FshStatus status = FSH_OK;
    if (rows->labelled)
        status = buffer_append(text, ",", 1, error);
    if (!status && rows->labelled)
        status = add_cell(rows, name, strlen(name), text, error);
    for (int i = 0; i < count && !status; i++) {
        name = name_of(rows, likeliest[i]);
        status = buffer_append(text, ",", 1, error);
        if (!status)
            status = add_cell(rows, name, strlen(name), text, error);
        const double probability = probability_of(logits, rows->classes, likeliest[i]);
        if (!status && isfinite(probability))
            status = add(text, ",%.6f", error, probability);
        else if (!status)
            status = buffer_append(text, ",", 1, error);
    }
    return status;
}

static FshStatus add_csv(ClassRows *rows, const char *key, size_t key_bytes, const RowTruth *truth,
                         const float *logits, Buffer *text, FshError *error)
{
    FshStatus status = add_cell(rows, key, key_bytes, text, error);
    if (!status)
        status = rows->of == ROWS_OF_CLASSES ? add_likeliest(rows, truth->label, logits, text, error)
                                             : label_rows_cells(rows, truth->targets, logits, text, error);
    return status ? status : buffer_append(text, "\n", 1, error);
}

/* ---- JSON lines ---- */

/* Adds the members after the key to an object. Returns false without memory. */
static bool set_likeliest(const ClassRows *rows, int64_t label, const float *logits, json_t *object)
{
    int64_t likeliest[CLASS_ROWS_LIKELIEST] = {0};
    const int count = find_likeliest(logits, rows->classes, likeliest);
    json_t *top = json_array();
    bool made = top != NULL;
    if (made && rows->labelled)
        made = json_object_set_new(object, "label", json_text(name_of(rows, label))) == 0;
    for (int i = 0; i < count && made; i++) {
        const double probability = probability_of(logits, rows->classes, likeliest[i]);
        json_t *one = json_pack("{s:o, s:o}", "class", json_text(name_of(rows, likeliest[i])), "probability",
                                json_number(probability));
        made = one && json_array_append_new(top, one) == 0;
    }
    made = made && json_object_set(object, "top5", top) == 0;
    json_decref(top);
    return made;
}

json_t *class_rows_json(const ClassRows *rows, const char *key, const RowTruth *truth, const float *logits)
{
    json_t *object = json_object();
    bool made = object && json_object_set_new(object, rows->key_name, json_text(key)) == 0;
    made = made && (rows->of == ROWS_OF_CLASSES ? set_likeliest(rows, truth->label, logits, object)
                                                : label_rows_members(rows, truth->targets, logits, object));
    if (!made) {
        json_decref(object);
        object = NULL;
    }
    return object;
}

static FshStatus add_json(const ClassRows *rows, const char *key, size_t key_bytes, const RowTruth *truth,
                          const float *logits, Buffer *text, FshError *error)
{
    char *name = text_copy(key, key_bytes);
    json_t *object = name ? class_rows_json(rows, name, truth, logits) : NULL;
    char *line = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(7)) : NULL;
    FshStatus status = line ? buffer_append_text(text, line, error)
                            : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a prediction");
    free(line);
    json_decref(object);
    free(name);
    return status ? status : buffer_append(text, "\n", 1, error);
}

FshStatus class_rows_add(ClassRows *rows, const char *key, size_t key_bytes, const RowTruth *truth,
                         const float *logits, Buffer *text, FshError *error)
{
    return rows->json ? add_json(rows, key, key_bytes, truth, logits, text, error)
                      : add_csv(rows, key, key_bytes, truth, logits, text, error);
}

const char *class_rows_tell(const ClassRows *rows, const float *logits, char *text, size_t text_bytes)
{
    int64_t likeliest[CLASS_ROWS_LIKELIEST] = {0};
    if (rows->of != ROWS_OF_CLASSES)
        return label_rows_tell(rows, logits, text, text_bytes);
    const int count = find_likeliest(logits, rows->classes, likeliest);
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < count && length < text_bytes; i++)
        length += (size_t)snprintf(text + length, text_bytes - length, "%s%s %.1f %%", i ? ", " : "",
                                   name_of(rows, likeliest[i]),
                                   100 * probability_of(logits, rows->classes, likeliest[i]));
    return text;
}
