/* html_style.h - the style and the script of our pages: ftrain's report.html and fverify's --html.
 *
 * Pages are light or dark as the reader's system is, and fit a telephone. Classes mean the same on every
 * page: tr training, ev evaluation, av averaged weights, rf reference, fi single steps, p0 to p3 parts of a
 * bar, n a column of numbers; run with r0 to r9 one of several runs, thin the same without weight.
 *
 * The script sorts `table.sort` by a click on a heading, gives long ones a field that finds rows, and loads a
 * page of data-refresh again after so many seconds. It reads text and never writes it as markup. Part of
 * common/html.c. */
#ifndef FSHARD_COMMON_HTML_STYLE_H
#define FSHARD_COMMON_HTML_STYLE_H

/* CSS; NULL after the last string. */
extern const char *const html_styles[];

extern const char html_script[];
/* The SHA-256 of html_script in base64, by which the page's policy admits our script and no other. The test
 * prints the new one if the script has changed. */
extern const char html_script_hash[];

#endif
