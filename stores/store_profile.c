#include "stores/store_profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stores/store_ask.h"
#include "stores/store_process.h"
#include "stores/store_sso.h"

/* A profile, and the one whose keys its role is asked for with behind it. */
typedef struct Link {
    AwsProfile profile;
    char name[256];
    char from[256]; /* for messages */
} Link;

enum { LINKS_MAX = 6 };

static const char export_remedy[] = "eval \"$(aws configure export-credentials --profile '%.200s' --format "
                                    "env)\" makes variables of its keys, and credential_process = aws "
                                    "configure export-credentials --profile '%.200s' in another profile "
                                    "renews them";

static bool has_keys(const AwsProfile *profile)
{
    return *profile->key || *profile->secret;
}

/* ---- what a profile itself has ---- */

static FshStatus refuse_profile(const Link *link, const char *why, FshError *error)
{
    char remedy[800];
    (void)snprintf(remedy, sizeof remedy, export_remedy, link->name, link->name);
    return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: %s; %s", link->from, why, remedy);
}

/* Takes the keys that the profile has without a role. */
static FshStatus take_own(StoreLent *lent, const Link *link, FshError *error)
{
    const AwsProfile *profile = &link->profile;
    *lent = (StoreLent){0};
    if ((*profile->sso_session || *profile->sso_start_url) && !has_keys(profile))
        return store_lent_by_sso(lent, profile, link->name, error);
    if (!has_keys(profile) && *profile->process)
        return store_lent_by_process(lent, profile->process, link->from, STORE_PROCESS_SECONDS, error);
    lent->found = has_keys(profile);
    memcpy(lent->key, profile->key, sizeof lent->key);
    memcpy(lent->secret, profile->secret, sizeof lent->secret);
    memcpy(lent->token, profile->token, sizeof lent->token);
    memcpy(lent->from, link->from, sizeof lent->from);
    return FSH_OK;
}

/* Takes the keys that a profile's role is asked for with where no other profile has them. *done_ret: they are
 * the role's already. */
static FshStatus take_of_source(StoreLent *lent, const Link *link, const char *region, bool *done_ret,
                                FshError *error)
{
    const AwsProfile *profile = &link->profile;
    const char *source = profile->credential_source;
    FshStatus status = FSH_OK;
    *lent = (StoreLent){0};
    *done_ret = !*source && *profile->identity_file;
    if (*done_ret) {
        const StoreIdentity identity = {.file = profile->identity_file,
                                        .role = profile->role,
                                        .session = *profile->session ? profile->session : NULL,
                                        .from = link->from,
                                        .credentials = link->from};
        return store_lent_by_identity(lent, &identity, region, error);
    }
    if (strcmp(source, "EcsContainer") == 0)
        status = store_lent_by_container(lent, error);
    else if (strcmp(source, "Ec2InstanceMetadata") == 0)
        status = store_lent_by_machine(lent, error);
    else if (strcmp(source, "Environment") != 0) /* whose keys come before every profile: it has none */
        status = fsh_error_set(error, FSH_ERR_USAGE,
                               "%s: role_arn wants source_profile, web_identity_token_file, or a "
                               "credential_source that is Environment, Ec2InstanceMetadata or EcsContainer",
                               link->from);
    if (status || lent->found)
        return status;
    return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                         "%s: credential_source is %s, which has no keys to ask for the role with",
                         link->from, source);
}

/* ---- roles ---- */

static bool write_request(char *body, size_t body_bytes, const AwsProfile *profile)
{
    return store_append_field(body, body_bytes, "Action", "AssumeRole") &&
           store_append_field(body, body_bytes, "Version", "2011-06-15") &&
           store_append_field(body, body_bytes, "RoleArn", profile->role) &&
           store_append_field(body, body_bytes, "RoleSessionName",
                              *profile->session ? profile->session : "fshard") &&
           (!*profile->duration ||
            store_append_field(body, body_bytes, "DurationSeconds", profile->duration)) &&
           (!*profile->external_id ||
            store_append_field(body, body_bytes, "ExternalId", profile->external_id));
}

