/* A manifest to dataset.json. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/file.h"
#include "formats/container.h"
#include "formats/json.h"
#include "formats/manifest.h"
#include "formats/names.h"
#include "formats/updated.h"

static json_t *hash_to_json(const FshHash128 *hash)
{
    char text[FSH_HASH_TEXT_BYTES];
    fsh_hash_format(hash, text);
    return json_string(text);
}

/* Returns what the manifest says of a file; NULL: out of memory. */
static json_t *file_to_json(const FshFileInfo *file)
{
    Buffer rows = {0};
    json_t *object =
        json_pack("{s:s, s:I, s:I, s:o}", "name", file->name, "samples", (json_int_t)file->sample_count,
                  "bytes", (json_int_t)file->bytes, "xxh3_128", hash_to_json(&file->hash));
    bool failed = !object;
    if (!failed && file->files_id[0])
        failed = json_object_set_new(object, "files_id", json_string(file->files_id)) != 0;
    if (!failed && file->removed_count)
        failed = fsh_rows_format(file->removed, file->removed_count, &rows, NULL) ||
                 json_object_set_new(object, "removed", json_stringn((const char *)rows.bytes, rows.length));
    buffer_free(&rows);
    if (failed) {
        json_decref(object);
        object = NULL;
    }
    return object;
}

static json_t *split_to_json(const FshSplitInfo *split, size_t class_count)
{
    json_t *counts = json_array(), *files = json_array();
    bool failed = false;
    for (size_t i = 0; i < class_count; i++) {
        uint64_t count = split->class_counts ? split->class_counts[i] : 0;
        failed |= json_array_append_new(counts, json_integer((json_int_t)count)) != 0;
    }
    for (size_t i = 0; i < split->file_count; i++) {
        failed |= json_array_append_new(files, file_to_json(&split->files[i])) != 0;
    }
    json_t *object = json_pack("{s:s, s:I, s:o, s:o}", "name", split->name, "samples",
                               (json_int_t)split->sample_count, "class_counts", counts, "files", files);
    if (failed) {
        json_decref(object);
        object = NULL;
    }
    return object;
}

static json_t *reals_to_json(const double *reals, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; array && i < count; i++) {
        if (json_array_append_new(array, json_real(reals[i]))) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *statistics_to_json(const FshStatistics *statistics)
{
    json_t *object =
        json_pack("{s:I, s:[I, I], s:[I, I], s:o, s:o}", "channels", (json_int_t)statistics->channels,
                  "width", (json_int_t)statistics->width_min, (json_int_t)statistics->width_max, "height",
                  (json_int_t)statistics->height_min, (json_int_t)statistics->height_max, "mean",
                  reals_to_json(statistics->mean, statistics->channels), "std",
                  reals_to_json(statistics->standard_deviation, statistics->channels));
    if (object && statistics->mask_classes &&
        json_object_set_new(object, "mask_classes", json_integer((json_int_t)statistics->mask_classes))) {
        json_decref(object);
        object = NULL;
    }
    return object;
}

static json_t *manifest_to_json(const FshManifest *manifest, json_t *provenance)
{
    json_t *splits = json_array();
    bool failed = false;
    for (size_t i = 0; i < manifest->split_count; i++) {
        failed |=
            json_array_append_new(splits, split_to_json(&manifest->splits[i], manifest->class_count)) != 0;
    }
    json_t *object =
        json_pack("{s:s, s:i, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:O}", "format", MANIFEST_FORMAT,
                  "version", manifest->updates ? MANIFEST_VERSION_UPDATED : MANIFEST_VERSION, "id",
                  manifest->id, "files_id", manifest->files_id, "container",
                  fsh_container_name(manifest->container), "kind", fsh_kind_name(manifest->kind), "fields",
                  fsh_json_from_names(manifest->field_names, manifest->field_count), "classes",
                  fsh_json_from_names(manifest->class_names, manifest->class_count), "splits", splits,
                  "statistics", statistics_to_json(&manifest->statistics), "provenance", provenance);
    if (object && manifest->dictionary.bytes)
        failed |=
            json_object_set_new(object, "dictionary", fsh_json_from_dictionary(&manifest->dictionary)) != 0;
    if (object && manifest->class_display_names)
        failed |= json_object_set_new(
                      object, "class_display_names",
                      fsh_json_from_names(manifest->class_display_names, manifest->class_count)) != 0;
    if (object && manifest->mask_names)
        failed |=
            json_object_set_new(object, "mask_class_names",
                                fsh_json_from_names(manifest->mask_names, manifest->mask_name_count)) != 0;
    if (object && manifest->pair_scale > 1)
        failed |= json_object_set_new(object, "pair_scale", json_integer(manifest->pair_scale)) != 0;
    if (object && manifest->updates)
        failed |= json_object_set_new(object, "updates", json_integer(manifest->updates)) != 0;
    if (failed) {
        json_decref(object);
        object = NULL;
    }
    return object;
}

FshStatus fsh_manifest_save(const FshManifest *given, const char *folder, bool force, FshError *error)
{
    char path[PATH_MAX];
    char *text = NULL;
    size_t length = 0;
    FshManifest own = *given; /* borrows; its id is to be made */
    const FshManifest *manifest = &own;
    const Container *container = fsh_container_find(given->container);
    json_t *object = NULL;
    json_error_t where;
    json_t *provenance = json_loads(manifest->provenance_json ? manifest->provenance_json : "{}",
                                    JSON_REJECT_DUPLICATES, &where);
    FshStatus status = file_join(path, sizeof path, folder, FSH_MANIFEST_NAME, error);
    if (status)
        goto done;
    if (!container || !container->writer)
        status = fsh_error_set(error, FSH_ERR_USAGE, "container %d is not written", (int)manifest->container);
    else if (!json_is_object(provenance))
        status = fsh_error_set(error, FSH_ERR_USAGE, "provenance is no JSON object");
    else
        status = fsh_manifest_check(manifest, FSH_ERR_USAGE, error);
    if (!status)
        status = fsh_manifest_identify(&own, error);
    if (status) {
        (void)fsh_error_prepend(error, "%s", path);
        goto done;
    }
    for (size_t i = 0; i < manifest->split_count && container->save_list && !status; i++)
        status = container->save_list(manifest, &manifest->splits[i], folder, force, error);
    if (status)
        goto done;
    object = manifest_to_json(manifest, provenance);
    if (!object || fsh_manifest_seal(object, &text, &length, NULL))
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    else
        status = file_write_atomic(path, text, length, force, true, error);
done:
    json_decref(object);
    json_decref(provenance);
    free(text);
    return status;
}
