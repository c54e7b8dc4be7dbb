/* Keys that profiles of ~/.aws lead to (roles, programs): taken as Amazon's tools take them, and in no
 * message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stores/stores_support.h"

static const char *const secrets[] = {"secret+", "session+token", "hunter2", NULL};

static void check(Serving *serving, const char *address, const char *const *environment, int exit_status,
                  const char *told)
{
    serving_check(serving, address, environment, exit_status, told, secrets);
}

static const char credentials[] = "[source]\n"
                                  "aws_access_key_id = sourcekey\n"
                                  "aws_secret_access_key = source/secret+key\n"
                                  "[wrong]\n"
                                  "aws_access_key_id = sourcekey\n"
                                  "aws_secret_access_key = hunter2hunter2\n"
                                  "aws_session_token = test/session+token\n"
                                  "[half]\n"
                                  "aws_access_key_id = sourcekey\n";

#define PACKER                                                                                               \
    "role_arn = arn:aws:iam::1:role/packer\n"                                                                \
    "external_id = an=id/+\n"                                                                                \
    "role_session_name = a.run\n"                                                                            \
    "duration_seconds = 1800\n"

static const char config[] =
    "[profile role]\n" PACKER "source_profile = source\n"
    "[profile middle]\nrole_arn = arn:aws:iam::1:role/middle\nsource_profile = source\n"
    "[profile chain]\n" PACKER "source_profile = middle\n"
    "[profile self]\n" PACKER "source_profile = self\n"
    "aws_access_key_id = sourcekey\naws_secret_access_key = source/secret+key\n"
    "[profile machine]\n" PACKER "credential_source = Ec2InstanceMetadata\n"
    "[profile container]\n" PACKER "credential_source = EcsContainer\n"
    "[profile denied]\nrole_arn = arn:aws:iam::1:role/packer\nsource_profile = source\n"
    "[profile wrong-keys]\n" PACKER "source_profile = wrong\n"
    "[profile half-keys]\n" PACKER "source_profile = half\n"
    "[profile no-source]\n" PACKER "[profile no-such]\n" PACKER "source_profile = nobody\n"
    "[profile two]\n" PACKER "source_profile = source\ncredential_source = EcsContainer\n"
    "[profile mfa]\n" PACKER "source_profile = source\nmfa_serial = arn:aws:iam::1:mfa/me\n"
    "[profile round]\n" PACKER "source_profile = about\n"
    "[profile about]\n" PACKER "source_profile = round\n"
    "[profile variables]\n" PACKER "credential_source = Environment\n"
    "[profile days]\nrole_arn = arn:aws:iam::1:role/packer\nsource_profile = source\nduration_seconds = 2h\n";

TEST_WITH(test_profiles_assume_roles, serving_setup, serving_teardown, Serving *serving)
{
    static const struct {
        const char *profile, *told;
        int exit_status;
    } cases[] = {
        {"role", "fetched ", 0},
        {"chain", "", 0},
        {"self", "", 0},
        {"machine", "", 0},
        {"container", "", 0},
        {"identity", "", 0},
        {"source", "asked with the credentials of profile 'source' of ~/.aws", 1},
        {"middle", "asked with the credentials of profile 'middle' of ~/.aws", 1},
        {"denied", "profile 'denied' of ~/.aws: no credentials come: the server says 403 (AccessDenied: ", 1},
        {"wrong-keys", "SignatureDoesNotMatch: It should have been x-amz-security-token:***", 1},
        {"half-keys", "profile 'half' of ~/.aws: has no keys to ask for the role of profile 'half-keys'", 1},
        {"no-source", "role_arn wants source_profile, web_identity_token_file, or a credential_source", 2},
        {"no-such", "source_profile is 'nobody', and neither", 1},
        {"two", "has source_profile and credential_source", 2},
        {"mfa", "configure export-credentials --profile 'mfa'", 1},
        {"round", "source_profile leads in a circle", 2},
        {"variables", "credential_source is Environment, which has no keys", 1},
        {"days", "duration_seconds is '2h', which is no number", 2},
    };
    char name[64], text[sizeof config + 256];
    test_file_write_text(test_path(&serving->folder, "cache/.aws/credentials"), credentials);
    test_file_write_text(test_path(&serving->folder, "token"), "lent-by/this+server\n");
    (void)snprintf(
        text, sizeof text,
        "%s[profile identity]\nrole_arn = arn:aws:iam::1:role/packer\nweb_identity_token_file = %s\n", config,
        test_path(&serving->folder, "token"));
    test_file_write_text(test_path(&serving->folder, "cache/.aws/config"), text);
    const char *const environment[] = {
        name,
        serving_variable(serving, "AWS_ENDPOINT_URL_STS", "lend/sts"),
        serving_variable(serving, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "lend/imds"),
        serving_variable(serving, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "lend/container"),
        "AWS_CONTAINER_AUTHORIZATION_TOKEN=lent-by/this+server",
        "AWS_REGION=eu-west-1",
        NULL};
    serving_pack(serving, "bucket/set", 20, 16, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        (void)snprintf(name, sizeof name, "AWS_PROFILE=%s", cases[i].profile);
        check(serving, "s3://bucket/set", environment, cases[i].exit_status, cases[i].told);
    }
}

/* Writes a profile whose keys a program prints. */
static void write_process(Serving *serving, const char *command, const char *script)
{
    char text[1024];
    const char *path = test_path(&serving->folder, "a program");
    test_file_write_text(path, script);
    (void)snprintf(text, sizeof text, "[default]\ncredential_process = sh \"%s\" %s\n", path, command);
    test_file_write_text(test_path(&serving->folder, "cache/.aws/config"), text);
}

