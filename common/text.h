/* text.h - text without a final NUL: keys, paths and names as files hold them. */
#ifndef FSHARD_COMMON_TEXT_H
#define FSHARD_COMMON_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Returns a copy of `bytes` bytes of text, NUL-terminated; free it. NULL: no memory. Reads nothing beyond
 * them. */
static inline char *text_copy(const char *text, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    if (copy) {
        memcpy(copy, text, bytes);
        copy[bytes] = '\0';
    }
    return copy;
}

static inline bool text_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Returns the first byte from `at` on that is not blank; end if all are. */
static inline const char *text_skip_blanks(const char *at, const char *end)
{
    while (at < end && text_is_blank(*at))
        at++;
    return at;
}

/* Returns whether two texts have the same bytes. */
static inline bool text_is_same(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    return a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0;
}

/* Returns what makes a noun of the count: "" or "s". Use it for every counted noun that people read and of
 * which there may be one. */
static inline const char *text_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* Returns whether text ends with suffix, and is longer; a NUL ends both. */
bool text_has_suffix(const char *text, const char *suffix);

/* Returns the length of the UTF-8 character at the beginning of text, whose length is not 0; 0 if there is
 * none: well-formed as in Unicode's table 3-7, without surrogates and overlong forms. */
size_t text_utf8_length(const char *text, size_t length);

/* Returns whether text, which a NUL ends, is UTF-8 from beginning to end. */
bool text_is_utf8(const char *text);

/* Returns the bytes of the UTF-8 character that the non-empty text begins with; 1 if it is invalid. Sets
 * *control_ret to whether a terminal might obey it or show the rest in another order: C0, DEL, C1 (also as a
 * single byte), line separators and marks of direction. */
size_t text_character(const char *text, size_t length, bool *control_ret);

#endif
