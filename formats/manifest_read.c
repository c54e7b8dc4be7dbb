/* dataset.json to a manifest. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/file.h"
#include "common/json_text.h"
#include "formats/container.h"
#include "formats/json.h"
#include "formats/manifest.h"
#include "formats/names.h"
#include "formats/updated.h"

/* Reads what only files of updated datasets have. */
static FshStatus parse_updated(FshFileInfo *file, const json_t *object, FshError *error)
{
    const char *text = NULL;
    FshStatus status = FSH_OK;
    if (json_object_get(object, "files_id")) {
        status = fsh_json_text(object, "files_id", &text, error);
        if (!status && !fsh_id_valid(text))
            status =
                fsh_error_set(error, FSH_ERR_CORRUPT, "\"files_id\" is not 32 lower-case hexadecimal digits");
        if (!status)
            memcpy(file->files_id, text, sizeof file->files_id);
    }
    if (!status && json_object_get(object, "removed")) {
        status = fsh_json_text(object, "removed", &text, error);
        if (!status)
            status = fsh_rows_parse(text, &file->removed, &file->removed_count, error);
    }
    return status;
}

static FshStatus parse_file(FshFileInfo *file, const json_t *object, FshError *error)
{
    const char *name = NULL, *hash = NULL;
    FshStatus status = fsh_json_text(object, "name", &name, error);
    if (!status)
        status = fsh_json_count(object, "samples", &file->sample_count, error);
    if (!status)
        status = fsh_json_count(object, "bytes", &file->bytes, error);
    if (!status)
        status = fsh_json_text(object, "xxh3_128", &hash, error);
    if (status)
        return status;
    if (!fsh_hash_parse(hash, &file->hash))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "\"xxh3_128\" is not 32 lower-case hexadecimal digits");
    file->name = strdup(name);
    return file->name ? parse_updated(file, object, error)
                      : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
}

static FshStatus parse_class_counts(FshSplitInfo *split, const json_t *array, size_t class_count,
                                    FshError *error)
{
    if (json_array_size(array) != class_count)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "\"class_counts\" has %zu entries for %zu classes",
                             json_array_size(array), class_count);
    if (class_count == 0)
        return FSH_OK;
    split->class_counts = calloc(class_count, sizeof *split->class_counts);
    if (!split->class_counts)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < class_count; i++) {
        const json_t *value = json_array_get(array, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "\"class_counts\": entry %zu is no whole number of 0 or more", i);
        split->class_counts[i] = (uint64_t)json_integer_value(value);
    }
    return FSH_OK;
}

static FshStatus parse_split(FshSplitInfo *split, const json_t *object, size_t class_count, FshError *error)
{
    const char *name = NULL;
    const json_t *counts = NULL, *files = NULL;
    FshStatus status = fsh_json_text(object, "name", &name, error);
    if (!status)
        status = fsh_json_count(object, "samples", &split->sample_count, error);
    if (!status)
        status = fsh_json_array(object, "class_counts", &counts, error);
    if (!status)
        status = fsh_json_array(object, "files", &files, error);
    if (!status)
        status = parse_class_counts(split, counts, class_count, error);
    if (status)
        return status;
    split->name = strdup(name);
    size_t file_count = json_array_size(files);
    split->files = calloc(file_count ? file_count : 1, sizeof *split->files);
    if (!split->name || !split->files)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    split->file_count = file_count;
    for (size_t i = 0; i < file_count && !status; i++) {
        status = parse_file(&split->files[i], json_array_get(files, i), error);
        if (status)
            (void)fsh_error_prepend(error, "files[%zu]", i);
    }
    return status;
}

static FshStatus parse_range(const json_t *object, const char *key, uint32_t *least_ret, uint32_t *most_ret,
                             FshError *error)
{
    const json_t *array = NULL;
    FshStatus status = fsh_json_array(object, key, &array, error);
    if (status)
        return status;
    const json_t *least = json_array_get(array, 0), *most = json_array_get(array, 1);
    if (json_array_size(array) != 2 || !json_is_integer(least) || !json_is_integer(most) ||
        json_integer_value(least) < 0 || json_integer_value(least) > UINT32_MAX ||
        json_integer_value(most) < 0 || json_integer_value(most) > UINT32_MAX)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "\"%s\" is not a list of two whole numbers", key);
    *least_ret = (uint32_t)json_integer_value(least);
    *most_ret = (uint32_t)json_integer_value(most);
    return FSH_OK;
}

