/* manifest.h - dataset.json: reading, the rules, the seal, and making it again. */
#ifndef FSHARD_FORMATS_MANIFEST_H
#define FSHARD_FORMATS_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "formats/fshard.h"
#include "formats/metadata.h"

#define MANIFEST_FORMAT "fshard" /* its member "format" */
/* Version 1 had no checksums, and its "id" did not cover what the files hold. */
/* Version 3 is that of updated datasets, whose shards are of more than one packing. */
enum { MANIFEST_VERSION = 2, MANIFEST_VERSION_WITHOUT_SEAL = 1, MANIFEST_VERSION_UPDATED = 3 };
/* What is longer is no manifest: a hundred thousand shards and a million classes fit. jansson takes a second
 * for 6 MB. */
enum { MANIFEST_BYTES_MAX = 64 << 20 };
/* What a user does about a manifest that is not what was written. */
#define MANIFEST_REMEDY "fpack --repair-manifest makes it again from the files of its folder"

/* Reads the whole of dataset.json. FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED. On failure *manifest is empty. */
FshStatus fsh_manifest_parse(FshManifest *manifest, const char *text, size_t bytes, FshError *error);
/* Checks what is promised of every manifest: names, sums, counts. `status` is what a violation gives:
 * FSH_ERR_CORRUPT on reading, FSH_ERR_USAGE on writing. */
FshStatus fsh_manifest_check(const FshManifest *manifest, FshStatus status, FshError *error);
/* Makes dataset.json of its object: adds "checksum" to it. *text_ret is the caller's (free), *bytes_ret its
 * bytes, with a newline at the end and no NUL. FSH_ERR_MEMORY. (manifest_seal.c) */
FshStatus fsh_manifest_seal(json_t *object, char **text_ret, size_t *bytes_ret, FshError *error);
/* Proves a text, which is a JSON object, by its "checksum". FSH_ERR_CORRUPT names the members that were
 * changed. */
FshStatus fsh_manifest_check_seal(const char *text, size_t bytes, FshError *error);
/* Fills class_display_names from a manifest as JSON, one for each class of manifest, or NULL where there is
 * no such member. FSH_ERR_CORRUPT, FSH_ERR_MEMORY. */
FshStatus fsh_manifest_parse_display_names(FshManifest *manifest, const json_t *object, FshError *error);
/* Returns whether the member of a text, which is a JSON object, is what was written, whatever else was
 * changed. */
bool fsh_manifest_member_is_whole(const char *text, size_t bytes, const char *name);
/* Makes a manifest of the files in folder, whatever its dataset.json says. Keeps from the old one provenance
 * and what only it tells, where that is as it was written: the classes' display names and, for tars and
 * BasicSR, all names. Statistics are zero. FSH_ERR_NOT_FOUND: no files, or one of a split is missing;
 * FSH_ERR_UNSUPPORTED: there is a file that the old list, if it is as it was written, does not name. Fails
 * too as opening the files does. On failure *manifest is empty. (rebuild.c) */
FshStatus fsh_manifest_rebuild(FshManifest *manifest, const char *folder, FshError *error);
/* Mixes bytes into an id, in place: other bytes give another id. */
void fsh_id_mix(char id[FSH_ID_DIGITS + 1], const void *bytes, size_t length);

/* Makes a manifest for a file that stands alone: takes over metadata's names (metadata is empty then). */
FshStatus fsh_manifest_from_file(FshManifest *manifest, Metadata *metadata, FshContainer container,
                                 const FshFileInfo *file, FshError *error);
/* Adds a file to the manifest's first split; *file is copied. FSH_ERR_MEMORY. */
FshStatus fsh_manifest_add_file(FshManifest *manifest, const FshFileInfo *file, FshError *error);

#endif
