/* html_bars.h - bar charts of counts in a page of common/html.h, with the ticks and colours of all charts. */
#ifndef FSHARD_COMMON_HTML_BARS_H
#define FSHARD_COMMON_HTML_BARS_H

#include <stddef.h>
#include <stdint.h>

#include "common/html.h"

enum { HTML_BAR_TEXT = 64 };

typedef struct HtmlBar {
    uint64_t count;
    char tick[HTML_BAR_TEXT]; /* below the bar's left edge; "": none */
    char name[HTML_BAR_TEXT]; /* shown under the pointer, before the count */
} HtmlBar;

/* Adds a chart with a title and a note, `counted` as the name of the vertical axis, and bars of equal width.
 * All text is escaped. Adds nothing if every count is 0. */
void html_add_bars(HtmlPage *page, const char *title, const char *note, const char *counted,
                   const HtmlBar *bars, size_t count);

#endif
