#include "stores/store_aws.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/text.h"

/* Returns whether a line of length bytes is the heading of the section: "[WORD NAME]", and of a profile
 * "[NAME]". */
static bool is_heading(const char *line, size_t length, const char *word, const char *name)
{
    char heading[320];
    const int plain = snprintf(heading, sizeof heading, "[%s]", name);
    if (strcmp(word, "profile") == 0 && text_is_same(line, length, heading, (size_t)plain))
        return true;
    const int with_word = snprintf(heading, sizeof heading, "[%s %s]", word, name);
    return text_is_same(line, length, heading, (size_t)with_word);
}

/* Copies the value of a line "key = value" into its place, if it is one that counts and has none yet. */
static void take_line(AwsProfile *profile, const char *line, const char *end)
{
    const struct {
        const char *name;
        char *place;
        size_t bytes;
    } values[] = {{"aws_access_key_id", profile->key, sizeof profile->key},
                  {"aws_secret_access_key", profile->secret, sizeof profile->secret},
                  {"aws_session_token", profile->token, sizeof profile->token},
                  {"region", profile->region, sizeof profile->region},
                  {"role_arn", profile->role, sizeof profile->role},
                  {"source_profile", profile->source_profile, sizeof profile->source_profile},
                  {"credential_source", profile->credential_source, sizeof profile->credential_source},
                  {"web_identity_token_file", profile->identity_file, sizeof profile->identity_file},
                  {"role_session_name", profile->session, sizeof profile->session},
                  {"external_id", profile->external_id, sizeof profile->external_id},
                  {"duration_seconds", profile->duration, sizeof profile->duration},
                  {"mfa_serial", profile->mfa, sizeof profile->mfa},
                  {"credential_process", profile->process, sizeof profile->process},
                  {"sso_session", profile->sso_session, sizeof profile->sso_session},
                  {"sso_start_url", profile->sso_start_url, sizeof profile->sso_start_url},
                  {"sso_region", profile->sso_region, sizeof profile->sso_region},
                  {"sso_account_id", profile->sso_account, sizeof profile->sso_account},
                  {"sso_role_name", profile->sso_role, sizeof profile->sso_role}};
    const char *equals = memchr(line, '=', (size_t)(end - line));
    if (!equals)
        return;
    const char *name_end = equals, *value = text_skip_blanks(equals + 1, end);
    while (name_end > line && text_is_blank(name_end[-1]))
        name_end--;
    while (end > value && text_is_blank(end[-1]))
        end--;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (!text_is_same(line, (size_t)(name_end - line), values[i].name, strlen(values[i].name)) ||
            *values[i].place)
            continue;
        if ((size_t)(end - value) < values[i].bytes)
            memcpy(values[i].place, value, (size_t)(end - value)); /* the rest is zeros */
        else
            profile->too_long = values[i].name;
    }
}

void aws_profile_parse(AwsProfile *profile, const char *text, size_t length, const char *word,
                       const char *name)
{
    bool ours = false;
    for (size_t at = 0; at < length;) {
        const char *line = text + at;
        const char *newline = memchr(line, '\n', length - at);
        const char *end = newline ? newline : text + length;
        at += (size_t)(end - line) + 1;
        while (end > line && text_is_blank(end[-1]))
            end--;
        if (end > line && *line == '[') {
            ours = is_heading(line, (size_t)(end - line), word, name);
            profile->found = profile->found || ours;
        } else if (ours && end > line && *line != '#' && *line != ';' && !text_is_blank(*line)) {
            take_line(profile, line, end);
        }
    }
}

static FshStatus read_file(AwsProfile *profile, const char *word, const char *name, const char *path_variable,
                           const char *usual, FshError *error)
{
    enum { AWS_FILE_BYTES_MAX = 1 << 20 };
    char path[PATH_MAX] = "";
    Buffer text = {0};
    const char *home = getenv("HOME"), *given = getenv(path_variable);
    if (given && *given)
        (void)snprintf(path, sizeof path, "%s", given);
    else if (home && *home)
        (void)file_join(path, sizeof path, home, usual, NULL);
    if (!*path || !file_exists(path))
        return FSH_OK;
    const FshStatus status = file_read_most(path, AWS_FILE_BYTES_MAX, &text, error);
    if (!status)
        aws_profile_parse(profile, (const char *)text.bytes, text.length, word, name);
    if (text.bytes)
        explicit_bzero(text.bytes, text.length);
    buffer_free(&text);
    return status;
}

FshStatus aws_profile_read(AwsProfile *profile, const char *name, FshError *error)
{
    const FshStatus status =
        read_file(profile, "profile", name, "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", error);
    const FshStatus config =
        read_file(profile, "profile", name, "AWS_CONFIG_FILE", ".aws/config", status ? NULL : error);
    if (!status && !config && profile->too_long)
        return fsh_error_set(error, FSH_ERR_USAGE, "profile '%.200s' of ~/.aws: its %s is too long", name,
                             profile->too_long);
    return status ? status : config;
}

FshStatus aws_session_read(AwsProfile *session, const char *name, FshError *error)
{
    const FshStatus status = read_file(session, "sso-session", name, "AWS_CONFIG_FILE", ".aws/config", error);
    if (!status && session->too_long)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "sso-session '%.200s' of ~/.aws/config: its %s is too long", name,
                             session->too_long);
    return status;
}
