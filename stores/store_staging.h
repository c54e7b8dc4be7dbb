/* store_staging.h - the folder in which files are made that go to an object store: PATH/.uploads/NUMBER/ of
 * the cache, a number for each address. What a stopped run has left there is what the next goes on with.
 *
 * Threads: one at a time. */
#ifndef FSHARD_STORES_STORE_STAGING_H
#define FSHARD_STORES_STORE_STAGING_H

#include <limits.h>

#include "common/folder_lock.h"
#include "stores/store.h"

typedef struct StoreStaging {
    char base[PATH_MAX];
    FolderLock lock; /* one process at a time writes for an address */
} StoreStaging;

/* Names the folder for what goes to an address and, unless look_only, makes and locks it. FSH_ERR_EXISTS:
 * another process of this host writes for the address. Fails as store_cache_open and as making folders does.
 * On failure nothing is held. */
FshStatus store_staging_open(StoreStaging *staging, const char *address, const StoreOptions *options,
                             bool look_only, FshError *error);

/* Removes the folder with all that is in it: it was sent. */
void store_staging_clear(const StoreStaging *staging);

/* Lets go of the folder, and removes it where it is empty. Safe twice. */
void store_staging_close(StoreStaging *staging);

#endif
