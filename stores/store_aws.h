/* store_aws.h - a profile of ~/.aws/credentials and ~/.aws/config, the files of Amazon's tools.
 *
 * Threads: any that do not change the environment. */
#ifndef FSHARD_STORES_STORE_AWS_H
#define FSHARD_STORES_STORE_AWS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"
#include "stores/store_site.h"

/* What is read of a profile; "": not given. It holds secrets: overwrite it when it is done with. */
typedef struct AwsProfile {
    char key[256], secret[512], token[STORE_SECRET_BYTES], region[64];
    /* A role, and with whose keys it is asked for: another profile's, "EcsContainer", a token's. */
    char role[2049], source_profile[256], credential_source[32], identity_file[4096];
    char session[65], external_id[1225], duration[16], mfa[257];
    char process[4096]; /* a command that prints keys */
    /* Single sign-on: its session, or where it begins without one; who one is there. */
    char sso_session[129], sso_start_url[513], sso_region[64], sso_account[32], sso_role[129];
    bool found;           /* there is a profile of this name */
    const char *too_long; /* the name of a value that does not fit; NULL: none */
} AwsProfile;

/* Reads a profile out of the text of one of the files. What the profile has already stays. word: "profile",
 * or "sso-session" for a section of that kind, whose values are a profile's, too. */
void aws_profile_parse(AwsProfile *profile, const char *text, size_t length, const char *word,
                       const char *name);

/* Reads a profile from both files: those that AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name, or the
 * usual ones. One that is not there says nothing. FSH_ERR_USAGE: a value is too long. What reading a file may
 * fail with; then the profile has what was read before. */
FshStatus aws_profile_read(AwsProfile *profile, const char *name, FshError *error);

/* Reads the section [sso-session NAME] of the second file. Fails as aws_profile_read. */
FshStatus aws_session_read(AwsProfile *session, const char *name, FshError *error);

#endif
