/* seal.h - JSON that carries its own checksum: manifests, and the marks that let a stopped run go on.
 *
 * A sealed text holds the XXH3-128 of itself, 32 lower-case hexadecimal digits in quotes, taken while 32
 * zeros stand in their place. Whatever is changed afterwards, a blank too, is seen. It tells damage, not
 * malice.
 *
 * Threads: pure functions. */
#ifndef FSHARD_COMMON_SEAL_H
#define FSHARD_COMMON_SEAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* What stands for the checksum until it is known: 32 digits and a NUL. */
#define SEAL_BLANK "00000000000000000000000000000000"

/* Puts the checksum in the place of the first SEAL_BLANK in quotes. False: there is none. */
bool seal_text(char *text, size_t bytes);
/* Returns whether text is what it was when digits, which stand in it in quotes, were put there. */
bool seal_holds(const char *text, size_t bytes, const char *digits);

/* A mark: an object whose member "checksum" seals its text. */

/* Writes the object to path, atomically, with "checksum" added to it. FSH_ERR_MEMORY, and what
 * file_write_atomic gives. */
FshStatus seal_write(const char *path, json_t *object, size_t dump_flags, FshError *error);

/* Reads an object that seal_write wrote; *object_ret is a new reference. must: FSH_ERR_CORRUPT without a
 * checksum, which files of earlier versions have none of. FSH_ERR_NOT_FOUND: there is no file.
 * FSH_ERR_CORRUPT: no JSON object, or its checksum is wrong. FSH_ERR_MISMATCH: longer than most_bytes. On
 * failure *object_ret is NULL. */
FshStatus seal_read(const char *path, uint64_t most_bytes, bool must, json_t **object_ret, FshError *error);

#endif
