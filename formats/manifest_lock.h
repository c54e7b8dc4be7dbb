/* manifest_lock.h - who reads a dataset holds a shared lock (flock) on the dataset.json that it read, for as
 * long as it is open. fpack --update replaces that file and keeps the old one under another name until nobody
 * holds it: by that it knows when shards may be removed that only the old one lists.
 *
 * A file system without locks gives none; readers do without. */
#ifndef FSHARD_FORMATS_MANIFEST_LOCK_H
#define FSHARD_FORMATS_MANIFEST_LOCK_H

#include <stdbool.h>

#include "formats/fshard.h"

/* The name of a manifest that an update has replaced, while somebody may read it: this, a number, ".json". */
#define MANIFEST_OLD_PREFIX ".dataset-"

/* Writes the name of the manifest that update number `updates` replaces. */
void manifest_old_name(char *buffer, size_t buffer_bytes, uint32_t updates);
/* Returns whether this is such a name. */
bool manifest_is_old_name(const char *name);

/* Loads the manifest at path with a shared lock on it: *lock_ret, a descriptor that whoever opens the dataset
 * closes with it, -1 where there is none. Fails as fsh_manifest_load. */
FshStatus manifest_lock_load(int *lock_ret, FshManifest *manifest, const char *path, FshError *error);
/* Returns whether somebody reads by the manifest at path. Where there are no locks nobody can know: false. */
bool manifest_is_read(const char *path);

#endif
