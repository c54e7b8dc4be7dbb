/* store_sso.h - single sign-on of profiles of ~/.aws/config (IAM Identity Center): the token that `aws sso
 * login` has left is given to Amazon for a role's keys.
 *
 *   https://docs.aws.amazon.com/sdkref/latest/guide/feature-sso-credentials.html
 *
 * The token is in ~/.aws/sso/cache/SHA1.json, SHA1 of the session's name or, in a profile without
 * sso_session, of its sso_start_url. One that ends within five minutes is renewed, and written back for all
 * tools, where the file has what that takes (clientId, clientSecret, refreshToken); if that is refused, the
 * token counts that another process has left there meanwhile. AWS_ENDPOINT_URL_SSO and
 * AWS_ENDPOINT_URL_SSO_OIDC name other servers than portal.sso.REGION.amazonaws.com and
 * oidc.REGION.amazonaws.com.
 *
 * Threads: any that do not change the environment. */
#ifndef FSHARD_STORES_STORE_SSO_H
#define FSHARD_STORES_STORE_SSO_H

#include "stores/store_aws.h"
#include "stores/store_lent.h"

enum { STORE_SSO_BYTES = 8192 };

/* What is read of the token's file. It holds secrets: overwrite it when it is done with. */
typedef struct SsoToken {
    char access[STORE_SSO_BYTES];
    char client[512], client_secret[STORE_SSO_BYTES], refresh[STORE_SSO_BYTES]; /* "": it cannot be renewed */
    int64_t end_seconds;                                                        /* since 1970 */
    int64_t client_end_seconds; /* of client and client_secret; 0: it is not told */
} SsoToken;

/* Reads the text of a token's file. Returns whether it has a token and its end. */
bool sso_token_parse(SsoToken *token, const char *text, size_t length);

/* Asks for the keys of the profile's role. profile_name: for messages, too. FSH_ERR_USAGE: the profile lacks
 * something, or names a server to which no secrets go. FSH_ERR_NOT_FOUND: nobody has signed in, or that has
 * ended; the message has the command that does it. FSH_ERR_SYSTEM: Amazon does not give the role's keys. No
 * message has a secret. */
FshStatus store_lent_by_sso(StoreLent *lent, const AwsProfile *profile, const char *profile_name,
                            FshError *error);

#endif
