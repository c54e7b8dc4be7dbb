/* comparison_page.c - a comparison as a page of common/html.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "trainer/report/html_charts.h"
#include "trainer/study/comparison.h"

enum { CURVES_MAX = 2 * CHART_RUNS /* groups with a curve: more would not be told apart */ };

/* ---- curves ---- */

static const struct {
    const char *column, *title, *unit; /* a loss has no unit */
} curve_rows[] = {
    {"eval_top1", "Top-1 accuracy", "%"},           {"eval_psnr", "PSNR", "dB"},
    {"ema_top1", "EMA top-1 accuracy", "%"},        {"ema_psnr", "EMA PSNR", "dB"},
    {"eval_map", "Mean average precision", "%"},    {"eval_mae", "Mean absolute error", ""},
    {"ema_map", "EMA mean average precision", "%"}, {"ema_mae", "EMA mean absolute error", ""},
    {"eval_loss", "Evaluation loss", ""},           {"train_loss", "Training loss", ""},
};

/* A unit of time in which the longest run has a number that is easily read. */
typedef struct TimeUnit {
    const char *name;
    double seconds;
} TimeUnit;

static TimeUnit time_unit(const Comparison *comparison)
{
    double longest = 0;
    for (size_t i = 0; i < comparison->run_count; i++)
        longest = fmax(longest, comparison->runs[i].result.seconds);
    return longest < 600        ? (TimeUnit){"seconds", 1}
           : longest < 4 * 3600 ? (TimeUnit){"minutes", 60}
                                : (TimeUnit){"hours", 3600};
}

/* The series of a chart under construction, and the numbers that were made for it. */
typedef struct Curves {
    ChartSeries *series; /* [capacity] */
    size_t count, capacity;
    double **made; /* [made_count], each owned, as the array */
    size_t made_count;
} Curves;

static void free_curves(Curves *curves)
{
    for (size_t i = 0; i < curves->made_count; i++)
        free(curves->made[i]);
    free(curves->made);
    free(curves->series);
}

/* Returns a new array of `count` numbers that lives as long as the curves; NULL: no memory. */
static double *make_numbers(Curves *curves, size_t count)
{
    double **longer = realloc(curves->made, (curves->made_count + 1) * sizeof *longer);
    double *numbers = longer ? malloc((count + 1) * sizeof *numbers) : NULL;
    curves->made = longer ? longer : curves->made;
    if (numbers)
        curves->made[curves->made_count++] = numbers;
    return numbers;
}

/* Returns where the row of a run lies: the time or the iterations at its end, or its epoch. */
static double place_of(const Comparison *comparison, const StudyRun *run, bool in_time, size_t row)
{
    if (!in_time && comparison->counts_iterations)
        return study_run_iteration_at(run, row);
    const double *places = study_run_column(run, in_time ? "time" : "epoch");
    return places ? places[row] : (double)row;
}

/* Adds a line: the mean of the runs at the epochs at which all of them have the column, against what the runs
 * are counted in, or against the time at its end. look: as the line; unsettled: whether its begin is. */
static void add_line(Curves *curves, const Comparison *comparison, const size_t *runs, size_t count,
                     const ChartSeries *look, const char *column, const TimeUnit *unit)
{
    size_t rows = 0, taken = 0;
    for (size_t i = 0; i < count; i++) {
        const StudyRun *run = &comparison->runs[runs[i]];
        const size_t own = study_run_column(run, column) ? run->history.epochs.row_count : 0;
        rows = i && rows < own ? rows : own;
    }
    double *x = make_numbers(curves, rows), *y = make_numbers(curves, rows);
    for (size_t row = 0; row < rows && x && y; row++) {
        double x_sum = 0, y_sum = 0;
        for (size_t i = 0; i < count; i++) {
            const StudyRun *run = &comparison->runs[runs[i]];
            x_sum += place_of(comparison, run, unit != NULL, row);
            y_sum += study_run_column(run, column)[row];
        }
        x[taken] = x_sum / (double)count / (unit ? unit->seconds : 1);
        y[taken] = y_sum / (double)count;
        taken += isfinite(x[taken]) && isfinite(y[taken]);
    }
    if (taken && curves->count < curves->capacity) {
        ChartSeries *series = &curves->series[curves->count++];
        *series = *look;
        series->x = x;
        series->y = y;
        series->count = taken;
        series->unsettled = look->unsettled && taken > 2 ? 1 + taken / 10 : 0;
    }
}