static FshStatus parse_reals(const json_t *object, const char *key, uint32_t count, double *reals,
                             FshError *error)
{
    const json_t *array = NULL;
    FshStatus status = fsh_json_array(object, key, &array, error);
    if (!status && json_array_size(array) != count)
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "\"%s\" has %zu entries for %" PRIu32 " channels", key,
                               json_array_size(array), count);
    for (uint32_t i = 0; i < count && !status; i++) {
        const json_t *value = json_array_get(array, i);
        if (!json_is_number(value))
            status =
                fsh_error_set(error, FSH_ERR_CORRUPT, "\"%s\": entry %" PRIu32 " is not a number", key, i);
        else
            reals[i] = json_number_value(value);
    }
    return status;
}

static FshStatus parse_statistics(FshStatistics *statistics, const json_t *object, FshError *error)
{
    uint64_t channels = 0;
    FshStatus status = fsh_json_count(object, "channels", &channels, error);
    if (!status && channels > FSH_CHANNELS_MAX)
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "\"channels\" is %" PRIu64, channels);
    if (status)
        return status;
    statistics->channels = (uint32_t)channels;
    status = parse_range(object, "width", &statistics->width_min, &statistics->width_max, error);
    if (!status)
        status = parse_range(object, "height", &statistics->height_min, &statistics->height_max, error);
    if (!status)
        status = parse_reals(object, "mean", statistics->channels, statistics->mean, error);
    if (!status)
        status = parse_reals(object, "std", statistics->channels, statistics->standard_deviation, error);
    uint64_t classes = 0;
    if (!status && json_object_get(object, "mask_classes"))
        status = fsh_json_count(object, "mask_classes", &classes, error);
    if (!status && classes > FSH_MASK_IGNORED)
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "\"mask_classes\" is %" PRIu64 "; at most %d", classes,
                               FSH_MASK_IGNORED);
    statistics->mask_classes = status ? 0 : (uint32_t)classes;
    return status;
}

/* Checks the format and the version, *version_ret, and by the version the checksum. */
static FshStatus parse_version(const json_t *object, const char *text, size_t bytes, uint64_t *version_ret,
                               FshError *error)
{
    const char *format = NULL;
    FshStatus status = fsh_json_text(object, "format", &format, error);
    if (!status && strcmp(format, MANIFEST_FORMAT) != 0)
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                               "\"format\" is \"%s\", not \"" MANIFEST_FORMAT "\"", format);
    if (!status)
        status = fsh_json_count(object, "version", version_ret, error);
    if (!status && (*version_ret < MANIFEST_VERSION_WITHOUT_SEAL || *version_ret > MANIFEST_VERSION_UPDATED))
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                               "version %" PRIu64 " of the format; this program knows %d to %d", *version_ret,
                               MANIFEST_VERSION_WITHOUT_SEAL, MANIFEST_VERSION_UPDATED);
    const bool sealed = *version_ret != MANIFEST_VERSION_WITHOUT_SEAL || json_object_get(object, "checksum");
    return status || !sealed ? status : fsh_manifest_check_seal(text, bytes, error);
}

/* Reads id, container and kind, by which the rest is read. */
static FshStatus parse_identity(FshManifest *manifest, const json_t *object, uint64_t version,
                                FshError *error)
{
    const char *id = NULL, *files_id = NULL, *container = NULL, *kind = NULL;
    FshStatus status = fsh_json_text(object, "id", &id, error);
    files_id = id; /* in version 1 */
    if (!status && version != MANIFEST_VERSION_WITHOUT_SEAL)
        status = fsh_json_text(object, "files_id", &files_id, error);
    if (!status)
        status = fsh_json_text(object, "container", &container, error);
    if (!status)
        status = fsh_json_text(object, "kind", &kind, error);
    if (status)
        return status;
    if (!fsh_container_from_name(container, &manifest->container) ||
        !fsh_container_find(manifest->container)->writer)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "container \"%s\" is unknown to this version",
                             container);
    if (!fsh_kind_from_name(kind, &manifest->kind))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "kind \"%s\" is unknown to this version", kind);
    if (!fsh_id_valid(id) || !fsh_id_valid(files_id))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "\"%s\" is not 32 lower-case hexadecimal digits",
                             fsh_id_valid(id) ? "files_id" : "id");
    memcpy(manifest->id, id, sizeof manifest->id);
    memcpy(manifest->files_id, files_id, sizeof manifest->files_id);
    return FSH_OK;
}

