/* paired_names.h - tells pairs of images from two classes: sides of pairs hold files of the same names.
 *
 * Threads: nothing is shared. */
#ifndef FSHARD_COMMON_PAIRED_NAMES_H
#define FSHARD_COMMON_PAIRED_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file of one of two classes: its path below the class folder, without the extension. Borrowed. */
typedef struct ClassFile {
    const char *path;
    size_t path_bytes;
    uint32_t split;
    int32_t label; /* 0 or 1 */
} ClassFile;

/* Returns whether more than half of the larger class's files stand in the other class, too, under the same
 * path and in the same split. A name that is a number counts as no such file: cat/0.jpg and dog/0.jpg are
 * photographs that were counted in each class. Sorts the files. */
bool paired_names(ClassFile *files, uint64_t count);

#endif
