/* json_text.h - names of files as JSON, and JSON that anybody may have written. */
#ifndef FSHARD_COMMON_JSON_TEXT_H
#define FSHARD_COMMON_JSON_TEXT_H

#include <jansson.h>
#include <stdint.h>

/* A new reference: the text as a string, null for NULL. A name may hold any byte and JSON only UTF-8: in a
 * text that is none, every byte above 127 becomes "?". NULL when out of memory. */
json_t *json_text(const char *text);

/* Returns the value as a new reference, null if it is not finite, which JSON cannot express. NULL when out of
 * memory. */
json_t *json_number(double value);

/* What a string of a file that is read may take, as it is written there: as much as a key or a source path.
 * jansson takes 150 ns and three bytes of memory for each byte of a string. */
enum { JSON_STRING_BYTES_MAX = 65535 };

/* json_loadb, which is not called for a text with a zero byte, or with a string of more than
 * JSON_STRING_BYTES_MAX bytes: NULL then too, and *where, which may not be NULL, says so with its line. */
json_t *json_text_load(const char *text, size_t bytes, size_t flags, json_error_t *where);

/* The same of a file of at most most_bytes. NULL: it cannot be read, is longer, or is no JSON. */
json_t *json_file_load(const char *path, uint64_t most_bytes);

#endif
