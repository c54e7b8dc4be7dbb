/* html_style.h - how our pages look and what they do: one style and one script for ftrain's report.html and
 * fverify's --html.
 *
 * Light and dark as the reader's system says; from a telephone's width up. Classes mean the same on every
 * page: tr training, ev evaluation, av averaged weights, rf reference, fi single steps, p0 to p3 parts of a
 * bar, n a column of numbers.
 *
 * The script sorts `table.sort` by a click on a heading, gives long ones a field that finds rows, and loads a
 * page of data-refresh again after so many seconds. It reads text and writes none of it as markup. Part of
 * common/html.c. */
#ifndef FSHARD_COMMON_HTML_STYLE_H
#define FSHARD_COMMON_HTML_STYLE_H

/* CSS; NULL after the last string. */
extern const char *const html_styles[];

extern const char html_script[];
/* The SHA-256 of html_script in base64: by it the page's policy knows our script, and no other runs. The test
 * prints the new one where the script has changed. */
extern const char html_script_hash[];

#endif
