#include "stores/store_sso.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/file.h"
#include "stores/store_ask.h"

enum { FILE_BYTES_MAX = 1 << 16, MARGIN_SECONDS = 300 };

/* A profile's way to its keys. */
typedef struct SignOn {
    char name[256];                  /* of the profile */
    char start_url[513], region[64]; /* of the session */
    char account[32], role[129];
    char path[PATH_MAX];       /* of the token's file */
    char url[STORE_URL_BYTES]; /* of what is asked */
    SsoToken token;
    StoreExchange exchange;
} SignOn;

/* ---- the profile ---- */

/* Returns whether a text can be part of a host's name. */
static bool is_region(const char *text)
{
    return *text && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(text);
}

/* Takes what the profile says, and its session where it names one. */
static FshStatus take_profile(SignOn *on, const AwsProfile *profile, FshError *error)
{
    AwsProfile session = {0};
    const AwsProfile *from = profile;
    FshStatus status = FSH_OK;
    if (*profile->sso_session) {
        status = aws_session_read(&session, profile->sso_session, error);
        from = &session;
        if (!status && !session.found)
            status =
                fsh_error_set(error, FSH_ERR_NOT_FOUND,
                              "profile '%.200s' of ~/.aws: its sso_session is '%s', and ~/.aws/config has "
                              "no [sso-session %s]; aws configure sso writes it",
                              on->name, profile->sso_session, profile->sso_session);
    }
    memcpy(on->start_url, from->sso_start_url, sizeof on->start_url);
    memcpy(on->region, *from->sso_region ? from->sso_region : profile->sso_region, sizeof on->region);
    memcpy(on->account, profile->sso_account, sizeof on->account);
    memcpy(on->role, profile->sso_role, sizeof on->role);
    if (!status && (!is_region(on->region) || !*on->start_url || !*on->account || !*on->role))
        status =
            fsh_error_set(error, FSH_ERR_USAGE,
                          "profile '%.200s' of ~/.aws: single sign-on wants sso_start_url, sso_region, "
                          "sso_account_id and sso_role_name; aws configure sso --profile '%.200s' writes "
                          "them",
                          on->name, on->name);
    explicit_bzero(&session, sizeof session);
    return status;
}

/* Finds the token's file by the text that its name is made of. */
static FshStatus find_file(SignOn *on, const char *session, FshError *error)
{
    const StorePlugin *plugin = NULL;
    const char *home = store_variable("HOME");
    char hex[STORE_SHA1_HEX_BYTES] = "", name[128];
    FshStatus status = store_plugin_load(&plugin, error);
    if (!status)
        status = plugin->sha1(*session ? session : on->start_url, hex, error);
    (void)snprintf(name, sizeof name, ".aws/sso/cache/%s.json", hex);
    return status ? status : file_join(on->path, sizeof on->path, home ? home : "/", name, error);
}

/* ---- the token ---- */

bool sso_token_parse(SsoToken *token, const char *text, size_t length)
{
    json_t *object = json_loadb(text, length, 0, NULL);
    *token =
        (SsoToken){.end_seconds = store_read_time(json_string_value(json_object_get(object, "expiresAt"))),
                   .client_end_seconds =
                       store_read_time(json_string_value(json_object_get(object, "registrationExpiresAt")))};
    const bool found = store_take(token->access, sizeof token->access,
                                  json_string_value(json_object_get(object, "accessToken")));
    if (!store_take(token->client, sizeof token->client,
                    json_string_value(json_object_get(object, "clientId"))) ||
        !store_take(token->client_secret, sizeof token->client_secret,
                    json_string_value(json_object_get(object, "clientSecret"))) ||
        !store_take(token->refresh, sizeof token->refresh,
                    json_string_value(json_object_get(object, "refreshToken"))))
        *token->refresh = '\0';
    json_decref(object);
    return found && token->end_seconds;
}

/* Reads the token's file. *found_ret: whether it is there, and has a token and its end. */
static FshStatus read_token(const SignOn *on, SsoToken *token, bool *found_ret, FshError *error)
{
    Buffer text = {0};
    *found_ret = false;
    if (!file_exists(on->path))
        return FSH_OK;
    const FshStatus status = file_read_most(on->path, FILE_BYTES_MAX, &text, error);
    if (!status)
        *found_ret = sso_token_parse(token, (const char *)text.bytes, text.length);
    if (text.bytes)
        explicit_bzero(text.bytes, text.length);
    buffer_free(&text);
    return status;
}

