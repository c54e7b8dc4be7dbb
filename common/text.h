/* text.h - stretches of text that no NUL ends: keys, paths and names as files hold them. */
#ifndef FSHARD_COMMON_TEXT_H
#define FSHARD_COMMON_TEXT_H

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

#endif
