#include "stores/store_google.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/file.h"
#include "stores/store_ask.h"
#include "stores/store_google_file.h"
#include "stores/store_jwt.h"

enum { BODY_BYTES = 4 * STORE_SECRET_BYTES, FILE_BYTES_MAX = 1 << 16 };

/* Credentials, and what is asked with them. */
typedef struct Asking {
    GoogleFile file;
    char path[PATH_MAX]; /* of the file, for messages */
    const char *scope;   /* of the token that is asked for first */
    char body[BODY_BYTES];
    StoreExchange exchange;
} Asking;

static const char form[] = "Content-Type: application/x-www-form-urlencoded";

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

/* ---- what comes instead of a token ---- */

/* Writes how far this machine's clock is from the server's, where that is why; "": it is not. */
static void tell_clock(char *text, size_t text_bytes, const StoreExchange *exchange)
{
    enum { ALLOWED_SECONDS = 120 };
    const int64_t ahead = exchange->date_seconds ? (int64_t)time(NULL) - exchange->date_seconds : 0;
    *text = '\0';
    if (ahead > ALLOWED_SECONDS || ahead < -ALLOWED_SECONDS)
        (void)snprintf(text, text_bytes,
                       "this machine's clock is %" PRId64
                       " s %s the server's, and the token that it signs is "
                       "good by the clock alone: set it",
                       ahead < 0 ? -ahead : ahead, ahead < 0 ? "behind" : "ahead of");
}

/* Returns what to do about a refusal. text: room for it. */
static const char *remedy(const Asking *asking, const char *description, char *text, size_t text_bytes)
{
    static const char *const usual[] = {
        [GOOGLE_USER] = "gcloud auth application-default login writes the file anew",
        [GOOGLE_ACCOUNT] = "gcloud iam service-accounts keys list shows the keys that are good, and keys "
                           "create makes a new one",
        [GOOGLE_EXTERNAL] = "is the token of its credential_source fresh, and does the pool take it?"};
    tell_clock(text, text_bytes, &asking->exchange);
    if (*text && asking->file.kind == GOOGLE_ACCOUNT)
        return text;
    if (asking->file.kind == GOOGLE_ACCOUNT && description && strstr(description, "ignature"))
        return "the account does not have this key (any more); gcloud iam service-accounts keys create makes "
               "a new one";
    if (asking->file.kind == GOOGLE_ACCOUNT && description && strstr(description, "account not found"))
        return "there is no such account (any more): is client_email right?";
    return usual[asking->file.kind];
}

/* Returns whether a text is an error's code, "invalid_grant", and no secret. */
static bool is_code(const char *text)
{
    return text && strlen(text) < 40 &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz_ABCDEFGHIJKLMNOPQRSTUVWXYZ") == strlen(text);
}

/* Fails with OAuth's code, or that of Google's other servers; with nothing else of the answer. */
static FshStatus refuse(const Asking *asking, FshError *error)
{
    const StoreExchange *exchange = &asking->exchange;
    json_t *object = exchange->finished ? json_loads(exchange->text, 0, NULL) : NULL;
    const json_t *told = json_object_get(object, "error");
    const char *code = json_string_value(json_is_object(told) ? json_object_get(told, "status") : told);
    const char *description = json_string_value(json_object_get(object, "error_description"));
    char text[200];
    FshStatus status = FSH_OK;
    if (is_code(code))
        status = fsh_error_set(error, FSH_ERR_SYSTEM,
                               "%s: no access token comes: the server says %ld (%s); %s", asking->path,
                               exchange->status, code, remedy(asking, description, text, sizeof text));
    else
        status = store_refuse(exchange, asking->path, remedy(asking, description, text, sizeof text), error);
    json_decref(object);
    return status;
}

/* ---- what is asked ---- */

static FshStatus does_not_fit(const Asking *asking, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_USAGE, "%s: its values are too long", asking->path);
}

