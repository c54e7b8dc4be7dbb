/* pack_source.h - reading source files, below a folder that is opened once: names are looked up from there,
 * which is shorter than from the root of the file system, and each file costs three system calls. */
#ifndef FSHARD_PACK_SOURCE_H
#define FSHARD_PACK_SOURCE_H

#include "common/file.h"

/* Opens the folder: *descriptor_ret is the caller's to close. */
FshStatus source_open(const char *root, int *descriptor_ret, FshError *error);

/* Reads the first bytes of a file below the folder, `most` at most (fewer where the file ends), into buffer:
 * enough to know what it is. Messages of both do not name the file: the caller knows it. */
FshStatus source_read_start(int folder, const char *path, size_t most, Buffer *buffer, FshError *error);

/* Reads the whole file, which had `expected` bytes when it was listed. FSH_ERR_MISMATCH if it has another
 * size now. */
FshStatus source_read(int folder, const char *path, uint64_t expected, Buffer *buffer, FshError *error);

#endif
