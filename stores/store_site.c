#include "stores/store_site.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "stores/store_ask.h"
#include "stores/store_aws.h"
#include "stores/store_google.h"
#include "stores/store_profile.h"

enum { RENEWAL_SECONDS = 900 }; /* before their end credentials are asked for again */

/* Copies a value that may be too long for its place. FSH_ERR_USAGE. */
static FshStatus take(char *place, size_t place_bytes, const char *value, const char *what, FshError *error)
{
    if ((size_t)snprintf(place, place_bytes, "%s", value) < place_bytes && !strpbrk(place, "\r\n"))
        return FSH_OK;
    *place = '\0';
    return fsh_error_set(error, FSH_ERR_USAGE, "%s: is too long, or has several lines", what);
}

/* ---- keys ---- */

/* Takes a pair of keys for signing. key and secret: NULL where they are not given. */
static FshStatus take_keys(StoreSite *site, const char *key, const char *secret, const char *token,
                           FshError *error)
{
    char pair[sizeof site->user_password];
    if (!key != !secret)
        return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                             "%s: %s has %s without the other half of the pair; give both, or neither",
                             site->url.text, site->credentials, key ? "a key" : "a secret");
    const int length = snprintf(pair, sizeof pair, "%s:%s", key, secret);
    FshStatus status = length > 0 && (size_t)length < sizeof pair
                           ? take(site->user_password, sizeof site->user_password, pair, "a key", error)
                           : fsh_error_set(error, FSH_ERR_USAGE, "%s: the keys of %s are too long",
                                           site->url.text, site->credentials);
    explicit_bzero(pair, sizeof pair);
    if (!status && token)
        status = take(site->session_token, sizeof site->session_token, token, "AWS_SESSION_TOKEN", error);
    if (!status)
        (void)snprintf(site->signing, sizeof site->signing, "aws:amz:%s:s3", site->region);
    return status;
}

/* Takes what was lent, if anything was and asking did not fail (status), and overwrites it. Fails with
 * status, too. */
static FshStatus take_lent(StoreSite *site, StoreLent *lent, FshStatus status, FshError *error)
{
    const char *key = *lent->key ? lent->key : NULL, *secret = *lent->secret ? lent->secret : NULL;
    if (!status && lent->found) {
        memcpy(site->credentials, lent->from, sizeof site->credentials);
        site->end_seconds = lent->end_seconds;
        site->asked_seconds = (int64_t)time(NULL);
        status = key || secret ? take_keys(site, key, secret, *lent->token ? lent->token : NULL, error)
                               : take(site->bearer, sizeof site->bearer, lent->token, lent->from, error);
    }
    explicit_bzero(lent, sizeof *lent);
    return status;
}

/* Returns whether a variable that says yes or no says yes. */
static bool is_set(const char *name)
{
    static const char *const yes[] = {"yes", "true", "on", "1"};
    const char *value = store_variable(name);
    for (size_t i = 0; value && i < sizeof yes / sizeof *yes; i++)
        if (strcasecmp(value, yes[i]) == 0)
            return true;
    return false;
}

/* Leaves the site without credentials, as a variable wants it. */
static FshStatus sign_nothing(StoreSite *site, const char *variable)
{
    (void)snprintf(site->why_none_text, sizeof site->why_none_text, "%s is set", variable);
    return FSH_OK;
}

/* Finds the keys that are not in variables, as Amazon's tools look for them. */
static FshStatus find_lent_keys(StoreSite *site, const AwsProfile *profile, FshError *error)
{
    StoreLent lent = {0};
    const char *name = store_variable("AWS_PROFILE");
    if (name && !profile->found)
        return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                             "%s: AWS_PROFILE is '%s', and neither ~/.aws/credentials nor ~/.aws/config "
                             "has a profile of this name",
                             site->url.text, name);
    FshStatus status = name ? FSH_OK : store_lent_by_environment(&lent, site->region, error);
    if (!status && !lent.found)
        status = store_lent_by_profile(&lent, name ? name : "default", profile, site->region, error);
    if (!status && !lent.found)
        status = store_lent_by_container(&lent, error);
    if (!status && !lent.found)
        status = store_lent_by_machine(&lent, error);
    return take_lent(site, &lent, status, error);
}

