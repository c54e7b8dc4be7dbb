#include "trainer/backend/cuda/cudnn_cache.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "common/text.h"
#include "trainer/backend/cuda/device.h"

/* The first word of each file; its number changes with the file's form. */
#define FILE_MAGIC "fshard-cudnn-plan-1"
enum { KEY_MAX = 2048, FILE_BYTES_MAX = 4 << 20 };

struct CudnnCache {
    char *machine, *folder; /* owned; folder may be NULL */
    struct Entry {
        char *key;
        CudnnPlan *plan; /* both owned */
    } * entries;
    size_t entry_count, entry_capacity;
    CudnnCacheCounts counts;
    FshError warning; /* status 0: none */
};

FshStatus cudnn_cache_new(CudnnCache **cache, const char *machine, const char *folder, FshError *error)
{
    *cache = calloc(1, sizeof **cache);
    if (*cache) {
        (*cache)->machine = text_copy(machine, strlen(machine));
        (*cache)->folder = folder ? text_copy(folder, strlen(folder)) : NULL;
    }
    if (!*cache || !(*cache)->machine || (folder && !(*cache)->folder)) {
        cudnn_cache_free(cache);
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a cache of cuDNN plans");
    }
    return FSH_OK;
}

void cudnn_cache_free(CudnnCache **cache)
{
    if (!*cache)
        return;
    for (size_t i = 0; i < (*cache)->entry_count; i++) {
        cudnn_plan_free(&(*cache)->entries[i].plan);
        free((*cache)->entries[i].key);
    }
    free((*cache)->entries);
    free((*cache)->machine);
    free((*cache)->folder);
    free(*cache);
    *cache = NULL;
}

CudnnCacheCounts cudnn_cache_counts(const CudnnCache *cache)
{
    return cache->counts;
}

const char *cudnn_cache_warning(const CudnnCache *cache)
{
    return cache->warning.status ? cache->warning.message : NULL;
}

/* ---- on disk ---- */

static FshStatus file_of(const CudnnCache *cache, const char *key, char path[PATH_MAX], FshError *error)
{
    const XXH128_hash_t hash = XXH3_128bits(key, strlen(key));
    char name[64];
    (void)snprintf(name, sizeof name, "%016" PRIx64 "%016" PRIx64 ".cudnn", (uint64_t)hash.high64,
                   (uint64_t)hash.low64);
    return file_join(path, PATH_MAX, cache->folder, name, error);
}

/* The lines before the JSON: magic, key, milliseconds, hash of the JSON. */
static int header_text(char *header, size_t bytes, const char *key, double milliseconds, const uint8_t *json,
                       size_t json_bytes)
{
    return snprintf(header, bytes, FILE_MAGIC "\n%s\n%.6f\n%016" PRIx64 "\n", key, milliseconds,
                    (uint64_t)XXH3_64bits(json, json_bytes));
}

/* Where the line ends that begins at from; NULL: nowhere. */
static const uint8_t *line_end(const uint8_t *from, const uint8_t *end)
{
    return from < end ? memchr(from, '\n', (size_t)(end - from)) : NULL;
}

/* cuDNN may crash on JSON that it did not write: nothing is handed to it that is not whole and of this key. */
static bool parse_file(const Buffer *file, const char *key, double *milliseconds_ret,
                       const uint8_t **json_ret)
{
    const uint8_t *end = file->bytes + file->length, *line = file->bytes, *starts[4];
    for (int i = 0; i < 4; i++) {
        starts[i] = line;
        line = line_end(line, end);
        if (!line)
            return false;
        line++;
    }
    char number[32] = "", header[KEY_MAX + 128];
    const size_t number_bytes = (size_t)(starts[3] - starts[2]) - 1;
    if (number_bytes >= sizeof number)
        return false;
    memcpy(number, starts[2], number_bytes);
    const double milliseconds = strtod(number, NULL);
    /* written again from what was read, it must be the same */
    int length = header_text(header, sizeof header, key, milliseconds, line, (size_t)(end - line));
    if (length < 0 || (size_t)length != (size_t)(line - file->bytes) ||
        memcmp(header, file->bytes, (size_t)length) != 0)
        return false;
    *milliseconds_ret = milliseconds;
    *json_ret = line;
    return true;
}

static bool load(const CudnnCache *cache, const char *key, CudnnPlan *plan)
{
    char path[PATH_MAX];
    Buffer file = {0};
    FshError ignored = {0};
    const uint8_t *json = NULL;
    double milliseconds = 0;
    bool loaded = cache->folder && !file_of(cache, key, path, &ignored) &&
                  !file_read_most(path, FILE_BYTES_MAX, &file, &ignored) &&
                  parse_file(&file, key, &milliseconds, &json) &&
                  !cudnn_plan_load(plan, json, file.length - (size_t)(json - file.bytes), &ignored);
    if (loaded)
        cudnn_plan_set_milliseconds(plan, milliseconds);
    buffer_free(&file);
    return loaded;
}