static void add_curves(HtmlPage *page, const Comparison *comparison, size_t row, const TimeUnit *unit)
{
    const char *column = curve_rows[row].column;
    Curves curves = {.capacity = comparison->run_count + comparison->group_count};
    curves.series = calloc(curves.capacity + 1, sizeof *curves.series);
    for (size_t g = 0; g < comparison->group_count && g < CURVES_MAX && curves.series; g++) {
        const StudyGroup *group = &comparison->groups[g];
        const bool is_loss = !*curve_rows[row].unit;
        const ChartSeries thin = {.name = group->label,
                                  .look = LOOK_RUN_FINE,
                                  .colour = g,
                                  .unsettled = is_loss},
                          mean = {.name = group->label, .look = LOOK_RUN, .colour = g, .unsettled = is_loss};
        for (size_t i = 0; i < group->count && group->count > 1; i++)
            add_line(&curves, comparison, &group->runs[i], 1, &thin, column, unit);
        add_line(&curves, comparison, group->runs, group->count, &mean, column, unit);
    }
    const Chart chart = {.title = curve_rows[row].title,
                         .unit = curve_rows[row].unit,
                         .x_name = unit ? unit->name : comparison_unit(comparison),
                         .x_low = unit || comparison->counts_iterations ? 0 : -1,
                         .x_parts = unit != NULL,
                         .series = curves.series,
                         .series_count = curves.count};
    html_add_chart(page, &chart);
    free_curves(&curves);
}

static bool any_has(const Comparison *comparison, const char *column)
{
    for (size_t i = 0; i < comparison->run_count; i++)
        if (study_run_column(&comparison->runs[i], column))
            return true;
    return false;
}

static void add_charts(HtmlPage *page, const Comparison *comparison)
{
    const TimeUnit unit = time_unit(comparison);
    bool repeated = false;
    for (size_t g = 0; g < comparison->group_count; g++)
        repeated = repeated || comparison->groups[g].count > 1;
    html_add(page,
             "<h2>Curves</h2><p class=\"note\">%sime is that of training with its evaluations.%s%s</p>"
             "<div class=\"charts\">",
             comparison->counts_iterations ? "T" : "Epochs count from 0; t",
             repeated ? " Thick: the mean over seeds; thin: each of them." : "",
             comparison->group_count > CURVES_MAX ? " The first groups alone have curves." : "");
    for (size_t row = 0; row < sizeof curve_rows / sizeof *curve_rows; row++) {
        if (!any_has(comparison, curve_rows[row].column))
            continue;
        add_curves(page, comparison, row, NULL);
        add_curves(page, comparison, row, &unit);
    }
    html_add(page, "</div>");
}

/* ---- tables ---- */

static void add_cell(HtmlPage *page, const char *text, bool number)
{
    html_add(page, "<td%s>", number ? " class=\"n\"" : "");
    html_add_string(page, text);
}

static void add_results(HtmlPage *page, const Comparison *comparison)
{
    char text[64];
    html_add(
        page,
        "<h2>Results</h2><p class=\"note\">With several seeds the mean and the standard deviation of the "
        "sample.</p><div class=\"wide\"><table class=\"sort\"><thead><tr><th>runs");
    html_add(page, "<th class=\"n\">seeds");
    for (int m = 0; m < MEASURE_COUNT; m++)
        if (comparison->measured[m]) {
            html_add(page, "<th class=\"n\">");
            html_add_string(page,
                            comparison_title(comparison_task(comparison), (Measure)m, text, sizeof text));
        }
    html_add(page, "</thead><tbody>");
    for (size_t g = 0; g < comparison->group_count; g++) {
        const StudyGroup *group = &comparison->groups[g];
        html_add(page, "<tr%s>", comparison_is_best(comparison, group) ? " class=\"best\"" : "");
        add_cell(page, group->label, false);
        html_add(page, "<td class=\"n\">%zu", group->count);
        for (int m = 0; m < MEASURE_COUNT; m++)
            if (comparison->measured[m])
                add_cell(page, comparison_spread_text(&group->of[m], (Measure)m, text, sizeof text), true);
    }
    html_add(page, "</tbody></table></div>");
}

