#include "common/html.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/html_style.h"
#include "common/text.h"

static void append(HtmlPage *page, const char *text, size_t length)
{
    if (!page->status)
        page->status = buffer_append(&page->text, text, length, page->error);
}

/* Returns the bytes of the UTF-8 character at text; 0 if it is invalid or a control character. */
static size_t character_bytes(const char *text, size_t length)
{
    const unsigned char first = (unsigned char)text[0];
    const size_t bytes = text_utf8_length(text, length);
    const bool is_c1 = bytes == 2 && first == 0xC2 && (unsigned char)text[1] < 0xA0;
    return first < 32 || first == 127 || is_c1 ? 0 : bytes;
}

void html_add_text(HtmlPage *page, const char *text, size_t length)
{
    static const struct {
        char character;
        const char *text;
    } escapes[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    for (size_t i = 0; i < length && !page->status;) {
        const size_t bytes = character_bytes(text + i, length - i);
        const char *piece = bytes ? text + i : "\xEF\xBF\xBD";
        size_t piece_bytes = bytes ? bytes : 3;
        for (size_t e = 0; e < sizeof escapes / sizeof *escapes && bytes == 1; e++) {
            if (text[i] == escapes[e].character) {
                piece = escapes[e].text;
                piece_bytes = strlen(piece);
            }
        }
        append(page, piece, piece_bytes);
        i += bytes ? bytes : 1;
    }
}

void html_add_string(HtmlPage *page, const char *text)
{
    html_add_text(page, text, strlen(text));
}

/* Adds our own markup of any length, unchanged. */
static void add_markup(HtmlPage *page, const char *markup)
{
    append(page, markup, strlen(markup));
}

void html_add(HtmlPage *page, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    const int length = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (length > 0)
        append(page, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

void html_add_tile(HtmlPage *page, const char *value, const char *name)
{
    add_markup(page, "<div><b>");
    html_add_string(page, value);
    add_markup(page, "</b><span>");
    html_add_string(page, name);
    add_markup(page, "</span></div>");
}

void html_add_base64(HtmlPage *page, const void *bytes, size_t length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *at = bytes;
    for (size_t i = 0; i < length && !page->status; i += 3) {
        const size_t left = length - i;
        const uint32_t group =
            (uint32_t)at[i] << 16 | (left > 1 ? (uint32_t)at[i + 1] << 8 : 0) | (left > 2 ? at[i + 2] : 0);
        const char text[4] = {digits[group >> 18], digits[group >> 12 & 63],
                              left > 1 ? digits[group >> 6 & 63] : '=', left > 2 ? digits[group & 63] : '='};
        append(page, text, sizeof text);
    }
}

/* What every page of ours begins with. */
static const char beginning[] = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                                "img-src data:; style-src 'unsafe-inline'; script-src 'sha256-";

static void begin_title(HtmlPage *page, const char *title)
{
    add_markup(page, "<title>");
    html_add_string(page, title);
    add_markup(page, "</title><style>");
}

void html_begin(HtmlPage *page, const char *title, unsigned refresh_seconds)
{
    add_markup(page, beginning);
    html_add(page, "%s'\"><meta name=\"viewport\" content=\"width=device-width\">", html_script_hash);
    if (refresh_seconds) /* the script is more careful: it waits while the reader types */
        html_add(page, "<noscript><meta http-equiv=\"refresh\" content=\"%u\"></noscript>", refresh_seconds);
    begin_title(page, title);
    for (const char *const *style = html_styles; *style; style++)
        add_markup(page, *style);
    add_markup(page, "</style></head>");
    if (refresh_seconds)
        html_add(page, "<body data-refresh=\"%u\">", refresh_seconds);
    else
        add_markup(page, "<body>");
}

bool html_is_page(const char *path, const char *title)
{
    enum { HEAD_BYTES = 2048 };
    char head[HEAD_BYTES];
    struct stat file;
    HtmlPage wanted = {0};
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe has nothing to say */
    if (descriptor < 0)
        return false;
    const ssize_t length =
        fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode) ? read(descriptor, head, sizeof head) : 0;
    (void)close(descriptor);
    begin_title(&wanted, title);
    const bool is_page = !wanted.status && length >= (ssize_t)sizeof beginning &&
                         memcmp(head, beginning, sizeof beginning - 1) == 0 &&
                         memmem(head, (size_t)length, wanted.text.bytes, wanted.text.length);
    buffer_free(&wanted.text);
    return is_page;
}

FshStatus html_write(HtmlPage *page, const char *path, bool force)
{
    add_markup(page, "<script>");
    add_markup(page, html_script);
    add_markup(page, "</script></body></html>\n");
    if (!page->status)
        page->status =
            file_write_atomic(path, page->text.bytes, page->text.length, force, false, page->error);
    buffer_free(&page->text);
    return page->status;
}