/* Writes where a service is asked: what the variable names, or Amazon's of the region. */
static FshStatus find_server(SignOn *on, const char *variable, const char *service, const char *path,
                             FshError *error)
{
    const char *endpoint = store_variable(variable);
    if (endpoint && !store_is_trusted(endpoint))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: is neither https:// nor of this host", variable);
    const int length = endpoint ? snprintf(on->url, sizeof on->url, "%s%s", endpoint, path)
                                : snprintf(on->url, sizeof on->url, "https://%s.%s.amazonaws.com%s", service,
                                           on->region, path);
    return length > 0 && (size_t)length < sizeof on->url
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_USAGE, "%s: is too long", variable);
}

/* Writes the new token into the file, whose other values stay; only its user may read it. */
static FshStatus write_token(const SignOn *on, const json_t *fresh, int64_t end_seconds)
{
    json_t *object = json_load_file(on->path, 0, NULL);
    json_t *refresh = json_object_get(fresh, "refreshToken");
    const time_t end = (time_t)end_seconds;
    struct tm time = {0};
    char text[32];
    AtomicFile file = {0};
    (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&end, &time));
    const bool set = object &&
                     json_object_set(object, "accessToken", json_object_get(fresh, "accessToken")) == 0 &&
                     json_object_set_new(object, "expiresAt", json_string(text)) == 0 &&
                     (!json_is_string(refresh) || json_object_set(object, "refreshToken", refresh) == 0);
    char *all = set ? json_dumps(object, JSON_INDENT(2)) : NULL;
    FshStatus status = all ? atomic_file_open(&file, on->path, true, NULL) : FSH_ERR_MEMORY;
    if (!status)
        status = fchmod(file.descriptor, 0600) == 0 ? atomic_file_write(&file, all, strlen(all), NULL)
                                                    : FSH_ERR_SYSTEM;
    if (!status)
        status = atomic_file_commit(&file, true, NULL);
    atomic_file_abandon(&file);
    if (all)
        explicit_bzero(all, strlen(all));
    free(all);
    json_decref(object);
    return status;
}

/* Takes the token of an answer. Returns whether there is one. */
static bool take_fresh(SignOn *on)
{
    json_t *object = json_loads(on->exchange.text, 0, NULL);
    const json_int_t seconds = json_integer_value(json_object_get(object, "expiresIn"));
    const bool found = seconds > 0 && seconds < INT_MAX &&
                       store_take(on->token.access, sizeof on->token.access,
                                  json_string_value(json_object_get(object, "accessToken")));
    if (found) {
        on->token.end_seconds = (int64_t)time(NULL) + (int64_t)seconds;
        (void)write_token(on, object, on->token.end_seconds); /* the one in hand is good all the same */
    }
    json_decref(object);
    return found;
}

/* Takes the token that another process has renewed meanwhile: what both had was good but once, and went to
 * it. It may still be writing. */
static void take_renewed(SignOn *on)
{
    enum { LOOKS = 4 };
    SsoToken token = {0};
    bool found = false;
    for (int i = 0; i < LOOKS && !found; i++) {
        const struct timespec nap = {.tv_nsec = 100000000};
        if (i)
            (void)nanosleep(&nap, NULL);
        found = read_token(on, &token, &found, NULL) == FSH_OK && found &&
                token.end_seconds > on->token.end_seconds;
    }
    if (found)
        on->token = token;
    explicit_bzero(&token, sizeof token);
}

/* Renews a token that ends soon, where that can be done and kept: a refresh token may be good but once. What
 * does not come leaves it as it is. */
static FshStatus renew_token(SignOn *on, FshError *error)
{
    SsoToken *token = &on->token;
    const int64_t now = (int64_t)time(NULL);
    char folder[PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(on->path, '/') - on->path), on->path);
    if (token->end_seconds > now + MARGIN_SECONDS || !*token->refresh ||
        (token->client_end_seconds && token->client_end_seconds <= now) || access(folder, W_OK) != 0)
        return FSH_OK;
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s}", "grantType", "refresh_token", "clientId", token->client,
                  "clientSecret", token->client_secret, "refreshToken", token->refresh);
    char *body = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (!body)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    const StoreQuestion question = {.method = "POST",
                                    .url = on->url,
                                    .headers = {"Content-Type: application/json"},
                                    .body = body,
                                    .by_proxy = true};
    FshStatus status = find_server(on, "AWS_ENDPOINT_URL_SSO_OIDC", "oidc", "/token", error);
    if (!status)
        status = store_ask(&question, &on->exchange, error);
    if (!status && !(store_is_answered(&on->exchange) && take_fresh(on)))
        take_renewed(on);
    explicit_bzero(body, strlen(body));
    free(body);
    return status;
}

