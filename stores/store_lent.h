/* store_lent.h - credentials that a machine, a container or a cluster lends for some hours, as Amazon's and
 * Google's own tools find them.
 *
 *   a web identity   AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN (Kubernetes: IRSA): the token of the file is
 *                    given to AWS_ENDPOINT_URL_STS, AWS_ENDPOINT_URL or sts.REGION.amazonaws.com for keys
 *   a container      AWS_CONTAINER_CREDENTIALS_RELATIVE_URI (ECS), or AWS_CONTAINER_CREDENTIALS_FULL_URI
 *                    (EKS Pod Identity) with AWS_CONTAINER_AUTHORIZATION_TOKEN or _TOKEN_FILE
 *   a machine        the role of an EC2 instance (IMDSv2), where /sys says that this is one or
 *                    AWS_EC2_METADATA_SERVICE_ENDPOINT says who to ask; AWS_EC2_METADATA_DISABLED=true: never
 *   Google's         the token of a machine's service account, where /sys says that this is Google's or
 *                    GCE_METADATA_HOST says who to ask
 *
 * No other machine is kept waiting for a server that it does not have.
 *
 * Threads: any that do not change the environment. */
#ifndef FSHARD_STORES_STORE_LENT_H
#define FSHARD_STORES_STORE_LENT_H

#include <stdbool.h>
#include <stdint.h>

#include "stores/store_site.h"

/* What is lent. It holds secrets: overwrite it when it is done with. */
typedef struct StoreLent {
    bool found;
    char key[256], secret[512];     /* Amazon's */
    char token[STORE_SECRET_BYTES]; /* Amazon's session token, Google's access token */
    char from[256];                 /* who lends it, for messages */
    int64_t end_seconds;            /* until when, since 1970; 0: it is not told */
} StoreLent;

/* Who asks STS with a token of somebody else's. */
typedef struct StoreIdentity {
    const char *file;        /* has the token */
    const char *role;        /* ARN */
    const char *session;     /* NULL: "fshard" */
    const char *from;        /* what names the file, for messages */
    const char *credentials; /* what the keys are called in messages */
} StoreIdentity;

/* Asks for a web identity's keys. FSH_ERR_SYSTEM: nobody answers as they should; the message has no secret.
 * FSH_ERR_USAGE: the token is too long. What reading the file may fail with. */
FshStatus store_lent_by_identity(StoreLent *lent, const StoreIdentity *identity, const char *region,
                                 FshError *error);
/* Asks for those of the environment's web identity; found is false where it has none. Fails likewise. */
FshStatus store_lent_by_environment(StoreLent *lent, const char *region, FshError *error);
/* Asks for those of a container; found is false where this is none. Fails likewise. */
FshStatus store_lent_by_container(StoreLent *lent, FshError *error);
/* Asks for those of an EC2 instance; found is false where this is none, or has none. Fails likewise. */
FshStatus store_lent_by_machine(StoreLent *lent, FshError *error);
/* Asks for Google's token of a machine; found is false where this is none. Fails likewise. */
FshStatus store_lent_by_google(StoreLent *lent, FshError *error);

#endif
