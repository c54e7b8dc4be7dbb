/* Single sign-on of profiles of ~/.aws, with the tokens that Amazon's command line leaves: no secret is in
 * any message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/stores/stores_support.h"

static const char *const secrets[] = {"secret+",    "session+token", "sso-access", "sso-refresh",
                                      "sso-client", "hunter2",       NULL};

/* The names of the tokens' files: SHA-1 of "lab", and of the address, by sha1sum. */
#define OF_SESSION "cache/.aws/sso/cache/3953f9ddf975ab5097ee468d99555c5b441169bf.json"
#define OF_ADDRESS "cache/.aws/sso/cache/7377e82004c017d627d7348cacd973870d0d9f18.json"

static const char config[] =
    "[sso-session lab]\nsso_region = eu-west-1\nsso_start_url = https://lab.awsapps.com/start\n"
    "[profile sso]\nsso_session = lab\nsso_account_id = 111122223333\nsso_role_name = Data reader+\n"
    "[profile old]\nsso_start_url = https://lab.awsapps.com/start\nsso_region = eu-west-1\n"
    "sso_account_id = 111122223333\nsso_role_name = Data reader+\n"
    "[profile other-role]\nsso_session = lab\nsso_account_id = 111122223333\nsso_role_name = Admin\n"
    "[profile no-role]\nsso_session = lab\nsso_account_id = 111122223333\n"
    "[profile no-session]\nsso_session = nowhere\nsso_account_id = 111122223333\nsso_role_name = Admin\n"
    "[profile bad-region]\nsso_start_url = https://lab.awsapps.com/start\nsso_region = evil.example/\n"
    "sso_account_id = 111122223333\nsso_role_name = Data reader+\n"
    "[profile role]\nrole_arn = arn:aws:iam::1:role/packer\nsource_profile = sso\nexternal_id = an=id/+\n"
    "role_session_name = a.run\nduration_seconds = 1800\n";

#define TOKEN(access, end)                                                                                   \
    "{\"startUrl\": \"x\", \"accessToken\": \"" access "\", \"expiresAt\": \"" end "\"}"
#define RENEWABLE(end, client_end)                                                                           \
    "{\"accessToken\": \"sso-access+0\", \"expiresAt\": \"" end "\", \"clientId\": \"sso-client\", "         \
    "\"clientSecret\": \"sso-client/secret\", \"registrationExpiresAt\": \"" client_end "\", "               \
    "\"refreshToken\": \"sso-refresh+1\", \"region\": \"eu-west-1\"}"
#define LATER "2099-01-01T00:00:00Z"
#define OVER  "2026-01-01T00:00:00Z"

/* Runs fverify with a profile, and expects an exit status and a text. */
static void check(Serving *serving, const char *profile, int exit_status, const char *told)
{
    char name[64];
    (void)snprintf(name, sizeof name, "AWS_PROFILE=%s", profile);
    const char *const environment[] = {name, serving_variable(serving, "AWS_ENDPOINT_URL_SSO", "lend/sso"),
                                       serving_variable(serving, "AWS_ENDPOINT_URL_SSO_OIDC", "lend/oidc"),
                                       serving_variable(serving, "AWS_ENDPOINT_URL_STS", "lend/sts"), NULL};
    serving_check(serving, "s3://bucket/set", environment, exit_status, told, secrets);
}