/* Checks the id, once all files are known, against the id computed from them. An id of version 1 covered no
 * content, and is replaced. */
static FshStatus check_id(FshManifest *manifest, uint64_t version, FshError *error)
{
    char listed[sizeof manifest->id];
    memcpy(listed, manifest->id, sizeof listed);
    FshStatus status = fsh_manifest_identify(manifest, error);
    if (!status && version != MANIFEST_VERSION_WITHOUT_SEAL && strcmp(listed, manifest->id) != 0)
        status = fsh_error_set(error, FSH_ERR_CORRUPT,
                               "\"id\" is %s, and %s is that of the files it lists; " MANIFEST_REMEDY, listed,
                               manifest->id);
    return status;
}

/* Reads how often the dataset was updated. */
static FshStatus parse_updates(FshManifest *manifest, const json_t *object, FshError *error)
{
    uint64_t updates = 0;
    if (manifest->version != MANIFEST_VERSION_UPDATED)
        return FSH_OK;
    FshStatus status = fsh_json_count(object, "updates", &updates, error);
    if (!status && (updates < 1 || updates > UPDATES_MAX))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "\"updates\" is %" PRIu64 ", not 1 to %d", updates,
                               UPDATES_MAX);
    manifest->updates = (uint32_t)updates;
    return status;
}

/* Reads pair_scale, which only super-resolution has. */
static FshStatus parse_pair_scale(FshManifest *manifest, const json_t *object, FshError *error)
{
    uint64_t scale = 0;
    if (!json_object_get(object, "pair_scale"))
        return FSH_OK;
    FshStatus status = fsh_json_count(object, "pair_scale", &scale, error);
    manifest->pair_scale = scale > UINT32_MAX ? UINT32_MAX : (uint32_t)scale; /* refused when all is read */
    return status;
}

FshStatus fsh_manifest_parse_display_names(FshManifest *manifest, const json_t *object, FshError *error)
{
    const json_t *array = NULL;
    if (!json_object_get(object, "class_display_names"))
        return FSH_OK;
    FshStatus status = fsh_json_array(object, "class_display_names", &array, error);
    if (!status && json_array_size(array) != manifest->class_count)
        status =
            fsh_error_set(error, FSH_ERR_CORRUPT, "\"class_display_names\" has %zu entries for %zu classes",
                          json_array_size(array), manifest->class_count);
    if (status || !manifest->class_count)
        return status;
    manifest->class_display_names = calloc(manifest->class_count, sizeof *manifest->class_display_names);
    for (size_t i = 0; i < manifest->class_count && manifest->class_display_names; i++) {
        const char *name = json_string_value(json_array_get(array, i));
        if (!name)
            return fsh_error_set(error, FSH_ERR_CORRUPT, "\"class_display_names\": entry %zu is no text", i);
        manifest->class_display_names[i] = strdup(name);
        if (!manifest->class_display_names[i])
            return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    }
    return manifest->class_display_names ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
}

const char *fsh_class_display(const FshManifest *manifest, size_t class_index, char *buffer,
                              size_t buffer_bytes)
{
    const char *name = manifest->class_names[class_index];
    const char *display = manifest->class_display_names ? manifest->class_display_names[class_index] : "";
    if (*display && strcmp(display, name) != 0)
        (void)snprintf(buffer, buffer_bytes, "%s (%s)", display, name);
    else
        (void)snprintf(buffer, buffer_bytes, "%s", name);
    return buffer;
}

