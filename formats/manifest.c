/* dataset.json: reading, writing, and the rules that hold for both. */
#include "formats/container.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_text.h"

#define FORMAT_NAME "fshard"

/* ---- rules ---- */

static FshStatus check_file(const FshManifest *manifest, const FshFileInfo *file, FshStatus status,
                            FshError *error)
{
    if (!fsh_file_name_valid(file->name))
        return fsh_error_set(
            error, status,
            "file name \"%s\": must be a plain name in the dataset's folder, not a path or hidden",
            file->name);
    /* The suffix keeps a manifest from naming any other file of the folder, itself for one. */
    const char *suffix = fsh_container_find(manifest->container)->suffix;
    size_t name_bytes = strlen(file->name), suffix_bytes = strlen(suffix);
    if (name_bytes <= suffix_bytes || strcmp(file->name + name_bytes - suffix_bytes, suffix) != 0)
        return fsh_error_set(error, status, "file name \"%s\" does not end in %s", file->name, suffix);
    return FSH_OK;
}

static FshStatus check_split(const FshManifest *manifest, const FshSplitInfo *split, FshStatus status,
                             FshError *error)
{
    if (!fsh_split_name_valid(split->name))
        return fsh_error_set(error, status, "split \"%s\": letters, digits, '_' and '-' only, at most 64",
                             split->name);
    if (split->file_count < 1 || split->file_count > UINT32_MAX ||
        (!fsh_container_has(manifest->container, FSH_HAS_SHARDS) && split->file_count != 1))
        return fsh_error_set(error, status, "split %s: %zu files in a dataset of %s", split->name,
                             split->file_count, fsh_container_name(manifest->container));
    uint64_t in_files = 0, in_classes = 0;
    bool overflow = false;
    for (size_t i = 0; i < split->file_count; i++) {
        FshStatus failure = check_file(manifest, &split->files[i], status, error);
        if (failure)
            return failure;
        overflow |= __builtin_add_overflow(in_files, split->files[i].sample_count, &in_files);
    }
    if (overflow || in_files != split->sample_count)
        return fsh_error_set(error, status, "split %s: %" PRIu64 " samples, but its files hold %" PRIu64,
                             split->name, split->sample_count, in_files);
    for (size_t i = 0; split->class_counts && i < manifest->class_count; i++) {
        overflow |= __builtin_add_overflow(in_classes, split->class_counts[i], &in_classes);
    }
    if (overflow || in_classes > split->sample_count)
        return fsh_error_set(error, status, "split %s: %" PRIu64 " samples, but its classes count %" PRIu64,
                             split->name, split->sample_count, in_classes);
    return FSH_OK;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* No two splits and no two files of one name. */
static FshStatus check_unique(const FshManifest *manifest, FshStatus status, FshError *error)
{
    size_t count = manifest->split_count;
    for (size_t i = 0; i < manifest->split_count; i++) {
        count += manifest->splits[i].file_count;
    }
    const char **names = malloc(count * sizeof *names);
    if (!names)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    size_t next = 0;
    for (size_t i = 0; i < manifest->split_count; i++) {
        const FshSplitInfo *split = &manifest->splits[i];
        names[next++] = split->name; /* split names end in no suffix: they cannot meet a file's */
        for (size_t j = 0; j < split->file_count; j++) {
            names[next++] = split->files[j].name;
        }
    }
    qsort(names, count, sizeof *names, compare_text);
    FshStatus found = FSH_OK;
    for (size_t i = 1; i < count && !found; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            found = fsh_error_set(error, status, "\"%s\" is listed twice", names[i]);
    }
    free(names);
    return found;
}

/* The deviation of values in 0..1 is at most 0.5, and less the nearer their mean is to an end: its square is
 * at most mean * (1 - mean). Of n pixels, one a step of 255 off, it is about 1 / (255 * sqrt(n)): below
 * DEVIATION_MIN n is above 10^13, more than any dataset has. Zero is that of one colour throughout, or of
 * pixels that nobody looked at. */
static FshStatus check_deviation(uint32_t channel, double mean, double deviation, FshStatus status,
                                 FshError *error)
{
    const double least = 1e-9, slack = 1e-6;
    if (!(mean >= 0 && mean <= 1))
        return fsh_error_set(error, status, "statistics.mean[%" PRIu32 "] is %g, not between 0 and 1",
                             channel, mean);
    if (deviation != 0 && !(deviation >= least && deviation <= 0.5))
        return fsh_error_set(error, status,
                             "statistics.std[%" PRIu32 "] is %g, neither 0 nor between %g and 0.5", channel,
                             deviation, least);
    if (deviation * deviation > mean * (1 - mean) + slack)
        return fsh_error_set(error, status,
                             "statistics.std[%" PRIu32 "] is %g, more than values with the mean %g can have",
                             channel, deviation, mean);
    return FSH_OK;
}

static FshStatus check_statistics(const FshStatistics *statistics, FshStatus status, FshError *error)
{
    if (statistics->channels != 0 && statistics->channels != 1 && statistics->channels != 3)
        return fsh_error_set(error, status,
                             "statistics.channels is %" PRIu32 ", not 1 or 3 (0: not measured)",
                             statistics->channels);
    const struct {
        const char *name;
        uint32_t least, most;
    } ranges[] = {{"width", statistics->width_min, statistics->width_max},
                  {"height", statistics->height_min, statistics->height_max}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (ranges[i].least > ranges[i].most || (ranges[i].least == 0 && ranges[i].most > 0))
            return fsh_error_set(error, status,
                                 "statistics.%s is %" PRIu32 " to %" PRIu32
                                 ": the least must be 1 or more, and not above the greatest",
                                 ranges[i].name, ranges[i].least, ranges[i].most);
    }
    FshStatus failure = FSH_OK;
    for (uint32_t i = 0; i < statistics->channels && !failure; i++)
        failure = check_deviation(i, statistics->mean[i], statistics->standard_deviation[i], status, error);
    return failure;
}

FshStatus fsh_manifest_check(const FshManifest *manifest, FshStatus status, FshError *error)
{
    if (manifest->split_count < 1)
        return fsh_error_set(error, status, "no splits");
    /* The rules for names, kind and identity are those of the files. */
    Metadata metadata;
    FshStatus failure = fsh_metadata_make(&metadata, manifest, "any", error);
    fsh_metadata_free(&metadata);
    if (failure == FSH_ERR_USAGE) {
        failure = status;
        if (error)
            error->status = status;
    }
    for (size_t i = 0; i < manifest->split_count && !failure; i++) {
        failure = check_split(manifest, &manifest->splits[i], status, error);
    }
    if (!failure)
        failure = check_unique(manifest, status, error);
    if (!failure && manifest->pair_scale > 1 &&
        (manifest->kind != FSH_KIND_PAIRS || manifest->pair_scale > FSH_PAIR_SCALE_MAX))
        failure = fsh_error_set(error, status, "pair_scale %" PRIu32 ": of pairs, at most %d",
                                manifest->pair_scale, FSH_PAIR_SCALE_MAX);
    return failure ? failure : check_statistics(&manifest->statistics, status, error);
}

/* ---- reading ---- */

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
    return file->name ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
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
    return status;
}

