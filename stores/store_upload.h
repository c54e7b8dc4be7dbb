/* store_upload.h - a dataset on its way to an object store, file by file as they are packed.
 *
 *   StoreUpload *upload = NULL;
 *   status = store_upload_open(&upload, "s3://bucket/prefix", force, &options, &error);
 *   // a writer makes shards in store_upload_folder(upload), and for each, in any order:
 *   status = store_upload_file(upload, "train-00000-of-00016.fshard", &error);
 *   // when all are there, and dataset.json too:
 *   status = store_upload_finish(upload, &manifest, &error);
 *   store_upload_close(&upload);
 *
 * One file at a time is sent, in parts of 16 MiB over 8 connections (multipart upload), while the next is
 * packed; store_upload_file waits while WAITING_MAX others wait. The records of a shard that has been sent
 * are given back to the disk (a hole is punched), its header, index and footer stay: so the space is that of
 * WAITING_MAX + 2 shards and of the indexes, and a packing that was stopped goes on after the shards that
 * were sent. dataset.json is sent last: readers see no dataset, or all of it.
 *
 * In the folder PATH/.uploads/NUMBER/ of the cache lie shards/, what is packed; FILE.sent, for a file
 * that was sent: its number; and FILE.upload: the id of a multipart upload under way. One that a killed
 * process has left there is ended by the next (AbortMultipartUpload), for its parts cost money.
 *
 * Threads: one at a time; it starts its own. */
#ifndef FSHARD_STORES_STORE_UPLOAD_H
#define FSHARD_STORES_STORE_UPLOAD_H

#include "formats/fshard.h"
#include "stores/store.h"

typedef struct StoreUpload StoreUpload;

/* Begins, or goes on with, an upload to an address; makes the folder to pack into. force: a dataset that is
 * there is replaced: its dataset.json goes when the first new file is sent. FSH_ERR_USAGE: an address that is
 * not of s3:// or gs://. FSH_ERR_EXISTS: a dataset is there, without force; another process of this host
 * packs for the address. Fails as store_open. On failure *upload is NULL. */
FshStatus store_upload_open(StoreUpload **upload, const char *address, bool force,
                            const StoreOptions *options, FshError *error);
/* Returns the folder to pack into. */
const char *store_upload_folder(const StoreUpload *upload);

/* Hands a finished shard over. Fails as sending this one or an earlier one did. */
FshStatus store_upload_file(StoreUpload *upload, const char *name, FshError *error);

/* Waits until all files are there, sends dataset.json, and removes files of a replaced dataset that the
 * manifest does not list. Fails as store_upload_file. */
FshStatus store_upload_finish(StoreUpload *upload, const FshManifest *manifest, FshError *error);
/* Removes the folder, after store_upload_finish, when nobody writes into it any more. */
void store_upload_clear(StoreUpload *upload);

/* Ends an upload that is under way, frees, and sets to NULL; NULL is fine. What was sent stays. */
void store_upload_close(StoreUpload **upload);

#endif
