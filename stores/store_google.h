/* store_google.h - Google's application default credentials: the file that `gcloud auth application-default
 * login` writes.
 *
 * It is the one of GOOGLE_APPLICATION_CREDENTIALS, else application_default_credentials.json in
 * CLOUDSDK_CONFIG or ~/.config/gcloud. Its refresh token is given to https://oauth2.googleapis.com/token for
 * an access token; CLOUDSDK_AUTH_TOKEN_HOST, gcloud's own variable, names another server.
 *
 * Threads: any that do not change the environment. */
#ifndef FSHARD_STORES_STORE_GOOGLE_H
#define FSHARD_STORES_STORE_GOOGLE_H

#include <stddef.h>

#include "common/error.h"
#include "stores/store_lent.h"

/* What is read of the file. It holds secrets: overwrite it when it is done with. */
typedef struct GoogleUser {
    char client[512], client_secret[512], refresh_token[STORE_SECRET_BYTES];
} GoogleUser;

/* Reads the file's text; path: for messages. FSH_ERR_UNSUPPORTED: it is of another type than
 * "authorized_user"; the message says what to do. FSH_ERR_CORRUPT: it is no such file. */
FshStatus google_user_parse(GoogleUser *user, const char *text, size_t length, const char *path,
                            FshError *error);

/* Asks for an access token; found is false where there is no file. Fails as google_user_parse, and as
 * reading a file does; FSH_ERR_NOT_FOUND: what GOOGLE_APPLICATION_CREDENTIALS names is not there;
 * FSH_ERR_USAGE: CLOUDSDK_AUTH_TOKEN_HOST is no server to tell secrets; FSH_ERR_SYSTEM: the server does not
 * answer as it should. No message has a secret. */
FshStatus store_lent_by_google_user(StoreLent *lent, FshError *error);

#endif
