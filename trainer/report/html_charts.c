#include "trainer/report/html_charts.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/html_axis.h"
#include "common/progress.h"

/* Places, in the units of the drawing (common/html_axis.h). */
enum {
    LEFT = HTML_CHART_LEFT,
    RIGHT = HTML_CHART_RIGHT,
    TOP = HTML_CHART_TOP,
    BOTTOM = HTML_CHART_BOTTOM,
    POINTS_MAX = 600, /* of a line: more would be finer than the screen */
    MARKED_MAX = 80,  /* up to this many points of a line get a mark each */
    BAR_HEIGHT = 26,
};

static const char *const look_classes[] = {
    [LOOK_TRAINING] = "tr", [LOOK_EVALUATION] = "ev", [LOOK_AVERAGE] = "av",       [LOOK_REFERENCE] = "rf",
    [LOOK_FINE] = "fi",     [LOOK_RUN] = "run",       [LOOK_RUN_FINE] = "run thin"};

/* Adds the classes of the style that the series has: "ev", or "run r3". */
static void add_classes(HtmlPage *page, const ChartSeries *series)
{
    html_add(page, "%s", look_classes[series->look]);
    if (series->look == LOOK_RUN || series->look == LOOK_RUN_FINE)
        html_add(page, " r%zu%s", series->colour % CHART_RUNS, series->colour >= CHART_RUNS ? " again" : "");
}

/* Returns whether the series is fine print: no marks, and no entry in the legend or none with a number. */
static bool is_fine(const ChartSeries *series)
{
    return series->look == LOOK_FINE || series->look == LOOK_RUN_FINE;
}

static int compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Widens low..high to include the finite values of the series. Of LOOK_FINE series (single steps) the
 * outermost hundredth is left out: one wild loss would flatten all that follows. */
static void widen(const ChartSeries *series, HtmlPage *page, double *low, double *high)
{
    double *sorted = malloc((series->count ? series->count : 1) * sizeof *sorted);
    size_t count = 0;
    if (!sorted) {
        if (!page->status)
            page->status = fsh_error_set(page->error, FSH_ERR_MEMORY, "chart: out of memory");
        return;
    }
    for (size_t i = series->unsettled; i < series->count; i++)
        if (isfinite(series->y[i]))
            sorted[count++] = series->y[i];
    qsort(sorted, count, sizeof *sorted, compare_numbers);
    const size_t cut = series->look == LOOK_FINE ? count / 100 : 0;
    if (count) {
        *low = fmin(*low, sorted[cut]);
        *high = fmax(*high, sorted[count - 1 - cut]);
    }
    free(sorted);
}

/* Adds the x axis with its numbers; none below 0. */
static void add_x_axis(HtmlPage *page, const HtmlAxis *x, const char *x_name)
{
    const size_t names = (size_t)(x->high / x->step + 1e-6) + 1;
    char text[32];
    html_add_x_name(page, 0, "start", x_name);
    for (size_t i = 0; i < names; i++) {
        (void)snprintf(text, sizeof text, "%.6g", (double)i * x->step);
        html_add_x_name(page, html_axis_place(x, (double)i * x->step, LEFT, RIGHT), "middle", text);
    }
}

/* Adds the line; where it is finer than the screen, neighbours are averaged. */
static void add_line(HtmlPage *page, const ChartSeries *series, const HtmlAxis *x, const HtmlAxis *y)
{
    const size_t group = (series->count + POINTS_MAX - 1) / POINTS_MAX;
    bool drawing = false;
    html_add(page, "<path class=\"");
    add_classes(page, series);
    html_add(page, "\" d=\"");
    for (size_t begin = 0; begin < series->count; begin += group) {
        double x_sum = 0, y_sum = 0;
        size_t finite = 0;
        for (size_t i = begin; i < begin + group && i < series->count; i++) {
            if (!isfinite(series->y[i]))
                continue;
            x_sum += series->x[i];
            y_sum += series->y[i];
            finite++;
        }
        if (finite)
            html_add(page, "%c%.1f %.1f", drawing ? 'L' : 'M',
                     html_axis_place(x, x_sum / (double)finite, LEFT, RIGHT),
                     html_axis_place(y, y_sum / (double)finite, BOTTOM, TOP));
        drawing = finite > 0;
    }
    html_add(page, "\"/>");
}

