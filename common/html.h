/* html.h - pages that need nothing else: no network, no other file. One style and one script for all
 * (html_style.h).
 *
 *   HtmlPage page = {.error = error};
 *   html_begin(&page, "fverify: photos", 0);
 *   html_add(&page, "<p>%d files of ", count);
 *   html_add_string(&page, name);                    // escaped
 *   status = html_write(&page, "page.html", force);  // writes the end of it too, and frees the page
 *
 * Names come from strangers. All text is escaped, what is no UTF-8 or a control character becomes U+FFFD, and
 * the page's own policy lets it load nothing but its inline images and styles, and run no script but ours,
 * which it knows by its hash.
 *
 * After a failure nothing more is added; callers look at the status once, at the end. Threads: one page, one
 * thread. */
#ifndef FSHARD_COMMON_HTML_H
#define FSHARD_COMMON_HTML_H

#include "common/error.h"
#include "common/file.h"

/* A page as it grows. Begin with {.error = error}. */
typedef struct HtmlPage {
    Buffer text;
    FshStatus status; /* the first failure */
    FshError *error;  /* borrowed; may be NULL */
} HtmlPage;

/* Adds all from the doctype to <body>; title is escaped. refresh_seconds: after how many a browser loads the
 * page again; 0: never. */
void html_begin(HtmlPage *page, const char *title, unsigned refresh_seconds);

/* Markup of our own, with numbers; at most 1023 bytes. Never with text of others. */
void html_add(HtmlPage *page, const char *format, ...) FSH_PRINTF(2, 3);
/* Markup of our own, of any length, as it is. */
void html_add_markup(HtmlPage *page, const char *markup);

/* Text as it may stand between tags and in quoted attributes. */
void html_add_text(HtmlPage *page, const char *text, size_t length);
void html_add_string(HtmlPage *page, const char *text);

/* Adds a tile, within <div class="tiles">: a number, or a word or two, and what it is. Both are escaped. */
void html_add_tile(HtmlPage *page, const char *value, const char *name);

/* RFC 4648, with padding. */
void html_add_base64(HtmlPage *page, const void *bytes, size_t length);

/* Adds the script, ends the page and writes it atomically, unless it has failed; frees it in every case.
 * FSH_ERR_EXISTS without force. */
FshStatus html_write(HtmlPage *page, const char *path, bool force);

#endif
