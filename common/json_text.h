/* json_text.h - names of files as JSON. */
#ifndef FSHARD_COMMON_JSON_TEXT_H
#define FSHARD_COMMON_JSON_TEXT_H

#include <jansson.h>

/* A new reference: the text as a string, null for NULL. A name may hold any byte and JSON only UTF-8: in a
 * text that is none, every byte above 127 becomes "?". NULL when out of memory. */
json_t *json_text(const char *text);

#endif
