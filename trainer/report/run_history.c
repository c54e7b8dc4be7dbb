#include "trainer/report/run_history.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"

enum { ROWS_FIRST = 256 };

static FshStatus no_memory(FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MEMORY, "metrics: out of memory");
}

static RunColumn *find_column(RunTable *table, const char *name)
{
    for (size_t i = 0; i < table->column_count; i++)
        if (strcmp(table->columns[i].name, name) == 0)
            return &table->columns[i];
    return NULL;
}

const double *run_table_column(const RunTable *table, const char *name)
{
    for (size_t i = 0; i < table->column_count; i++)
        if (strcmp(table->columns[i].name, name) == 0)
            return table->columns[i].values;
    return NULL;
}

static FshStatus grow(RunTable *table, FshError *error)
{
    const size_t capacity = table->capacity ? 2 * table->capacity : ROWS_FIRST;
    for (size_t i = 0; i < table->column_count; i++) {
        double *values = realloc(table->columns[i].values, capacity * sizeof *values);
        if (!values)
            return no_memory(error);
        table->columns[i].values = values;
    }
    table->capacity = capacity;
    return FSH_OK;
}

/* Adds a column, with NaN in the rows so far. */
static FshStatus add_column(RunTable *table, const char *name, FshError *error)
{
    RunColumn *column = &table->columns[table->column_count];
    column->name = strdup(name);
    column->values = malloc(table->capacity * sizeof *column->values);
    table->column_count++; /* also if it fails: run_history_free frees what is there */
    if (!column->name || !column->values)
        return no_memory(error);
    for (size_t i = 0; i < table->row_count; i++)
        column->values[i] = NAN;
    return FSH_OK;
}

static FshStatus add_row(RunTable *table, json_t *object, FshError *error)
{
    FshStatus status = table->row_count == table->capacity ? grow(table, error) : FSH_OK;
    const size_t row = table->row_count;
    const char *name;
    json_t *value;
    if (status)
        return status;
    table->row_count++;
    for (size_t i = 0; i < table->column_count; i++)
        table->columns[i].values[row] = NAN;
    json_object_foreach(object, name, value)
    {
        RunColumn *column = find_column(table, name);
        if (!json_is_number(value))
            continue;
        if (!column && table->column_count < RUN_COLUMNS_MAX) {
            status = add_column(table, name, error);
            if (status)
                return status;
            column = &table->columns[table->column_count - 1];
        }
        if (column)
            column->values[row] = json_number_value(value);
    }
    return FSH_OK;
}

static FshStatus add_line(RunHistory *history, const char *line, size_t length, FshError *error)
{
    json_t *object = json_loadb(line, length, 0, NULL);
    const char *event = json_string_value(json_object_get(object, "event"));
    FshStatus status = FSH_OK;
    if (event && strcmp(event, "epoch") == 0)
        status = add_row(&history->epochs, object, error);
    else if (event && strcmp(event, "step") == 0)
        status = add_row(&history->steps, object, error);
    json_decref(object);
    return status;
}

FshStatus run_history_read(RunHistory *history, const char *path, FshError *error)
{
    *history = (RunHistory){0};
    Buffer whole = {0};
    FshStatus status = file_read(path, &whole, error);
    const char *at = (const char *)whole.bytes, *end = status ? at : at + whole.length;
    while (!status && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const size_t length = newline ? (size_t)(newline - at) : (size_t)(end - at);
        status = add_line(history, at, length, error);
        at += length + 1;
    }
    buffer_free(&whole);
    if (status)
        run_history_free(history);
    return status;
}

static void free_table(RunTable *table)
{
    for (size_t i = 0; i < table->column_count; i++) {
        free(table->columns[i].name);
        free(table->columns[i].values);
    }
}

void run_history_free(RunHistory *history)
{
    free_table(&history->epochs);
    free_table(&history->steps);
    *history = (RunHistory){0};
}
