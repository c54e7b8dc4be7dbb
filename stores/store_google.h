/* store_google.h - an access token for Google's application default credentials (store_google_file.h).
 *
 * Their file is the one of GOOGLE_APPLICATION_CREDENTIALS, else application_default_credentials.json in
 * CLOUDSDK_CONFIG or ~/.config/gcloud. A user's refresh token, or what a service account's key has signed
 * (RFC 7523), is given to https://oauth2.googleapis.com/token, or to the token_uri of the key's file;
 * CLOUDSDK_AUTH_TOKEN_HOST, gcloud's own variable, comes before both. A token of somebody else's, which is in
 * another file or at an address, is given to the token_url of its file (RFC 8693). Where the file names
 * another account, the token that comes asks for that of the other.
 *
 * Threads: any that do not change the environment. */
#ifndef FSHARD_STORES_STORE_GOOGLE_H
#define FSHARD_STORES_STORE_GOOGLE_H

#include "common/error.h"
#include "stores/store_lent.h"

/* Asks for an access token for reading buckets, or for writing, too; found is false where there is no file.
 * Fails as google_file_parse, and as reading a file does; FSH_ERR_NOT_FOUND: what
 * GOOGLE_APPLICATION_CREDENTIALS names is not there; FSH_ERR_USAGE: CLOUDSDK_AUTH_TOKEN_HOST is no server to
 * tell secrets; FSH_ERR_SYSTEM: the server does not answer as it should. No message has a secret. */
FshStatus store_lent_by_google_file(StoreLent *lent, bool writes, FshError *error);

#endif