/* ---- the keys ---- */

/* Takes a role's keys. Returns whether they are there. */
static bool take_keys(StoreLent *lent, const char *text)
{
    json_t *object = json_loads(text, 0, NULL);
    const json_t *keys = json_object_get(object, "roleCredentials");
    const json_int_t end_ms = json_integer_value(json_object_get(keys, "expiration"));
    lent->found =
        store_take(lent->key, sizeof lent->key, json_string_value(json_object_get(keys, "accessKeyId"))) &&
        store_take(lent->secret, sizeof lent->secret,
                   json_string_value(json_object_get(keys, "secretAccessKey"))) &&
        store_take(lent->token, sizeof lent->token, json_string_value(json_object_get(keys, "sessionToken")));
    lent->end_seconds = end_ms > 0 ? (int64_t)end_ms / 1000 : 0;
    json_decref(object);
    return lent->found;
}

static FshStatus refuse_login(const SignOn *on, const char *why, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                         "profile '%.200s' of ~/.aws: %s; aws sso login --profile "
                         "'%.200s' signs in",
                         on->name, why, on->name);
}

static FshStatus ask_keys(SignOn *on, StoreLent *lent, FshError *error)
{
    static const char remedy[] = "aws sts get-caller-identity says whether Amazon's own tool fares better";
    char bearer[STORE_SSO_BYTES + 64];
    const StoreQuestion question = {.method = "GET", .url = on->url, .headers = {bearer}, .by_proxy = true};
    (void)snprintf(bearer, sizeof bearer, "x-amz-sso_bearer_token: %s", on->token.access);
    FshStatus status =
        find_server(on, "AWS_ENDPOINT_URL_SSO", "portal.sso", "/federation/credentials?account_id=", error);
    if (!status && !(store_url_encode_value(on->url, sizeof on->url, on->account) &&
                     store_append_field(on->url, sizeof on->url, "role_name", on->role)))
        status = fsh_error_set(error, FSH_ERR_USAGE, "%s: its values are too long", lent->from);
    if (!status)
        status = store_ask(&question, &on->exchange, error);
    explicit_bzero(bearer, sizeof bearer);
    if (status || (store_is_answered(&on->exchange) && take_keys(lent, on->exchange.text)))
        return status;
    const long answer = on->exchange.finished ? on->exchange.status : 0;
    if (answer == 401)
        return refuse_login(on, "the sign-on has ended (the server says 401)", error);
    if (answer == 403 || answer == 404)
        return fsh_error_set(
            error, FSH_ERR_SYSTEM,
            "%s: who has signed in does not have the role '%s' in the account %s (the server "
            "says %ld): are sso_role_name and sso_account_id right?",
            lent->from, on->role, on->account, answer);
    return store_refuse(&on->exchange, lent->from, remedy, error);
}

FshStatus store_lent_by_sso(StoreLent *lent, const AwsProfile *profile, const char *profile_name,
                            FshError *error)
{
    bool found = false;
    *lent = (StoreLent){0};
    SignOn *on = calloc(1, sizeof *on);
    if (!on)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    (void)snprintf(on->name, sizeof on->name, "%s", profile_name);
    (void)snprintf(lent->from, sizeof lent->from, "profile '%.200s' of ~/.aws", profile_name);
    FshStatus status = take_profile(on, profile, error);
    if (!status)
        status = find_file(on, profile->sso_session, error);
    if (!status)
        status = read_token(on, &on->token, &found, error);
    if (!status && !found)
        status = refuse_login(on, "nobody has signed in", error);
    if (!status)
        status = renew_token(on, error);
    if (!status && on->token.end_seconds <= (int64_t)time(NULL))
        status = refuse_login(on, "the sign-on has ended", error);
    if (!status)
        status = ask_keys(on, lent, error);
    explicit_bzero(on, sizeof *on);
    free(on);
    return status;
}
