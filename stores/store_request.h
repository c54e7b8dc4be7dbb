/* store_request.h - one file of a site, or a part of it: asked for again until it has come, or is not to be
 * had.
 *
 * What is tried again: no answer, a cut or stalled connection, too few bytes, another part than was asked
 * for, and the answers 408, 425, 429, 500, 502, 503 and 504. A part goes on where it was cut. The n-th wait
 * takes 0.25 s * 2^n, at most 20 s, times a random number from a half to one (so that a hundred hosts do not
 * come back at once), or what the server's Retry-After says, at most 60 s. A host that has no address is
 * looked up once more, and no longer unless the client had an answer before. Tries are counted anew after
 * each MiB that came.
 *
 * Threads: a StoreClient belongs to one thread at a time. */
#ifndef FSHARD_STORES_STORE_REQUEST_H
#define FSHARD_STORES_STORE_REQUEST_H

#include "common/progress.h"
#include "stores/store_plugin.h"

/* How hard it is tried. */
typedef struct StorePatience {
    int64_t retries; /* after the first try */
    double stall_seconds;
    bool (*stopped)(void *context); /* whether to give up, besides interrupt_requested; may be NULL */
    void *context;
    bool regardless;     /* of interrupts: for cleaning up after one */
    Progress *progress;  /* where waits are told, or NULL */
    const char *speaker; /* the program's name, for that */
} StorePatience;

typedef struct StoreClient {
    const StoreSite *site;
    StorePatience patience;
    const StorePlugin *plugin;
    StoreConnection *connection;
    bool answered; /* somebody did, once */
} StoreClient;

/* Returns the plugin with libcurl. FSH_ERR_UNSUPPORTED: it is not here. */
FshStatus store_plugin_load(const StorePlugin **plugin_ret, FshError *error);

/* Opens a client, which borrows site. FSH_ERR_UNSUPPORTED: the plugin is not here. FSH_ERR_MEMORY. */
FshStatus store_client_open(StoreClient *client, const StoreSite *site, const StorePatience *patience,
                            FshError *error);
/* Waits for half of so many seconds to all of them, or as long as a server asked for, at most asked_most.
 * Ends early where the client is to give up. */
void store_client_wait(const StoreClient *client, double seconds, double asked_seconds, double asked_most);

/* Safe twice, and on a zeroed client. */
void store_client_close(StoreClient *client);

/* Takes bytes of what is fetched; position: of the first of them in what was asked for. Where a server gives
 * no parts it begins at 0 again after a cut. */
typedef FshStatus StoreSink(void *context, uint64_t position, const void *bytes, size_t length,
                            FshError *error);

typedef struct StoreGet {
    const char *name;      /* below the site */
    uint64_t first, bytes; /* a part of the file; bytes 0: the whole, in one answer */
    uint64_t file_bytes;   /* how long it must be; 0: not known */
    const char *etag;      /* that it must have; NULL, "": any */
    /* Gets whether the server gives parts of files; then `bytes` is only a bound, of all of a file. May be
     * NULL. */
    bool *parts_ret;
    bool optional; /* where there is none, that is no failure */
    /* Gets whether an optional file may not be read, which is no failure then either: to keys that may not
     * list, S3 says that of what is not there, too. May be NULL. */
    bool *hidden_ret;
    StoreSink *sink;
    void *context;
} StoreGet;

/* Gets a file or a part of it. *found_ret (may be NULL): false where an optional file is not there.
 * FSH_ERR_NOT_FOUND: 404. FSH_ERR_SYSTEM: it is not to be had; the message names the address, what the server
 * said, how often it was tried, and what to do. FSH_ERR_INTERRUPTED; what the sink returned. */
FshStatus store_get(StoreClient *client, const StoreGet *get, bool *found_ret, FshError *error);

/* What a server says of a file. */
typedef struct StoreLook {
    uint64_t bytes; /* UINT64_MAX: it does not say */
    bool parts;     /* it gives parts of the file */
    char etag[STORE_ETAG_BYTES];
} StoreLook;

/* Asks for the first byte of a file, and takes none: it is told as much of it as by HEAD, which some servers
 * refuse and none explains. Fails as store_get. */
FshStatus store_look(StoreClient *client, const char *name, StoreLook *look, FshError *error);

/* Sends a request with a query and a body, and waits for the answer; retried in the same way.
 * query: sorted, encoded, each name with its "="; "": none. *exchange_ret (may be NULL) gets the answer, of
 * status 200 to 299. Fails as store_get. */
FshStatus store_send(StoreClient *client, const char *method, const char *name, const char *query,
                     const void *body, size_t body_bytes, StoreExchange *exchange_ret, FshError *error);

/* Copies the text of an XML element, "UploadId", out of an answer; the first of this name. Returns false if
 * it is not there or does not fit. */
bool store_xml_text(const char *xml, const char *name, char *text, size_t text_bytes);

#endif
