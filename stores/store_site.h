/* store_site.h - where an address leads, and with which credentials: those of the servers' usual environment
 * and files.
 *
 *   s3://   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; else, unless AWS_PROFILE names a
 *           profile, a web identity; what the profile AWS_PROFILE (default) in ~/.aws/credentials and
 *           ~/.aws/config, or the files that AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name, leads to
 *           (store_profile.h); the role of a container or a machine (store_lent.h).
 *           AWS_REGION, AWS_DEFAULT_REGION, the profile's region, us-east-1.
 *           AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL: another server, by path instead of by host.
 *   gs://   GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY (HMAC keys), or GOOGLE_OAUTH_ACCESS_TOKEN; else
 *           application default credentials (store_google.h), the service account of a machine
 *           (store_lent.h). STORAGE_EMULATOR_HOST: another server.
 *   https:// ~/.netrc, which libcurl reads.
 * Where nothing is found, requests are not signed, as public buckets allow. For reading, credentials that are
 * named and not to be had (single sign-on that has ended, a file that is gone) are as good as none: a bucket
 * may be everybody's; one that is not says 403, and then the message is why there are none.
 * AWS_NO_SIGN_REQUEST and GS_NO_SIGN_REQUEST, GDAL's variables, YES: nobody is asked for any.
 *
 * Threads: any that do not change the environment. */
#ifndef FSHARD_STORES_STORE_SITE_H
#define FSHARD_STORES_STORE_SITE_H

#include <stdint.h>

#include "stores/store_url.h"

enum { STORE_SECRET_BYTES = 4096 };

typedef enum StorePurpose { STORE_TO_READ, STORE_TO_WRITE } StorePurpose;

typedef struct StoreSite {
    StoreUrl url;
    StorePurpose purpose;
    char base[STORE_URL_BYTES]; /* of http or https, encoded, without a slash at its end */
    /* libcurl's CURLOPT_AWS_SIGV4, "aws:amz:REGION:s3"; "": not signed */
    char signing[128];
    /* Secrets. They are in no message, and go to libcurl alone. */
    char user_password[1024];               /* "KEY:SECRET" of signing; "" */
    char session_token[STORE_SECRET_BYTES]; /* of signing; "" */
    char bearer[STORE_SECRET_BYTES];        /* OAuth 2; "" */
    char credentials[256];   /* where they are from, for messages: "AWS_ACCESS_KEY_ID"; "": nowhere */
    char region[64];         /* s3 */
    int64_t end_seconds;     /* until when the credentials are good, since 1970; 0: it is not known */
    int64_t asked_seconds;   /* when they came */
    FshStatus why_none;      /* of credentials that are named and not to be had, while reading; else FSH_OK */
    char why_none_text[640]; /* the same, or that a variable wants none; "" */
} StoreSite;

/* Fills *site for an address. To read, it is no failure that credentials cannot be had. FSH_ERR_USAGE: the
 * address, or an endpoint that is none. FSH_ERR_NOT_FOUND: the profile that AWS_PROFILE names is in no file;
 * half of a pair of keys. What reading a file may fail with. */
FshStatus store_site_find(StoreSite *site, const char *address, StorePurpose purpose, FshError *error);

/* Returns whether who asks often is to ask for credentials again: half of their life is over, and they end
 * within a quarter of an hour. */
bool store_site_is_aging(const StoreSite *site);

/* Asks for credentials again where those that were lent end within a quarter of an hour. Nobody may use the
 * site meanwhile. Where that fails, or there are none any more, the site is as it was, which is a failure,
 * store_site_find's or FSH_ERR_NOT_FOUND, only when they have ended. */
FshStatus store_site_renew(StoreSite *site, FshError *error);

/* Writes the URL of a file below the site: base, "/", name. name "": the base itself. FSH_ERR_USAGE: too
 * long. */
FshStatus store_site_url(const StoreSite *site, const char *name, char url[STORE_URL_BYTES], FshError *error);

/* Replaces what is secret in a text by "***", in place: for messages of others. */
void store_site_hide(const StoreSite *site, char *text);

/* Overwrites the secrets. */
void store_site_forget(StoreSite *site);

#endif
