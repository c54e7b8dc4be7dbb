/* store_google_file.h - what Google's application default credentials are, as the JSON file has them:
 *
 *   authorized_user               gcloud auth application-default login: a refresh token
 *   service_account               a key file: signs for an access token itself (store_jwt.h)
 *   external_account              workload identity federation: a token of somebody else's, in a file or at
 *                                 an address
 *   impersonated_service_account  one of the first two, which asks for the token of another account
 *
 * Threads: any. */
#ifndef FSHARD_STORES_STORE_GOOGLE_FILE_H
#define FSHARD_STORES_STORE_GOOGLE_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "stores/store_site.h"

enum { GOOGLE_HEADERS_MAX = 2 };

typedef enum GoogleKind { GOOGLE_USER, GOOGLE_ACCOUNT, GOOGLE_EXTERNAL } GoogleKind;

/* What is read of the file; "": not given. It holds secrets: overwrite it when it is done with. */
typedef struct GoogleFile {
    GoogleKind kind;
    char client[512], client_secret[512], refresh_token[STORE_SECRET_BYTES]; /* GOOGLE_USER */
    char email[512], key_id[128], key[16384];                                /* GOOGLE_ACCOUNT */
    /* GOOGLE_EXTERNAL. Its token is in a file, or what an address answers to these lines. */
    char audience[1024], subject_type[256], subject_file[PATH_MAX], subject_url[STORE_URL_BYTES];
    char subject_headers[GOOGLE_HEADERS_MAX][STORE_SECRET_BYTES];
    char subject[128];                       /* the token's name where that is JSON; "": it is all */
    char token_url[STORE_URL_BYTES];         /* who gives the access token; "": Google's usual server */
    char impersonation_url[STORE_URL_BYTES]; /* who gives another account's for that; "": nobody */
} GoogleFile;

/* Reads the file's text; path: for messages. FSH_ERR_UNSUPPORTED: it is of another type; the message says
 * what to do. FSH_ERR_CORRUPT: it is no such file, lacks something, or has it too long. FSH_ERR_USAGE: it
 * names a server to which no secrets go. No message has a secret. */
FshStatus google_file_parse(GoogleFile *file, const char *text, size_t length, const char *path,
                            FshError *error);

/* Reads the token of somebody else's out of its file's text, or what came. Returns false if it is not there,
 * or does not fit. */
bool google_subject_parse(const GoogleFile *file, const char *text, size_t length,
                          char token[STORE_SECRET_BYTES]);

#endif
