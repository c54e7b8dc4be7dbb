/* html.h - writes self-contained HTML pages, which need no network and no other file. All have one style and
 * one script (html_style.h).
 *
 *   HtmlPage page = {.error = error};
 *   html_begin(&page, "fverify: photos", 0);
 *   html_add(&page, "<p>%d files of ", count);
 *   html_add_string(&page, name);                    // escaped
 *   status = html_write(&page, "page.html", force);  // writes the end of it too, and frees the page
 *
 * Names may be hostile. All text is escaped; invalid UTF-8 and control characters become U+FFFD. The page's
 * policy lets it load only its inline images and styles, and run only our script, which it knows by its hash.
 *
 * After a failure nothing more is added; callers check the status once, at the end. Threads: one page, one
 * thread. */
#ifndef FSHARD_COMMON_HTML_H
#define FSHARD_COMMON_HTML_H

#include <stdbool.h>

#include "common/error.h"
#include "common/file.h"

/* A page under construction. Begin with {.error = error}. */
typedef struct HtmlPage {
    Buffer text;
    FshStatus status; /* the first failure */
    FshError *error;  /* borrowed; may be NULL */
} HtmlPage;

/* Adds everything from the doctype to <body>; title is escaped. refresh_seconds: after how long a browser
 * reloads the page; 0: never. */
void html_begin(HtmlPage *page, const char *title, unsigned refresh_seconds);

/* Adds our own markup with numbers, at most 1023 bytes. Never pass foreign text. */
void html_add(HtmlPage *page, const char *format, ...) FSH_PRINTF(2, 3);

/* Add text, escaped so that it may stand between tags and in quoted attributes. */
void html_add_text(HtmlPage *page, const char *text, size_t length);
void html_add_string(HtmlPage *page, const char *text);

/* Adds a tile, within <div class="tiles">: a number, or a word or two, and its name. Both are escaped. */
void html_add_tile(HtmlPage *page, const char *value, const char *name);

/* Adds bytes in base64 (RFC 4648, with padding). */
void html_add_base64(HtmlPage *page, const void *bytes, size_t length);

/* Returns whether the file at path is a page that html_begin began with this title, by its first bytes. */
bool html_is_page(const char *path, const char *title);

/* Adds the script, ends the page and writes it atomically, unless it has failed; frees it in every case.
 * FSH_ERR_EXISTS without force. */
FshStatus html_write(HtmlPage *page, const char *path, bool force);

#endif
