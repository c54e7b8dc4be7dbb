/* source.h - the start of a source file: enough to know what it is, without reading all of it. */
#ifndef FSHARD_PACK_SOURCE_H
#define FSHARD_PACK_SOURCE_H

#include "common/file.h"

/* Reads the first bytes of root/path, `most` at most (fewer where the file ends), into buffer. */
FshStatus source_read_start(const char *root, const char *path, size_t most, Buffer *buffer, FshError *error);

/* Reads root/path whole. */
FshStatus source_read(const char *root, const char *path, Buffer *buffer, FshError *error);

#endif
