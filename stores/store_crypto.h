/* store_crypto.h - the little cryptography of credentials, by OpenSSL's libcrypto, which libcurl brings: part
 * of the plugin (store_plugin.h).
 *
 * Threads: any. */
#ifndef FSHARD_STORES_STORE_CRYPTO_H
#define FSHARD_STORES_STORE_CRYPTO_H

#include <stddef.h>

#include "common/error.h"

enum { STORE_SIGNATURE_BYTES = 1024, STORE_SHA1_HEX_BYTES = 41 };

/* Signs a text with a private RSA key in PEM (PKCS#8 or PKCS#1, without a password): RSASSA-PKCS1-v1_5 with
 * SHA-256, the RS256 of RFC 7518. *length_ret: of the signature. FSH_ERR_CORRUPT: the key cannot be read, or
 * is none of RSA with 2,048 to 8,192 bits; the message has nothing of it. */
FshStatus store_sign_rs256(const char *key_pem, const char *text,
                           unsigned char signature[STORE_SIGNATURE_BYTES], size_t *length_ret,
                           FshError *error);

/* Writes the SHA-1 of a text in hexadecimal: the name of a file, not a proof. FSH_ERR_UNSUPPORTED: this
 * libcrypto does not have it. */
FshStatus store_sha1(const char *text, char hex[STORE_SHA1_HEX_BYTES], FshError *error);

#endif
