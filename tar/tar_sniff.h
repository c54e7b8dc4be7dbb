/* tar_sniff.h - recognises tars by their bytes or names. Internal to tar/. */
#ifndef FSHARD_TAR_TAR_SNIFF_H
#define FSHARD_TAR_TAR_SNIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TAR_START_BYTES = 1024 }; /* two blocks tell */

/* Returns whether a file that begins with these bytes (TAR_START_BYTES of them, or all there are) is a tar:
 * they are a header whose checksum is right or, if the file is named like a tar, two blocks of zeros. */
bool tar_sniff_start(const uint8_t *bytes, size_t length, bool named_tar);

/* Returns whether the bytes are the beginning of a file of gzip, bzip2, xz, zstd, lz4, lzip or compress. */
bool tar_sniff_compressed(const uint8_t *bytes, size_t length);

/* Returns the length of the name without ".tar", ".tgz" and the like; 0: it is not named like a tar. */
size_t tar_name_stem(const char *path);

#endif
