/* json_scan.h - JSON without a tree: a million small objects are looked at when a tar is opened. */
#ifndef FSHARD_FORMATS_JSON_SCAN_H
#define FSHARD_FORMATS_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/file.h"

typedef enum JsonKind { JSON_SCAN_TEXT, JSON_SCAN_NUMBER, JSON_SCAN_OBJECT, JSON_SCAN_OTHER } JsonKind;
/* A value where it stands: text without its quotes, escapes as they are; objects with their braces. */
typedef struct JsonSlice {
    JsonKind kind;
    const char *text;
    size_t bytes;
    bool escaped; /* a text with a backslash in it */
} JsonSlice;
typedef struct JsonScan {
    const char *next, *end;
    bool begun, broken; /* broken: what was scanned is no JSON object */
} JsonScan;

/* Returns a scan that begins at an object's opening brace; blanks before the brace are fine. */
JsonScan fsh_json_scan(const char *text, size_t bytes);
/* Reads the next member. Returns false at the end, or where scan->broken. Nested values are passed over and
 * only balanced. */
bool fsh_json_scan_next(JsonScan *scan, JsonSlice *name, JsonSlice *value);
bool fsh_json_slice_is(const JsonSlice *slice, const char *text);
/* Reads a whole number in range into *value_ret. Returns false for all else. */
bool fsh_json_slice_integer(const JsonSlice *slice, int64_t *value_ret);
/* Writes the text with its escapes resolved to out, of at least slice->bytes; *bytes_ret is its length.
 * \udc80 to \udcff alone is the byte that Python's os.fsencode makes of it: names that are not UTF-8. Returns
 * false for a wrong escape, or a zero byte. */
bool fsh_json_slice_unescape(const JsonSlice *slice, char *out, size_t *bytes_ret);
/* Appends bytes as a JSON text with its quotes, escaped so that fsh_json_slice_unescape gives them back. */
FshStatus fsh_json_append_text(Buffer *out, const char *bytes, size_t length, FshError *error);

#endif
