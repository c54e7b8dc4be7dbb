#include "formats/metadata.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/json_text.h"
#include "formats/dictionary.h"
#include "formats/json.h"
#include "formats/names.h"

/* Checks the rules that hold whoever made the metadata; status is what a violation gives. */
static FshStatus check_shape(const Metadata *metadata, FshStatus status, FshError *error)
{
    if (!fsh_id_valid(metadata->id))
        return fsh_error_set(error, status, "dataset id \"%s\" is not 32 lower-case hexadecimal digits",
                             metadata->id);
    if (!fsh_split_name_valid(metadata->split))
        return fsh_error_set(error, status, "split \"%s\": letters, digits, '_' and '-' only, at most 64",
                             metadata->split);
    if (metadata->kind == FSH_KIND_CLASSES && (metadata->field_count != 1 || metadata->class_count == 0))
        return fsh_error_set(error, status, "kind classes needs one field and classes, not %zu and %zu",
                             metadata->field_count, metadata->class_count);
    if (metadata->kind == FSH_KIND_PAIRS && (metadata->field_count < 2 || metadata->class_count != 0))
        return fsh_error_set(error, status,
                             "kind pairs needs two or more fields and no classes, not %zu and %zu",
                             metadata->field_count, metadata->class_count);
    if (metadata->kind == FSH_KIND_MASKS && (metadata->field_count != 2 || metadata->class_count != 0))
        return fsh_error_set(error, status, "kind masks needs two fields and no classes, not %zu and %zu",
                             metadata->field_count, metadata->class_count);
    if (metadata->field_count > FSH_FIELDS_MAX)
        return fsh_error_set(error, status, "%zu fields; at most %d are possible", metadata->field_count,
                             FSH_FIELDS_MAX);
    return FSH_OK;
}

FshStatus fsh_metadata_make(Metadata *metadata, const FshManifest *manifest, const char *split,
                            FshError *error)
{
    const char *const *field_names = (const char *const *)manifest->field_names;
    const char *const *class_names = (const char *const *)manifest->class_names;
    size_t field_count = manifest->field_count, class_count = manifest->class_count;
    *metadata = (Metadata){.kind = manifest->kind,
                           .field_count = field_count,
                           .class_count = class_count,
                           .dictionary = manifest->dictionary};
    FshStatus status = FSH_OK;
    if (!split || (field_count && !field_names) || (class_count && !class_names) ||
        manifest->kind < FSH_KIND_CLASSES || manifest->kind > FSH_KIND_MASKS) {
        status = fsh_error_set(error, FSH_ERR_USAGE, "split, kind, fields or classes are not given");
        goto done;
    }
    memcpy(metadata->id, manifest->files_id[0] ? manifest->files_id : manifest->id, sizeof metadata->id);
    metadata->split = strdup(split);
    if (!metadata->split) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
        goto done;
    }
    status = check_shape(metadata, FSH_ERR_USAGE, error);
    if (!status && metadata->dictionary.bytes &&
        (metadata->dictionary.bytes < DICTIONARY_BYTES_MIN ||
         metadata->dictionary.bytes > FSH_DICTIONARY_BYTES_MAX || metadata->dictionary.id == 0))
        status = fsh_error_set(error, FSH_ERR_USAGE, "dictionary: its size or id is out of range");
    if (!status)
        status = fsh_names_check("fields", field_names, field_count, error);
    if (!status)
        status = fsh_names_check("classes", class_names, class_count, error);
    if (!status)
        status = fsh_names_copy(&metadata->field_names, field_names, field_count, error);
    if (!status)
        status = fsh_names_copy(&metadata->class_names, class_names, class_count, error);
    if (!status)
        status =
            fsh_metadata_encode(metadata, METADATA_NO_COUNT, &metadata->text, &metadata->text_bytes, error);
done:
    if (status)
        fsh_metadata_free(metadata);
    return status;
}

FshStatus fsh_metadata_encode(const Metadata *metadata, int64_t count, char **text_ret, size_t *bytes_ret,
                              FshError *error)
{
    *text_ret = NULL;
    FshStatus status = FSH_OK;
    json_t *object = json_pack("{s:o, s:o, s:s, s:s, s:s}", "classes",
                               fsh_json_from_names(metadata->class_names, metadata->class_count), "fields",
                               fsh_json_from_names(metadata->field_names, metadata->field_count), "id",
                               metadata->id, "kind", fsh_kind_name(metadata->kind), "split", metadata->split);
    bool failed = !object;
    if (!failed && metadata->dictionary.bytes)
        failed =
            json_object_set_new(object, "dictionary", fsh_json_from_dictionary(&metadata->dictionary)) != 0;
    if (!failed && count != METADATA_NO_COUNT)
        failed = json_object_set_new(object, "count", json_integer(count)) ||
                 json_object_set_new(object, "version", json_integer(FSH_FORMAT_VERSION));
    char *text = failed ? NULL : json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
    size_t bytes = text ? strlen(text) : 0;
    if (!text) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    } else if (bytes > METADATA_BYTES_MAX) {
        status =
            fsh_error_set(error, FSH_ERR_USAGE, "names of classes take %zu bytes; at most %d are possible",
                          bytes, METADATA_BYTES_MAX);
        free(text);
    } else {
        *text_ret = text;
        *bytes_ret = bytes;
    }
    json_decref(object);
    return status;
}

