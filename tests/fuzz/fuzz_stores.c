/* What stores/ reads of others: answers of servers in XML and JSON, the files of ~/.aws and the commands in
 * them, what such a command prints, tokens of single sign-on, Google's credentials, the note of what was
 * sent. */
#include <stdlib.h>
#include <string.h>

#include "stores/store_aws.h"
#include "stores/store_google_file.h"
#include "stores/store_leftovers.h"
#include "stores/store_process.h"
#include "stores/store_sso.h"
#include "tests/fuzz/fuzz.h"

static void read_xml(const char *text)
{
    static const char *const names[] = {"Code", "Message", "UploadId"};
    char value[40];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        memset(value, 'x', sizeof value);
        if (store_xml_text(text, names[i], value, sizeof value))
            fuzz_expect(memchr(value, '\0', sizeof value) != NULL && strstr(text, value) != NULL,
                        "the text of an element is in the answer");
    }
}

static void read_profile(const uint8_t *bytes, size_t length)
{
    static const char *const names[] = {"default", "lab", "lab", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        AwsProfile profile = {0};
        aws_profile_parse(&profile, (const char *)bytes, length, i == 2 ? "sso-session" : "profile",
                          names[i]);
        const struct {
            const char *text;
            size_t bytes;
        } values[] = {{profile.key, sizeof profile.key},
                      {profile.secret, sizeof profile.secret},
                      {profile.token, sizeof profile.token},
                      {profile.region, sizeof profile.region},
                      {profile.role, sizeof profile.role},
                      {profile.source_profile, sizeof profile.source_profile},
                      {profile.credential_source, sizeof profile.credential_source},
                      {profile.identity_file, sizeof profile.identity_file},
                      {profile.session, sizeof profile.session},
                      {profile.external_id, sizeof profile.external_id},
                      {profile.duration, sizeof profile.duration},
                      {profile.mfa, sizeof profile.mfa},
                      {profile.process, sizeof profile.process},
                      {profile.sso_session, sizeof profile.sso_session},
                      {profile.sso_start_url, sizeof profile.sso_start_url},
                      {profile.sso_region, sizeof profile.sso_region},
                      {profile.sso_account, sizeof profile.sso_account},
                      {profile.sso_role, sizeof profile.sso_role}};
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            fuzz_expect(memchr(values[k].text, '\0', values[k].bytes) != NULL, "every value ends");
            fuzz_expect(profile.found || !*values[k].text, "values are of a profile that is there");
        }
    }
}

/* Splits a text as credential_process is; in place. */
static void split_command(char *text)
{
    char *arguments[8];
    const size_t length = strlen(text), count = store_process_split(text, arguments, 8);
    fuzz_expect(count < 8 && (!count || !arguments[count]), "NULL ends the arguments");
    for (size_t i = 0; i < count; i++)
        fuzz_expect(arguments[i] >= text && arguments[i] + strlen(arguments[i]) <= text + length,
                    "an argument lies in the command");
}

/* Google's credentials; the same bytes are the token that they tell of. */
static void read_google(const uint8_t *bytes, size_t length)
{
    static GoogleFile file;
    static const char *const fields[] = {"", "access_token"};
    char token[STORE_SECRET_BYTES];
    FshError error = {0};
    if (!google_file_parse(&file, (const char *)bytes, length, "file", &error)) {
        const bool known = (*file.client && *file.client_secret && *file.refresh_token) ||
                           (*file.email && *file.key) ||
                           (*file.audience && (*file.subject_file || *file.subject_url));
        fuzz_expect(known, "credentials that are read have all that asks for a token");
        for (size_t i = 0; i < GOOGLE_HEADERS_MAX; i++)
            fuzz_expect(!strpbrk(file.subject_headers[i], "\r\n"), "a header is one line");
        fuzz_expect(!*file.token_url || strstr(file.token_url, "://"), "a token is asked of a server");
    }
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        memcpy(file.subject, fields[i], strlen(fields[i]) + 1);
        if (google_subject_parse(&file, (const char *)bytes, length, token))
            fuzz_expect(*token && strlen(token) < sizeof token && !strpbrk(token, "\r\n"),
                        "a token is one line that is not empty");
    }
}

static void read_sso(const uint8_t *bytes, size_t length)
{
    static SsoToken token;
    if (sso_token_parse(&token, (const char *)bytes, length))
        fuzz_expect(*token.access && token.end_seconds, "a token of single sign-on has its end");
    fuzz_expect(!*token.refresh || (*token.client && *token.client_secret), "what renews it is whole");
}

static void read_json(const uint8_t *bytes, size_t length)
{
    StoreLent lent;
    FshError error = {0};
    if (!store_process_parse(&lent, (const char *)bytes, length, "profile", &error))
        fuzz_expect(lent.found && *lent.key && *lent.secret, "a program's keys are a pair");
    read_google(bytes, length);
    read_sso(bytes, length);
}

static void read_leftovers(const uint8_t *bytes, size_t length)
{
    StoreLeftovers leftovers = {.loaded = true};
    FshError error = {0};
    fuzz_expect(!buffer_append(&leftovers.names, bytes, length, &error) &&
                    !buffer_append(&leftovers.names, "\n", 1, &error),
                "memory for the names");
    fuzz_expect(!store_leftovers_add(&leftovers, "train-00000-of-00001.fshard", &error),
                "memory for one more");
    const size_t before = leftovers.names.length;
    fuzz_expect(!store_leftovers_add(&leftovers, "train-00000-of-00001.fshard", &error) &&
                    leftovers.names.length == before,
                "a name is noted once");
    store_leftovers_free(&leftovers);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    char *text = malloc(length + 1);
    fuzz_expect(text != NULL, "memory for the text");
    memcpy(text, bytes, length);
    text[length] = '\0';
    read_xml(text);
    split_command(text);
    free(text);
    read_json(bytes, length);
    read_profile(bytes, length);
    read_leftovers(bytes, length);
    return 0;
}
