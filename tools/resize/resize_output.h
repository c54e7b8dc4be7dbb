/* resize_output.h - where the bytes of an output go: a file of its own, a hard link, or the end of a tar. */
#ifndef FSHARD_RESIZE_OUTPUT_H
#define FSHARD_RESIZE_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* Writes a file that appears whole, with its source's time, and the folders above it. A file of this name is
 * replaced. Nothing waits for the disk: that is done once, at the end of the run. Threads: any, for different
 * paths. */
FshStatus output_write(const char *path, const void *bytes, size_t length, int64_t modified_ns,
                       FshError *error);

/* Gives source the name path as well. *linked_ret is false, without a failure, where its file system cannot
 * (another one, too many links, not allowed): the caller copies. */
FshStatus output_link(const char *source, const char *path, bool *linked_ret, FshError *error);

/* Returns whether path would lie in the very folder that holds source, by a link or a second mount: writing
 * it could replace a file of the source. */
bool output_is_beside(const char *source, const char *path);

/* Removes temporary files of killed runs from a folder and the folders in it, unless a signal comes. Memory:
 * the names of the folders on the way down. */
void output_remove_leftovers(const char *folder);

/* Gives a whole tar its name. While it is written it is a file beside the state (resize_state.h). */
FshStatus output_finish_tar(const char *temporary_path, const char *path, FshError *error);

#endif
