/* store_url.h - addresses of datasets on servers: what a URL names, and how a file below it is called.
 *
 *   https://host/data/shards     http://…      a folder of any web server
 *   s3://bucket/prefix                         Amazon S3, and what speaks its language
 *   gs://bucket/prefix                         Google Cloud Storage
 *
 * Threads: nothing is shared. */
#ifndef FSHARD_STORES_STORE_URL_H
#define FSHARD_STORES_STORE_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

enum { STORE_URL_BYTES = 2048, STORE_BUCKET_BYTES = 256 };

typedef enum StoreKind { STORE_HTTP, STORE_S3, STORE_GS } StoreKind;

typedef struct StoreUrl {
    StoreKind kind;
    char text[STORE_URL_BYTES];      /* as it was given, without slashes and dataset.json at its end */
    char bucket[STORE_BUCKET_BYTES]; /* STORE_S3, STORE_GS */
    char prefix[STORE_URL_BYTES];    /* the same, below the bucket, without slashes around it; "": none */
} StoreUrl;

/* Returns whether a text is an address of the kinds above, by its beginning alone. */
bool store_url_is(const char *text);

/* Reads an address. FSH_ERR_USAGE: no host or bucket, a query or fragment, control characters, or a user or
 * password in it, which every list of processes and log would show; the message then does not repeat it. */
FshStatus store_url_parse(StoreUrl *url, const char *text, FshError *error);

/* Appends text to buffer, percent-encoded but for letters, digits, "-._~" and, in a path, "/" (RFC 3986, as
 * SigV4 wants it). Returns false if it does not fit. */
bool store_url_encode(char *buffer, size_t buffer_bytes, const char *text);
bool store_url_encode_value(char *buffer, size_t buffer_bytes, const char *text); /* of a query */

#endif
