/* store_jwt.h - the JSON Web Token with which a service account's key asks for an access token (RFC 7523;
 * RS256 of RFC 7518).
 *
 * Threads: any. */
#ifndef FSHARD_STORES_STORE_JWT_H
#define FSHARD_STORES_STORE_JWT_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum { STORE_JWT_BYTES = 8192, STORE_JWT_SECONDS = 3600 };

typedef struct StoreJwt {
    const char *issuer, *audience, *scope;
    const char *key_id;  /* "": the header has none */
    const char *key_pem; /* the private key */
    int64_t now_seconds; /* since 1970: from when it is good, for STORE_JWT_SECONDS */
} StoreJwt;

/* Writes the token, which is a secret while it is good. FSH_ERR_CORRUPT: the key is none that signs, or a
 * text is not UTF-8. FSH_ERR_USAGE: it does not fit. FSH_ERR_MEMORY; FSH_ERR_UNSUPPORTED: the plugin is not
 * here. */
FshStatus store_jwt_sign(const StoreJwt *jwt, char token[STORE_JWT_BYTES], FshError *error);

#endif
