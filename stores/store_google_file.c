#include "stores/store_google_file.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/text.h"
#include "stores/store_ask.h"

static const char token_remedy[] = "GOOGLE_OAUTH_ACCESS_TOKEN, where it is set, is taken instead: "
                                   "export GOOGLE_OAUTH_ACCESS_TOKEN=$(gcloud auth print-access-token)";

/* A value of the file. */
typedef struct Value {
    const char *name;
    char *place;
    size_t bytes;
    bool needed;
} Value;

static FshStatus take_values(const json_t *object, const Value *values, size_t count, const char *path,
                             const char *remedy, FshError *error)
{
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_object_get(object, values[i].name);
        const char *text = json_string_value(value);
        if (!text && (!value || json_is_null(value)) && !values[i].needed)
            continue;
        if (!text || !*text || strlen(text) >= values[i].bytes)
            return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: its %s %s; %s", path, values[i].name,
                                 text && *text ? "is too long" : "is not there, or is no text", remedy);
        memcpy(values[i].place, text, strlen(text) + 1);
    }
    return FSH_OK;
}

#define VALUE(name_, field, needed_)                                                                         \
    {                                                                                                        \
        .name = (name_), .place = file->field, .bytes = sizeof file->field, .needed = (needed_)              \
    }

static FshStatus take_user(GoogleFile *file, const json_t *object, const char *path, FshError *error)
{
    const Value values[] = {VALUE("client_id", client, true), VALUE("client_secret", client_secret, true),
                            VALUE("refresh_token", refresh_token, true)};
    file->kind = GOOGLE_USER;
    return take_values(object, values, sizeof values / sizeof *values, path,
                       "gcloud auth application-default login writes it anew", error);
}

static FshStatus take_account(GoogleFile *file, const json_t *object, const char *path, FshError *error)
{
    const Value values[] = {VALUE("client_email", email, true), VALUE("private_key", key, true),
                            VALUE("private_key_id", key_id, false), VALUE("token_uri", token_url, false)};
    file->kind = GOOGLE_ACCOUNT;
    return take_values(object, values, sizeof values / sizeof *values, path,
                       "gcloud iam service-accounts keys create makes a new one", error);
}

/* Takes the lines with which an address is asked. Returns false if they are none. */
static bool take_headers(GoogleFile *file, const json_t *headers)
{
    static const char name_bytes[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    const char *name = NULL;
    const json_t *value = NULL;
    size_t count = 0;
    json_object_foreach((json_t *)headers, name, value)
    {
        const char *text = json_string_value(value);
        if (!text || count == GOOGLE_HEADERS_MAX || !*name || strspn(name, name_bytes) != strlen(name))
            return false;
        char *line = file->subject_headers[count++];
        if (snprintf(line, STORE_SECRET_BYTES, "%s: %s", name, text) >= STORE_SECRET_BYTES ||
            strpbrk(line, "\r\n"))
            return false;
    }
    return true;
}

/* Returns whether an address may be asked for a token: what is trusted, and Azure's machines' own server. */
static bool is_source(const char *url)
{
    return !*url || store_is_trusted(url) || strncmp(url, "http://169.254.169.254/", 23) == 0;
}

/* Returns whether the object has a value of one of these names, which end with NULL. */
static bool has_one(const json_t *object, const char *const *names)
{
    for (; *names; names++) {
        const json_t *value = json_object_get(object, *names);
        if (value && !json_is_null(value))
            return true;
    }
    return false;
}

static FshStatus take_external(GoogleFile *file, const json_t *object, const char *path, FshError *error)
{
    const json_t *source = json_object_get(object, "credential_source");
    const json_t *format = json_object_get(source, "format");
    const char *type = json_string_value(json_object_get(format, "type"));
    const Value values[] = {VALUE("audience", audience, true),
                            VALUE("subject_token_type", subject_type, true),
                            VALUE("token_url", token_url, true),
                            VALUE("service_account_impersonation_url", impersonation_url, false)};
    const Value file_values[] = {VALUE("file", subject_file, true)};
    const Value url_values[] = {VALUE("url", subject_url, true)};
    const bool at_url = json_object_get(source, "url") != NULL;
    const Value format_values[] = {VALUE("subject_token_field_name", subject, true)};
    static const char remedy[] = "gcloud iam workload-identity-pools create-cred-config writes it anew";
    /* Amazon's keys, programs and certificates; the first has a url, too, which gives no token. */
    static const char *const others[] = {"environment_id", "executable", "certificate", NULL};
    static const char *const project[] = {"workforce_pool_user_project", NULL};
    file->kind = GOOGLE_EXTERNAL;
    if (has_one(object, project))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: its %s is not read; %s", path, *project,
                             token_remedy);
    if (has_one(source, others) || (!at_url && !json_object_get(source, "file")))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "%s: of workload identity federation, tokens in files and at addresses are "
                             "read, and this one's credential_source is neither; %s",
                             path, token_remedy);
    FshStatus status = take_values(object, values, sizeof values / sizeof *values, path, remedy, error);
    if (!status)
        status = take_values(source, at_url ? url_values : file_values, 1, path, remedy, error);
    if (!status && at_url && !take_headers(file, json_object_get(source, "headers")))
        status = fsh_error_set(error, FSH_ERR_CORRUPT,
                               "%s: the headers of its credential_source are none, or more than %d; %s", path,
                               GOOGLE_HEADERS_MAX, remedy);
    if (!status && type && strcmp(type, "json") == 0)
        status = take_values(format, format_values, 1, path, remedy, error);
    return status;
}

