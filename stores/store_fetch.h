/* store_fetch.h - files, fetched into a folder in parts, side by side, and proved.
 *
 * Threads: one at a time; it starts its own. */
#ifndef FSHARD_STORES_STORE_FETCH_H
#define FSHARD_STORES_STORE_FETCH_H

#include "stores/store_files.h"

enum { STORE_PART_BYTES = 16 << 20, STORE_CONNECTIONS = 16 };

/* What is to be fetched, and how. */
typedef struct StoreFetch {
    const StoreSite *site;
    const StoreFiles *files;
    const char *folder;     /* exists; its lock is held alone */
    StorePatience patience; /* its `stopped` is not used */
} StoreFetch;

/* Sets *missing_ret to how many of the files are not in the folder, and *have_ret, *bytes_ret to the bytes of
 * those that are, and of all. A file that has its name and its length is whole: it got the name when it was
 * proved. FSH_ERR_MEMORY: a path is too long. */
FshStatus store_fetch_look(const StoreFetch *fetch, size_t *missing_ret, uint64_t *have_ret,
                           uint64_t *bytes_ret, FshError *error);

/* Fetches those that are missing, and what stands beside them. FSH_ERR_CORRUPT: a file that is not what it
 * must be, three times. Fails as store_get and as writing files does. What is whole by then stays. */
FshStatus store_fetch_run(const StoreFetch *fetch, FshError *error);

#endif
