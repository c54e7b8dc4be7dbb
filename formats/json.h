/* json.h - checked members of JSON objects, as manifests and metadata have them. */
#ifndef FSHARD_FORMATS_JSON_H
#define FSHARD_FORMATS_JSON_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "formats/fshard.h"

/* Reads a checked member of an object into *text_ret; the functions below read others. FSH_ERR_CORRUPT when
 * the member is missing or of the wrong type; the caller prepends which object it is. Strings and arrays are
 * borrowed from object. */
FshStatus fsh_json_text(const json_t *object, const char *key, const char **text_ret, FshError *error);
FshStatus fsh_json_count(const json_t *object, const char *key, uint64_t *count_ret, FshError *error);
FshStatus fsh_json_array(const json_t *object, const char *key, const json_t **array_ret, FshError *error);
FshStatus fsh_json_object(const json_t *object, const char *key, const json_t **object_ret, FshError *error);
/* Copies an array of strings that all differ and are not empty. On success *names_ret (NULL if there are
 * none), of *count_ret names, is owned by the caller: fsh_names_free. */
FshStatus fsh_json_names(const json_t *object, const char *key, char ***names_ret, size_t *count_ret,
                         FshError *error);
/* Returns a new array of strings; NULL when memory is short or a name is not UTF-8. */
json_t *fsh_json_from_names(char *const *names, size_t count);
/* Reads the member "dictionary", which need not be there: *info_ret is empty then. */
FshStatus fsh_json_dictionary(const json_t *object, FshDictionaryInfo *info_ret, FshError *error);
/* Returns the value of that member; NULL when memory is short. */
json_t *fsh_json_from_dictionary(const FshDictionaryInfo *info);

#endif
