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
    char from[64];                  /* who lends it, for messages */
    int64_t end_seconds;            /* until when, since 1970; 0: it is not told */
} StoreLent;

/* Asks for a web identity's keys; found is false where the environment has none. FSH_ERR_SYSTEM: nobody
 * answers as they should; the message has no secret. */
FshStatus store_lent_by_identity(StoreLent *lent, const char *region, FshError *error);
/* Asks for those of a container, else of a machine. Fails likewise. */
FshStatus store_lent_by_host(StoreLent *lent, FshError *error);
/* Asks for Google's token of a machine. Fails likewise. */
FshStatus store_lent_by_google(StoreLent *lent, FshError *error);

#endif
