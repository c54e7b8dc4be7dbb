#include "common/html_axis.h"

#include <math.h>

enum { TICKS = 5 };

/* Returns 1, 2 or 5 times a power of ten. */
static double nice_step(double span)
{
    const double rough = span / TICKS, power = pow(10, floor(log10(rough)));
    const double digit = rough / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

HtmlAxis html_axis(double low, double high, bool whole)
{
    if (high <= low) { /* a single value gets room on both sides */
        const double room = low != 0 ? fabs(low) * 0.1 : 1;
        low -= low - room < 0 && low >= 0 ? low : room;
        high += room;
    }
    double step = nice_step(high - low);
    if (whole && step < 1)
        step = 1;
    return (HtmlAxis){floor(low / step + 1e-9) * step, ceil(high / step - 1e-9) * step, step};
}

double html_axis_place(const HtmlAxis *axis, double value, double from, double to)
{
    const double part = (value - axis->low) / (axis->high - axis->low);
    return from + (part < 0 ? 0 : part > 1 ? 1 : part) * (to - from);
}

void html_add_y_axis(HtmlPage *page, const HtmlAxis *axis)
{
    /* Ticks are counted, since adding up steps could miss the last one by rounding. */
    const size_t ticks = (size_t)((axis->high - axis->low) / axis->step + 1e-6) + 1;
    for (size_t i = 0; i < ticks; i++) {
        const double value = axis->low + (double)i * axis->step,
                     at = html_axis_place(axis, value, HTML_CHART_BOTTOM, HTML_CHART_TOP);
        html_add(page, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", HTML_CHART_LEFT,
                 HTML_CHART_RIGHT, at, at);
        html_add(page, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>", HTML_CHART_LEFT - 6,
                 at + 4, fabs(value) < axis->step / 1e6 ? 0 : value);
    }
}

void html_add_x_name(HtmlPage *page, double at, const char *anchor, const char *name)
{
    html_add(page, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">", at, HTML_CHART_BOTTOM + 18, anchor);
    html_add_string(page, name);
    html_add(page, "</text>");
}
