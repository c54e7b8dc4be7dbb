/* json_text.h - names of files as JSON, and reading of JSON that may be hostile. */
#ifndef FSHARD_COMMON_JSON_TEXT_H
#define FSHARD_COMMON_JSON_TEXT_H

#include <jansson.h>
#include <stdint.h>

/* Returns the text as a new string, or null for NULL. A name may hold any byte, JSON only UTF-8: in text that
 * is not UTF-8 every byte above 127 becomes "?". NULL when out of memory. */
json_t *json_text(const char *text);

/* Returns the value as a new reference, null if it is not finite, which JSON cannot express. NULL when out of
 * memory. */
json_t *json_number(double value);

/* Returns what a clock has measured, seconds or a rate, in six digits; what follows is chance. null if it is
 * not finite. NULL when out of memory. */
json_t *json_measured(double value);

/* jansson's flag for what programs print: nine digits, by which every float is told from the next, and no
 * more than a number has. Without it there are seventeen, 0.10000000000000001 of 0.1. */
enum { JSON_PRINTED = JSON_REAL_PRECISION(9) };

/* Returns a count that a table of doubles has as an integer, null if it is not finite or has a fraction. NULL
 * when out of memory. */
json_t *json_whole(double value);

/* The longest string accepted when reading, as written in the file: as long as a key or a source path.
 * jansson takes 150 ns and three bytes of memory for each byte of a string. */
enum { JSON_STRING_BYTES_MAX = 65535 };

/* Calls json_loadb, unless the text has a zero byte or a string of more than JSON_STRING_BYTES_MAX bytes.
 * Returns NULL then too, and *where, which may not be NULL, says so with the line. */
json_t *json_text_load(const char *text, size_t bytes, size_t flags, json_error_t *where);

/* Does the same for a file of at most most_bytes. NULL: it cannot be read, is longer, or is not JSON. */
json_t *json_file_load(const char *path, uint64_t most_bytes);

#endif