static FshStatus write_file(const CudnnCache *cache, const char *key, const CudnnPlan *plan, FshError *error)
{
    char path[PATH_MAX], header[KEY_MAX + 128];
    Buffer json = {0}, file = {0};
    FshStatus status = file_of(cache, key, path, error);
    if (!status)
        status = cudnn_plan_json(plan, &json, error);
    if (!status) {
        int length =
            header_text(header, sizeof header, key, cudnn_plan_milliseconds(plan), json.bytes, json.length);
        status = buffer_append(&file, header, (size_t)length, error);
    }
    if (!status)
        status = buffer_append(&file, json.bytes, json.length, error);
    if (!status)
        status = file_make_folders(cache->folder, error);
    if (!status)
        status = file_write_atomic(path, file.bytes, file.length, true, false, error);
    buffer_free(&json);
    buffer_free(&file);
    return status;
}

static void keep_on_disk(CudnnCache *cache, const char *key, const CudnnPlan *plan)
{
    FshError error = {0};
    if (!cache->folder || cache->warning.status || !write_file(cache, key, plan, &error))
        return;
    (void)fsh_error_set(&cache->warning, error.status, "cuDNN's plans are not kept for the next start: %s",
                        error.message);
}

/* ---- in memory ---- */

static const CudnnPlan *find(const CudnnCache *cache, const char *key)
{
    for (size_t i = 0; i < cache->entry_count; i++)
        if (strcmp(cache->entries[i].key, key) == 0)
            return cache->entries[i].plan;
    return NULL;
}

static FshStatus make_room(CudnnCache *cache, FshError *error)
{
    if (cache->entry_count < cache->entry_capacity)
        return FSH_OK;
    const size_t capacity = cache->entry_capacity ? 2 * cache->entry_capacity : 64;
    struct Entry *entries = realloc(cache->entries, capacity * sizeof *entries);
    if (!entries)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a cache of %zu cuDNN plans", capacity);
    cache->entries = entries;
    cache->entry_capacity = capacity;
    return FSH_OK;
}

/* Times the candidates in workspace of its own; where the GPU has not enough of it, those that need the most are left out. */
static FshStatus choose(CudnnPlan *plan, const CudnnTrial *trial, FshError *error)
{
    void *workspace = NULL;
    uint64_t bytes = cudnn_plan_workspace_bytes(plan);
    FshStatus status;
    while ((status = cuda_memory_new(&workspace, bytes, "workspace to try convolutions in", error)) ==
           FSH_ERR_MEMORY) {
        status = cudnn_plan_limit_workspace(plan, bytes - 1, error);
        if (status)
            return status;
        bytes = cudnn_plan_workspace_bytes(plan);
    }
    if (!status)
        status = cudnn_plan_choose(plan, trial->data, workspace, trial->stream, error);
    cuda_memory_free(&workspace);
    return status;
}

FshStatus cudnn_cache_get(CudnnCache *cache, CudnnPlan **described, const CudnnPolicy *policy,
                          const CudnnTrial *trial, const CudnnPlan **plan, FshError *error)
{
    char key[KEY_MAX];
    int length = snprintf(key, sizeof key,
                          "%s; %sbut notes %" PRIx32 ", %" PRIu64 " bytes of workspace, %d candidates",
                          cache->machine, cudnn_plan_text(*described), policy->refused_notes,
                          policy->workspace_limit_bytes, trial ? policy->candidates : 1);
    FshStatus status = FSH_OK;
    if (length < 0 || (size_t)length >= sizeof key)
        status =
            fsh_error_set(error, FSH_ERR_UNSUPPORTED, "a cuDNN pattern of more than %d letters", KEY_MAX);
    *plan = status ? NULL : find(cache, key);
    if (status || *plan) {
        cache->counts.shared += status == FSH_OK;
        cudnn_plan_free(described);
        return status;
    }
    char *own_key = text_copy(key, (size_t)length);
    status = own_key ? make_room(cache, error) : fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a key");
    if (!status && load(cache, key, *described)) {
        cache->counts.loaded++;
    } else if (!status) {
        status = cudnn_plan_build(*described, policy, error);
        if (!status && trial && cudnn_plan_candidates(*described) > 1)
            status = choose(*described, trial, error);
        if (!status) {
            cache->counts.built++;
            keep_on_disk(cache, key, *described);
        }
    }
    if (status) {
        free(own_key);
        cudnn_plan_free(described);
        return status;
    }
    cache->entries[cache->entry_count++] = (struct Entry){own_key, *described};
    *plan = *described;
    *described = NULL;
    return FSH_OK;
}
