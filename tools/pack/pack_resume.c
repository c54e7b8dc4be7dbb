#include "tools/pack/pack_resume.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/seal.h"
#include "formats/names.h"
#include "formats/source_list.h"
#include "formats/xxh3.h"

/* Of a progress file: what was left out of an output may be all of it, with a path and a reason each. */
enum { PROGRESS_BYTES_MAX = 1 << 30 };

void output_result_free(OutputResult *result)
{
    free(result->info.name);
    free(result->class_counts);
    notes_free(&result->left_out);
    buffer_free(&result->sources);
    *result = (OutputResult){0};
}

const char *resume_name(char *buffer, size_t buffer_bytes, const char *name)
{
    (void)snprintf(buffer, buffer_bytes, ".%s.json", name);
    return buffer;
}

static FshStatus progress_path(char path[PATH_MAX], const char *folder, const char *name, FshError *error)
{
    char hidden[NAME_MAX + sizeof "..json"];
    return file_join(path, PATH_MAX, folder, resume_name(hidden, sizeof hidden, name), error);
}

void resume_hash_to_text(const FshHash128 *hash, char text[33])
{
    for (size_t i = 0; i < sizeof hash->bytes; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", hash->bytes[i]);
}

void resume_sources(const PackPlan *plan, const PackOutput *output, char text[RESUME_SOURCES_BYTES])
{
    uint64_t hash = 0;
    for (uint64_t i = 0; i < output->sample_count; i++) {
        const PackSample *sample = &plan->split.samples[output->first_sample + i];
        for (size_t field = 0; field < plan->found.field_count; field++) {
            const PackSource source = sample_source(&plan->found, sample, field);
            const uint64_t facts[] = {hash, source.bytes, (uint64_t)source.modified_ns};
            hash = XXH3_64bits_withSeed(source.path, source.path_bytes, XXH3_64bits(facts, sizeof facts));
        }
    }
    (void)snprintf(text, RESUME_SOURCES_BYTES, "%016" PRIx64, hash);
}

FshStatus resume_save(const PackPlan *plan, const PackOutput *output, const char *folder,
                      const OutputResult *result, FshError *error)
{
    char path[PATH_MAX], hash[33], sources[RESUME_SOURCES_BYTES];
    FshStatus status = progress_path(path, folder, result->info.name, error);
    if (status)
        return status;
    resume_hash_to_text(&result->info.hash, hash);
    resume_sources(plan, output, sources);
    json_t *counts = json_array(), *left_out = json_array();
    int failed = !counts || !left_out;
    for (size_t i = 0; i < plan->keyed.class_count && !failed; i++)
        failed |= json_array_append_new(counts, json_integer((json_int_t)result->class_counts[i]));
    for (size_t i = 0; i < result->left_out.count && !failed; i++) {
        const Note *note =
            &result->left_out.items[i]; /* a path that is no UTF-8 fails here: see the header */
        failed |= json_array_append_new(left_out,
                                        json_pack("[i, s, s]", (int)note->status, note->path, note->reason));
    }
    json_t *object = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "id", plan->id, "hash", hash,
                               "sources", sources, "samples", (json_int_t)result->info.sample_count, "bytes",
                               (json_int_t)result->info.bytes, "source_bytes",
                               (json_int_t)result->source_bytes, "class_counts", counts, "left_out", left_out,
                               "statistics", stats_to_json(&result->statistics));
    if (object && result->planes.planes_count + result->planes.raw_count)
        failed |= json_object_set_new(object, "planes",
                                      json_pack("[I, I, I, I]", (json_int_t)result->planes.planes_count,
                                                (json_int_t)result->planes.planes_bytes,
                                                (json_int_t)result->planes.raw_count,
                                                (json_int_t)result->planes.raw_bytes));
    if (object && !failed)
        status = seal_write(path, object, JSON_COMPACT, error);
    json_decref(object);
    return status;
}

/* Returns whether a tar, all of which is hashed, and its index are as they were written. A tar says nothing
 * of the dataset it belongs to. */
static bool tar_agrees(const char *path, const FshFileInfo *info)
{
    FileMapping mapping = {0};
    if (file_map(path, &mapping, NULL))
        return false;
    const FshHash128 hash = fsh_hash_bytes(mapping.bytes, mapping.length);
    const bool agrees = mapping.length == info->bytes && fsh_hash_equal(&hash, &info->hash);
    file_unmap(&mapping);
    return agrees && fsh_tar_index_check(path, NULL) == FSH_OK;
}

/* Returns whether the output itself says the same: its id, split and count and, for a shard, the hash in its
 * footer. An LMDB has no hash; fsh_open goes through its pages. */
