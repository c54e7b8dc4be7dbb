/* What credentials need of OpenSSL: keys that sign, keys that must not, and the token that a service account
 * signs. */
#include <jansson.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdlib.h>
#include <string.h>

#include "stores/store_jwt.h"
#include "stores/store_request.h"
#include "tests/support/support.h"

/* Writes a key as PEM, under a password unless that is NULL; free it. old: PKCS#1, as "RSA PRIVATE KEY". */
static char *write_pem(EVP_PKEY *key, const char *password, bool old)
{
    BIO *text = BIO_new(BIO_s_mem());
    char *bytes = NULL;
    const EVP_CIPHER *cipher = password ? EVP_aes_128_cbc() : NULL;
    const int length = password ? (int)strlen(password) : 0;
    assert_int_equal(old ? PEM_write_bio_PrivateKey_traditional(text, key, NULL, NULL, 0, NULL, NULL)
                         : PEM_write_bio_PKCS8PrivateKey(text, key, cipher, password, length, NULL, NULL),
                     1);
    const long got = BIO_get_mem_data(text, &bytes);
    char *pem = calloc(1, (size_t)got + 1);
    memcpy(pem, bytes, (size_t)got);
    BIO_free(text);
    return pem;
}

static bool is_proved(EVP_PKEY *key, const char *text, size_t text_bytes, const unsigned char *signature,
                      size_t length)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    const bool proved =
        EVP_DigestVerifyInit(context, NULL, EVP_sha256(), NULL, key) == 1 &&
        EVP_DigestVerify(context, signature, length, (const unsigned char *)text, text_bytes) == 1;
    EVP_MD_CTX_free(context);
    return proved;
}

static const StorePlugin *plugin(void)
{
    const StorePlugin *loaded = NULL;
    FshError error = {0};
    assert_ok(store_plugin_load(&loaded, &error), &error);
    return loaded;
}

TEST(test_keys_sign_in_both_spellings)
{
    EVP_PKEY *key = EVP_RSA_gen(2048), *other = EVP_RSA_gen(2048);
    for (int old = 0; old < 2; old++) {
        unsigned char signature[STORE_SIGNATURE_BYTES];
        size_t length = 0;
        FshError error = {0};
        char *pem = write_pem(key, NULL, old);
        assert_ok(plugin()->sign_rs256(pem, "some text", signature, &length, &error), &error);
        assert_int_equal(length, 256);
        assert_true(is_proved(key, "some text", 9, signature, length));
        assert_false(is_proved(other, "some text", 9, signature, length));
        assert_false(is_proved(key, "some tex", 8, signature, length));
        free(pem);
    }
    EVP_PKEY_free(key);
    EVP_PKEY_free(other);
}

