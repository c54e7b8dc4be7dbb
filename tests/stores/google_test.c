/* Google's application default credentials: of users, keys of service accounts (the server proves their
 * signatures), workload identity federation, other accounts; in no message. */
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stores/stores_support.h"

static const char *const secrets[] = {"testtoken",   "refresh+x", "lent-by", "hunter2",
                                      "PRIVATE KEY", "eyJ",       NULL};

#define EMAIL "packer@lab.iam.gserviceaccount.com"

/* Makes an RSA key. pem: gets it for JSON, its lines ended by "\n". modulus: in hexadecimal, or NULL. */
static void make_key(char *pem, size_t pem_bytes, char **modulus)
{
    EVP_PKEY *key = EVP_RSA_gen(2048);
    BIO *text = BIO_new(BIO_s_mem());
    BIGNUM *number = NULL;
    char *bytes = NULL;
    assert_non_null(key);
    assert_int_equal(PEM_write_bio_PKCS8PrivateKey(text, key, NULL, NULL, 0, NULL, NULL), 1);
    const long length = BIO_get_mem_data(text, &bytes);
    size_t at = 0;
    for (long i = 0; i < length && at + 3 < pem_bytes; i++) {
        const bool ends = bytes[i] == '\n';
        memcpy(pem + at, ends ? "\\n" : &bytes[i], ends ? 2 : 1);
        at += ends ? 2 : 1;
    }
    pem[at] = '\0';
    if (modulus) {
        assert_int_equal(EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_N, &number), 1);
        *modulus = BN_bn2hex(number);
    }
    BN_free(number);
    BIO_free(text);
    EVP_PKEY_free(key);
}

/* Writes a file of credentials and returns "GOOGLE_APPLICATION_CREDENTIALS=…". */
static const char *write_credentials(Serving *serving, const char *text)
{
    const char *path = test_path(&serving->folder, "given.json");
    test_file_write_text(path, text);
    return test_path(&serving->folder, "GOOGLE_APPLICATION_CREDENTIALS=%s", path) +
           strlen(serving->folder.path) + 1;
}

static const char *write_account(Serving *serving, const char *email, const char *pem)
{
    char text[8192];
    (void)snprintf(text, sizeof text,
                   "{\"type\": \"service_account\", \"client_email\": \"%s\", \"private_key_id\": \"key-1\", "
                   "\"private_key\": \"%s\", \"token_uri\": \"%s\"}",
                   email, pem, serving_address(serving, "lend/google/token"));
    return write_credentials(serving, text);
}

/* Starts with a set in a bucket, and the public half of a key on the server; *pem: the private half. */
static void serve_account(Serving *serving, char *pem, size_t pem_bytes)
{
    char *modulus = NULL;
    make_key(pem, pem_bytes, &modulus);
    test_file_write_text(test_path(&serving->folder, "www/google-key"), modulus);
    OPENSSL_free(modulus);
}

TEST_WITH(test_google_lends_for_a_refresh_token, serving_setup, serving_teardown, Serving *serving)
{
    static const char user[] = "{\"type\": \"authorized_user\", \"client_id\": \"client.id\", "
                               "\"client_secret\": \"client/secret+x\", \"refresh_token\": \"%s\"}";
    char text[512];
    const char *usual =
        test_path(&serving->folder, "cache/.config/gcloud/application_default_credentials.json");
    const char *server = serving_variable(serving, "CLOUDSDK_AUTH_TOKEN_HOST", "lend/google/token");
    const char *const found[] = {server, NULL};
    serving_pack(serving, "bucket/set", 20, 16, NULL);
    (void)snprintf(text, sizeof text, user, "1//refresh+x");
    test_file_write_text(usual, text);
    serving_check(serving, "gs://bucket/set", found, 0, "fetched ", secrets);
    assert_int_equal(serving_count(serving, "POST /lend/google/token"), 1);
    (void)snprintf(text, sizeof text, user, "hunter2hunter2");
    const char *const named[] = {server, write_credentials(serving, text), NULL};
    serving_check(serving, "gs://bucket/set", named, 1,
                  "given.json: no access token comes: the server says 400 (invalid_grant)", secrets);
    const char *const unsafe[] = {"CLOUDSDK_AUTH_TOKEN_HOST=http://elsewhere/token", NULL};
    serving_check(serving, "gs://bucket/set", unsafe, 2, "is neither https:// nor of this host", secrets);
    assert_int_equal(remove(test_path(&serving->folder, "given.json")), 0);
    serving_check(serving, "gs://bucket/set", named, 1, "given.json is not there", secrets);
}

