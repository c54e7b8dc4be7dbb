#include "stores/store_google.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/file.h"
#include "stores/store_ask.h"

static const char remedy[] = "GOOGLE_OAUTH_ACCESS_TOKEN, where it is set, is taken instead: "
                             "export GOOGLE_OAUTH_ACCESS_TOKEN=$(gcloud auth print-access-token)";

/* ---- the file ---- */

static FshStatus refuse_type(const char *type, const char *path, FshError *error)
{
    if (type && strcmp(type, "service_account") == 0)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "%s: is the key file of a service account, which is not read; run gcloud auth "
                             "activate-service-account --key-file=FILE, then export "
                             "GOOGLE_OAUTH_ACCESS_TOKEN=$(gcloud auth print-access-token)",
                             path);
    if (type)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "%s: credentials of the type '%.40s' are not read; %s", path, type, remedy);
    return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: are no credentials of Google's: no type; %s", path,
                         remedy);
}

FshStatus google_user_parse(GoogleUser *user, const char *text, size_t length, const char *path,
                            FshError *error)
{
    json_t *object = json_loadb(text, length, 0, NULL);
    const char *type = json_string_value(json_object_get(object, "type"));
    FshStatus status = FSH_OK;
    if (!type || strcmp(type, "authorized_user") != 0)
        status = refuse_type(type, path, error);
    else if (!store_take(user->client, sizeof user->client,
                         json_string_value(json_object_get(object, "client_id"))) ||
             !store_take(user->client_secret, sizeof user->client_secret,
                         json_string_value(json_object_get(object, "client_secret"))) ||
             !store_take(user->refresh_token, sizeof user->refresh_token,
                         json_string_value(json_object_get(object, "refresh_token"))))
        status = fsh_error_set(error, FSH_ERR_CORRUPT,
                               "%s: has not all of client_id, client_secret and refresh_token; gcloud auth "
                               "application-default login writes it anew",
                               path);
    json_decref(object);
    return status;
}

/* Finds the file; path "": there is none. */
static FshStatus find_file(char path[PATH_MAX], FshError *error)
{
    static const char name[] = "application_default_credentials.json";
    const char *given = store_variable("GOOGLE_APPLICATION_CREDENTIALS");
    const char *folder = store_variable("CLOUDSDK_CONFIG"), *home = store_variable("HOME");
    char usual[PATH_MAX] = "";
    *path = '\0';
    if (given && !file_exists(given))
        return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                             "GOOGLE_APPLICATION_CREDENTIALS: %s is not there; name a file that is, or unset "
                             "the variable",
                             given);
    if (given)
        (void)snprintf(path, PATH_MAX, "%s", given);
    if (!given && !folder && home && !file_join(usual, sizeof usual, home, ".config/gcloud", NULL))
        folder = usual;
    if (!given && folder && (file_join(path, PATH_MAX, folder, name, NULL) || !file_exists(path)))
        *path = '\0';
    return FSH_OK;
}

/* ---- the token ---- */

/* Fails with what came instead of a token: OAuth's code, "invalid_grant". */
static FshStatus refuse(const StoreExchange *exchange, const char *path, FshError *error)
{
    json_t *object = exchange->finished ? json_loads(exchange->text, 0, NULL) : NULL;
    const char *code = json_string_value(json_object_get(object, "error"));
    FshStatus status = FSH_OK;
    if (code && strspn(code, "abcdefghijklmnopqrstuvwxyz_") == strlen(code) && strlen(code) < 40)
        status = fsh_error_set(error, FSH_ERR_SYSTEM,
                               "%s: no access token comes: the server says %ld (%s); gcloud auth "
                               "application-default login writes the file anew",
                               path, exchange->status, code);
    else
        status = store_refuse(exchange, path, remedy, error);
    json_decref(object);
    return status;
}

static FshStatus ask_token(StoreLent *lent, const GoogleUser *user, const char *path, FshError *error)
{
    enum { BODY_BYTES = 4 * STORE_SECRET_BYTES };
    const char *host = store_variable("CLOUDSDK_AUTH_TOKEN_HOST");
    StoreExchange exchange = {0};
    if (host && !store_is_trusted(host))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "CLOUDSDK_AUTH_TOKEN_HOST: is neither https:// nor of this host");
    char *body = calloc(1, BODY_BYTES);
    if (!body)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    FshStatus status = FSH_OK;
    if (!store_append_field(body, BODY_BYTES, "grant_type", "refresh_token") ||
        !store_append_field(body, BODY_BYTES, "client_id", user->client) ||
        !store_append_field(body, BODY_BYTES, "client_secret", user->client_secret) ||
        !store_append_field(body, BODY_BYTES, "refresh_token", user->refresh_token))
        status = fsh_error_set(error, FSH_ERR_USAGE, "%s: its refresh token is too long", path);
    const StoreQuestion question = {.method = "POST",
                                    .url = host ? host : "https://oauth2.googleapis.com/token",
                                    .headers = {"Content-Type: application/x-www-form-urlencoded"},
                                    .body = body,
                                    .by_proxy = true};
    if (!status)
        status = store_ask(&question, &exchange, error);
    if (!status && !(store_is_answered(&exchange) && store_take_google_token(lent, exchange.text)))
        status = refuse(&exchange, path, error);
    explicit_bzero(body, BODY_BYTES);
    free(body);
    explicit_bzero(exchange.text, sizeof exchange.text);
    return status;
}

FshStatus store_lent_by_google_user(StoreLent *lent, FshError *error)
{
    enum { FILE_BYTES_MAX = 1 << 16 };
    char path[PATH_MAX];
    GoogleUser user = {0};
    Buffer text = {0};
    *lent = (StoreLent){0};
    FshStatus status = find_file(path, error);
    if (status || !*path)
        return status;
    (void)snprintf(lent->from, sizeof lent->from, "%.240s", path);
    status = file_read_most(path, FILE_BYTES_MAX, &text, error);
    if (!status)
        status = google_user_parse(&user, (const char *)text.bytes, text.length, path, error);
    if (!status)
        status = ask_token(lent, &user, path, error);
    if (text.bytes)
        explicit_bzero(text.bytes, text.length);
    buffer_free(&text);
    explicit_bzero(&user, sizeof user);
    return status;
}
