/* store_put.h - one file on its way to an object store: made here, and sent when it is whole.
 *
 *   StorePut *put = NULL;
 *   status = store_put_open(&put, "s3://bucket/photos.tar", force, dry_run, &options, &error);
 *   // the file is made at store_put_path(put)
 *   status = store_put_finish(put, &error);   // only now does s3://bucket/photos.tar exist
 *   store_put_close(&put);
 *
 * The disk of --cache-dir holds the whole file until it was sent, in parts of 16 MiB over 8 connections. A
 * run that is stopped leaves what it has made, in PATH/.uploads/NUMBER/ of the cache, and the next goes on
 * with it; an upload under way is ended, by this run or the next.
 *
 * Threads: one at a time; store_put_finish starts its own. */
#ifndef FSHARD_STORES_STORE_PUT_H
#define FSHARD_STORES_STORE_PUT_H

#include "stores/store.h"

typedef struct StorePut StorePut;

/* Begins, or goes on with, a file for an address. look_only: of a dry run, which makes and removes nothing.
 * FSH_ERR_USAGE: an address that is not of s3:// or gs://, or names no file. FSH_ERR_EXISTS: the file is
 * there, and force is not set; another process of this host makes it. Fails as store_open. On failure *put is
 * NULL. */
FshStatus store_put_open(StorePut **put, const char *address, bool force, bool look_only,
                         const StoreOptions *options, FshError *error);

/* Returns where the file is to be made: its name is that of the address. */
const char *store_put_path(const StorePut *put);

/* Sends the file, tells so, and removes it here. On failure it stays, and nothing has come there. Fails as
 * store_send. */
FshStatus store_put_finish(StorePut *put, FshError *error);

/* Frees and sets to NULL; NULL is fine. */
void store_put_close(StorePut **put);

#endif