/* Format and version, and by the version the checksum. */
static FshStatus parse_version(const json_t *object, const char *text, size_t bytes, uint64_t *version_ret,
                               FshError *error)
{
    const char *format = NULL;
    FshStatus status = fsh_json_text(object, "format", &format, error);
    if (!status && strcmp(format, FORMAT_NAME) != 0)
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED, "\"format\" is \"%s\", not \"" FORMAT_NAME "\"",
                               format);
    if (!status)
        status = fsh_json_count(object, "version", version_ret, error);
    if (!status && *version_ret != MANIFEST_VERSION && *version_ret != MANIFEST_VERSION_WITHOUT_SEAL)
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                               "version %" PRIu64 " of the format; this program knows %d and %d",
                               *version_ret, MANIFEST_VERSION_WITHOUT_SEAL, MANIFEST_VERSION);
    const bool sealed = *version_ret != MANIFEST_VERSION_WITHOUT_SEAL || json_object_get(object, "checksum");
    return status || !sealed ? status : fsh_manifest_check_seal(text, bytes, error);
}

/* id, container and kind: what the rest is read by. */
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

/* When all files are known: the id is that of them. One of version 1 covered no content, and is not kept. */
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

/* Only super-resolution has one. */
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

/* What made the dataset is told, not read: of its members only the recipe's type is fixed. */
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
    if (!status)
        status = fsh_json_dictionary(object, &manifest->dictionary, error);
    if (!status)
        status = parse_pair_scale(manifest, object, error);
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

