/* store_bring.h - what `fpack --merge` needs of a file that a part has sent to an object store.
 *
 * Threads: a client belongs to one thread at a time. */
#ifndef FSHARD_STORES_STORE_BRING_H
#define FSHARD_STORES_STORE_BRING_H

#include "stores/store_request.h"

/* Brings a file of the site to path. Of a shard, known by its name, header, index and footer come, and the
 * records are a hole: the file has its length, and opens. *found_ret: it is there; else nothing was made.
 * FSH_ERR_CORRUPT: a shard whose header or footer is none. Fails as store_get and as writing files does. */
FshStatus store_bring(StoreClient *client, const char *name, const char *path, bool *found_ret,
                      FshError *error);

#endif
