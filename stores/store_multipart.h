/* store_multipart.h - one file to an object store: in one request, or in parts side by side.
 *
 * Threads: one at a time; it starts its own. */
#ifndef FSHARD_STORES_STORE_MULTIPART_H
#define FSHARD_STORES_STORE_MULTIPART_H

#include "common/file.h"
#include "stores/store_request.h"

enum { STORE_UPLOAD_PART_BYTES = 16 << 20, STORE_UPLOAD_CONNECTIONS = 8, STORE_UPLOAD_PARTS_MAX = 10000 };

/* Sends the file at path as NAME of the site. id_path: where the id of an upload under way is kept, so that
 * another process can end it. An upload that fails is ended; so is one that id_path tells of. Fails as
 * store_send and as reading the file does. */
FshStatus store_multipart_send(const StoreSite *site, const StorePatience *patience, const char *path,
                               const char *name, const char *id_path, FshError *error);

/* Returns whether a file of the site is a mapped one, by its length and its last 128 bytes, which in a shard
 * hold its checksum. */
bool store_multipart_is_there(StoreClient *client, const FileMapping *mapping, const char *name);

/* Ends the upload that id_path tells of, if there is one, and removes that file. What fails is left to the
 * bucket's own rules. */
void store_multipart_abort(const StoreSite *site, const StorePatience *patience, const char *name,
                           const char *id_path);

#endif
