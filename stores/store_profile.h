/* store_profile.h - the keys that a profile of ~/.aws leads to, in the order of Amazon's tools.
 *
 *   1. role_arn: STS AssumeRole with the keys of source_profile, whose own keys count before its role, and
 *      which may lead on; with those of credential_source (EcsContainer, Ec2InstanceMetadata); or with
 *      web_identity_token_file. external_id, role_session_name, duration_seconds.
 *   2. aws_access_key_id, aws_secret_access_key, aws_session_token
 *   3. single sign-on (store_sso.h)
 *   4. credential_process
 *
 * Threads: any that do not change the environment. */
#ifndef FSHARD_STORES_STORE_PROFILE_H
#define FSHARD_STORES_STORE_PROFILE_H

#include "common/error.h"
#include "stores/store_aws.h"
#include "stores/store_lent.h"

/* Finds the keys of a profile that was read; found is false where it has none. region: of STS.
 * FSH_ERR_UNSUPPORTED: a device's code is wanted; the message says what to do instead.
 * FSH_ERR_USAGE: the profile contradicts itself, or leads in a circle. FSH_ERR_NOT_FOUND: a profile that it
 * names is not there. FSH_ERR_SYSTEM: nobody lends. What reading a file, store_lent_by_sso and
 * store_lent_by_process may fail with. No message has a secret. */
FshStatus store_lent_by_profile(StoreLent *lent, const char *name, const AwsProfile *profile,
                                const char *region, FshError *error);

#endif