/* Asks for the profile's role with the keys that lent has, and puts the role's into their place. */
static FshStatus assume(StoreLent *lent, const Link *link, const char *region, FshError *error)
{
    enum { BODY_BYTES = 16384 };
    char url[STORE_URL_BYTES];
    StoreExchange exchange = {0};
    StoreSite site = {.url.kind = STORE_HTTP};
    char *body = calloc(1, BODY_BYTES);
    if (!body || !write_request(body, BODY_BYTES, &link->profile)) {
        free(body);
        return fsh_error_set(error, body ? FSH_ERR_USAGE : FSH_ERR_MEMORY, "%s: %s", link->from,
                             body ? "its role is too long" : "out of memory");
    }
    (void)snprintf(site.user_password, sizeof site.user_password, "%s:%s", lent->key, lent->secret);
    (void)snprintf(site.session_token, sizeof site.session_token, "%s", lent->token);
    (void)snprintf(site.signing, sizeof site.signing, "aws:amz:%s:sts", region);
    store_sts_url(url, region);
    const StoreQuestion question = {.method = "POST",
                                    .url = url,
                                    .headers = {"Content-Type: application/x-www-form-urlencoded"},
                                    .body = body,
                                    .by_proxy = true,
                                    .site = &site};
    FshStatus status = store_ask(&question, &exchange, error);
    if (!status) {
        *lent = (StoreLent){0};
        (void)snprintf(lent->from, sizeof lent->from, "%s", link->from);
        if (!store_is_answered(&exchange) || !store_take_xml_keys(lent, exchange.text))
            status = store_refuse(&exchange, link->from, store_aws_remedy, error);
        if (status && error)
            store_site_hide(&site, error->message); /* STS tells what it was to sign */
    }
    store_site_forget(&site);
    explicit_bzero(exchange.text, sizeof exchange.text);
    free(body);
    return status;
}

/* Checks what a profile says of its role. */
static FshStatus check_role(const Link *link, FshError *error)
{
    const AwsProfile *profile = &link->profile;
    const bool from_profile = *profile->source_profile, from_source = *profile->credential_source;
    if (*profile->mfa)
        return refuse_profile(link, "mfa_serial wants a device's code, which is not asked for", error);
    if (from_profile && from_source)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: has source_profile and credential_source; one of them can count",
                             link->from);
    if (*profile->duration && strspn(profile->duration, "0123456789") != strlen(profile->duration))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: duration_seconds is '%s', which is no number",
                             link->from, profile->duration);
    return FSH_OK;
}

/* Reads the profile that the last of the chain names as its source. */
static FshStatus read_source(Link *link, const Link *before, FshError *error)
{
    *link = (Link){0};
    memcpy(link->name, before->profile.source_profile, sizeof link->name);
    (void)snprintf(link->from, sizeof link->from, "profile '%.200s' of ~/.aws", link->name);
    const FshStatus status = aws_profile_read(&link->profile, link->name, error);
    if (status || link->profile.found)
        return status;
    return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                         "%s: source_profile is '%.200s', and neither ~/.aws/credentials nor ~/.aws/config "
                         "has a profile of this name",
                         before->from, link->name);
}

/* Returns whether a profile of a chain stands for its role. The keys of a source count before its role, or it
 * could not be its own source. */
static bool takes_role(const Link *links, const Link *link)
{
    return *link->profile.role && (link == links || !has_keys(&link->profile));
}

/* Follows source_profile from the first of the links; *count_ret: how many there are. */
static FshStatus follow(Link *links, size_t *count_ret, FshError *error)
{
    size_t count = 1;
    FshStatus status = FSH_OK;
    for (;; count++) {
        const Link *last = &links[count - 1];
        if (!takes_role(links, last))
            break;
        status = check_role(last, error);
        if (status || !*last->profile.source_profile)
            break;
        if (count == LINKS_MAX) {
            status = fsh_error_set(error, FSH_ERR_USAGE,
                                   "%s: source_profile leads in a circle, or over more than %d profiles",
                                   links->from, LINKS_MAX);
            break;
        }
        status = read_source(&links[count], last, error);
        if (status)
            break;
    }
    *count_ret = count;
    return status;
}

FshStatus store_lent_by_profile(StoreLent *lent, const char *name, const AwsProfile *profile,
                                const char *region, FshError *error)
{
    size_t count = 0;
    bool done = true;
    *lent = (StoreLent){0};
    Link *links = calloc(LINKS_MAX, sizeof *links);
    if (!links)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    links->profile = *profile;
    (void)snprintf(links->name, sizeof links->name, "%s", name);
    (void)snprintf(links->from, sizeof links->from, "profile '%.200s' of ~/.aws", name);
    FshStatus status = follow(links, &count, error);
    const Link *last = &links[count - 1];
    if (!status)
        status = takes_role(links, last) ? take_of_source(lent, last, region, &done, error)
                                         : take_own(lent, last, error);
    if (!status && count > 1 && !(lent->found && *lent->key && *lent->secret))
        status = fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: has no keys to ask for the role of %s with",
                               last->from, links[count - 2].from);
    for (size_t i = count - (done ? 1 : 0); !status && i-- > 0;)
        status = assume(lent, &links[i], region, error);
    explicit_bzero(links, LINKS_MAX * sizeof *links);
    free(links);
    return status;
}