/* Checks the type of provenance's recipe. What made the dataset is told, not read: no other member has a
 * fixed type. */
static FshStatus check_provenance(const json_t *provenance, FshError *error)
{
    const json_t *recipe = NULL;
    if (!json_object_get(provenance, "recipe") ||
        fsh_json_object(provenance, "recipe", &recipe, error) == FSH_OK)
        return FSH_OK;
    return fsh_error_prepend(error, "provenance");
}

static FshStatus parse_object(FshManifest *manifest, const json_t *object, const char *text, size_t bytes,
                              FshError *error)
{
    const json_t *splits = NULL, *statistics = NULL, *provenance = NULL;
    uint64_t version = 0;
    FshStatus status = parse_version(object, text, bytes, &version, error);
    manifest->version = (uint32_t)version;
    if (!status)
        status = parse_identity(manifest, object, version, error);
    if (!status)
        status = fsh_json_names(object, "fields", &manifest->field_names, &manifest->field_count, error);
    if (!status)
        status = fsh_json_names(object, "classes", &manifest->class_names, &manifest->class_count, error);
    if (!status)
        status = fsh_manifest_parse_display_names(manifest, object, error);
    if (!status && json_object_get(object, "mask_class_names"))
        status = fsh_json_names(object, "mask_class_names", &manifest->mask_names, &manifest->mask_name_count,
                                error);
    if (!status)
        status = fsh_json_dictionary(object, &manifest->dictionary, error);
    if (!status)
        status = parse_pair_scale(manifest, object, error);
    if (!status)
        status = parse_updates(manifest, object, error);
    if (!status)
        status = fsh_json_array(object, "splits", &splits, error);
    if (!status)
        status = fsh_json_object(object, "statistics", &statistics, error);
    if (!status) {
        status = parse_statistics(&manifest->statistics, statistics, error);
        if (status)
            (void)fsh_error_prepend(error, "statistics");
    }
    if (!status)
        status = fsh_json_object(object, "provenance", &provenance, error);
    if (!status)
        status = check_provenance(provenance, error);
    if (status)
        return status;
    manifest->provenance_json = json_dumps(provenance, JSON_COMPACT | JSON_SORT_KEYS);
    size_t split_count = json_array_size(splits);
    manifest->splits = calloc(split_count ? split_count : 1, sizeof *manifest->splits);
    if (!manifest->provenance_json || !manifest->splits)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    manifest->split_count = split_count;
    for (size_t i = 0; i < split_count && !status; i++) {
        status = parse_split(&manifest->splits[i], json_array_get(splits, i), manifest->class_count, error);
        if (status)
            (void)fsh_error_prepend(error, "splits[%zu]", i);
    }
    if (!status)
        status = fsh_manifest_check(manifest, FSH_ERR_CORRUPT, error);
    return status ? status : check_id(manifest, version, error);
}

FshStatus fsh_manifest_parse(FshManifest *manifest, const char *text, size_t bytes, FshError *error)
{
    *manifest = (FshManifest){0};
    json_error_t where;
    json_t *object = json_text_load(text, bytes, JSON_REJECT_DUPLICATES, &where);
    FshStatus status = FSH_OK;
    if (!object)
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "line %d: %s", where.line, where.text);
    else if (!json_is_object(object))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "is no JSON object");
    else
        status = parse_object(manifest, object, text, bytes, error);
    if (status)
        fsh_manifest_free(manifest);
    json_decref(object);
    return status;
}

FshStatus fsh_manifest_load(FshManifest *manifest, const char *path, FshError *error)
{
    *manifest = (FshManifest){0};
    char joined[PATH_MAX];
    Buffer text = {0};
    FshStatus status = FSH_OK;
    if (file_is_folder(path)) {
        status = file_join(joined, sizeof joined, path, FSH_MANIFEST_NAME, error);
        path = joined;
    }
    if (!status)
        status = file_read_most(path, MANIFEST_BYTES_MAX, &text, error);
    if (!status) {
        status = fsh_manifest_parse(manifest, (const char *)text.bytes, text.length, error);
        if (status)
            (void)fsh_error_prepend(error, "%s", path);
    }
    buffer_free(&text);
    return status;
}
