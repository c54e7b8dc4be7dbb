/* Credentials that machines, containers and clusters lend: asked for as their servers want it, and in no
 * message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/stores/stores_support.h"

static const char *const secrets[] = {"secret+key", "session+token", "lent-by", "testtoken", "hunter2", NULL};

static void assert_no_secret(const RunResult *result)
{
    for (const char *const *secret = secrets; *secret; secret++) {
        assert_contains_not(result->err, *secret);
        assert_contains_not(result->out, *secret);
    }
}

TEST_WITH(test_roles_lend_keys_for_s3, serving_setup, serving_teardown, Serving *serving)
{
    const char *file = test_path(&serving->folder, "token");
    char identity[512], container_file[512];
    test_file_write_text(file, "lent-by/this+server\n");
    (void)snprintf(identity, sizeof identity, "AWS_WEB_IDENTITY_TOKEN_FILE=%s", file);
    (void)snprintf(container_file, sizeof container_file, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=%s", file);
    const char *container = serving_variable(serving, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "lend/container");
    const char *machine = serving_variable(serving, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "lend/imds");
    const char *sts = serving_variable(serving, "AWS_ENDPOINT_URL_STS", "lend/sts");
    const struct {
        const char *environment[5], *told;
        int exit_status;
    } cases[] = {
        {{machine}, "fetched ", 0},
        {{container, "AWS_CONTAINER_AUTHORIZATION_TOKEN=lent-by/this+server"}, "", 0},
        {{container, container_file}, "", 0},
        {{identity, "AWS_ROLE_ARN=arn:aws:iam::1:role/packer", sts}, "", 0},
        {{machine, "AWS_EC2_METADATA_DISABLED=true"}, "no credentials were found", 1},
        {{container, "AWS_CONTAINER_AUTHORIZATION_TOKEN=hunter2hunter2"},
         "AWS_CONTAINER_CREDENTIALS_FULL_URI: no credentials come: the server says 401",
         1},
        {{serving_variable(serving, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "lend/none")},
         "the server says 404; AWS_EC2_METADATA_DISABLED=true goes on without it",
         1},
        {{identity, "AWS_ROLE_ARN=arn:aws:iam::1:role/other", sts},
         "the server says 400 (InvalidIdentityToken: The web identity token is not valid.)",
         1},
        {{"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://elsewhere/x"}, "neither https:// nor of this host", 2},
        {{"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1:1@elsewhere/x"}, "nor of this host", 2},
        {{machine, "AWS_ACCESS_KEY_ID=other", "AWS_SECRET_ACCESS_KEY=hunter2hunter2"},
         "asked with the credentials of AWS_ACCESS_KEY_ID",
         1},
    };
    serving_pack(serving, "bucket/set", 20, 16, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        RunResult result = serving_run(serving, cases[i].environment, "fverify", "s3://bucket/set", NULL);
        if (result.exit_status != cases[i].exit_status)
            fail_msg("case %zu: exit status %d: %s", i, result.exit_status, result.err);
        assert_contains(result.err, cases[i].told);
        assert_no_secret(&result);
        run_result_free(&result);
    }
    /* The token of a web identity is in no URL, which servers write into their logs. */
    assert_int_equal(serving_count(serving, "lent-by"), 0);
}

/* STS is on the internet, which a cluster may reach by a proxy alone; the machine's own servers are not. */
TEST_WITH(test_sts_is_asked_by_the_proxy, serving_setup, serving_teardown, Serving *serving)
{
    const char *file = test_path(&serving->folder, "token");
    char identity[512];
    test_file_write_text(file, "lent-by/this+server\n");
    (void)snprintf(identity, sizeof identity, "AWS_WEB_IDENTITY_TOKEN_FILE=%s", file);
    const char *const environment[] = {identity,
                                       "AWS_ROLE_ARN=arn:aws:iam::1:role/packer",
                                       "AWS_ENDPOINT_URL_STS=http://sts.test/lend/sts",
                                       serving_variable(serving, "http_proxy", ""),
                                       "no_proxy=127.0.0.1",
                                       NULL};
    serving_pack(serving, "bucket/set", 20, 16, NULL);
    RunResult result = serving_run(serving, environment, "fverify", "s3://bucket/set", NULL);
    if (result.exit_status)
        fail_msg("%s", result.err);
    assert_no_secret(&result);
    run_result_free(&result);
    assert_int_equal(serving_count(serving, "POST http://sts.test/lend/sts/"), 1);
}

