/* store_upload.h - a dataset on its way to an object store, file by file as they are packed.
 *
 *   StoreUpload *upload = NULL;
 *   const StoreUploadOptions how = {.force = force};
 *   status = store_upload_open(&upload, "s3://bucket/prefix", &how, &options, &error);
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
 * were sent. Tars and LMDBs have no footer to go on by: they stay whole until the end. dataset.json is sent
 * last: readers see no dataset, or all of it. What a replaced dataset and stopped runs have left there goes
 * after that (store_leftovers.h).
 *
 * Parts of one dataset, packed on many hosts, go to one address: each sends the plan that all of them have
 * alike, then its shards and what the merge needs of them. Whoever merges brings that here, without the
 * records (store_bring.h), makes the manifest of it, and sends that.
 *
 * In the folder PATH/.uploads/NUMBER/ of the cache lie shards/, what is packed; parts/, what a merge has
 * brought; FILE.sent, for a file that was sent: its number; and FILE.upload: the id of a multipart upload
 * under way. One that a killed process has left there is ended by the next (AbortMultipartUpload), for its
 * parts cost money.
 *
 * Threads: one at a time; it starts its own. */
#ifndef FSHARD_STORES_STORE_UPLOAD_H
#define FSHARD_STORES_STORE_UPLOAD_H

#include "formats/fshard.h"
#include "stores/store.h"

typedef struct StoreUpload StoreUpload;

typedef struct StoreUploadOptions {
    bool force;       /* a dataset that is there is replaced: its dataset.json goes with the first new file */
    bool look_only;   /* of a dry run: nothing is made, removed or sent */
    const char *part; /* "3-of-8": it sends a part; NULL: the whole, or a merge */
    const char *plan; /* with part: the file of the folder that all parts have alike */
} StoreUploadOptions;

/* Returns whether datasets of a container are sent. */
bool store_upload_takes(FshContainer container);

/* Begins, or goes on with, an upload to an address; makes the folder to pack into. FSH_ERR_USAGE: an address
 * that is not of s3:// or gs://, or of a tar. FSH_ERR_EXISTS: a dataset is there, without force; another
 * process of this host packs for the address. Fails as store_open. On failure *upload is NULL. */
FshStatus store_upload_open(StoreUpload **upload, const char *address, const StoreUploadOptions *how,
                            const StoreOptions *options, FshError *error);
/* Returns the folder to pack into. */
const char *store_upload_folder(const StoreUpload *upload);

/* Hands over a file of the folder that is finished; of an LMDB its folder. Fails as sending this one or an
 * earlier one did. FSH_ERR_MISMATCH: it is a part, and those of another packing are there, without force. */
FshStatus store_upload_file(StoreUpload *upload, const char *name, FshError *error);

/* Waits until all files are there, sends dataset.json, and removes files of a replaced dataset that the
 * manifest does not list. Fails as store_upload_file. */
FshStatus store_upload_finish(StoreUpload *upload, const FshManifest *manifest, FshError *error);
/* Ends a part: waits until all its files are there. Fails as store_upload_file. */
FshStatus store_upload_finish_part(StoreUpload *upload, FshError *error);

/* Brings files that parts have sent into store_upload_parts(upload), several side by side, shards without
 * their records. found [count]: whether each is there. What is no shard goes from the server when the
 * manifest was sent. Fails as store_bring. */
FshStatus store_upload_bring(StoreUpload *upload, char *const *names, size_t count, bool *found,
                             FshError *error);
const char *store_upload_parts(const StoreUpload *upload);

/* Removes the folder, after store_upload_finish, when nobody writes into it any more. */
void store_upload_clear(StoreUpload *upload);

/* Ends an upload that is under way, frees, and sets to NULL; NULL is fine. What was sent stays. */
void store_upload_close(StoreUpload **upload);

#endif