static void check_refused(const char *pem, const char *told)
{
    unsigned char signature[STORE_SIGNATURE_BYTES];
    size_t length = 1;
    FshError error = {0};
    assert_int_equal(plugin()->sign_rs256(pem, "text", signature, &length, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, told);
    assert_int_equal(length, 0);
}

/* None of them asks the terminal for a password. */
TEST(test_keys_that_cannot_sign_are_refused)
{
    EVP_PKEY *small = EVP_RSA_gen(1024), *curve = EVP_EC_gen("P-256"), *key = EVP_RSA_gen(2048);
    char *pems[] = {write_pem(small, NULL, false), write_pem(curve, NULL, false),
                    write_pem(key, "hunter2", false), write_pem(key, NULL, false)};
    check_refused(pems[0], "none of RSA with 2048 to 8192 bits");
    check_refused(pems[1], "none of RSA with 2048 to 8192 bits");
    check_refused(pems[2], "cannot be read");
    check_refused("", "cannot be read");
    check_refused("-----BEGIN PRIVATE KEY-----\n", "cannot be read");
    const size_t length = strlen(pems[3]);
    for (size_t cut = 0; cut + 30 < length; cut += 61) { /* torn, and with a character that is another */
        char *damaged = strdup(pems[3]);
        unsigned char signature[STORE_SIGNATURE_BYTES];
        size_t signature_bytes = 0;
        damaged[cut] = '\0';
        check_refused(damaged, "cannot be read");
        memcpy(damaged, pems[3], length);
        damaged[cut + 29] = damaged[cut + 29] == 'A' ? 'B' : 'A';
        const FshStatus status = plugin()->sign_rs256(damaged, "text", signature, &signature_bytes, NULL);
        assert_true(status == FSH_OK || status == FSH_ERR_CORRUPT);
        free(damaged);
    }
    for (size_t i = 0; i < sizeof pems / sizeof *pems; i++)
        free(pems[i]);
    EVP_PKEY_free(small);
    EVP_PKEY_free(curve);
    EVP_PKEY_free(key);
}

/* Reads base64url. Returns how many bytes there are. */
static size_t decode(const char *text, size_t length, unsigned char *bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    unsigned value = 0, bits = 0;
    size_t count = 0;
    for (size_t i = 0; i < length; i++) {
        const char *digit = strchr(digits, text[i]);
        assert_non_null(digit);
        value = value << 6 | (unsigned)(digit - digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            bytes[count++] = (unsigned char)(value >> bits);
        }
    }
    return count;
}

TEST(test_a_token_says_who_asks_for_what_and_is_signed)
{
    static const char *const names[] = {"a", "ab", "abc", "a\"b\\é"}; /* every length of a last group */
    EVP_PKEY *key = EVP_RSA_gen(2048);
    char *pem = write_pem(key, NULL, false), token[STORE_JWT_BYTES];
    unsigned char bytes[STORE_JWT_BYTES];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const StoreJwt jwt = {.issuer = names[i],
                              .audience = "https://server/token",
                              .scope = "read",
                              .key_id = i ? "id" : "",
                              .key_pem = pem,
                              .now_seconds = 1764000000};
        FshError error = {0};
        assert_ok(store_jwt_sign(&jwt, token, &error), &error);
        const char *payload = strchr(token, '.') + 1, *signature = strchr(payload, '.') + 1;
        assert_true(is_proved(key, token, (size_t)(signature - 1 - token), bytes,
                              decode(signature, strlen(signature), bytes)));
        size_t length = decode(token, (size_t)(payload - 1 - token), bytes);
        json_t *header = json_loadb((const char *)bytes, length, 0, NULL);
        assert_string_equal(json_string_value(json_object_get(header, "alg")), "RS256");
        assert_int_equal(json_object_get(header, "kid") != NULL, i != 0);
        length = decode(payload, (size_t)(signature - 1 - payload), bytes);
        json_t *claims = json_loadb((const char *)bytes, length, 0, NULL);
        assert_string_equal(json_string_value(json_object_get(claims, "iss")), names[i]);
        assert_string_equal(json_string_value(json_object_get(claims, "aud")), "https://server/token");
        assert_string_equal(json_string_value(json_object_get(claims, "scope")), "read");
        assert_int_equal(json_integer_value(json_object_get(claims, "iat")), 1764000000);
        assert_int_equal(json_integer_value(json_object_get(claims, "exp")), 1764003600);
        json_decref(header);
        json_decref(claims);
    }
    free(pem);
    EVP_PKEY_free(key);
}

TEST(test_names_that_do_not_fit_a_token_are_refused)
{
    EVP_PKEY *key = EVP_RSA_gen(2048);
    char *pem = write_pem(key, NULL, false), token[STORE_JWT_BYTES], name[STORE_JWT_BYTES];
    for (size_t length = STORE_JWT_BYTES * 3 / 4 - 600; length < STORE_JWT_BYTES - 1; length += 7) {
        FshError error = {0};
        memset(name, 'a', length);
        name[length] = '\0';
        const StoreJwt jwt = {.issuer = name, .audience = "u", .scope = "s", .key_id = "", .key_pem = pem};
        const FshStatus status = store_jwt_sign(&jwt, token, &error);
        assert_true(status == FSH_OK || status == FSH_ERR_USAGE);
        assert_true(strlen(token) < sizeof token);
        assert_true(length < STORE_JWT_BYTES * 3 / 4 || status == FSH_ERR_USAGE);
    }
    const StoreJwt jwt = {.issuer = "\xff", .audience = "u", .scope = "s", .key_id = "", .key_pem = pem};
    assert_int_equal(store_jwt_sign(&jwt, token, NULL), FSH_ERR_CORRUPT);
    free(pem);
    EVP_PKEY_free(key);
}

TEST(test_sha1_names_the_files_of_single_sign_on)
{
    char hex[STORE_SHA1_HEX_BYTES];
    FshError error = {0};
    assert_ok(plugin()->sha1("abc", hex, &error), &error);
    assert_string_equal(hex, "a9993e364706816aba3e25717850c26c9cd0d89d");
    assert_ok(plugin()->sha1("", hex, &error), &error);
    assert_string_equal(hex, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
}