static FshStatus find_aws_keys(StoreSite *site, FshError *error)
{
    AwsProfile profile = {0};
    const char *name = store_variable("AWS_PROFILE");
    const char *key = store_variable("AWS_ACCESS_KEY_ID"), *secret = store_variable("AWS_SECRET_ACCESS_KEY");
    const char *region = store_variable("AWS_REGION"), *token = store_variable("AWS_SESSION_TOKEN");
    const bool from_variables = key || secret;
    region = region ? region : store_variable("AWS_DEFAULT_REGION");
    FshStatus status = aws_profile_read(&profile, name ? name : "default", from_variables ? NULL : error);
    if (from_variables) /* the files could tell no more than the region */
        status = FSH_OK;
    if (!region)
        region = *profile.region ? profile.region : "us-east-1";
    const FshStatus taken =
        take(site->region, sizeof site->region, region, "AWS_REGION", status ? NULL : error);
    status = status ? status : taken;
    if (!status && is_set("AWS_NO_SIGN_REQUEST")) {
        status = sign_nothing(site, "AWS_NO_SIGN_REQUEST");
    } else if (!status && from_variables) {
        (void)snprintf(site->credentials, sizeof site->credentials, "AWS_ACCESS_KEY_ID");
        status = take_keys(site, key, secret, token, error);
    } else if (!status) {
        status = find_lent_keys(site, &profile, error);
    }
    explicit_bzero(&profile, sizeof profile);
    return status;
}

static FshStatus find_google_keys(StoreSite *site, FshError *error)
{
    const char *key = store_variable("GS_ACCESS_KEY_ID"), *secret = store_variable("GS_SECRET_ACCESS_KEY");
    const char *bearer = store_variable("GOOGLE_OAUTH_ACCESS_TOKEN");
    (void)snprintf(site->region, sizeof site->region, "auto");
    if (is_set("GS_NO_SIGN_REQUEST"))
        return sign_nothing(site, "GS_NO_SIGN_REQUEST");
    if (key || secret) {
        (void)snprintf(site->credentials, sizeof site->credentials, "GS_ACCESS_KEY_ID");
        return take_keys(site, key, secret, NULL, error);
    }
    if (!bearer) {
        StoreLent lent = {0};
        FshStatus status = store_lent_by_google_file(&lent, site->purpose == STORE_TO_WRITE, error);
        if (!status && !lent.found)
            status = store_lent_by_google(&lent, error);
        return take_lent(site, &lent, status, error);
    }
    (void)snprintf(site->credentials, sizeof site->credentials, "GOOGLE_OAUTH_ACCESS_TOKEN");
    return take(site->bearer, sizeof site->bearer, bearer, "GOOGLE_OAUTH_ACCESS_TOKEN", error);
}

/* ---- servers ---- */

/* Begins the base with a server that a variable names, without slashes at its end. */
static FshStatus take_endpoint(StoreSite *site, const char *name, const char *endpoint, FshError *error)
{
    if (strncmp(endpoint, "http://", 7) != 0 && strncmp(endpoint, "https://", 8) != 0)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: '%.200s' begins with neither https:// nor http://",
                             name, strchr(endpoint, '@') ? "…" : endpoint);
    FshStatus status = take(site->base, sizeof site->base, endpoint, name, error);
    for (size_t length = strlen(site->base); length && site->base[length - 1] == '/';)
        site->base[--length] = '\0';
    return status;
}

/* Appends "/" and a text, encoded, to the base. */
static FshStatus append(StoreSite *site, const char *text, FshError *error)
{
    const size_t length = strlen(site->base);
    if (length + 2 < sizeof site->base) {
        site->base[length] = '/';
        site->base[length + 1] = '\0';
        if (store_url_encode(site->base, sizeof site->base, text))
            return FSH_OK;
    }
    return fsh_error_set(error, FSH_ERR_USAGE, "%.80s…: is too long", site->url.text);
}