/* What is wrong with the file is told with what to do. */
TEST_WITH(test_google_credentials_that_cannot_be_used_are_told, serving_setup, serving_teardown,
          Serving *serving)
{
    static const struct {
        const char *text, *told;
        int exit_status;
    } cases[] = {
        {"{\"type\": \"authorized_user\", \"refresh_token\": \"hunter2hunter2\"}",
         "its client_id is not there", 1},
        {"{\"type\": \"service_account\", \"client_email\": \"a\"}", "its private_key is not there", 1},
        {"{\"type\": \"service_account\", \"client_email\": \"a\", \"private_key\": \"hunter2hunter2\"}",
         "its private key cannot be read: it is damaged", 1},
        {"{\"type\": \"service_account\", \"client_email\": \"a\", \"private_key\": \"hunter2hunter2\", "
         "\"token_uri\": \"http://elsewhere/\"}",
         "names a server that is neither https:// nor of this host", 2},
        {"{\"type\": \"external_account\", \"credential_source\": {\"environment_id\": \"aws1\", "
         "\"url\": \"http://169.254.169.254/latest/meta-data/iam/security-credentials\"}}",
         "tokens in files and at addresses are read, and this one's credential_source is neither", 1},
        {"{\"type\": \"external_account\", \"credential_source\": {\"file\": \"/a\", \"executable\": {}}}",
         "this one's credential_source is neither", 1},
        {"{\"type\": \"external_account\", \"workforce_pool_user_project\": \"lab\", "
         "\"credential_source\": {\"file\": \"/a\"}}",
         "its workforce_pool_user_project is not read", 1},
        {"{\"type\": \"external_account_authorized_user\"}",
         "of the type 'external_account_authorized_user' are not read", 1},
        {"{\"type\": \"impersonated_service_account\", \"service_account_impersonation_url\": \"https://a\", "
         "\"source_credentials\": {\"type\": \"impersonated_service_account\"}}",
         "are not read as source_credentials", 1},
        {"[]", "are no credentials of Google's", 1},
        {"hunter2hunter2", "are no credentials of Google's", 1},
    };
    serving_pack(serving, "bucket/set", 20, 16, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const environment[] = {write_credentials(serving, cases[i].text), NULL};
        serving_check(serving, "gs://bucket/set", environment, cases[i].exit_status, cases[i].told, secrets);
    }
}

TEST_WITH(test_a_service_account_signs_for_its_token, serving_setup, serving_teardown, Serving *serving)
{
    char pem[4096], other[4096];
    serve_account(serving, pem, sizeof pem);
    make_key(other, sizeof other, NULL);
    serving_pack(serving, "bucket/set", 20, 16, NULL);
    const char *const right[] = {write_account(serving, EMAIL, pem), NULL};
    serving_check(serving, "gs://bucket/set", right, 0, "fetched ", secrets);
    assert_int_equal(serving_count(serving, "POST /lend/google/token"), 1);
    test_file_write_text(test_path(&serving->folder, "www/clock"), "7200");
    serving_check(serving, "gs://bucket/set", right, 1, "this machine's clock is 7200 s behind the server's",
                  secrets);
    test_file_write_text(test_path(&serving->folder, "www/clock"), "0");
    (void)write_account(serving, "nobody@lab.iam.gserviceaccount.com", pem);
    serving_check(serving, "gs://bucket/set", right, 1, "there is no such account (any more)", secrets);
    (void)write_account(serving, EMAIL, other);
    serving_check(serving, "gs://bucket/set", right, 1, "the account does not have this key (any more)",
                  secrets);
}

/* The server takes tokens of the scope for writing alone from who writes. A packing takes longer than a token
 * is good for. */
TEST_WITH(test_a_service_account_writes, serving_setup, serving_teardown, Serving *serving)
{
    char pem[4096];
    serve_account(serving, pem, sizeof pem);
    const char *const environment[] = {write_account(serving, EMAIL, pem), NULL};
    serving_pack_twice(serving, environment, "gs", "60", "POST /lend/google/token", secrets);
}

/* A fetch takes longer than its token is good for. */
TEST_WITH(test_a_fetch_renews_its_token, serving_setup, serving_teardown, Serving *serving)
{
    char pem[4096];
    const char *const more[] = {"--no-check", "--shard-size", "100K", NULL};
    serve_account(serving, pem, sizeof pem);
    serving_pack(serving, "bucket/set", 48, 160, more);
    test_file_write_text(test_path(&serving->folder, "www/slow-gets"), "");
    test_file_write_text(test_path(&serving->folder, "www/short-lives"), "3");
    const char *const environment[] = {write_account(serving, EMAIL, pem), NULL};
    serving_check(serving, "gs://bucket/set", environment, 0, "fetched ", secrets);
    const size_t tokens = serving_count(serving, "POST /lend/google/token");
    assert_in_range(tokens, 2, 8);
}

