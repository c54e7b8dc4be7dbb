#include "common/html_bars.h"

#include <inttypes.h>

#include "common/html_axis.h"

static const double gap = 1.5; /* between two bars, if they are wide enough */

static void add_bar(HtmlPage *page, const HtmlBar *bar, const HtmlAxis *y, double left, double width)
{
    const double top = html_axis_place(y, (double)bar->count, HTML_CHART_BOTTOM, HTML_CHART_TOP);
    const double between = width > 4 * gap ? gap : 0;
    if (bar->tick[0]) {
        html_add(page, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>", left, left,
                 HTML_CHART_BOTTOM, HTML_CHART_BOTTOM + 5);
        html_add_x_name(page, left, "middle", bar->tick);
    }
    if (bar->count == 0)
        return;
    html_add(page, "<rect class=\"tr\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"><title>", left,
             top, width - between, HTML_CHART_BOTTOM - top);
    html_add_string(page, bar->name);
    html_add(page, ": %" PRIu64 "</title></rect>", bar->count);
}

void html_add_bars(HtmlPage *page, const char *title, const char *note, const char *counted,
                   const HtmlBar *bars, size_t count)
{
    uint64_t most = 0;
    for (size_t i = 0; i < count; i++)
        most = bars[i].count > most ? bars[i].count : most;
    if (most == 0)
        return;
    const HtmlAxis y = html_axis(0, (double)most, true);
    const double width = (HTML_CHART_RIGHT - HTML_CHART_LEFT) / (double)count;
    html_add(page, "<figure class=\"chart\"><h3>");
    html_add_string(page, title);
    html_add(page, " <small>");
    html_add_string(page, note);
    html_add(page, "</small></h3><p class=\"legend\"><span>");
    html_add_string(page, counted);
    html_add(page, "</span></p><svg viewBox=\"0 0 %d %d\" role=\"img\">", HTML_CHART_WIDTH,
             HTML_CHART_HEIGHT);
    html_add_y_axis(page, &y);
    for (size_t i = 0; i < count; i++)
        add_bar(page, &bars[i], &y, HTML_CHART_LEFT + (double)i * width, width);
    html_add(page, "</svg></figure>");
}
