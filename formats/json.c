#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "formats/dictionary.h"
#include "formats/names.h"

static FshStatus wrong_type(const char *key, const char *expected, const json_t *found, FshError *error)
{
    if (!found)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "\"%s\" is missing", key);
    return fsh_error_set(error, FSH_ERR_CORRUPT, "\"%s\" is not %s", key, expected);
}

FshStatus fsh_json_text(const json_t *object, const char *key, const char **text_ret, FshError *error)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        return wrong_type(key, "a string", value, error);
    *text_ret = json_string_value(value);
    return FSH_OK;
}

FshStatus fsh_json_count(const json_t *object, const char *key, uint64_t *count_ret, FshError *error)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return wrong_type(key, "a whole number of 0 or more", value, error);
    *count_ret = (uint64_t)json_integer_value(value);
    return FSH_OK;
}

FshStatus fsh_json_array(const json_t *object, const char *key, const json_t **array_ret, FshError *error)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_array(value))
        return wrong_type(key, "a list", value, error);
    *array_ret = value;
    return FSH_OK;
}

FshStatus fsh_json_object(const json_t *object, const char *key, const json_t **object_ret, FshError *error)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_object(value))
        return wrong_type(key, "an object", value, error);
    *object_ret = value;
    return FSH_OK;
}

FshStatus fsh_json_names(const json_t *object, const char *key, char ***names_ret, size_t *count_ret,
                         FshError *error)
{
    *names_ret = NULL;
    *count_ret = 0;
    const json_t *array = NULL;
    FshStatus status = fsh_json_array(object, key, &array, error);
    size_t count = status ? 0 : json_array_size(array);
    if (status || count == 0)
        return status;
    const char **borrowed = calloc(count, sizeof *borrowed);
    if (!borrowed)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < count; i++) {
        borrowed[i] = json_string_value(json_array_get(array, i)); /* NULL for what is no string */
    }
    status = fsh_names_check(key, borrowed, count, error);
    if (status == FSH_ERR_USAGE) { /* here it is the file that is wrong, not the caller */
        status = FSH_ERR_CORRUPT;
        if (error)
            error->status = FSH_ERR_CORRUPT;
    }
    if (!status)
        status = fsh_names_copy(names_ret, borrowed, count, error);
    if (!status)
        *count_ret = count;
    free(borrowed);
    return status;
}

FshStatus fsh_json_dictionary(const json_t *object, FshDictionaryInfo *info_ret, FshError *error)
{
    const json_t *dictionary = NULL;
    uint64_t bytes = 0, id = 0;
    const char *hash = NULL;
    *info_ret = (FshDictionaryInfo){0};
    if (!json_object_get(object, "dictionary"))
        return FSH_OK;
    FshStatus status = fsh_json_object(object, "dictionary", &dictionary, error);
    if (status)
        return status;
    status = fsh_json_count(dictionary, "bytes", &bytes, error);
    if (!status)
        status = fsh_json_count(dictionary, "id", &id, error);
    if (!status)
        status = fsh_json_text(dictionary, "xxh3_128", &hash, error);
    if (!status && (bytes < DICTIONARY_BYTES_MIN || bytes > FSH_DICTIONARY_BYTES_MAX || id < 1 ||
                    id > UINT32_MAX || !fsh_hash_parse(hash, &info_ret->hash)))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "\"bytes\", \"id\" or \"xxh3_128\" is out of range");
    if (status) {
        *info_ret = (FshDictionaryInfo){0};
        return fsh_error_prepend(error, "dictionary");
    }
    info_ret->bytes = (uint32_t)bytes;
    info_ret->id = (uint32_t)id;
    return FSH_OK;
}

json_t *fsh_json_from_dictionary(const FshDictionaryInfo *info)
{
    char hash[FSH_HASH_TEXT_BYTES];
    fsh_hash_format(&info->hash, hash);
    return json_pack("{s:I, s:I, s:s}", "bytes", (json_int_t)info->bytes, "id", (json_int_t)info->id,
                     "xxh3_128", hash);
}

json_t *fsh_json_from_names(char *const *names, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++) {
        if (json_array_append_new(array, json_string(names[i]))) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}
