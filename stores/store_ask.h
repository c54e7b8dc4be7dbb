/* store_ask.h - asks who lends credentials, and reads what comes. Answers may be secret: whoever asked
 * overwrites them.
 *
 * Threads: any that do not change the environment. */
#ifndef FSHARD_STORES_STORE_ASK_H
#define FSHARD_STORES_STORE_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "stores/store_lent.h"
#include "stores/store_request.h"

/* A question to who lends. */
typedef struct StoreQuestion {
    const char *method, *url;
    const char *headers[3]; /* lines; NULL at the end */
    const char *body;       /* NULL: none */
    bool by_proxy;          /* of the environment, if there is one: who is asked is no neighbour */
    const StoreSite *site;  /* whose keys sign it; NULL: it is not signed */
    bool near;              /* who is asked answers at once or never, as Amazon's tools have it */
} StoreQuestion;

/* What to do instead of asking for Amazon's keys, for messages. */
extern const char store_aws_remedy[];

/* Returns the value of a variable of the environment; NULL where there is none, or nothing is in it. */
const char *store_variable(const char *name);

/* Asks, up to three times where nobody answers, and up to four where the answer is 429 or 500 to 599, with
 * waits of at most 0.25, 1 and 4 s, or of what Retry-After says, at most 8 s; who is near is asked twice at
 * most. The answer is in *exchange, and its text may be secret. Fails only where the plugin is not here, and
 * with FSH_ERR_INTERRUPTED. */
FshStatus store_ask(const StoreQuestion *question, StoreExchange *exchange, FshError *error);

/* Returns whether an answer came that may be credentials. */
bool store_is_answered(const StoreExchange *exchange);

/* Fails with what came instead of credentials, but for its text, which may be secret; of that, an error's
 * code and message alone. remedy: what to do. FSH_ERR_SYSTEM. */
FshStatus store_refuse(const StoreExchange *exchange, const char *from, const char *remedy, FshError *error);

/* Returns whether secrets may go there and come from there: encrypted, or on this machine, or to those that
 * ECS and EKS have beside a container. */
bool store_is_trusted(const char *url);

/* Copies a text if it fits, and is one line that is not empty. Returns whether it did. */
bool store_take(char *place, size_t place_bytes, const char *text);

/* Takes Amazon's keys from JSON; token_name: what the session token is called there. Returns whether they
 * are there. */
bool store_take_json_keys(StoreLent *lent, const char *text, const char *token_name);

/* Takes Amazon's keys from the XML of STS. Returns whether they are there. */
bool store_take_xml_keys(StoreLent *lent, const char *text);

/* Takes Google's access token from JSON. Returns whether it is there. */
bool store_take_google_token(StoreLent *lent, const char *text);

/* Returns the seconds since 1970 of "2026-11-24T03:00:00Z", or with "UTC" (as older tools of Amazon write it)
 * or "+01:00" at its end; 0: it is something
 * else. */
int64_t store_read_time(const char *text);

/* Reads a file of one line into text. What reading a file may fail with. */
FshStatus store_read_line(const char *path, char *text, size_t text_bytes, FshError *error);

/* Appends "&name=value", encoded, to the body of a request; the first without its "&". Returns false if it
 * does not fit. */
bool store_append_field(char *body, size_t body_bytes, const char *name, const char *value);

/* Writes where STS is asked: AWS_ENDPOINT_URL_STS, AWS_ENDPOINT_URL, or Amazon's of the region. */
void store_sts_url(char url[STORE_URL_BYTES], const char *region);

#endif
