/* store_leftovers.h - what is to be removed from a place in an object store when the next dataset there is
 * whole: the files of a dataset that was replaced, and those that stopped runs have sent.
 *
 * The names are in the object .fpack-sent, one on a line, so that a run on another host knows them too: it is
 * written before the first file is, and goes last.
 *
 * Threads: one at a time. */
#ifndef FSHARD_STORES_STORE_LEFTOVERS_H
#define FSHARD_STORES_STORE_LEFTOVERS_H

#include "common/file.h"
#include "stores/store_files.h"

#define STORE_LEFTOVERS_NAME ".fpack-sent"

typedef struct StoreLeftovers {
    Buffer names; /* lines */
    bool loaded;
    bool changed; /* since it was loaded or saved */
    bool there;   /* the object is */
} StoreLeftovers;

/* Reads the names, once. Where nothing may be read there is nothing. Fails as store_get. */
FshStatus store_leftovers_load(StoreLeftovers *leftovers, StoreClient *client, FshError *error);

/* Notes a name, unless it is noted already. FSH_ERR_MEMORY. */
FshStatus store_leftovers_add(StoreLeftovers *leftovers, const char *name, FshError *error);
/* Notes all files of a dataset. */
FshStatus store_leftovers_add_files(StoreLeftovers *leftovers, const StoreFiles *files, FshError *error);

/* Writes the object if names were added. Fails as store_send. */
FshStatus store_leftovers_save(StoreLeftovers *leftovers, StoreClient *client, FshError *error);

/* Removes all files that were noted and are not among those that stay, and then the object. What cannot be
 * removed does no harm, and stays noted if there is such a file. */
void store_leftovers_remove(StoreLeftovers *leftovers, StoreClient *client, const StoreFiles *stay);

void store_leftovers_free(StoreLeftovers *leftovers);

#endif