TEST_WITH(test_a_token_of_others_is_exchanged, serving_setup, serving_teardown, Serving *serving)
{
    static const char format[] =
        "{\"type\": \"external_account\", \"audience\": \"//iam.googleapis.com/pools/lab\", "
        "\"subject_token_type\": \"urn:ietf:params:oauth:token-type:jwt\", "
        "\"token_url\": \"%s\", %s\"credential_source\": {\"file\": \"%s\"%s}}";
    static const char json[] = ", \"format\": {\"type\": \"json\", \"subject_token_field_name\": \"id\"}";
    const char *file = test_path(&serving->folder, "token");
    char text[2048], other[512];
    (void)snprintf(other, sizeof other, "\"service_account_impersonation_url\": \"%s\", ",
                   serving_address(serving, "lend/google/impersonate/packer:generateAccessToken"));
    const struct {
        const char *token, *other, *format, *told;
        int exit_status;
    } cases[] = {
        {"lent-by/this+server\n", "", "", "fetched ", 0},
        {"{\"id\": \"lent-by/this+server\"}", "", json, "", 0},
        {"lent-by/this+server\n", other, "", "", 0},
        {"hunter2hunter2", "", "", "(invalid_request); is the token of its credential_source fresh", 1},
        {"{\"other\": \"hunter2hunter2\"}", "", json, "token: has no token as ", 1},
        {"", "", "", "token: has no token as ", 1}};
    serving_pack(serving, "bucket/set", 20, 16, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_file_write_text(file, cases[i].token);
        (void)snprintf(text, sizeof text, format, serving_address(serving, "lend/google/sts"), cases[i].other,
                       file, cases[i].format);
        const char *const environment[] = {write_credentials(serving, text), NULL};
        serving_check(serving, "gs://bucket/set", environment, cases[i].exit_status, cases[i].told, secrets);
    }
    assert_int_equal(serving_count(serving, "/lend/google/impersonate/"), 1);
}

/* What runs on GitHub or Azure asks an address for its token, by lines that the file has. */
TEST_WITH(test_a_token_of_others_is_asked_for, serving_setup, serving_teardown, Serving *serving)
{
    static const char format[] =
        "{\"type\": \"external_account\", \"audience\": \"//iam.googleapis.com/pools/lab\", "
        "\"subject_token_type\": "
        "\"urn:ietf:params:oauth:token-type:jwt\", \"token_url\": \"%s\", \"credential_source\": {\"url\": "
        "\"%s\", "
        "\"headers\": {%s}, \"format\": {\"type\": \"json\", \"subject_token_field_name\": \"value\"}}}";
    const char *address = serving_address(serving, "lend/google/identity");
    const struct {
        const char *url, *headers, *told;
        int exit_status;
    } cases[] = {
        {address, "\"Authorization\": \"bearer refresh+x\", \"X-More\": \"a b\"", "fetched ", 0},
        {address, "\"Authorization\": \"bearer hunter2hunter2\"",
         "the server says 403; this is of the url of its credential_source", 1},
        {address, "\"A\": \"b\\nC: d\"", "the headers of its credential_source are none, or more than 2", 1},
        {address, "\"A: b\": \"c\"", "the headers of its credential_source are none", 1},
        {address, "\"A\": \"1\", \"B\": \"2\", \"C\": \"3\"", "or more than 2", 1},
        {"http://elsewhere/", "", "names a server that is neither https:// nor of this host", 2}};
    char text[2048];
    serving_pack(serving, "bucket/set", 20, 16, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        (void)snprintf(text, sizeof text, format, serving_address(serving, "lend/google/sts"), cases[i].url,
                       cases[i].headers);
        const char *const environment[] = {write_credentials(serving, text), NULL};
        serving_check(serving, "gs://bucket/set", environment, cases[i].exit_status, cases[i].told, secrets);
    }
}

/* gcloud auth application-default login --impersonate-service-account */
TEST_WITH(test_a_user_stands_for_an_account, serving_setup, serving_teardown, Serving *serving)
{
    char text[1024];
    const char *server = serving_variable(serving, "CLOUDSDK_AUTH_TOKEN_HOST", "lend/google/token");
    static const char *const paths[] = {"lend/google/impersonate/packer:generateAccessToken",
                                        "lend/google/impersonate/other:generateAccessToken"};
    serving_pack(serving, "bucket/set", 20, 16, NULL);
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(
            text, sizeof text,
            "{\"type\": \"impersonated_service_account\", \"service_account_impersonation_url\": \"%s\", "
            "\"source_credentials\": {\"type\": \"authorized_user\", \"client_id\": \"client.id\", "
            "\"client_secret\": \"client/secret+x\", \"refresh_token\": \"1//refresh+x\"}}",
            serving_address(serving, paths[i]));
        const char *const environment[] = {server, write_credentials(serving, text), NULL};
        serving_check(serving, "gs://bucket/set", environment, i ? 1 : 0,
                      i ? "roles/iam.serviceAccountTokenCreator" : "fetched ", secrets);
    }
}