static FshStatus find_aws_base(StoreSite *site, FshError *error)
{
    const char *const names[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"};
    const char *bucket = site->url.bucket;
    for (size_t i = 0; i < 2; i++)
        if (store_variable(names[i])) {
            FshStatus status = take_endpoint(site, names[i], store_variable(names[i]), error);
            return status ? status : append(site, bucket, error);
        }
    /* A certificate for *.s3.REGION.amazonaws.com is for names without further dots. */
    if (!strchr(bucket, '.')) {
        (void)snprintf(site->base, sizeof site->base, "https://%s.s3.%s.amazonaws.com", bucket, site->region);
        return FSH_OK;
    }
    (void)snprintf(site->base, sizeof site->base, "https://s3.%s.amazonaws.com", site->region);
    return append(site, bucket, error);
}

static FshStatus find_google_base(StoreSite *site, FshError *error)
{
    const char *emulator = store_variable("STORAGE_EMULATOR_HOST");
    FshStatus status = take_endpoint(site, "STORAGE_EMULATOR_HOST",
                                     emulator ? emulator : "https://storage.googleapis.com", error);
    return status ? status : append(site, site->url.bucket, error);
}

/* Finds the credentials, and the region. Where reading goes on without those that are not to be had, nothing
 * of them is left. */
static FshStatus find_keys(StoreSite *site, FshError *error)
{
    FshError failure = {0};
    FshStatus status =
        site->url.kind == STORE_GS ? find_google_keys(site, &failure) : find_aws_keys(site, &failure);
    if (status && site->purpose == STORE_TO_READ && status != FSH_ERR_MEMORY &&
        status != FSH_ERR_INTERRUPTED && *site->region) {
        store_site_forget(site);
        *site->signing = *site->credentials = '\0';
        site->end_seconds = 0;
        site->why_none = status;
        (void)snprintf(site->why_none_text, sizeof site->why_none_text, "%.639s", failure.message);
        status = FSH_OK;
    }
    return status ? fsh_error_set(error, status, "%s", failure.message) : FSH_OK;
}

FshStatus store_site_find(StoreSite *site, const char *address, StorePurpose purpose, FshError *error)
{
    *site = (StoreSite){.purpose = purpose};
    FshStatus status = store_url_parse(&site->url, address, error);
    if (status)
        return status;
    if (site->url.kind == STORE_HTTP) /* is encoded as its author wants it */
        return take(site->base, sizeof site->base, site->url.text, "the address", error);
    const bool google = site->url.kind == STORE_GS;
    status = find_keys(site, error);
    if (!status)
        status = google ? find_google_base(site, error) : find_aws_base(site, error);
    if (!status && *site->url.prefix)
        status = append(site, site->url.prefix, error);
    return status;
}

bool store_site_is_aging(const StoreSite *site)
{
    const int64_t now = (int64_t)time(NULL), life = site->end_seconds - site->asked_seconds;
    return site->end_seconds && now + RENEWAL_SECONDS >= site->end_seconds &&
           now - site->asked_seconds >= life / 2;
}

FshStatus store_site_renew(StoreSite *site, FshError *error)
{
    StoreSite fresh;
    if (!site->end_seconds || (int64_t)time(NULL) + RENEWAL_SECONDS < site->end_seconds)
        return FSH_OK;
    FshError failure = {0};
    FshStatus status = store_site_find(&fresh, site->url.text, site->purpose, &failure);
    if (!status && fresh.why_none) /* what was had once is not given up */
        status = fsh_error_set(&failure, fresh.why_none, "%s", fresh.why_none_text);
    if (!status && !*fresh.credentials)
        status = fsh_error_set(&failure, FSH_ERR_NOT_FOUND,
                               "%s: %s gives no credentials any more, and those that it gave have ended",
                               site->url.text, site->credentials);
    if (!status)
        *site = fresh;
    else
        site->asked_seconds = (int64_t)time(NULL); /* of store_site_is_aging: not at once again */
    store_site_forget(&fresh);
    /* Whoever lends them may answer again before those in hand end. */
    return status && (int64_t)time(NULL) >= site->end_seconds
               ? fsh_error_set(error, status, "%s", failure.message)
               : FSH_OK;
}

FshStatus store_site_url(const StoreSite *site, const char *name, char url[STORE_URL_BYTES], FshError *error)
{
    const int length = snprintf(url, STORE_URL_BYTES, "%s%s", site->base, *name ? "/" : "");
    if (length > 0 && length < STORE_URL_BYTES && store_url_encode(url, STORE_URL_BYTES, name))
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_USAGE, "%.80s…/%s: is too long", site->url.text, name);
}

static void hide(char *text, const char *secret)
{
    enum { SHORTEST = 6 }; /* a shorter one would hit words */
    const size_t length = strlen(secret);
    for (char *at = text; length >= SHORTEST && (at = strstr(at, secret));) {
        memset(at, '*', 3);
        memmove(at + 3, at + length, strlen(at + length) + 1);
    }
}

void store_site_hide(const StoreSite *site, char *text)
{
    const char *colon = strchr(site->user_password, ':');
    hide(text, site->user_password);
    hide(text, colon ? colon + 1 : "");
    hide(text, site->session_token);
    hide(text, site->bearer);
}

void store_site_forget(StoreSite *site)
{
    explicit_bzero(site->user_password, sizeof site->user_password);
    explicit_bzero(site->session_token, sizeof site->session_token);
    explicit_bzero(site->bearer, sizeof site->bearer);
}
