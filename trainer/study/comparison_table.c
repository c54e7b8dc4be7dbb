/* comparison_table.c - a comparison as text and as JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_text.h"
#include "common/program.h"
#include "trainer/study/comparison.h"

enum { NAME_WIDTH_MAX = 60, CELL_BYTES = 48 };

static const struct {
    const char *name, *title; /* title: what stands before the metric's; the whole with `alone` */
    bool alone;
    int digits; /* after the point */
} measure_rows[] = {
    [MEASURE_BEST] = {"best", "best ", false, 2},        [MEASURE_LAST] = {"last", "last ", false, 2},
    [MEASURE_AVERAGE] = {"ema", "EMA ", false, 2},       [MEASURE_LOSS] = {"loss", "last loss", true, 4},
    [MEASURE_SECONDS] = {"seconds", "seconds", true, 1},
};

const StudyTask *comparison_task(const Comparison *comparison)
{
    static const StudyTask none = {"top1", "top-1", "eval_top1", true}, mixed = {"value", "value", "", true};
    return comparison->mixed_tasks ? &mixed : comparison->run_count ? comparison->runs[0].task : &none;
}

const char *comparison_title(const StudyTask *task, Measure measure, char *text, size_t text_bytes)
{
    (void)snprintf(text, text_bytes, "%s%s", measure_rows[measure].title,
                   measure_rows[measure].alone ? "" : task->title);
    return text;
}

const char *comparison_spread_text(const Spread *spread, Measure measure, char *text, size_t text_bytes)
{
    const bool short_time = measure == MEASURE_SECONDS && spread->mean < 10;
    const int digits = measure_rows[measure].digits + short_time;
    text[0] = '\0';
    if (spread->count > 1)
        (void)snprintf(text, text_bytes, "%.*f ± %.*f", digits, spread->mean, digits, spread->deviation);
    else if (spread->count)
        (void)snprintf(text, text_bytes, "%.*f", digits, spread->mean);
    return text;
}

static bool is_unfinished(const StudyRun *run)
{
    return (run->counts_iterations ? run->iterations : run->epochs) < run->planned;
}

const char *comparison_caution(const Comparison *comparison, char *text, size_t text_bytes)
{
    size_t length = 0, unfinished = 0;
    for (size_t i = 0; i < comparison->run_count; i++)
        unfinished += is_unfinished(&comparison->runs[i]);
    text[0] = '\0';
    if (comparison->mixed_tasks)
        length += (size_t)snprintf(text, text_bytes,
                                   "The runs have different tasks: their numbers cannot be "
                                   "compared. ");
    else if (comparison->mixed_data)
        length +=
            (size_t)snprintf(text, text_bytes,
                             "The runs were trained on different datasets: their numbers are of different "
                             "images. ");
    if (unfinished && length < text_bytes)
        (void)snprintf(text + length, text_bytes - length,
                       "%zu of %zu runs have less training than was asked for: they stopped, or go on. ",
                       unfinished, comparison->run_count);
    length = strlen(text);
    if (length)
        text[length - 1] = '\0'; /* the last blank */
    return text;
}

/* ---- text ---- */

/* Returns how many columns of a terminal the text takes: UTF-8 characters. */
static int columns_of(const char *text)
{
    int count = 0;
    for (; *text; text++)
        count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
}

static void print_left(FILE *stream, const char *text, int width)
{
    program_print_text(stream, text);
    (void)fprintf(stream, "%*s", width > columns_of(text) ? width - columns_of(text) : 0, "");
}

static void print_right(FILE *stream, const char *text, int width)
{
    (void)fprintf(stream, "%*s%s", width > columns_of(text) ? width - columns_of(text) : 0, "", text);
}

static int widest_label(const Comparison *comparison)
{
    int width = 0;
    for (size_t g = 0; g < comparison->group_count; g++) {
        const int columns = columns_of(comparison->groups[g].label);
        width = columns > width ? columns : width;
    }
    return width < NAME_WIDTH_MAX ? width : NAME_WIDTH_MAX;
}

/* The columns behind the labels; those of measures that no run has are left out. */
enum { COLUMN_RUNS, COLUMN_LENGTH, COLUMN_MEASURES, COLUMN_COUNT = COLUMN_MEASURES + MEASURE_COUNT };

static bool has_column(const Comparison *comparison, int column)
{
    return column < COLUMN_MEASURES || comparison->measured[column - COLUMN_MEASURES];
}

/* Writes what the column has of a group to text and returns it; of NULL its heading. */
static const char *cell_text(const Comparison *comparison, const StudyGroup *group, int column,
                             char text[CELL_BYTES])
{
    const Measure measure = (Measure)(column - COLUMN_MEASURES);
    if (column >= COLUMN_MEASURES)
        return group ? comparison_spread_text(&group->of[measure], measure, text, CELL_BYTES)
                     : comparison_title(comparison_task(comparison), measure, text, CELL_BYTES);
    if (!group)
        (void)snprintf(text, CELL_BYTES, "%ss", column == COLUMN_RUNS ? "run" : comparison_unit(comparison));
    else
        (void)snprintf(text, CELL_BYTES, "%llu",
                       column == COLUMN_RUNS ? (unsigned long long)group->count
                                             : (unsigned long long)comparison_length(
                                                   comparison, &comparison->runs[group->runs[0]]));
    return text;
}

static int column_width(const Comparison *comparison, int column)
{
    char text[CELL_BYTES];
    int width = columns_of(cell_text(comparison, NULL, column, text));
    for (size_t g = 0; g < comparison->group_count; g++) {
        const int columns = columns_of(cell_text(comparison, &comparison->groups[g], column, text));
        width = columns > width ? columns : width;
    }
    return width;
}

