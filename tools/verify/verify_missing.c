#include "tools/verify/verify_missing.h"

#include <stdlib.h>
#include <string.h>

#include "common/walk.h"
#include "imaging/image.h"

/* Returns the FNV-1a (Fowler, Noll, Vo) of a path, 64 bits. */
static uint64_t hash_path(const char *path, size_t length, bool without_extension)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    const char *dot = without_extension ? memrchr(path, '.', length) : NULL;
    if (dot && !memchr(dot, '/', length - (size_t)(dot - path)))
        length = (size_t)(dot - path);
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)path[i]) * UINT64_C(0x100000001b3);
    return hash;
}

FshStatus source_set_add(SourceSet *set, const char *path, size_t length, bool without_extension,
                         FshError *error)
{
    if (set->count == set->capacity) {
        const size_t capacity = set->capacity ? 2 * set->capacity : 1024;
        uint64_t *hashes = reallocarray(set->hashes, capacity, sizeof *hashes);
        if (!hashes)
            return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory: %zu sources", set->count);
        set->hashes = hashes;
        set->capacity = capacity;
    }
    set->hashes[set->count++] = hash_path(path, length, without_extension);
    return FSH_OK;
}

void source_set_free(SourceSet *set)
{
    free(set->hashes);
    *set = (SourceSet){0};
}

static int compare_hashes(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

void source_set_sort(SourceSet *set)
{
    if (set->count)
        qsort(set->hashes, set->count, sizeof *set->hashes, compare_hashes);
}

bool source_set_has_twice(const SourceSet *set, const char *path, size_t length, bool without_extension)
{
    const uint64_t hash = hash_path(path, length, without_extension);
    const uint64_t *found =
        set->count ? bsearch(&hash, set->hashes, set->count, sizeof hash, compare_hashes) : NULL;
    const uint64_t *end = set->hashes + set->count;
    return found && ((found > set->hashes && found[-1] == hash) || (found + 1 < end && found[1] == hash));
}

FshStatus missing_images_find(SourceSet *set, const char *folder, bool without_extension, int jobs,
                              MissingImages *missing, FshError *error)
{
    FileList list = {0};
    *missing = (MissingImages){0};
    source_set_sort(set);
    FshStatus status = walk_files(folder, jobs, &list, error);
    for (uint64_t i = 0; i < list.count && !status; i++) {
        const char *path = list.files[i].path;
        const uint64_t hash = hash_path(path, strlen(path), without_extension);
        if (!image_name_is_image(path) ||
            (set->count && bsearch(&hash, set->hashes, set->count, sizeof hash, compare_hashes)))
            continue;
        if (missing->count < MISSING_NAMES) {
            missing->names[missing->count] = strdup(path);
            if (!missing->names[missing->count])
                status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", folder);
        }
        missing->count++;
    }
    file_list_free(&list);
    return status;
}

void missing_images_free(MissingImages *missing)
{
    for (size_t i = 0; i < MISSING_NAMES; i++)
        free(missing->names[i]);
    *missing = (MissingImages){0};
}
