/* text.h - stretches of text that no NUL ends: keys, paths and names as files hold them. */
#ifndef FSHARD_COMMON_TEXT_H
#define FSHARD_COMMON_TEXT_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* bytes of text as a string of its own (free); NULL: no memory. Nothing behind them is looked at. */
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

/* Returns the first byte from at on that is no blank; end where all are. */
static inline const char *text_skip_blanks(const char *at, const char *end)
{
    while (at < end && text_is_blank(*at))
        at++;
    return at;
}

/* Returns the bytes of the UTF-8 character that text, which is not empty, begins with; 1 where it is none.
 * *control_ret: a terminal might obey it, or show what follows in another order: C0, DEL, C1 (as a byte
 * alone, too), the separators of lines and the marks that turn the direction of writing. */
size_t text_character(const char *text, size_t length, bool *control_ret);

#endif
