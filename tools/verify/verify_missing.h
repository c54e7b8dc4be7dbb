/* verify_missing.h - which images of a source tree no record holds. */
#ifndef FSHARD_VERIFY_VERIFY_MISSING_H
#define FSHARD_VERIFY_VERIFY_MISSING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* The sources that records name: by a 64-bit hash each. Zeroed: empty; free with source_set_free. */
typedef struct SourceSet {
    uint64_t *hashes;
    size_t count, capacity;
} SourceSet;

/* Adds a path. without_extension: a.tif and a.jpg are the same image, as where resizing has changed names. */
FshStatus source_set_add(SourceSet *set, const char *path, size_t length, bool without_extension,
                         FshError *error);
/* Sorts the set, once all are there; to be called before source_set_has_twice. */
void source_set_sort(SourceSet *set);
/* Returns whether a path was added more than once. */
bool source_set_has_twice(const SourceSet *set, const char *path, size_t length, bool without_extension);
void source_set_free(SourceSet *set);

enum { MISSING_NAMES = 10 };

typedef struct MissingImages {
    uint64_t count;
    char *names[MISSING_NAMES]; /* the first of them; owned */
} MissingImages;

/* Looks for every file below folder that is called like an image. Sorts set. FSH_ERR_MEMORY,
 * FSH_ERR_INTERRUPTED and what walk_files gives. */
FshStatus missing_images_find(SourceSet *set, const char *folder, bool without_extension, int jobs,
                              MissingImages *missing, FshError *error);
void missing_images_free(MissingImages *missing);

#endif