static void add_marks(HtmlPage *page, const Chart *chart, const ChartSeries *series, const HtmlAxis *x,
                      const HtmlAxis *y)
{
    if (series->count > MARKED_MAX || is_fine(series) || series->look == LOOK_REFERENCE)
        return;
    for (size_t i = 0; i < series->count; i++) {
        if (!isfinite(series->y[i]))
            continue;
        html_add(page, "<circle class=\"");
        add_classes(page, series);
        html_add(page, "\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\"><title>",
                 html_axis_place(x, series->x[i], LEFT, RIGHT),
                 html_axis_place(y, series->y[i], BOTTOM, TOP));
        html_add_string(page, series->name);
        html_add(page, ": %.6g ", series->y[i]);
        html_add_string(page, chart->unit);
        html_add(page, " at ");
        html_add_string(page, chart->x_name);
        html_add(page, " %.6g</title></circle>", series->x[i]);
    }
}

/* Returns the last finite value of the series; NaN if there is none. */
static double last_value(const ChartSeries *series)
{
    for (size_t i = series->count; i-- > 0;)
        if (isfinite(series->y[i]))
            return series->y[i];
    return NAN;
}

static void add_legend(HtmlPage *page, const Chart *chart)
{
    html_add(page, "<p class=\"legend\">");
    for (size_t i = 0; i < chart->series_count; i++) {
        const ChartSeries *series = &chart->series[i];
        const double last = last_value(series);
        if (!isfinite(last) || series->look == LOOK_RUN_FINE)
            continue;
        html_add(page, "<span><i class=\"");
        add_classes(page, series);
        html_add(page, "\"></i>");
        html_add_string(page, series->name);
        if (series->look != LOOK_FINE)
            html_add(page, " <b>%.4g</b>", last);
        html_add(page, "</span>");
    }
    html_add(page, "</p>");
}

void html_add_chart(HtmlPage *page, const Chart *chart)
{
    double x_high = 0, low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < chart->series_count; i++) {
        const ChartSeries *series = &chart->series[i];
        widen(series, page, &low, &high);
        for (size_t j = 0; j < series->count; j++)
            x_high = fmax(x_high, series->x[j]);
    }
    if (!(low <= high))
        return;
    if (chart->from_zero)
        low = fmin(low, 0);
    const HtmlAxis y = html_axis(low, high, false);
    const HtmlAxis x = {chart->x_low, x_high, html_axis(chart->x_low, x_high, !chart->x_parts).step};
    html_add(page, "<figure class=\"chart\"><h3>");
    html_add_string(page, chart->title);
    if (chart->unit[0]) {
        html_add(page, " <small>");
        html_add_string(page, chart->unit);
        html_add(page, "</small>");
    }
    html_add(page, "</h3>");
    add_legend(page, chart);
    html_add(page, "<svg viewBox=\"0 0 %d %d\" role=\"img\">", HTML_CHART_WIDTH, HTML_CHART_HEIGHT);
    html_add_y_axis(page, &y);
    add_x_axis(page, &x, chart->x_name);
    for (size_t i = 0; i < chart->series_count; i++)
        add_line(page, &chart->series[i], &x, &y);
    for (size_t i = 0; i < chart->series_count; i++)
        add_marks(page, chart, &chart->series[i], &x, &y);
    html_add(page, "</svg></figure>");
}

void html_add_parts(HtmlPage *page, const ChartPart *parts, size_t count)
{
    double sum = 0, from = 0;
    for (size_t i = 0; i < count; i++)
        sum += parts[i].seconds;
    if (!(sum > 0))
        return;
    html_add(page, "<svg class=\"bar\" viewBox=\"0 0 1000 %d\" preserveAspectRatio=\"none\" role=\"img\">",
             BAR_HEIGHT);
    for (size_t i = 0; i < count; i++) {
        const double width = 1000 * parts[i].seconds / sum;
        html_add(page, "<rect class=\"p%zu\" x=\"%.2f\" width=\"%.2f\" height=\"%d\"/>", i, from, width,
                 BAR_HEIGHT);
        from += width;
    }
    html_add(page, "</svg><p class=\"legend\">");
    for (size_t i = 0; i < count; i++) {
        char text[32];
        html_add(page, "<span><i class=\"p%zu\"></i>", i);
        html_add_string(page, parts[i].name);
        html_add(page, " <b>%.1f&nbsp;%%</b> (%s)</span>", 100 * parts[i].seconds / sum,
                 progress_format_duration(text, sizeof text, parts[i].seconds));
    }
    html_add(page, "</p>");
}
