/* verify_html_parts.h - what fverify's page is made of. Part of verify_html.c. */
#ifndef FSHARD_VERIFY_VERIFY_HTML_PARTS_H
#define FSHARD_VERIFY_VERIFY_HTML_PARTS_H

#include "common/html.h"
#include "tools/verify/verify.h"
#include "tools/verify/verify_thumbs.h"

enum { PAGE_EDGE_PX = 160, PAGE_QUALITY = 80 };

/* ---- verify_html_charts.c ---- */

/* Adds a table of all classes, with a bar for each split, and above it a chart of their sizes where there are
 * many. */
void verify_html_add_classes(HtmlPage *page, const VerifyReport *report);
/* Adds how wide, high and heavy the images are. */
void verify_html_add_sizes(HtmlPage *page, const VerifyReport *report);

/* ---- verify_html_pictures.c ---- */

/* Adds figures with class, key and what is wrong; crops: the middle of each side, pixel for pixel. What has
 * no picture is a box that says why. */
void verify_html_add_pictures(HtmlPage *page, const Thumbs *thumbs, bool crops);

#endif