static FshStatus write_user(Asking *asking, const char *url, FshError *error)
{
    const GoogleFile *file = &asking->file;
    (void)url;
    return store_append_field(asking->body, BODY_BYTES, "grant_type", "refresh_token") &&
                   store_append_field(asking->body, BODY_BYTES, "client_id", file->client) &&
                   store_append_field(asking->body, BODY_BYTES, "client_secret", file->client_secret) &&
                   store_append_field(asking->body, BODY_BYTES, "refresh_token", file->refresh_token)
               ? FSH_OK
               : does_not_fit(asking, error);
}

static FshStatus write_account(Asking *asking, const char *url, FshError *error)
{
    const GoogleFile *file = &asking->file;
    const StoreJwt jwt = {.issuer = file->email,
                          .audience = url,
                          .scope = asking->scope,
                          .key_id = file->key_id,
                          .key_pem = file->key,
                          .now_seconds = (int64_t)time(NULL)};
    char token[STORE_JWT_BYTES];
    FshStatus status = store_jwt_sign(&jwt, token, error);
    if (status)
        (void)fsh_error_prepend(error, "%s", asking->path);
    else if (!store_append_field(asking->body, BODY_BYTES, "grant_type",
                                 "urn:ietf:params:oauth:grant-type:jwt-bearer") ||
             !store_append_field(asking->body, BODY_BYTES, "assertion", token))
        status = does_not_fit(asking, error);
    explicit_bzero(token, sizeof token);
    return status;
}

/* Reads somebody else's token out of its file. */
static FshStatus read_subject(const Asking *asking, char token[STORE_SECRET_BYTES], FshError *error)
{
    const GoogleFile *file = &asking->file;
    Buffer text = {0};
    FshStatus status = file_read_most(file->subject_file, FILE_BYTES_MAX, &text, error);
    if (!status && !google_subject_parse(file, (const char *)text.bytes, text.length, token))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "%s: has no token as %s says", file->subject_file,
                               asking->path);
    if (text.bytes)
        explicit_bzero(text.bytes, text.length);
    buffer_free(&text);
    return status;
}

/* Asks the address of the file for somebody else's token: GitHub's for a job, Azure's for a machine. */
static FshStatus ask_subject(Asking *asking, char token[STORE_SECRET_BYTES], FshError *error)
{
    const GoogleFile *file = &asking->file;
    StoreQuestion question = {
        .method = "GET", .url = file->subject_url, .by_proxy = strncmp(file->subject_url, "https:", 6) == 0};
    for (size_t i = 0; i < GOOGLE_HEADERS_MAX && *file->subject_headers[i]; i++)
        question.headers[i] = file->subject_headers[i];
    FshStatus status = store_ask(&question, &asking->exchange, error);
    if (!status && !(store_is_answered(&asking->exchange) &&
                     google_subject_parse(file, asking->exchange.text, strlen(asking->exchange.text), token)))
        status =
            store_refuse(&asking->exchange, asking->path,
                         "this is of the url of its credential_source, whose headers may have ended", error);
    explicit_bzero(asking->exchange.text, sizeof asking->exchange.text);
    return status;
}

static FshStatus write_external(Asking *asking, const char *url, FshError *error)
{
    const GoogleFile *file = &asking->file;
    char token[STORE_SECRET_BYTES] = "";
    (void)url;
    FshStatus status =
        *file->subject_url ? ask_subject(asking, token, error) : read_subject(asking, token, error);
    if (!status && !(store_append_field(asking->body, BODY_BYTES, "grant_type",
                                        "urn:ietf:params:oauth:grant-type:token-exchange") &&
                     store_append_field(asking->body, BODY_BYTES, "requested_token_type",
                                        "urn:ietf:params:oauth:token-type:access_token") &&
                     store_append_field(asking->body, BODY_BYTES, "audience", file->audience) &&
                     store_append_field(asking->body, BODY_BYTES, "scope", asking->scope) &&
                     store_append_field(asking->body, BODY_BYTES, "subject_token_type", file->subject_type) &&
                     store_append_field(asking->body, BODY_BYTES, "subject_token", token)))
        status = does_not_fit(asking, error);
    explicit_bzero(token, sizeof token);
    return status;
}

