/* store_plugin.h - the interface between store_request.h and libcurl, whose dependencies (OpenSSL, nghttp2,
 * OpenLDAP, …) would cost each start of a program 4 ms: libfshard-curl.so is loaded at the first address of
 * a server (common/plugin.h says from where). It exports one object, STORE_PLUGIN_SYMBOL, which also has what
 * credentials need of OpenSSL.
 *
 * Both sides share structs by address, so they must be of one build: FSHARD_VERSION and the sizes of the
 * structs are compared. */
#ifndef FSHARD_STORES_STORE_PLUGIN_H
#define FSHARD_STORES_STORE_PLUGIN_H

#include <stdint.h>

#include "stores/store_crypto.h"
#include "stores/store_site.h"

#define STORE_PLUGIN_FILE   "libfshard-curl.so"
#define STORE_PLUGIN_SYMBOL "fshard_store_plugin"

enum { STORE_ETAG_BYTES = 160 };

/* A request, and what came of it. */
typedef struct StoreExchange {
    /* ---- what is asked ---- */
    const char *method; /* "GET", "PUT", "POST", "DELETE" */
    const char *url;
    const StoreSite *site;             /* credentials */
    uint64_t range_first, range_bytes; /* GET: a part of the file; range_bytes 0: the whole */
    uint64_t file_bytes;               /* GET: how long the file must be; 0: not known */
    bool whole_is_fine;                /* GET: the whole file may come instead of a part from its beginning */
    const char *wanted_etag;           /* GET: of the file that is wanted; NULL, "": any */
    const void *body;                  /* PUT, POST; may be NULL with body_bytes 0 */
    size_t body_bytes;
    const char *const *headers;     /* more lines of the request, NULL after the last; NULL: none */
    bool direct;                    /* neither a proxy nor a redirection is followed, nor ~/.netrc read */
    bool by_proxy;                  /* a proxy of the environment is, though */
    double stall_seconds;           /* gives up when so long (almost) nothing came */
    bool (*stopped)(void *context); /* asked now and then: whether to give up */
    /* Takes the body of a GET that was answered as asked. Returns false: it cannot, give up. */
    bool (*sink)(void *context, const void *bytes, size_t length);
    void *context; /* of both */

    /* ---- what came ---- */
    long status;       /* of HTTP; 0: no answer */
    bool changed;      /* another ETag than was wanted came: told in failure */
    bool unasked;      /* another part, another length, or more bytes than were asked for: told in failure */
    bool transient;    /* a failure of the network that another try may not meet */
    bool unknown_host; /* there is no such name: transient, but hardly */
    bool finished;     /* the answer came to its end */
    char failure[320]; /* what went wrong on the way; "": nothing */
    uint64_t told_bytes;         /* the file's length as the server says; UINT64_MAX: it does not */
    double retry_after_seconds;  /* as the server asks; 0: it does not */
    int64_t date_seconds;        /* what the server's clock says, since 1970; 0: nothing */
    char etag[STORE_ETAG_BYTES]; /* with its quotes */
    char region[64];             /* of the bucket, where S3 tells it */
    char text[16384];            /* the body of every other answer, cut */
} StoreExchange;

/* A connection, which is kept for the next request; one thread at a time. */
typedef struct StoreConnection StoreConnection;

typedef struct StorePlugin {
    size_t plugin_bytes; /* first: the others may be read only where it is sizeof(StorePlugin) */
    size_t exchange_bytes, site_bytes;
    const char *version; /* FSHARD_VERSION */
    /* Opens a connection. FSH_ERR_MEMORY; FSH_ERR_UNSUPPORTED: this libcurl lacks HTTPS. */
    FshStatus (*open)(StoreConnection **connection, FshError *error);
    /* Makes one request and fills what came. Fails in the exchange alone. */
    void (*perform)(StoreConnection *connection, StoreExchange *exchange);
    void (*close)(StoreConnection **connection); /* NULL is fine */
    FshStatus (*sign_rs256)(const char *key_pem, const char *text,
                            unsigned char signature[STORE_SIGNATURE_BYTES], size_t *length_ret,
                            FshError *error);                                             /* store_crypto.h */
    FshStatus (*sha1)(const char *text, char hex[STORE_SHA1_HEX_BYTES], FshError *error); /* the same */
} StorePlugin;

/* What the side that is compiled has; the functions are left to the plugin. */
#define STORE_PLUGIN_HERE                                                                                    \
    .plugin_bytes = sizeof(StorePlugin), .exchange_bytes = sizeof(StoreExchange),                            \
    .site_bytes = sizeof(StoreSite), .version = FSHARD_VERSION

extern const StorePlugin fshard_store_plugin;

#endif
