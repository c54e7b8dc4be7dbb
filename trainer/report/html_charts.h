/* html_charts.h - adds curves and bars to a page of common/html.h, as inline SVG that takes its colours from
 * the page's style (common/html_style.h). Names are escaped. */
#ifndef FSHARD_TRAINER_REPORT_HTML_CHARTS_H
#define FSHARD_TRAINER_REPORT_HTML_CHARTS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/html.h"

enum { CHART_RUNS = 10 /* colours of runs; those of more runs come again, dashed */ };

/* The look of a line, one for each meaning, the same in all charts of a page. LOOK_RUN: of a run among
 * others; LOOK_RUN_FINE: one of several that the run stands for, thin and without a name. */
typedef enum ChartLook {
    LOOK_TRAINING,
    LOOK_EVALUATION,
    LOOK_AVERAGE,
    LOOK_REFERENCE,
    LOOK_FINE,
    LOOK_RUN,
    LOOK_RUN_FINE
} ChartLook;

typedef struct ChartSeries {
    const char *name;
    ChartLook look;
    size_t colour;       /* of LOOK_RUN and LOOK_RUN_FINE: the number of the run */
    const double *x, *y; /* [count]; a y that is not finite is a gap */
    size_t count;
    size_t
        unsettled; /* so many of the first do not widen the vertical axis: losses before anything is learnt */
} ChartSeries;

typedef struct Chart {
    const char *title, *unit; /* unit: "" or "%", "dB" */
    const char *x_name;       /* "epoch": written below the axis, and in the titles of marks, "at epoch 3" */
    double x_low;   /* where the horizontal axis begins, <= 0: -1 for epochs, which end at 0, 1, … */
    bool x_parts;   /* its ticks need not be whole numbers: time */
    bool from_zero; /* the axis begins at 0, so that variation is seen in proportion */
    const ChartSeries *series; /* [series_count] */
    size_t series_count;
} Chart;

/* Adds the chart with its title and legend; nothing if no series has a point. */
void html_add_chart(HtmlPage *page, const Chart *chart);

typedef struct ChartPart {
    const char *name;
    double seconds;
} ChartPart;

/* Adds a bar of at most four parts (p0 to p3 of the style) with a legend that gives each part's time and
 * share; nothing if all are 0. */
void html_add_parts(HtmlPage *page, const ChartPart *parts, size_t count);

#endif