TEST_WITH(test_a_machine_lends_a_token_for_google, serving_setup, serving_teardown, Serving *serving)
{
    char host[64];
    (void)snprintf(host, sizeof host, "GCE_METADATA_HOST=127.0.0.1:%s", serving->port);
    const char *const environment[] = {host, NULL};
    serving_pack(serving, "bucket/set", 20, 16, NULL);
    RunResult result = serving_run(serving, environment, "fverify", "gs://bucket/set", NULL);
    if (result.exit_status)
        fail_msg("%s", result.err);
    assert_no_secret(&result);
    run_result_free(&result);
    assert_int_equal(serving_count(serving, "/computeMetadata/"), 1);
}

/* A packing takes longer than what it was lent is good for. */
TEST_WITH(test_keys_that_end_soon_are_renewed_before_each_file, serving_setup, serving_teardown,
          Serving *serving)
{
    const char *const environment[] = {
        serving_variable(serving, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "lend/imds"), NULL};
    serving_pack_twice(serving, environment, "s3", "", "/lend/imds/latest/api/token", secrets);
}

/* Who lends may be away for a while; what was lent is good until its end. */
TEST_WITH(test_keys_that_cannot_be_renewed_are_good_until_their_end, serving_setup, serving_teardown,
          Serving *serving)
{
    const char *const environment[] = {
        serving_variable(serving, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "lend/imds"), NULL};
    serving_pack(serving, "set", 8, 64, NULL);
    test_file_write_text(test_path(&serving->folder, "www/short-lives"), "");
    test_file_write_text(test_path(&serving->folder, "www/lends-once"), "");
    serving_forget(serving);
    RunResult result = serving_run(serving, environment, "fpack", "--no-check",
                                   test_path(&serving->folder, "images-set"), "s3://bucket/a", NULL);
    if (result.exit_status)
        fail_msg("%s", result.err);
    run_result_free(&result);
    assert_true(serving_count(serving, "/lend/imds/latest/api/token") > 1);
}

/* A machine whose role is taken away has no credentials, which is no reason to send files unsigned. */
TEST_WITH(test_a_role_that_is_gone_does_not_make_uploads_anonymous, serving_setup, serving_teardown,
          Serving *serving)
{
    const char *const environment[] = {
        serving_variable(serving, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "lend/imds"), NULL};
    static const char *const lives[] = {"60", "-60"}; /* seconds */
    char times[32];
    serving_pack(serving, "set", 8, 64, NULL);
    for (size_t i = 0; i < 2; i++) {
        test_file_write_text(test_path(&serving->folder, "www/short-lives"), lives[i]);
        (void)snprintf(times, sizeof times, "%zu", serving_count(serving, "/lend/imds/latest/api/token") + 1);
        test_file_write_text(test_path(&serving->folder, "www/loses-role"), times);
        RunResult result = serving_run(serving, environment, "fpack", "--no-check",
                                       test_path(&serving->folder, "images-set"),
                                       i ? "s3://bucket/b" : "s3://bucket/a", NULL);
        if (result.exit_status != (int)i)
            fail_msg("exit status %d: %s", result.exit_status, result.err);
        if (i)
            assert_contains(result.err, "the role of this EC2 instance gives no credentials any more");
        run_result_free(&result);
        assert_true(serving_count(serving, "/lend/imds/latest/api/token") > (size_t)strtoul(times, NULL, 10));
    }
}
