/* Braces as Python's braceexpand (and bash) has them; webdataset hands its shard lists to it. */
#include "formats/brace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json_scan.h"
#include "formats/names.h"

enum { PATHS_MAX = 1000000, NESTING_MAX = 32 };

typedef struct Paths {
    char **paths;
    size_t count, capacity;
} Paths;

static void paths_free(Paths *paths)
{
    fsh_names_free(paths->paths, paths->count);
    *paths = (Paths){0};
}

/* Adds a + b, each of so many bytes. */
static FshStatus add(Paths *paths, const char *a, size_t a_bytes, const char *b, size_t b_bytes,
                     FshError *error)
{
    if (paths->count == PATHS_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "the braces stand for more than %d files", PATHS_MAX);
    if (paths->count == paths->capacity) {
        size_t capacity = paths->capacity ? 2 * paths->capacity : 16;
        char **grown = realloc(paths->paths, capacity * sizeof *grown);
        if (!grown)
            return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
        paths->paths = grown;
        paths->capacity = capacity;
    }
    char *joined = malloc(a_bytes + b_bytes + 1);
    if (!joined)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    if (a_bytes)
        memcpy(joined, a, a_bytes);
    if (b_bytes)
        memcpy(joined + a_bytes, b, b_bytes);
    joined[a_bytes + b_bytes] = '\0';
    paths->paths[paths->count++] = joined;
    return FSH_OK;
}

/* Replaces left by each of its paths followed by each path of right. */
static FshStatus multiply(Paths *left, const Paths *right, FshError *error)
{
    Paths product = {0};
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < left->count && !status; i++) {
        for (size_t j = 0; j < right->count && !status; j++) {
            status = add(&product, left->paths[i], strlen(left->paths[i]), right->paths[j],
                         strlen(right->paths[j]), error);
        }
    }
    paths_free(left);
    *left = product;
    return status;
}

static bool parse_number(const char *text, size_t bytes, int64_t *number_ret)
{
    JsonSlice slice = {.kind = JSON_SCAN_NUMBER, .text = text, .bytes = bytes};
    return bytes && bytes < 18 && fsh_json_slice_integer(&slice, number_ret);
}

/* Reads a range, "000..127" or "0..10..5". If either end begins with a zero, *width is the length of the
 * longer end, else 0. Returns false if text is no range. */
static bool parse_range(const char *text, size_t bytes, int64_t *first, int64_t *last, int64_t *step,
                        int *width)
{
    const char *dots = memmem(text, bytes, "..", 2);
    if (!dots)
        return false;
    const char *second = dots + 2, *end = text + bytes;
    const char *more = memmem(second, (size_t)(end - second), "..", 2);
    const char *second_end = more ? more : end;
    *step = 1;
    if (!parse_number(text, (size_t)(dots - text), first) ||
        !parse_number(second, (size_t)(second_end - second), last) ||
        (more && !parse_number(more + 2, (size_t)(end - more - 2), step)))
        return false;
    size_t first_bytes = (size_t)(dots - text), last_bytes = (size_t)(second_end - second);
    bool padded = (first_bytes > 1 && text[text[0] == '-'] == '0') ||
                  (last_bytes > 1 && second[second[0] == '-'] == '0');
    *width = padded ? (int)(first_bytes > last_bytes ? first_bytes : last_bytes) : 0;
    *step = *step < 0 ? -*step : *step;
    if (*step == 0)
        *step = 1;
    return true;
}

static FshStatus add_range(Paths *paths, int64_t first, int64_t last, int64_t step, int width,
                           FshError *error)
{
    FshStatus status = FSH_OK;
    int64_t sign = first <= last ? 1 : -1,
            count = (last - first) * sign / step + 1; /* below 2^61: no overflow */
    for (int64_t i = 0; i < count && !status; i++) {
        char text[48];
        int length = snprintf(text, sizeof text, "%0*" PRId64, width, first + sign * step * i);
        status = add(paths, text, (size_t)length, NULL, 0, error);
    }
    return status;
}

/* Returns the brace that closes the one at text[0], or NULL. *has_comma: a comma stands between them on the
 * first level. */
static const char *closing_brace(const char *text, const char *end, bool *has_comma)
{
    size_t depth = 0;
    *has_comma = false;
    for (const char *at = text; at < end; at++) {
        depth += *at == '{';
        if (*at == '}' && --depth == 0)
            return at;
        *has_comma |= *at == ',' && depth == 1;
    }
    return NULL;
}

static FshStatus expand(Paths *paths, const char *text, const char *end, int nesting, FshError *error);

/* Adds the parts between the commas of this level, each expanded: "a,b,{c,d}". */
static FshStatus add_list(Paths *paths, const char *text, const char *end, int nesting, FshError *error)
{
    FshStatus status = FSH_OK;
    size_t depth = 0;
    const char *part = text;
    for (const char *at = text; at <= end && !status; at++) {
        if (at == end || (*at == ',' && depth == 0)) {
            Paths parts = {0};
            status = expand(&parts, part, at, nesting + 1, error);
            for (size_t i = 0; i < parts.count && !status; i++) {
                status = add(paths, parts.paths[i], strlen(parts.paths[i]), NULL, 0, error);
            }
            paths_free(&parts);
            part = at + 1;
        } else {
            depth += *at == '{';
            depth -= *at == '}' && depth > 0;
        }
    }
    return status;
}

/* Appends all paths that text stands for to an empty list. */
static FshStatus expand(Paths *paths, const char *text, const char *end, int nesting, FshError *error)
{
    if (nesting > NESTING_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "braces nested more than %d deep", NESTING_MAX);
    FshStatus status = add(paths, "", 0, NULL, 0, error);
    while (text < end && !status) {
        Paths choices = {0};
        bool has_comma = false;
        int64_t first, last, step;
        int width;
        const char *brace = memchr(text, '{', (size_t)(end - text));
        const char *close = brace ? closing_brace(brace, end, &has_comma) : NULL;
        if (brace != text) { /* text up to the brace */
            const char *stop = brace ? brace : end;
            status = add(&choices, text, (size_t)(stop - text), NULL, 0, error);
            text = stop;
        } else if (close && has_comma) {
            status = add_list(&choices, text + 1, close, nesting, error);
            text = close + 1;
        } else if (close && parse_range(text + 1, (size_t)(close - text - 1), &first, &last, &step, &width)) {
            status = add_range(&choices, first, last, step, width, error);
            text = close + 1;
        } else { /* a brace like any letter */
            status = add(&choices, text, 1, NULL, 0, error);
            text++;
        }
        if (!status)
            status = multiply(paths, &choices, error);
        paths_free(&choices);
    }
    return status;
}

FshStatus fsh_brace_expand(const char *text, char ***paths_ret, size_t *count_ret, FshError *error)
{
    Paths all = {0};
    FshStatus status = FSH_OK;
    for (const char *part = text; part && !status;) {
        Paths paths = {0};
        const char *next = strstr(part, "::");
        status = expand(&paths, part, next ? next : part + strlen(part), 0, error);
        for (size_t i = 0; i < paths.count && !status; i++) {
            status = add(&all, paths.paths[i], strlen(paths.paths[i]), NULL, 0, error);
        }
        paths_free(&paths);
        part = next ? next + 2 : NULL;
    }
    if (status) {
        paths_free(&all);
        (void)fsh_error_prepend(error, "%s", text);
    }
    *paths_ret = all.paths;
    *count_ret = all.count;
    return status;
}
