#include "trainer/report/html_charts.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/progress.h"

/* In units of the drawing, which the page scales to the room there is. */
enum {
    WIDTH = 480,
    HEIGHT = 236,
    LEFT = 50, /* of the plot */
    RIGHT = 468,
    TOP = 10,
    BOTTOM = 206,
    POINTS_MAX = 600, /* of a line: more are no finer than the screen */
    MARKED_MAX = 80,  /* points that get a mark each */
    BAR_HEIGHT = 26,
    TICKS = 5,
};

static const char *const look_classes[] = {[LOOK_TRAINING] = "tr",
                                           [LOOK_EVALUATION] = "ev",
                                           [LOOK_AVERAGE] = "av",
                                           [LOOK_REFERENCE] = "rf",
                                           [LOOK_FINE] = "fi"};

/* An axis: where low and high lie, and the distance of its ticks. */
typedef struct Axis {
    double low, high, step;
} Axis;

/* 1, 2 or 5 times a power of ten. */
static double nice_step(double span, int ticks)
{
    const double rough = span / ticks, power = pow(10, floor(log10(rough)));
    const double digit = rough / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

static int compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Widens low..high by the series' finite values; of single steps the outermost hundredth is left out: one wild loss would
 * flatten all that follows. */
static void widen(const ChartSeries *series, HtmlPage *page, double *low, double *high)
{
    double *sorted = malloc((series->count ? series->count : 1) * sizeof *sorted);
    size_t count = 0;
    if (!sorted) {
        if (!page->status)
            page->status = fsh_error_set(page->error, FSH_ERR_MEMORY, "chart: out of memory");
        return;
    }
    for (size_t i = 0; i < series->count; i++)
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

static Axis make_axis(double low, double high, bool whole)
{
    if (high <= low) { /* one value: room on both sides */
        const double room = low != 0 ? fabs(low) * 0.1 : 1;
        low -= low - room < 0 && low >= 0 ? low : room;
        high += room;
    }
    double step = nice_step(high - low, TICKS);
    if (whole && step < 1)
        step = 1;
    return (Axis){floor(low / step + 1e-9) * step, ceil(high / step - 1e-9) * step, step};
}

static double place(const Axis *axis, double value, double from, double to)
{
    const double part = (value - axis->low) / (axis->high - axis->low);
    return from + (part < 0 ? 0 : part > 1 ? 1 : part) * (to - from);
}

/* Ticks are counted: steps that add up would miss the last by rounding. */
static size_t tick_count(const Axis *axis)
{
    return (size_t)((axis->high - axis->low) / axis->step + 1e-6) + 1;
}

static void add_axes(HtmlPage *page, const Axis *x, const char *x_name, const Axis *y)
{
    for (size_t i = 0; i < tick_count(y); i++) {
        const double value = y->low + (double)i * y->step, at = place(y, value, BOTTOM, TOP);
        html_add(page, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT, RIGHT, at,
                 at);
        html_add(page, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>", LEFT - 6, at + 4,
                 fabs(value) < y->step / 1e6 ? 0 : value);
    }
    html_add(page, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LEFT - 10, BOTTOM + 18);
    html_add_string(page, x_name);
    html_add(page, "</text>");
    const size_t names = (size_t)(x->high / x->step + 1e-6) + 1; /* below 0 there is none */
    for (size_t i = 0; i < names; i++)
        html_add(page, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>",
                 place(x, (double)i * x->step, LEFT, RIGHT), BOTTOM + 18, (double)i * x->step);
}

/* The line, thinned to means of neighbours where it is finer than the screen. */
static void add_line(HtmlPage *page, const ChartSeries *series, const Axis *x, const Axis *y)
{
    const size_t group = (series->count + POINTS_MAX - 1) / POINTS_MAX;
    bool drawing = false;
    html_add(page, "<path class=\"%s\" d=\"", look_classes[series->look]);
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
            html_add(page, "%c%.1f %.1f", drawing ? 'L' : 'M', place(x, x_sum / (double)finite, LEFT, RIGHT),
                     place(y, y_sum / (double)finite, BOTTOM, TOP));
        drawing = finite > 0;
    }
    html_add(page, "\"/>");
}

static void add_marks(HtmlPage *page, const Chart *chart, const ChartSeries *series, const Axis *x,
                      const Axis *y)
{
    if (series->count > MARKED_MAX || series->look == LOOK_FINE || series->look == LOOK_REFERENCE)
        return;
    for (size_t i = 0; i < series->count; i++) {
        if (!isfinite(series->y[i]))
            continue;
        html_add(page, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\"><title>",
                 look_classes[series->look], place(x, series->x[i], LEFT, RIGHT),
                 place(y, series->y[i], BOTTOM, TOP));
        html_add_string(page, series->name);
        html_add(page, ": %.6g ", series->y[i]);
        html_add_string(page, chart->unit);
        html_add(page, " at ");
        html_add_string(page, chart->x_name);
        html_add(page, " %.6g</title></circle>", series->x[i]);
    }
}

/* The last value of the series. */
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
        if (!isfinite(last))
            continue;
        html_add(page, "<span><i class=\"%s\"></i>", look_classes[series->look]);
        html_add_string(page, series->name);
        if (series->look != LOOK_FINE)
            html_add(page, " <b>%.4g</b>", last);
        html_add(page, "</span>");
    }
    html_add(page, "</p>");
}

void html_add_chart(HtmlPage *page, const Chart *chart)
{
    double x_low = 0, x_high = 0, low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < chart->series_count; i++) {
        const ChartSeries *series = &chart->series[i];
        widen(series, page, &low, &high);
        for (size_t j = 0; j < series->count; j++) {
            x_low = fmin(x_low, series->x[j]);
            x_high = fmax(x_high, series->x[j]);
        }
    }
    if (!(low <= high))
        return;
    if (chart->from_zero)
        low = fmin(low, 0);
    if (x_high <= x_low)
        x_low = x_high - 1;
    const Axis y = make_axis(low, high, false);
    const Axis x = {x_low, x_high, make_axis(x_low, x_high, true).step};
    html_add(page, "<figure class=\"chart\"><h3>");
    html_add_string(page, chart->title);
    if (chart->unit[0]) {
        html_add(page, " <small>");
        html_add_string(page, chart->unit);
        html_add(page, "</small>");
    }
    html_add(page, "</h3>");
    add_legend(page, chart);
    html_add(page, "<svg viewBox=\"0 0 %d %d\" role=\"img\">", WIDTH, HEIGHT);
    add_axes(page, &x, chart->x_name, &y);
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
