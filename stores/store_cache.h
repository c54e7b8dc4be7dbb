/* store_cache.h - the folder of datasets that were fetched: locks, and room. What lies there is told in
 * store.h.
 *
 * Threads: one at a time. */
#ifndef FSHARD_STORES_STORE_CACHE_H
#define FSHARD_STORES_STORE_CACHE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

typedef struct StoreCache {
    char folder[PATH_MAX];
    uint64_t most_bytes; /* 0: what the disk has left */
} StoreCache;

/* Fills *cache with where the cache's folder is, or would be, and makes nothing. FSH_ERR_USAGE: there is
 * none, and no HOME. */
FshStatus store_cache_find(StoreCache *cache, const char *folder, FshError *error);
/* Makes the cache's folder. folder: NULL: that of the user. FSH_ERR_USAGE: there is none, and no HOME. What
 * making a folder may fail with. */
FshStatus store_cache_open(StoreCache *cache, const char *folder, uint64_t most_bytes, FshError *error);

/* Locks the entry of this name, makes its lock file if necessary, and notes that it is used. *lock_ret is a
 * descriptor of the caller's; closing it ends the lock. Where others may share it, waits until it is had.
 * alone: nobody else may hold it; waits a moment, and sets *lock_ret to -1 if somebody still does: who has
 * filled the entry reads on, for hours, and the caller may share it then. `waits` (may be NULL) is called
 * once when it waits. FSH_ERR_SYSTEM: the file system has no locks. FSH_ERR_INTERRUPTED. */
FshStatus store_cache_lock(const StoreCache *cache, const char *name, bool alone,
                           void (*waits)(void *context), void *context, int *lock_ret, FshError *error);

/* Makes room for an entry of `bytes`, of which have_bytes are there already, and notes them as taken. The
 * caller holds its lock alone. Removes other entries that nobody holds, the longest unused first, and no more
 * of them than needed. *removed_ret: how many. FSH_ERR_NO_SPACE: that is not enough; then none is removed. */
FshStatus store_cache_make_room(const StoreCache *cache, const char *name, int lock, uint64_t bytes,
                                uint64_t have_bytes, unsigned *removed_ret, FshError *error);

/* Removes a folder of files and of folders, two levels deep. What cannot be removed stays. */
void store_cache_remove(const char *path);

#endif
