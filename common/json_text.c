#include "common/json_text.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"

json_t *json_text(const char *text)
{
    if (!text)
        return json_null();
    json_t *string = json_string(text);
    char *ascii = string ? NULL : strdup(text);
    for (char *at = ascii; at && *at; at++) {
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    }
    if (ascii)
        string = json_string(ascii);
    free(ascii);
    return string;
}

json_t *json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *json_measured(double value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%.6g", value);
    return json_number(strtod(text, NULL));
}

json_t *json_whole(double value)
{
    const bool is_count = isfinite(value) && value == floor(value) && fabs(value) < 0x1p63;
    return is_count ? json_integer((json_int_t)value) : json_null();
}

/* Returns the bytes of the longest run between two successive quotes, and sets *line_ret to the line it
 * begins in. Text that is not JSON gives any number. */
static size_t longest_string(const char *text, size_t bytes, int *line_ret)
{
    const char *at = text, *end = text + bytes, *counted = text;
    size_t longest = 0;
    int line = 1;
    while (at < end && (at = memchr(at, '"', (size_t)(end - at)))) {
        const char *begin = ++at, *close = begin;
        while (close < end && *close != '"')
            close += *close == '\\' ? 2 : 1; /* an escaped character may be a quote */
        const size_t length = (size_t)((close < end ? close : end) - begin);
        if (length > longest) {
            for (; counted < begin; counted++)
                line += *counted == '\n';
            longest = length;
            *line_ret = line;
        }
        at = close < end ? close + 1 : end;
    }
    return longest;
}

json_t *json_text_load(const char *text, size_t bytes, size_t flags, json_error_t *where)
{
    int line = 1;
    const size_t longest = longest_string(text, bytes, &line);
    const bool has_zero = memchr(text, 0, bytes) != NULL;
    if (longest <= JSON_STRING_BYTES_MAX && !has_zero)
        return json_loadb(text, bytes, flags, where);
    *where = (json_error_t){.line = line};
    if (has_zero) /* jansson skips one after a number */
        (void)snprintf(where->text, sizeof where->text, "a zero byte: this is no text");
    else
        (void)snprintf(where->text, sizeof where->text, "a string of %zu bytes; at most %d are read", longest,
                       JSON_STRING_BYTES_MAX);
    return NULL;
}

json_t *json_file_load(const char *path, uint64_t most_bytes)
{
    Buffer text = {0};
    json_error_t where;
    json_t *value = file_read_most(path, most_bytes, &text, NULL)
                        ? NULL
                        : json_text_load((const char *)text.bytes, text.length, 0, &where);
    buffer_free(&text);
    return value;
}
