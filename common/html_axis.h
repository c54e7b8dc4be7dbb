/* html_axis.h - axes of charts in a page of common/html.h: round numbers, ticks and their names. */
#ifndef FSHARD_COMMON_HTML_AXIS_H
#define FSHARD_COMMON_HTML_AXIS_H

#include <stdbool.h>

#include "common/html.h"

/* The plot within a chart's drawing, in units that the page scales to the available room. */
enum {
    HTML_CHART_WIDTH = 480,
    HTML_CHART_HEIGHT = 236,
    HTML_CHART_LEFT = 58,
    HTML_CHART_RIGHT = 468,
    HTML_CHART_TOP = 10,
    HTML_CHART_BOTTOM = 206,
};

/* Where an axis begins and ends, and the distance of its ticks: 1, 2 or 5 times a power of ten. */
typedef struct HtmlAxis {
    double low, high, step;
} HtmlAxis;

/* Returns the axis from low to high, widened to whole ticks. whole: ticks are integers. */
HtmlAxis html_axis(double low, double high, bool whole);
/* Returns the place of a value between from (low) and to (high); values outside lie at the nearer end. */
double html_axis_place(const HtmlAxis *axis, double value, double from, double to);

/* Adds the ticks of the vertical axis: a number and a line across the plot for each. */
void html_add_y_axis(HtmlPage *page, const HtmlAxis *axis);
/* Adds one name below the plot; escaped. anchor: "start", "middle", "end". */
void html_add_x_name(HtmlPage *page, double at, const char *anchor, const char *name);

#endif