static void add_differing(HtmlPage *page, const Comparison *comparison)
{
    const json_t *name;
    char value[256];
    size_t i;
    if (!json_array_size(comparison->differing))
        return;
    html_add(page, "<h2>Options that differ</h2><div class=\"wide\"><table><tr><th>option");
    for (size_t g = 0; g < comparison->group_count; g++) {
        html_add(page, "<th>");
        html_add_string(page, comparison->groups[g].label);
    }
    json_array_foreach(comparison->differing, i, name)
    {
        html_add(page, "<tr>");
        add_cell(page, comparison_option_name(json_string_value(name), value, sizeof value), false);
        for (size_t g = 0; g < comparison->group_count; g++)
            add_cell(page,
                     comparison_value_text(&comparison->runs[comparison->groups[g].runs[0]],
                                           json_string_value(name), value, sizeof value),
                     false);
    }
    html_add(page, "</table></div>");
}

static void add_number(HtmlPage *page, int digits, double value)
{
    char text[64] = "";
    if (isfinite(value))
        (void)snprintf(text, sizeof text, "%.*f", digits, value);
    add_cell(page, text, true);
}

static void add_runs(HtmlPage *page, const Comparison *comparison)
{
    const char *unit = comparison_unit(comparison);
    html_add(
        page,
        "<h2>Runs</h2><div class=\"wide\"><table class=\"sort\"><thead><tr><th>folder<th class=\"n\">seed"
        "<th class=\"n\">%ss<th class=\"n\">best<th class=\"n\">at %s<th class=\"n\">last"
        "<th class=\"n\">seconds<th>device</thead><tbody>",
        unit, unit);
    for (size_t i = 0; i < comparison->run_count; i++) {
        const StudyRun *run = &comparison->runs[i];
        const char *device = json_string_value(json_object_get(run->arguments, "device"));
        html_add(page, "<tr>");
        add_cell(page, run->folder, false);
        html_add(page, "<td class=\"n\">%lld<td class=\"n\">%llu", (long long)run->seed,
                 (unsigned long long)comparison_length(comparison, run));
        const uint64_t planned = comparison_planned(comparison, run);
        if (planned)
            html_add(page, " of %llu", (unsigned long long)planned);
        add_number(page, 2, run->result.best);
        add_number(page, 0, comparison_best_place(comparison, run));
        add_number(page, 2, run->result.last);
        add_number(page, 1, run->result.seconds);
        add_cell(page, device ? device : "", false);
    }
    html_add(page, "</tbody></table></div>");
}

/* ---- the page ---- */

static const char page_title[] = "ftrain: runs compared";

bool comparison_is_page(const char *path)
{
    return html_is_page(path, page_title);
}

FshStatus comparison_write(const Comparison *comparison, const char *path, bool force, FshError *error)
{
    HtmlPage page = {.error = error};
    char caution[400];
    html_begin(&page, page_title, 0);
    html_add(&page, "<h1>%zu run%s compared</h1>", comparison->run_count, text_plural(comparison->run_count));
    if (*comparison_caution(comparison, caution, sizeof caution)) {
        html_add(&page, "<p class=\"verdict\">");
        html_add_string(&page, caution);
        html_add(&page, "</p>");
    }
    add_results(&page, comparison);
    add_charts(&page, comparison);
    add_differing(&page, comparison);
    add_runs(&page, comparison);
    return html_write(&page, path, force || comparison_is_page(path));
}
