#include "stores/store_crypto.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Libcrypto would ask the terminal for the password of a key that has one. */
static int no_password(char *password, int password_bytes, int writing, void *context)
{
    (void)password, (void)password_bytes, (void)writing, (void)context;
    return -1;
}

static FshStatus read_key(EVP_PKEY **key_ret, const char *pem, FshError *error)
{
    enum { LEAST_BITS = 2048, MOST_BITS = 8 * STORE_SIGNATURE_BYTES };
    const size_t length = strlen(pem);
    BIO *text = length < 65536 ? BIO_new_mem_buf(pem, (int)length) : NULL;
    *key_ret = text ? PEM_read_bio_PrivateKey(text, NULL, no_password, NULL) : NULL;
    BIO_free(text);
    if (!*key_ret)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "its private key cannot be read: it is damaged");
    const int bits = EVP_PKEY_bits(*key_ret);
    if (EVP_PKEY_base_id(*key_ret) != EVP_PKEY_RSA || bits < LEAST_BITS || bits > MOST_BITS)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "its private key is none of RSA with %d to %d bits",
                             LEAST_BITS, MOST_BITS);
    return FSH_OK;
}

FshStatus store_sign_rs256(const char *key_pem, const char *text,
                           unsigned char signature[STORE_SIGNATURE_BYTES], size_t *length_ret,
                           FshError *error)
{
    EVP_PKEY *key = NULL;
    EVP_MD_CTX *context = NULL;
    size_t length = STORE_SIGNATURE_BYTES;
    FshStatus status = read_key(&key, key_pem, error);
    if (!status) {
        context = EVP_MD_CTX_new();
        const bool done =
            context && EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, key) == 1 &&
            EVP_DigestSign(context, signature, &length, (const unsigned char *)text, strlen(text)) == 1;
        if (!done)
            status = fsh_error_set(error, FSH_ERR_CORRUPT, "its private key does not sign: it is damaged");
    }
    *length_ret = status ? 0 : length;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return status;
}

FshStatus store_sha1(const char *text, char hex[STORE_SHA1_HEX_BYTES], FshError *error)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    const bool done = EVP_Digest(text, strlen(text), digest, &length, EVP_sha1(), NULL) == 1;
    ERR_clear_error();
    if (!done)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "this machine's OpenSSL does not allow SHA-1");
    for (unsigned int i = 0; i < length && 2 * i + 2 < STORE_SHA1_HEX_BYTES; i++)
        (void)snprintf(hex + 2 * (size_t)i, 3, "%02x", digest[i]);
    return FSH_OK;
}
