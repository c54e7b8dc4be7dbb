/* seal.h - JSON with its own checksum: manifests, and the marks by which a stopped run resumes.
 *
 * A sealed text holds the XXH3-128 of itself, 32 lower-case hexadecimal digits in quotes, computed with 32
 * zeros in their place. Any later change is detected, even of a blank. It detects damage, not malice.
 *
 * Threads: pure functions. */
#ifndef FSHARD_COMMON_SEAL_H
#define FSHARD_COMMON_SEAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* In place of the checksum until it is known: 32 digits and a NUL. */
#define SEAL_BLANK "00000000000000000000000000000000"

/* Replaces the first SEAL_BLANK in quotes by the checksum. Returns false if there is none. */
bool seal_text(char *text, size_t bytes);
/* Returns whether text is unchanged since `digits`, which it has in quotes, were put there. */
bool seal_holds(const char *text, size_t bytes, const char *digits);

/* A mark is an object whose member "checksum" seals its text. */

/* Adds "checksum" to the object and writes it to path atomically. FSH_ERR_MEMORY, and the errors of
 * file_write_atomic. */
FshStatus seal_write(const char *path, json_t *object, size_t dump_flags, FshError *error);

/* Reads an object that seal_write wrote, and sets *object_ret to a new reference, NULL on failure. must: a
 * checksum is required (files of earlier versions have none). FSH_ERR_NOT_FOUND: there is no file.
 * FSH_ERR_CORRUPT: it is no JSON object, or its checksum is wrong or missing. FSH_ERR_MISMATCH: longer than
 * most_bytes. */
FshStatus seal_read(const char *path, uint64_t most_bytes, bool must, json_t **object_ret, FshError *error);

#endif