static FshStatus take_type(GoogleFile *file, const json_t *object, bool within, const char *path,
                           FshError *error);

static FshStatus take_impersonated(GoogleFile *file, const json_t *object, const char *path, FshError *error)
{
    const Value values[] = {VALUE("service_account_impersonation_url", impersonation_url, true)};
    FshStatus status = take_values(object, values, 1, path,
                                   "gcloud auth application-default login --impersonate-service-account "
                                   "writes it anew",
                                   error);
    if (!status && json_array_size(json_object_get(object, "delegates")))
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: its delegates are not read; %s", path,
                               token_remedy);
    return status ? status
                  : take_type(file, json_object_get(object, "source_credentials"), true, path, error);
}

/* Reads credentials of any type; within: those of an impersonated account. */
static FshStatus take_type(GoogleFile *file, const json_t *object, bool within, const char *path,
                           FshError *error)
{
    static const struct {
        const char *type;
        FshStatus (*take)(GoogleFile *file, const json_t *object, const char *path, FshError *error);
        bool within;
    } types[] = {{"authorized_user", take_user, true},
                 {"service_account", take_account, true},
                 {"external_account", take_external, false},
                 {"impersonated_service_account", take_impersonated, false}};
    const char *type = json_string_value(json_object_get(object, "type"));
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i].type) == 0 && (types[i].within || !within))
            return types[i].take(file, object, path, error);
    if (type)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "%s: credentials of the type '%.40s' are not read%s; %s", path, type,
                             within ? " as source_credentials" : "", token_remedy);
    return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: are no credentials of Google's: no type; %s", path,
                         token_remedy);
}

FshStatus google_file_parse(GoogleFile *file, const char *text, size_t length, const char *path,
                            FshError *error)
{
    json_t *object = json_loadb(text, length, 0, NULL);
    *file = (GoogleFile){0};
    FshStatus status = take_type(file, object, false, path, error);
    json_decref(object);
    if (!status &&
        (!is_source(file->subject_url) || (*file->token_url && !store_is_trusted(file->token_url)) ||
         (*file->impersonation_url && !store_is_trusted(file->impersonation_url))))
        status = fsh_error_set(error, FSH_ERR_USAGE,
                               "%s: names a server that is neither https:// nor of this host", path);
    return status;
}

bool google_subject_parse(const GoogleFile *file, const char *text, size_t length,
                          char token[STORE_SECRET_BYTES])
{
    json_t *object = *file->subject ? json_loadb(text, length, 0, NULL) : NULL;
    const char *value = json_string_value(json_object_get(object, file->subject));
    bool taken = false;
    if (*file->subject) {
        taken = store_take(token, STORE_SECRET_BYTES, value);
    } else {
        while (length && text_is_blank(text[length - 1]))
            length--;
        taken = length && length < STORE_SECRET_BYTES && !memchr(text, '\n', length) &&
                !memchr(text, '\r', length) && !memchr(text, '\0', length);
        if (taken) {
            memcpy(token, text, length);
            token[length] = '\0';
        }
    }
    json_decref(object);
    return taken;
}