/* Prints the row of a group without its line end; of NULL the headings. */
static void print_row(const Comparison *comparison, const StudyGroup *group, const int widths[COLUMN_COUNT],
                      FILE *stream)
{
    char text[CELL_BYTES];
    print_left(stream, group ? group->label : "", widest_label(comparison));
    for (int column = 0; column < COLUMN_COUNT; column++)
        if (has_column(comparison, column)) {
            (void)fputs("  ", stream);
            print_right(stream, cell_text(comparison, group, column, text), widths[column]);
        }
}

static void print_results(const Comparison *comparison, FILE *stream)
{
    int widths[COLUMN_COUNT];
    for (int column = 0; column < COLUMN_COUNT; column++)
        widths[column] = column_width(comparison, column);
    print_row(comparison, NULL, widths, stream);
    (void)fputc('\n', stream);
    for (size_t g = 0; g < comparison->group_count; g++) {
        const StudyGroup *group = &comparison->groups[g];
        print_row(comparison, group, widths, stream);
        (void)fprintf(stream, "%s\n", comparison_is_best(comparison, group) ? "  *" : "");
    }
}

/* Prints the options that differ. */
static void print_differing(const Comparison *comparison, FILE *stream)
{
    const json_t *name;
    char value[CELL_BYTES];
    size_t i;
    (void)fprintf(stream, "\noptions that differ:\n");
    json_array_foreach(comparison->differing, i, name)
    {
        (void)fprintf(stream, "  %-24s",
                      comparison_option_name(json_string_value(name), value, sizeof value));
        for (size_t g = 0; g < comparison->group_count; g++) {
            const StudyRun *run = &comparison->runs[comparison->groups[g].runs[0]];
            (void)fputs(g ? ", " : "", stream);
            program_print_text(stream,
                               comparison_value_text(run, json_string_value(name), value, sizeof value));
        }
        (void)fputc('\n', stream);
    }
}

void comparison_print(const Comparison *comparison, FILE *stream)
{
    char caution[400];
    bool spread = false;
    for (size_t g = 0; g < comparison->group_count; g++)
        spread = spread || comparison->groups[g].count > 1;
    print_results(comparison, stream);
    if (comparison_has_best(comparison))
        (void)fprintf(stream, "%s*: the best%s\n", spread ? "±: standard deviation over seeds; " : "",
                      comparison->measured[MEASURE_BEST] ? "" : ": none was evaluated");
    else if (spread)
        (void)fprintf(stream, "±: standard deviation over seeds\n");
    if (json_array_size(comparison->differing) && !comparison->labelled)
        print_differing(comparison, stream);
    if (*comparison_caution(comparison, caution, sizeof caution))
        (void)fprintf(stream, "%s\n", caution);
}

/* ---- JSON ---- */

static json_t *run_object(const StudyRun *run)
{
    const json_int_t planned = (json_int_t)run->planned;
    json_t *object = json_pack("{s:o, s:I, s:I, s:I, s:o, s:I, s:I, s:o}", "folder", json_text(run->folder),
                               "seed", (json_int_t)run->seed, "epochs", (json_int_t)run->epochs,
                               "planned_epochs", run->counts_iterations ? 0 : planned, "best_epoch",
                               json_whole(run->result.best_epoch), "iterations", (json_int_t)run->iterations,
                               "planned_iterations", run->counts_iterations ? planned : 0, "best_iteration",
                               json_whole(run->result.best_iteration));
    for (int m = 0; m < MEASURE_COUNT && object; m++)
        if (json_object_set_new(object, measure_rows[m].name,
                                json_number(comparison_measure(run, (Measure)m)))) {
            json_decref(object);
            return NULL;
        }
    return object;
}

static json_t *group_object(const Comparison *comparison, const StudyGroup *group)
{
    json_t *object = json_object(), *runs = json_array(), *options = json_object();
    const StudyRun *first = &comparison->runs[group->runs[0]];
    const json_t *name;
    size_t i;
    int failed = json_object_set_new(object, "label", json_text(group->label));
    json_array_foreach(comparison->differing, i, name)
    {
        const char *option = json_string_value(name);
        json_t *value = json_object_get(first->options, option);
        failed |= value ? json_object_set(options, option, value)
                        : json_object_set_new(options, option, json_null());
    }
    failed |= json_object_set_new(object, "options", options);
    for (int m = 0; m < MEASURE_COUNT; m++)
        failed |= json_object_set_new(object, measure_rows[m].name,
                                      json_pack("{s:o, s:o, s:I}", "mean", json_number(group->of[m].mean),
                                                "deviation", json_number(group->of[m].deviation), "runs",
                                                (json_int_t)group->of[m].count));
    for (i = 0; i < group->count; i++)
        failed |= json_array_append_new(runs, run_object(&comparison->runs[group->runs[i]]));
    failed |= json_object_set_new(object, "runs", runs);
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}

json_t *comparison_json(const Comparison *comparison)
{
    char caution[400];
    json_t *groups = json_array();
    int failed = 0;
    for (size_t g = 0; g < comparison->group_count; g++)
        failed |= json_array_append_new(groups, group_object(comparison, &comparison->groups[g]));
    json_t *object = json_pack("{s:s, s:s, s:O, s:o}", "metric", comparison_task(comparison)->metric,
                               "caution", comparison_caution(comparison, caution, sizeof caution),
                               "differing", comparison->differing, "groups", groups);
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}