static FshStatus ask_token(Asking *asking, StoreLent *lent, FshError *error)
{
    static FshStatus (*const writers[])(Asking * asking, const char *url, FshError *error) = {
        [GOOGLE_USER] = write_user, [GOOGLE_ACCOUNT] = write_account, [GOOGLE_EXTERNAL] = write_external};
    const char *host =
        asking->file.kind == GOOGLE_EXTERNAL ? NULL : store_variable("CLOUDSDK_AUTH_TOKEN_HOST");
    const char *url =
        *asking->file.token_url ? asking->file.token_url : "https://oauth2.googleapis.com/token";
    if (host && !store_is_trusted(host))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "CLOUDSDK_AUTH_TOKEN_HOST: is neither https:// nor of this host");
    url = host ? host : url;
    const StoreQuestion question = {
        .method = "POST", .url = url, .headers = {form}, .body = asking->body, .by_proxy = true};
    FshStatus status = writers[asking->file.kind](asking, url, error);
    if (!status)
        status = store_ask(&question, &asking->exchange, error);
    if (!status &&
        !(store_is_answered(&asking->exchange) && store_take_google_token(lent, asking->exchange.text)))
        status = refuse(asking, error);
    return status;
}

/* Takes another account's token: IAM's generateAccessToken. Returns whether it is there. */
static bool take_impersonated(StoreLent *lent, const char *text)
{
    json_t *object = json_loads(text, 0, NULL);
    lent->end_seconds = store_read_time(json_string_value(json_object_get(object, "expireTime")));
    lent->found = store_take(lent->token, sizeof lent->token,
                             json_string_value(json_object_get(object, "accessToken")));
    json_decref(object);
    return lent->found;
}

/* Asks with the token that has come for that of another account, and puts it into its place. */
static FshStatus impersonate(Asking *asking, StoreLent *lent, const char *scope, FshError *error)
{
    static const char iam_remedy[] = "has who asks the role roles/iam.serviceAccountTokenCreator on the "
                                     "account of service_account_impersonation_url?";
    char authorization[STORE_SECRET_BYTES + 64];
    (void)snprintf(authorization, sizeof authorization, "Authorization: Bearer %s", lent->token);
    (void)snprintf(asking->body, BODY_BYTES, "{\"scope\": [\"%s\"], \"lifetime\": \"3600s\"}", scope);
    const StoreQuestion question = {.method = "POST",
                                    .url = asking->file.impersonation_url,
                                    .headers = {"Content-Type: application/json", authorization},
                                    .body = asking->body,
                                    .by_proxy = true};
    lent->found = false;
    FshStatus status = store_ask(&question, &asking->exchange, error);
    if (!status && !(store_is_answered(&asking->exchange) && take_impersonated(lent, asking->exchange.text)))
        status = store_refuse(&asking->exchange, asking->path, iam_remedy, error);
    explicit_bzero(authorization, sizeof authorization);
    return status;
}

FshStatus store_lent_by_google_file(StoreLent *lent, bool writes, FshError *error)
{
    const char *scope = writes ? "https://www.googleapis.com/auth/devstorage.read_write"
                               : "https://www.googleapis.com/auth/devstorage.read_only";
    Buffer text = {0};
    *lent = (StoreLent){0};
    Asking *asking = calloc(1, sizeof *asking);
    if (!asking)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    FshStatus status = find_file(asking->path, error);
    if (status || !*asking->path)
        goto done;
    (void)snprintf(lent->from, sizeof lent->from, "%.240s", asking->path);
    status = file_read_most(asking->path, FILE_BYTES_MAX, &text, error);
    if (!status)
        status = google_file_parse(&asking->file, (const char *)text.bytes, text.length, asking->path, error);
    asking->scope =
        *asking->file.impersonation_url ? "https://www.googleapis.com/auth/cloud-platform" : scope;
    if (!status)
        status = ask_token(asking, lent, error);
    if (!status && *asking->file.impersonation_url)
        status = impersonate(asking, lent, scope, error);
done:
    if (text.bytes)
        explicit_bzero(text.bytes, text.length);
    buffer_free(&text);
    explicit_bzero(asking, sizeof *asking);
    free(asking);
    return status;
}