/* ---- writing ---- */

static json_t *hash_to_json(const FshHash128 *hash)
{
    char text[FSH_HASH_TEXT_BYTES];
    fsh_hash_format(hash, text);
    return json_string(text);
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
        const FshFileInfo *file = &split->files[i];
        failed |= json_array_append_new(files, json_pack("{s:s, s:I, s:I, s:o}", "name", file->name,
                                                         "samples", (json_int_t)file->sample_count, "bytes",
                                                         (json_int_t)file->bytes, "xxh3_128",
                                                         hash_to_json(&file->hash))) != 0;
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
    return json_pack("{s:I, s:[I, I], s:[I, I], s:o, s:o}", "channels", (json_int_t)statistics->channels,
                     "width", (json_int_t)statistics->width_min, (json_int_t)statistics->width_max, "height",
                     (json_int_t)statistics->height_min, (json_int_t)statistics->height_max, "mean",
                     reals_to_json(statistics->mean, statistics->channels), "std",
                     reals_to_json(statistics->standard_deviation, statistics->channels));
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
        json_pack("{s:s, s:i, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:O}", "format", FORMAT_NAME, "version",
                  MANIFEST_VERSION, "id", manifest->id, "files_id", manifest->files_id, "container",
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
    if (object && manifest->pair_scale > 1)
        failed |= json_object_set_new(object, "pair_scale", json_integer(manifest->pair_scale)) != 0;
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

/* ---- memory ---- */

static void split_info_free(FshSplitInfo *split)
{
    for (size_t i = 0; split->files && i < split->file_count; i++) {
        free(split->files[i].name);
    }
    free(split->files);
    free(split->class_counts);
    free(split->name);
}

void fsh_manifest_free(FshManifest *manifest)
{
    for (size_t i = 0; manifest->splits && i < manifest->split_count; i++) {
        split_info_free(&manifest->splits[i]);
    }
    free(manifest->splits);
    fsh_names_free(manifest->field_names, manifest->field_count);
    fsh_names_free(manifest->class_names, manifest->class_count);
    fsh_names_free(manifest->class_display_names, manifest->class_count);
    free(manifest->provenance_json);
    *manifest = (FshManifest){0};
}

FshStatus fsh_manifest_from_file(FshManifest *manifest, Metadata *metadata, FshContainer container,
                                 const FshFileInfo *file, FshError *error)
{
    *manifest = (FshManifest){
        .container = container,
        .kind = metadata->kind,
        .field_names = metadata->field_names,
        .field_count = metadata->field_count,
        .class_names = metadata->class_names,
        .class_count = metadata->class_count,
        .dictionary = metadata->dictionary,
        .provenance_json = strdup("{}"),
        .splits = calloc(1, sizeof *manifest->splits),
    };
    memcpy(manifest->id, metadata->id, sizeof manifest->id);
    memcpy(manifest->files_id, metadata->id, sizeof manifest->files_id);
    metadata->field_names = NULL;
    metadata->class_names = NULL;
    FshSplitInfo *split = manifest->splits;
    if (split) {
        manifest->split_count = 1;
        split->name = metadata->split;
        metadata->split = NULL;
        split->sample_count = file->sample_count;
        split->class_counts =
            manifest->class_count ? calloc(manifest->class_count, sizeof *split->class_counts) : NULL;
        split->files = calloc(1, sizeof *split->files);
        split->file_count = 1;
    }
    if (split && split->files) {
        split->files[0] = *file;
        split->files[0].name = strdup(file->name);
    }
    fsh_metadata_free(metadata);
    if (!manifest->provenance_json || !split || !split->files || !split->files[0].name ||
        (manifest->class_count && !split->class_counts)) {
        fsh_manifest_free(manifest);
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    }
    return FSH_OK;
}

FshStatus fsh_manifest_add_file(FshManifest *manifest, const FshFileInfo *file, FshError *error)
{
    FshSplitInfo *split = &manifest->splits[0];
    char *name = strdup(file->name);
    FshFileInfo *grown = reallocarray(split->files, split->file_count + 1, sizeof *grown);
    split->files = grown ? grown : split->files;
    if (!name || !grown) {
        free(name);
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    }
    grown[split->file_count] = *file;
    grown[split->file_count++].name = name;
    split->sample_count += file->sample_count;
    return FSH_OK;
}