TEST_WITH(test_a_program_prints_keys, serving_setup, serving_teardown, Serving *serving)
{
    static const char prints[] =
        "echo \"for the user, $#: $1\" >&2\n"
        "echo '{\"Version\": 1, \"AccessKeyId\": \"testkey\", \"SecretAccessKey\": \"test/secret+key\",'\n"
        "echo '\"SessionToken\": \"test/session+token\", \"Expiration\": \"2099-01-01T00:00:00+00:00\"}'\n";
    static const char fails[] = "echo hunter2hunter2; echo 'the card is away' >&2; exit 3\n";
    static const char old[] =
        "echo '{\"Version\": 1, \"AccessKeyId\": \"testkey\", \"SecretAccessKey\": \"test/secret+key\",'\n"
        "echo '\"Expiration\": \"2020-01-01T00:00:00Z\"}'\n";
    const char *const none[] = {NULL, NULL};
    serving_pack(serving, "bucket/set", 20, 16, NULL);
    write_process(serving, "'$HOME; exit 1' ~", prints);
    check(serving, "s3://bucket/set", none, 0, "for the user, 2: $HOME; exit 1");
    write_process(serving, "", fails);
    check(serving, "s3://bucket/set", none, 1, "the card is away");
    check(serving, "s3://bucket/set", none, 1, "credential_process failed with exit status 3");
    write_process(serving, "", old);
    check(serving, "s3://bucket/set", none, 1, "have ended already");
    write_process(serving, "", "echo hunter2hunter2\n");
    check(serving, "s3://bucket/set", none, 1, "prints no JSON with \"Version\": 1");
    test_file_write_text(test_path(&serving->folder, "cache/.aws/config"),
                         "[default]\ncredential_process = ~/no-such --hunter\n");
    check(serving, "s3://bucket/set", none, 1, "~/no-such: No such file or directory; no shell reads");
}

/* Keys of a program that end soon are asked for again before each file, as lent ones are. */
TEST_WITH(test_a_program_is_run_again_when_its_keys_end, serving_setup, serving_teardown, Serving *serving)
{
    static const char *const ends[] = {"+1 hour", "+1 minute"};
    const char *const more[] = {"--no-check", "--shard-size", "500K", NULL};
    const char *runs = test_path(&serving->folder, "runs");
    char script[1024];
    serving_pack(serving, "set", 20, 256, more);
    for (size_t i = 0; i < 2; i++) {
        size_t bytes = 0;
        (void)snprintf(script, sizeof script,
                       "printf x >> '%s'\n"
                       "end=$(date -u -d '%s' +%%Y-%%m-%%dT%%H:%%M:%%SZ)\n"
                       "echo '{\"Version\": 1, \"AccessKeyId\": \"testkey\",'\n"
                       "echo '\"SecretAccessKey\": \"test/secret+key\", \"Expiration\": \"'$end'\"}'\n",
                       runs, ends[i]);
        write_process(serving, "", script);
        test_file_write_text(runs, "");
        RunResult result = serving_run(serving, NULL, "fpack", "--no-check", "--shard-size", "500K",
                                       test_path(&serving->folder, "images-set"),
                                       i ? "s3://bucket/b" : "s3://bucket/a", NULL);
        if (result.exit_status)
            fail_msg("%s", result.err);
        run_result_free(&result);
        const size_t shards = serving_check_shards(
            serving, test_path(&serving->folder, i ? "www/bucket/b" : "www/bucket/a"), "set");
        free(test_file_read(runs, &bytes));
        assert_int_equal(bytes, i ? shards + 2 : 1);
    }
}
