#include "stores/store_staging.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "formats/xxh3.h"
#include "stores/store_cache.h"

FshStatus store_staging_open(StoreStaging *staging, const char *address, const StoreOptions *options,
                             bool look_only, FshError *error)
{
    StoreCache cache;
    char name[64];
    *staging = (StoreStaging){.lock = FOLDER_LOCK_NONE};
    (void)snprintf(name, sizeof name, ".uploads/%016" PRIx64, XXH3_64bits(address, strlen(address)));
    FshStatus status = look_only ? store_cache_find(&cache, options->cache_dir, error)
                                 : store_cache_open(&cache, options->cache_dir, 0, error);
    if (!status)
        status = file_join(staging->base, sizeof staging->base, cache.folder, name, error);
    if (!status && !look_only)
        status = file_make_folders(staging->base, error);
    if (!status && !look_only)
        status = folder_lock_take(&staging->lock, staging->base, ".lock", options->speaker, error);
    if (status)
        *staging->base = '\0';
    return status;
}

void store_staging_clear(const StoreStaging *staging)
{
    store_cache_remove(staging->base);
}

void store_staging_close(StoreStaging *staging)
{
    folder_lock_release(&staging->lock);
    if (*staging->base)
        (void)rmdir(staging->base); /* where nothing was made */
    *staging->base = '\0';
}