TEST_WITH(test_single_sign_on_gives_keys, serving_setup, serving_teardown, Serving *serving)
{
    serving_pack(serving, "bucket/set", 20, 16, NULL);
    test_file_write_text(test_path(&serving->folder, "cache/.aws/config"), config);
    check(serving, "sso", 1,
          "profile 'sso' of ~/.aws: nobody has signed in; aws sso login --profile 'sso' signs in");
    test_file_write_text(test_path(&serving->folder, OF_SESSION), TOKEN("sso-access+1", LATER));
    check(serving, "sso", 0, "fetched ");
    check(serving, "role", 0, "");
    check(serving, "old", 1, "nobody has signed in; aws sso login --profile 'old'");
    test_file_write_text(test_path(&serving->folder, OF_ADDRESS), TOKEN("sso-access+1", LATER));
    check(serving, "old", 0, "");
    check(serving, "other-role", 1,
          "does not have the role 'Admin' in the account 111122223333 (the server says 403)");
    check(serving, "no-role", 2,
          "single sign-on wants sso_start_url, sso_region, sso_account_id and sso_role_name");
    check(serving, "no-session", 1,
          "~/.aws/config has no [sso-session nowhere]; aws configure sso writes it");
    check(serving, "bad-region", 2, "single sign-on wants ");
    test_file_write_text(test_path(&serving->folder, OF_SESSION), TOKEN("hunter2hunter2", LATER));
    check(serving, "sso", 1, "the sign-on has ended (the server says 401); aws sso login --profile 'sso'");
    test_file_write_text(test_path(&serving->folder, OF_SESSION), TOKEN("sso-access+1", OVER));
    serving_forget(serving);
    check(serving, "sso", 1, "the sign-on has ended; aws sso login --profile 'sso' signs in");
    assert_int_equal(serving_count(serving, "/lend/"), 0);
    test_file_write_text(test_path(&serving->folder, OF_SESSION),
                         "{\"accessToken\": \"hunter2hunter2\", \"expiresAt\": 7}");
    check(serving, "sso", 1, "nobody has signed in");
    const char *const unsafe[] = {"AWS_PROFILE=old", "AWS_ENDPOINT_URL_SSO=http://elsewhere", NULL};
    serving_check(serving, "s3://bucket/set", unsafe, 2,
                  "AWS_ENDPOINT_URL_SSO: is neither https:// nor of this host", secrets);
}

/* A token that has ended is renewed where the file has what that takes, and is written back for other tools.
 * */
TEST_WITH(test_a_sign_on_is_renewed, serving_setup, serving_teardown, Serving *serving)
{
    const char *path = test_path(&serving->folder, OF_SESSION);
    struct stat state;
    serving_pack(serving, "bucket/set", 20, 16, NULL);
    test_file_write_text(test_path(&serving->folder, "cache/.aws/config"), config);
    test_file_write_text(path, RENEWABLE(OVER, OVER));
    check(serving, "sso", 1, "the sign-on has ended; aws sso login");
    test_file_write_text(path, RENEWABLE(OVER, LATER));
    check(serving, "sso", 0, "fetched ");
    check(serving, "sso", 0, "");
    assert_int_equal(serving_count(serving, "POST /lend/oidc/token"), 1);
    char *text = test_file_read(path, NULL);
    assert_contains(text, "\"sso-access+2\"");
    assert_contains(text, "\"sso-refresh+2\"");
    assert_contains(text, "\"region\": \"eu-west-1\"");
    free(text);
    assert_int_equal(stat(path, &state), 0);
    assert_int_equal(state.st_mode & 0777, 0600);
    test_file_write_text(path, RENEWABLE(OVER, LATER)); /* whose refresh token was used already */
    check(serving, "sso", 1, "the sign-on has ended; aws sso login");
}

/* Two processes renew the same token, which is good but once. */
TEST_WITH(test_a_sign_on_that_another_process_has_renewed_is_taken, serving_setup, serving_teardown,
          Serving *serving)
{
    const char *path = test_path(&serving->folder, OF_SESSION);
    char text[2048];
    serving_pack(serving, "bucket/set", 20, 16, NULL);
    test_file_write_text(test_path(&serving->folder, "cache/.aws/config"), config);
    test_file_write_text(path, RENEWABLE(OVER, LATER));
    (void)snprintf(text, sizeof text, "%s\n%s", path, TOKEN("sso-access+2", LATER));
    test_file_write_text(test_path(&serving->folder, "www/renewed-token"), text);
    check(serving, "sso", 0, "fetched ");
    assert_int_equal(serving_count(serving, "POST /lend/oidc/token"), 1);
    (void)snprintf(text, sizeof text, "%s\n%s", path, TOKEN("hunter2hunter2", OVER)); /* no news */
    test_file_write_text(test_path(&serving->folder, "www/renewed-token"), text);
    test_file_write_text(path, RENEWABLE(OVER, LATER));
    check(serving, "sso", 1, "the sign-on has ended; aws sso login");
}
