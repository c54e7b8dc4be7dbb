/* Buckets that are everybody's are read by those, too, whose credentials are named and not to be had; and
 * what is wrong for good is told soon. */
#include <stdio.h>
#include <string.h>

#include "common/progress.h"
#include "tests/stores/stores_support.h"

static const char *const secrets[] = {"hunter2", "testtoken", NULL};

TEST_WITH(test_public_buckets_want_no_credentials, serving_setup, serving_teardown, Serving *serving)
{
    const char *file =
        test_path(&serving->folder, "GOOGLE_APPLICATION_CREDENTIALS=%s/gone.json", serving->folder.path) +
        strlen(serving->folder.path) + 1;
    const char *silent = serving_variable(serving, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "lend/none");
    const struct {
        const char *environment[3], *address, *told;
        int exit_status;
    } cases[] = {
        {{"AWS_PROFILE=nobody"},
         "s3://public/set",
         "s3://public/set: is read as anybody may, without credentials: s3://public/set: AWS_PROFILE is "
         "'nobody'",
         0},
        {{silent}, "s3://public/set", "without credentials: the role of this EC2 instance", 0},
        {{"AWS_ACCESS_KEY_ID=hunter2hunter2"},
         "s3://public/set",
         "AWS_ACCESS_KEY_ID has a key without the other half",
         0},
        {{file}, "gs://public/set", "without credentials: GOOGLE_APPLICATION_CREDENTIALS: ", 0},
        {{NULL}, "s3://public/set", "", 0},
        {{"AWS_PROFILE=nobody"},
         "s3://bucket/set",
         "the server says 403 Forbidden (AccessDenied: The request was refused.), and there are no "
         "credentials: "
         "s3://bucket/set: AWS_PROFILE is 'nobody'",
         1},
        {{"AWS_PROFILE=nobody"},
         "s3://elsewhere/set",
         "set AWS_REGION=eu-central-1; and there are no credentials: s3://elsewhere/set: AWS_PROFILE is "
         "'nobody'",
         1},
        {{file}, "gs://bucket/set", "and there are no credentials: GOOGLE_APPLICATION_CREDENTIALS: ", 1},
        {{"AWS_ACCESS_KEY_ID=other", "AWS_SECRET_ACCESS_KEY=hunter2hunter2"},
         "s3://public/set",
         "asked with the credentials of AWS_ACCESS_KEY_ID: may they do that? AWS_NO_SIGN_REQUEST=YES reads "
         "what is everybody's",
         1},
        {{"AWS_ACCESS_KEY_ID=other", "AWS_SECRET_ACCESS_KEY=hunter2hunter2", "AWS_NO_SIGN_REQUEST=YES"},
         "s3://public/set",
         "",
         0},
        {{"GOOGLE_OAUTH_ACCESS_TOKEN=hunter2hunter2", "GS_NO_SIGN_REQUEST=YES"}, "gs://public/set", "", 0},
        {{"AWS_NO_SIGN_REQUEST=YES"},
         "s3://bucket/set",
         "and there are no credentials: AWS_NO_SIGN_REQUEST is set",
         1},
    };
    serving_pack(serving, "bucket/set", 20, 16, NULL);
    serving_pack(serving, "public/set", 20, 16, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const environment[] = {cases[i].environment[0], cases[i].environment[1],
                                           cases[i].environment[2], NULL};
        serving_check(serving, cases[i].address, environment, cases[i].exit_status, cases[i].told, secrets);
    }
}

/* Nothing is written without the credentials that are named. */
TEST_WITH(test_nothing_is_written_without_credentials, serving_setup, serving_teardown, Serving *serving)
{
    const char *const environment[] = {"AWS_PROFILE=nobody", NULL};
    serving_pack(serving, "set", 8, 16, NULL);
    RunResult result = serving_run(serving, environment, "fpack", test_path(&serving->folder, "images-set"),
                                   "s3://public/new", NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "AWS_PROFILE is 'nobody'");
    assert_int_equal(serving_count(serving, "/s3/"), 0);
    run_result_free(&result);
}

/* A name that no resolver can have (a part of it has more than 63 characters), with or without a network. */
#define NO_HOST "a23456789b23456789c23456789d23456789e23456789f23456789g23456789.invalid"

TEST_WITH(test_what_is_wrong_for_good_is_told_soon, serving_setup, serving_teardown, Serving *serving)
{
    const struct {
        const char *variable, *address, *told;
    } cases[] = {
        {
            NULL,
            "http://x" NO_HOST "/set",
            "tried 2 times in 0.",
        },
        {NULL, "http://x" NO_HOST "/set",
         "is the address spelled right, and can this machine look up names?"},
        {"AWS_ENDPOINT_URL=http://x" NO_HOST, "s3://public/set",
         "is AWS_REGION right, or AWS_ENDPOINT_URL where it is set"},
        {NULL, serving_address(serving, "403/set"), "the server says 403 Forbidden"},
        {NULL, serving_address(serving, "ok/none"), "the server says 404 Not Found"},
        {serving_variable(serving, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "silent"), "s3://bucket/set",
         "--http-put-response-hop-limit 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const environment[] = {cases[i].variable, NULL};
        const double begin = progress_now_seconds();
        serving_check(serving, cases[i].address, environment, 1, cases[i].told, secrets);
        assert_true(progress_now_seconds() - begin < 6); /* 2.4 s for the silent one, on a free machine */
    }
}
