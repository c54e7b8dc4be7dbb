#include "stores/store_jwt.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "stores/store_request.h"

/* Appends bytes as base64url without padding (RFC 7515). Returns false if they do not fit. */
static bool append_base64(char token[STORE_JWT_BYTES], const unsigned char *bytes, size_t length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    size_t at = strlen(token);
    if (length >= STORE_JWT_BYTES || at + (length + 2) / 3 * 4 + 1 > STORE_JWT_BYTES)
        return false;
    for (size_t i = 0; i < length; i += 3) {
        const size_t left = length - i < 3 ? length - i : 3;
        const unsigned bits = (unsigned)bytes[i] << 16 | (left > 1 ? (unsigned)bytes[i + 1] << 8 : 0) |
                              (left > 2 ? (unsigned)bytes[i + 2] : 0);
        for (size_t k = 0; k <= left; k++)
            token[at++] = digits[bits >> (18 - 6 * k) & 63];
    }
    token[at] = '\0';
    return true;
}

static FshStatus does_not_fit(FshError *error)
{
    return fsh_error_set(error, FSH_ERR_USAGE, "its names are too long");
}

static FshStatus append_dot(char token[STORE_JWT_BYTES], FshError *error)
{
    const size_t length = strlen(token);
    if (length + 2 > STORE_JWT_BYTES)
        return does_not_fit(error);
    memcpy(token + length, ".", 2);
    return FSH_OK;
}

/* Appends JSON, and gives it up. object: NULL where it could not be made. */
static FshStatus append_json(char token[STORE_JWT_BYTES], json_t *object, FshError *error)
{
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    FshStatus status = FSH_OK;
    if (!text)
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "its names are not UTF-8, or memory is out");
    else if (!append_base64(token, (const unsigned char *)text, strlen(text)))
        status = does_not_fit(error);
    free(text);
    json_decref(object);
    return status;
}

FshStatus store_jwt_sign(const StoreJwt *jwt, char token[STORE_JWT_BYTES], FshError *error)
{
    const StorePlugin *plugin = NULL;
    unsigned char signature[STORE_SIGNATURE_BYTES];
    size_t length = 0;
    *token = '\0';
    FshStatus status = store_plugin_load(&plugin, error);
    if (!status)
        status = append_json(token,
                             json_pack("{s:s, s:s, s:s*}", "alg", "RS256", "typ", "JWT", "kid",
                                       *jwt->key_id ? jwt->key_id : NULL),
                             error);
    if (!status)
        status = append_dot(token, error);
    if (!status)
        status = append_json(token,
                             json_pack("{s:s, s:s, s:s, s:I, s:I}", "iss", jwt->issuer, "scope", jwt->scope,
                                       "aud", jwt->audience, "iat", (json_int_t)jwt->now_seconds, "exp",
                                       (json_int_t)jwt->now_seconds + STORE_JWT_SECONDS),
                             error);
    if (!status) /* what is signed so far */
        status = plugin->sign_rs256(jwt->key_pem, token, signature, &length, error);
    if (!status)
        status = append_dot(token, error);
    return status || append_base64(token, signature, length) ? status : does_not_fit(error);
}