static bool output_agrees(const ResumeKey *key, const char *folder, const FshFileInfo *info)
{
    char path[PATH_MAX], sources[NAME_MAX + sizeof "." FSH_SOURCES_SUFFIX];
    FshDataset *dataset = NULL;
    if (file_join(path, sizeof path, folder, info->name, NULL))
        return false;
    if (fsh_container_has(key->container, FSH_HAS_INDEX))
        return tar_agrees(path, info);
    if (fsh_container_has(key->container, FSH_HAS_SOURCES) &&
        !file_exists_in(folder, fsh_sources_name(sources, sizeof sources, info->name)))
        return false;
    if (fsh_open(&dataset, path, NULL))
        return false;
    const FshManifest *manifest = fsh_manifest(dataset);
    bool agrees = manifest->container == key->container && manifest->split_count == 1 &&
                  manifest->splits[0].file_count == 1;
    if (agrees && fsh_container_has(key->container, FSH_HAS_METADATA))
        agrees =
            strcmp(manifest->files_id, key->id) == 0 && strcmp(manifest->splits[0].name, key->split) == 0;
    if (agrees) {
        const FshFileInfo *own = &manifest->splits[0].files[0];
        agrees = own->sample_count == info->sample_count && own->bytes == info->bytes &&
                 (!fsh_container_has(key->container, FSH_HAS_HASH) ||
                  memcmp(own->hash.bytes, info->hash.bytes, sizeof own->hash.bytes) == 0);
    }
    fsh_close(&dataset);
    return agrees;
}

bool resume_hash_from_text(const char *text, FshHash128 *hash)
{
    if (!text || strlen(text) != 2 * sizeof hash->bytes)
        return false;
    for (size_t i = 0; i < sizeof hash->bytes; i++) {
        unsigned byte = 0;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            return false;
        hash->bytes[i] = (uint8_t)byte;
    }
    return true;
}

static bool count_from_json(const json_t *value, uint64_t *count_ret)
{
    *count_ret = (uint64_t)json_integer_value(value);
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

/* Reads what resume_save wrote. *readable_ret is false if the file is something else. */
static FshStatus parse(size_t class_count, const json_t *object, OutputResult *result, bool *readable_ret,
                       FshError *error)
{
    const json_t *counts = json_object_get(object, "class_counts"),
                 *left_out = json_object_get(object, "left_out");
    const char *hash = json_string_value(json_object_get(object, "hash"));
    uint64_t counted = 0;
    *readable_ret = false;
    if (!resume_hash_from_text(hash, &result->info.hash) || json_array_size(counts) != class_count ||
        !stats_from_json(json_object_get(object, "statistics"), &result->statistics))
        return FSH_OK;
    if (!count_from_json(json_object_get(object, "samples"), &result->info.sample_count) ||
        !count_from_json(json_object_get(object, "bytes"), &result->info.bytes) ||
        !count_from_json(json_object_get(object, "source_bytes"), &result->source_bytes))
        return FSH_OK;
    const json_t *planes = json_object_get(object, "planes");
    uint64_t *const numbers[] = {&result->planes.planes_count, &result->planes.planes_bytes,
                                 &result->planes.raw_count, &result->planes.raw_bytes};
    for (size_t i = 0; planes && i < sizeof numbers / sizeof *numbers; i++)
        if (!count_from_json(json_array_get(planes, i), numbers[i]))
            return FSH_OK;
    result->class_counts = calloc(class_count + 1, sizeof *result->class_counts);
    if (!result->class_counts)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", result->info.name);
    for (size_t i = 0; i < class_count; i++)
        if (!count_from_json(json_array_get(counts, i), &result->class_counts[i]) ||
            __builtin_add_overflow(counted, result->class_counts[i], &counted))
            return FSH_OK;
    if (counted > result->info.sample_count)
        return FSH_OK;
    for (size_t i = 0; i < json_array_size(left_out); i++) {
        const json_t *note = json_array_get(left_out, i);
        const char *path = json_string_value(json_array_get(note, 1));
        const char *reason = json_string_value(json_array_get(note, 2));
        if (!path || !reason)
            return FSH_OK;
        FshStatus status = notes_add(
            &result->left_out, (FshStatus)json_integer_value(json_array_get(note, 0)), path, reason, error);
        if (status)
            return status;
    }
    *readable_ret = true;
    return FSH_OK;
}

FshStatus resume_load(const ResumeKey *key, const char *folder, OutputResult *result, bool *kept_ret,
                      FshError *error)
{
    char path[PATH_MAX];
    *kept_ret = false;
    *result = (OutputResult){0};
    FshStatus status = progress_path(path, folder, key->name, error);
    if (status)
        return status;
    json_t *object = NULL;
    /* One that is damaged is none: what it is of is made again. */
    if (seal_read(path, PROGRESS_BYTES_MAX, true, &object, error) == FSH_ERR_MEMORY)
        return FSH_ERR_MEMORY;
    const char *id = json_string_value(json_object_get(object, "id"));
    const char *then = json_string_value(json_object_get(object, "sources"));
    if (id && then && strcmp(id, key->id) == 0 && (!key->sources || strcmp(then, key->sources) == 0)) {
        result->info.name = strdup(key->name);
        status = result->info.name ? parse(key->class_count, object, result, kept_ret, error)
                                   : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
        *kept_ret = *kept_ret && output_agrees(key, folder, &result->info);
    }
    json_decref(object);
    if (status || !*kept_ret)
        output_result_free(result);
    return status;
}