static FshStatus parse_object(Metadata *metadata, const json_t *object, uint64_t *count_ret, FshError *error)
{
    const char *id = NULL, *split = NULL, *kind = NULL;
    FshStatus status = fsh_json_text(object, "id", &id, error);
    if (!status)
        status = fsh_json_text(object, "split", &split, error);
    if (!status)
        status = fsh_json_text(object, "kind", &kind, error);
    if (!status)
        status = fsh_json_names(object, "fields", &metadata->field_names, &metadata->field_count, error);
    if (!status)
        status = fsh_json_names(object, "classes", &metadata->class_names, &metadata->class_count, error);
    if (!status)
        status = fsh_json_dictionary(object, &metadata->dictionary, error);
    if (!status && count_ret) {
        uint64_t version = 0;
        status = fsh_json_count(object, "version", &version, error);
        if (!status && version != FSH_FORMAT_VERSION)
            status =
                fsh_error_set(error, FSH_ERR_UNSUPPORTED, "version %llu of the format; this program knows %d",
                              (unsigned long long)version, FSH_FORMAT_VERSION);
        if (!status)
            status = fsh_json_count(object, "count", count_ret, error);
    }
    if (status)
        return status;
    if (!fsh_kind_from_name(kind, &metadata->kind))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "kind \"%s\" is unknown to this version", kind);
    if (!fsh_id_valid(id))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "\"id\" is not 32 lower-case hexadecimal digits");
    memcpy(metadata->id, id, sizeof metadata->id);
    metadata->split = strdup(split);
    if (!metadata->split)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    return check_shape(metadata, FSH_ERR_CORRUPT, error);
}

FshStatus fsh_metadata_parse(Metadata *metadata, const char *text, size_t bytes, uint64_t *count_ret,
                             FshError *error)
{
    *metadata = (Metadata){0};
    json_error_t where;
    json_t *object = json_text_load(text, bytes, JSON_REJECT_DUPLICATES, &where);
    FshStatus status = json_is_object(object) ? parse_object(metadata, object, count_ret, error)
                                              : fsh_error_set(error, FSH_ERR_CORRUPT, "is no JSON object: %s",
                                                              object ? "another value" : where.text);
    if (status) {
        fsh_metadata_free(metadata);
        (void)fsh_error_prepend(error, "metadata");
    }
    json_decref(object);
    return status;
}

bool fsh_metadata_is_same(const char *text, size_t bytes, const Metadata *expected)
{
    return expected->text && bytes == expected->text_bytes && memcmp(text, expected->text, bytes) == 0;
}

FshStatus fsh_metadata_compare_parsed(const Metadata *found, const Metadata *expected, FshError *error)
{
    if (strcmp(found->id, expected->id) != 0)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "belongs to another dataset: id %s, not %s", found->id,
                             expected->id);
    if (strcmp(found->split, expected->split) != 0)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "belongs to split %s, not %s", found->split,
                             expected->split);
    if (found->kind != expected->kind)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "holds %s, not %s", fsh_kind_name(found->kind),
                             fsh_kind_name(expected->kind));
    if (!fsh_names_equal(found->field_names, found->field_count, expected->field_names,
                         expected->field_count))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "has other fields than the dataset");
    if (!fsh_names_equal(found->class_names, found->class_count, expected->class_names,
                         expected->class_count))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "has other classes than the dataset");
    return fsh_dictionary_info_equal(&found->dictionary, &expected->dictionary)
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_CORRUPT, "was packed with another dictionary than the dataset");
}

FshStatus fsh_metadata_compare(const char *text, size_t bytes, uint64_t *count_ret, const Metadata *expected,
                               FshError *error)
{
    /* All shards of a split carry the same text: a thousand of them, with a thousand class names each, are
     * opened without parsing. */
    if (!count_ret && fsh_metadata_is_same(text, bytes, expected))
        return FSH_OK;
    Metadata found;
    FshStatus status = fsh_metadata_parse(&found, text, bytes, count_ret, error);
    if (!status)
        status = fsh_metadata_compare_parsed(&found, expected, error);
    fsh_metadata_free(&found);
    return status;
}

void fsh_metadata_hand_over(Metadata *metadata, Metadata *to)
{
    if (to)
        *to = *metadata;
    else
        fsh_metadata_free(metadata);
    *metadata = (Metadata){0};
}

void fsh_metadata_free(Metadata *metadata)
{
    free(metadata->split);
    fsh_names_free(metadata->field_names, metadata->field_count);
    fsh_names_free(metadata->class_names, metadata->class_count);
    free(metadata->text);
    *metadata = (Metadata){0};
}
