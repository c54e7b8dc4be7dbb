#include "trainer/report/label_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/csv.h"
#include "common/json_text.h"

static bool is_numbers(const ClassRows *rows)
{
    return rows->of == ROWS_OF_NUMBERS;
}

/* Returns the probability of a class, or a number itself. */
static double value_of(const ClassRows *rows, float output)
{
    return is_numbers(rows) ? (double)output : 1 / (1 + exp(-(double)output));
}

/* ---- CSV ---- */

/* Appends ",NAME" with what stands behind the name, as a cell. */
static FshStatus add_name(Buffer *text, const char *name, const char *behind, FshError *error)
{
    Buffer whole = {0};
    FshStatus status = buffer_append_text(text, ",", error);
    if (!status)
        status = buffer_append_text(&whole, name, error);
    if (!status)
        status = buffer_append_text(&whole, behind, error);
    if (!status)
        status = csv_append_text(text, (const char *)whole.bytes, whole.length, error);
    buffer_free(&whole);
    return status;
}

FshStatus label_rows_head(const ClassRows *rows, Buffer *text, FshError *error)
{
    FshStatus status = FSH_OK;
    if (!is_numbers(rows))
        status = buffer_append_text(text, rows->labelled ? ",labels,predictions" : ",predictions", error);
    for (int64_t k = 0; k < rows->classes && !status && rows->labelled && is_numbers(rows); k++)
        status = add_name(text, rows->names[k], "_target", error);
    for (int64_t k = 0; k < rows->classes && !status; k++)
        status = add_name(text, rows->names[k], "", error);
    return status;
}

/* Appends a cell of the names of the classes whose value is above the bound: "cat|dog". */
static FshStatus add_list(ClassRows *rows, const float *values, float above, Buffer *text, FshError *error)
{
    Buffer list = {0};
    FshStatus status = buffer_append_text(text, ",", error);
    for (int64_t k = 0; k < rows->classes && !status; k++) {
        if (!(values[k] > above))
            continue;
        if (list.length)
            status = buffer_append_text(&list, "|", error);
        if (!status)
            status = buffer_append_text(&list, rows->names[k], error);
    }
    rows->formulas += csv_is_formula((const char *)list.bytes, list.length);
    if (!status && list.length)
        status = csv_append_text(text, (const char *)list.bytes, list.length, error);
    buffer_free(&list);
    return status;
}

FshStatus label_rows_cells(ClassRows *rows, const float *targets, const float *outputs, Buffer *text,
                           FshError *error)
{
    const bool labelled = rows->labelled && targets;
    FshStatus status = FSH_OK;
    if (labelled && !is_numbers(rows))
        status = add_list(rows, targets, 0, text, error);
    if (!status && !is_numbers(rows))
        status = add_list(rows, outputs, 0, text, error);
    for (int64_t k = 0; k < rows->classes && !status && labelled && is_numbers(rows); k++)
        status = csv_append_number(text, (double)targets[k], 7, error);
    for (int64_t k = 0; k < rows->classes && !status; k++)
        status = csv_append_number(text, value_of(rows, outputs[k]), 7, error);
    return status;
}

/* ---- JSON ---- */

/* Sets a member to the list of the classes whose value is above 0. */
static bool set_list(const ClassRows *rows, json_t *object, const char *member, const float *values)
{
    json_t *list = json_array();
    bool made = list != NULL;
    for (int64_t k = 0; k < rows->classes && made; k++)
        if (values[k] > 0)
            made = !json_array_append_new(list, json_text(rows->names[k]));
    made = made && !json_object_set(object, member, list);
    json_decref(list);
    return made;
}

/* Sets a member to an object of each class's or column's value. */
static bool set_values(const ClassRows *rows, json_t *object, const char *member, const float *values,
                       bool outputs)
{
    json_t *each = json_object();
    bool made = each != NULL;
    for (int64_t k = 0; k < rows->classes && made; k++)
        made = !json_object_set_new(each, rows->names[k],
                                    json_number(outputs ? value_of(rows, values[k]) : (double)values[k]));
    made = made && !json_object_set(object, member, each);
    json_decref(each);
    return made;
}

bool label_rows_members(const ClassRows *rows, const float *targets, const float *outputs, json_t *object)
{
    const bool labelled = rows->labelled && targets;
    if (is_numbers(rows))
        return (!labelled || set_values(rows, object, "targets", targets, false)) &&
               set_values(rows, object, "predictions", outputs, true);
    return (!labelled || set_list(rows, object, "labels", targets)) &&
           set_list(rows, object, "predictions", outputs) &&
           set_values(rows, object, "probabilities", outputs, true);
}

/* ---- for people ---- */

const char *label_rows_tell(const ClassRows *rows, const float *outputs, char *text, size_t text_bytes)
{
    size_t length = 0;
    text[0] = '\0';
    for (int64_t k = 0; k < rows->classes && length < text_bytes; k++) {
        const double value = value_of(rows, outputs[k]);
        if (!is_numbers(rows) && !(value > 0.5))
            continue;
        length += (size_t)snprintf(text + length, text_bytes - length,
                                   is_numbers(rows) ? "%s%s %.4g" : "%s%s %.1f %%", length ? ", " : "",
                                   rows->names[k], is_numbers(rows) ? value : 100 * value);
    }
    if (!length)
        (void)snprintf(text, text_bytes, "none of its %lld classes", (long long)rows->classes);
    return text;
}
