/* Datasets on servers, read by the programs: what is fetched, what stays, what each fault of a server
 * does. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "tests/stores/stores_support.h"

static const char *const small_shards[] = {"--shard-size", "16K", NULL};

/* Asserts that fverify of an address ends as expected. environment: NULL, or more of it. told: NULL, or what
 * it says. */
static void expect_verify(Serving *serving, const char *const *environment, const char *address,
                          int exit_status, const char *told)
{
    RunResult result = serving_run(serving, environment, "fverify", address, NULL);
    if (result.exit_status != exit_status)
        fail_msg("%s: exit status %d: %s", address, result.exit_status, result.err);
    if (told)
        assert_contains(result.err, told);
    run_result_free(&result);
}

TEST_WITH(test_a_dataset_is_fetched_once_and_then_found_in_the_cache, serving_setup, serving_teardown,
          Serving *serving)
{
    serving_pack(serving, "small", 40, 32, small_shards);
    RunResult result = serving_run(serving, NULL, "fverify", serving_address(serving, "ok/small"), NULL);
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.err, "fetched ");
    assert_contains(result.out, serving_address(serving, "ok/small: ok"));
    assert_contains_not(result.out, "fshard/datasets"); /* it is called by its address */
    run_result_free(&result);
    assert_in_range(serving_check_shards(serving, serving_entry(serving, "small-"), "small"), 4, 40);
    serving_forget(serving);
    result = serving_run(serving, NULL, "fverify", serving_address(serving, "ok/small/dataset.json"), NULL);
    assert_int_equal(result.exit_status, 0);
    assert_string_equal(result.err, "");
    run_result_free(&result);
    assert_int_equal(serving_count(serving, "GET"), 1);
    assert_int_equal(serving_count(serving, "/dataset.json"), 1);
}

TEST_WITH(test_a_large_file_comes_in_parts, serving_setup, serving_teardown, Serving *serving)
{
    serving_pack(serving, "large", 12, 1024, NULL);
    expect_verify(serving, NULL, serving_address(serving, "ok/large"), 0, NULL);
    assert_int_equal(serving_count(serving, "train-00000-of-00001.fshard bytes="), 3);
    assert_int_equal(serving_count(serving, "bytes=16777216-33554431"), 1);
    assert_int_equal(serving_check_shards(serving, serving_entry(serving, "large-"), "large"), 2);
}

TEST_WITH(test_tars_and_lmdbs_are_fetched_with_what_stands_beside_them, serving_setup, serving_teardown,
          Serving *serving)
{
    const char *const tar[] = {"--format", "tar", NULL}, *const lmdb[] = {"--format", "lmdb", NULL};
    const char *const basicsr[] = {"--layout", "basicsr", "--pairs", "dog:cat", NULL};
    serving_pack(serving, "tars", 12, 16, tar);
    serving_pack(serving, "lmdbs", 12, 16, lmdb);
    serving_pack(serving, "sides", 12, 16, basicsr);
    RunResult result = serving_run(serving, NULL, "fverify", serving_address(serving, "ok/tars"),
                                   serving_address(serving, "ok/lmdbs"), NULL);
    assert_string_equal(strstr(result.err, "ERROR") ? result.err : "", "");
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    expect_verify(serving, NULL, serving_address(serving, "ok/sides"), 1, "are not read from servers");
}

/* A fault of the server, and what comes of it with two retries. */
static const struct {
    const char *fault;
    int exit_status;
    const char *told[3];
} faults[] = {
    {"503-twice", 0, {"fetched "}},
    {"503-after", 0, {"fetched "}},
    {"429", 1, {"429 Too Many Requests (SlowDown: Please reduce your request rate.)", "tried 3 times in"}},
    {"500", 1, {"500 Internal Server Error", "tried 3 times in", "the same command goes on"}},
    {"403", 1, {"403 Forbidden (AccessDenied: Access Denied)", "no credentials were found", "~/.netrc"}},
    {"403-shards", 1, {".fshard: the server says 403 Forbidden"}},
    {"redirect", 0, {"fetched "}},
    {"redirect-loop", 1, {"redirects followed"}},
    {"cuts-twice", 0, {"fetched "}},
    {"cuts", 1, {".fshard: ", "tried 3 times in", "the same command goes on"}},
    {"stalls-once", 0, {"fetched "}},
    {"stalls", 1, {"the connection stalled: less than 1 KiB/s for 1 s", "tried 3 times in"}},
    {"lies-shorter", 0, {"fetched "}},
    {"lies-longer", 1, {"sends more bytes than were asked for", "upload the file again"}},
    {"lies-total", 1, {"the server says that it has ", "and the manifest lists "}},
    {"other-part", 1, {"sends another part than was asked for"}},
    {"no-parts", 0, {"fetched "}},
    {"other-bytes-once", 0, {"other bytes came than were packed", "fetching it again", "fetched "}},
    {"other-bytes", 1, {"other bytes came than were packed", "fetched 3 times", "upload it again"}},
};

TEST_WITH(test_every_fault_of_a_server_is_outlived_or_told, serving_setup, serving_teardown, Serving *serving)
{
    const char *const one_shard[] = {"--shard-size", "1M", NULL};
    serving_pack(serving, "small", 40, 32, one_shard);
    enum { FAULTS = sizeof faults / sizeof *faults };
    RunningProgram running[FAULTS];
    for (size_t i = 0; i < FAULTS; i++) { /* side by side: they wait most of the time */
        char path[64];
        (void)snprintf(path, sizeof path, "%s/small", faults[i].fault);
        const char *arguments[] = {
            serving_address(serving, path), "--fetch-retries", "2", "--fetch-timeout", "1", NULL};
        running[i] = serving_start(serving, NULL, "fverify", arguments);
    }
    for (size_t i = 0; i < FAULTS; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "/%s/small", faults[i].fault);
        RunResult result = run_wait(&running[i]);
        if (getenv("FSHARD_SHOW"))
            (void)printf("%s: exit status %d\n%s\n", faults[i].fault, result.exit_status, result.err);
        if (result.exit_status != faults[i].exit_status)
            fail_msg("%s: exit status %d: %s", faults[i].fault, result.exit_status, result.err);
        for (size_t j = 0; j < 3 && faults[i].told[j]; j++)
            assert_contains(result.err, faults[i].told[j]);
        if (result.exit_status) {
            assert_contains(result.err, path);
            assert_true(result.seconds < 15);
        }
        run_result_free(&result);
    }
    /* Nothing has a name that is not whole. */
    const char *datasets = test_path(&serving->folder, "cache/fshard/datasets");
    const char *find[] = {"-c",
                          "find \"$0\" -name '*.fshard' -exec sha256sum {} + | sed 's:  .*/: :' | sort -u",
                          datasets, NULL};
    RunResult result = run_program_arguments(NULL, "/bin/sh", find);
    size_t lines = 0;
    for (const char *c = result.out; (c = strchr(c, '\n')); c++)
        lines++;
    assert_int_equal(lines, 2); /* train and val, the same bytes in every entry */
    run_result_free(&result);
}

TEST_WITH(test_nobody_there_is_told, serving_setup, serving_teardown, Serving *serving)
{
    char address[64];
    (void)snprintf(address, sizeof address, "http://127.0.0.1:%d/set", (int)test_free_port());
    RunResult result = serving_run(serving, NULL, "fverify", address, "--fetch-retries", "1", NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "Failed to connect");
    assert_contains(result.err, "tried 2 times");
    run_result_free(&result);
    expect_verify(serving, NULL, serving_address(serving, "ok/missing"), 1,
                  "/ok/missing/dataset.json: the server says 404 Not Found");
    test_file_write_text(test_path(&serving->folder, "www/page/dataset.json"), "<html>log in</html>");
    expect_verify(serving, NULL, serving_address(serving, "ok/page"), 1, "/ok/page/dataset.json: line 1");
}

/* ---- credentials ---- */

TEST_WITH(test_s3_is_asked_with_signatures, serving_setup, serving_teardown, Serving *serving)
{
    const char *const keys[] = {"AWS_ACCESS_KEY_ID=testkey", "AWS_SECRET_ACCESS_KEY=test/secret+key", NULL};
    const char *const token[] = {"AWS_ACCESS_KEY_ID=testkey", "AWS_SECRET_ACCESS_KEY=test/secret+key",
                                 "AWS_SESSION_TOKEN=test/session+token", "AWS_REGION=eu-west-3", NULL};
    const char *const wrong[] = {"AWS_ACCESS_KEY_ID=testkey", "AWS_SECRET_ACCESS_KEY=hunter2hunter2", NULL};
    const char *const half[] = {"AWS_ACCESS_KEY_ID=testkey", NULL};
    /* What the files say is not needed, and they cannot be read. */
    const char *const folder[] = {"AWS_ACCESS_KEY_ID=testkey", "AWS_SECRET_ACCESS_KEY=test/secret+key",
                                  "AWS_SHARED_CREDENTIALS_FILE=/", "AWS_CONFIG_FILE=/", NULL};
    const char *const no_file[] = {"AWS_SHARED_CREDENTIALS_FILE=/", NULL};
    const char *const profile[] = {"AWS_PROFILE=lab", NULL}, *const no_profile[] = {"AWS_PROFILE=nobody",
                                                                                    NULL};
    const char *const none[] = {NULL};
    const char *const secrets[] = {"secret+key", "session+token", "hunter2", NULL};
    const struct {
        const char *const *environment;
        int exit_status;
        const char *told;
    } cases[] = {{keys, 0, "fetched "},
                 {token, 0, ""},
                 {profile, 0, ""},
                 {wrong, 1,
                  "403 Forbidden (SignatureDoesNotMatch: The request was refused.); asked with the "
                  "credentials of AWS_ACCESS_KEY_ID"},
                 {folder, 0, ""},
                 {half, 1, "AWS_ACCESS_KEY_ID has a key without the other half"},
                 {no_file, 1, "/: "},
                 {no_profile, 1, "AWS_PROFILE is 'nobody'"},
                 {none, 1, "no credentials were found: set AWS_ACCESS_KEY_ID"}};
    serving_pack(serving, "bucket/my set", 20, 16, NULL);
    test_file_write_text(test_path(&serving->folder, "cache/.aws/credentials"),
                         "[default]\naws_access_key_id = other\n\n[lab]\naws_access_key_id=testkey\n"
                         "aws_secret_access_key = test/secret+key\n");
    test_file_write_text(test_path(&serving->folder, "cache/.aws/config"),
                         "[profile lab]\nregion = eu-north-1\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].environment == none)
            (void)unlink(test_path(&serving->folder, "cache/.aws/credentials"));
        RunResult result = serving_run(serving, cases[i].environment, "fverify", "s3://bucket/my set", NULL);
        if (result.exit_status != cases[i].exit_status)
            fail_msg("case %zu: exit status %d: %s", i, result.exit_status, result.err);
        assert_contains(result.err, cases[i].told);
        for (const char *const *secret = secrets; *secret; secret++) {
            assert_contains_not(result.err, *secret);
            assert_contains_not(result.out, *secret);
        }
        run_result_free(&result);
    }
}

TEST_WITH(test_public_buckets_need_no_credentials_and_a_wrong_region_is_told, serving_setup, serving_teardown,
          Serving *serving)
{
    serving_pack(serving, "public", 20, 16, NULL);
    expect_verify(serving, NULL, "s3://public/", 0, NULL);
    RunResult result = serving_run(serving, NULL, "fverify", "s3://elsewhere/set", NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "301 Moved Permanently");
    assert_contains(result.err, "set AWS_REGION=eu-central-1");
    run_result_free(&result);
}

TEST_WITH(test_google_is_asked_with_a_token, serving_setup, serving_teardown, Serving *serving)
{
    const char *const token[] = {"GOOGLE_OAUTH_ACCESS_TOKEN=testtoken", NULL};
    const char *const wrong[] = {"GOOGLE_OAUTH_ACCESS_TOKEN=hunter2hunter2", NULL};
    serving_pack(serving, "bucket/set", 20, 16, NULL);
    expect_verify(serving, token, "gs://bucket/set", 0, NULL);
    RunResult result = serving_run(serving, wrong, "fverify", "gs://bucket/set", NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "401 Unauthorized");
    assert_contains(result.err, "the credentials of GOOGLE_OAUTH_ACCESS_TOKEN");
    assert_contains_not(result.err, "hunter2");
    run_result_free(&result);
}

/* ---- the cache ---- */

TEST_WITH(test_the_longest_unused_dataset_makes_room_unless_it_is_in_use, serving_setup, serving_teardown,
          Serving *serving)
{
    const char *const names[] = {"a", "b", "c"};
    char lock[512];
    /* Not a dataset, but what a folder that --cache-dir names may hold beside them. */
    const char *other_lock = test_path(&serving->folder, "cache/fshard/datasets/other.lock"),
               *other = test_path(&serving->folder, "cache/fshard/datasets/other/file");
    test_file_write_text(other, "");
    test_file_write_text(other_lock, "1000000");
    for (size_t i = 0; i < 3; i++)
        serving_pack(serving, names[i], 20, 64, NULL); /* 300 KB each */
    RunResult result =
        serving_run(serving, NULL, "fverify", "--cache-size", "100K", serving_address(serving, "ok/a"), NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "give a larger --cache-size");
    run_result_free(&result);
    for (size_t i = 0; i < 2; i++) {
        char path[16];
        (void)snprintf(path, sizeof path, "ok/%s", names[i]);
        result = serving_run(serving, NULL, "fverify", "--cache-size", "700K", serving_address(serving, path),
                             NULL);
        assert_int_equal(result.exit_status, 0);
        run_result_free(&result);
        sleep_seconds(0.05); /* clocks of file systems tick slowly */
    }
    (void)snprintf(lock, sizeof lock, "%s.lock", serving_entry(serving, "a-"));
    const int held = open(lock, O_RDONLY | O_CLOEXEC); /* a reads on */
    assert_int_equal(flock(held, LOCK_SH), 0);
    result =
        serving_run(serving, NULL, "fverify", "--cache-size", "700K", serving_address(serving, "ok/c"), NULL);
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.err, "1 other dataset made room");
    run_result_free(&result);
    const char *entries = test_path(&serving->folder, "cache/fshard/datasets");
    const char *arguments[] = {entries, NULL};
    result = run_program_arguments(NULL, "/bin/ls", arguments);
    assert_contains(result.out, "a-");
    assert_contains(result.out, "c-");
    assert_contains_not(result.out, "b-");
    run_result_free(&result);
    (void)close(held);
    result =
        serving_run(serving, NULL, "fverify", "--cache-size", "700K", serving_address(serving, "ok/b"), NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    result = run_program_arguments(NULL, "/bin/ls", arguments);
    assert_contains_not(result.out, "a-");
    run_result_free(&result);
    assert_true(access(other_lock, F_OK) == 0 && access(other, F_OK) == 0);
}

/* What others fetch at the same time is not on the disk yet, and will be. */
TEST_WITH(test_what_others_are_about_to_fetch_counts, serving_setup, serving_teardown, Serving *serving)
{
    const char *lock = test_path(&serving->folder, "cache/fshard/datasets/other-0123456789abcdef.lock");
    serving_pack(serving, "small", 20, 32, NULL);
    test_file_write_text(lock, "1000000000000000\n");
    const int held = open(lock, O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(held, LOCK_EX), 0);
    RunResult result = serving_run(serving, NULL, "fverify", serving_address(serving, "ok/small"), NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "give a larger disk as --cache-dir");
    run_result_free(&result);
    (void)close(held); /* it was killed, and has left nothing */
    result = serving_run(serving, NULL, "fverify", serving_address(serving, "ok/small"), NULL);
    if (result.exit_status)
        fail_msg("%s", result.err);
    run_result_free(&result);
    assert_int_equal(access(lock, F_OK), 0); /* and need not make room */
}

TEST_WITH(test_processes_of_a_host_fetch_each_file_once, serving_setup, serving_teardown, Serving *serving)
{
    enum { PROCESSES = 4 };
    RunningProgram running[PROCESSES];
    serving_pack(serving, "small", 60, 64, small_shards);
    const char *arguments[] = {"--quick", serving_address(serving, "slow/small"), NULL};
    for (size_t i = 0; i < PROCESSES; i++)
        running[i] = serving_start(serving, NULL, "fverify", arguments);
    for (size_t i = 0; i < PROCESSES; i++) {
        RunResult result = run_wait(&running[i]);
        if (result.exit_status)
            fail_msg("%s", result.err);
        run_result_free(&result);
    }
    const size_t shards = serving_check_shards(serving, serving_entry(serving, "small-"), "small");
    assert_int_equal(serving_count(serving, ".fshard"), shards);
    assert_int_equal(serving_count(serving, "dataset.json"), PROCESSES);
}

/* Two that begin together both find nothing, and both would fill: the second must not wait for the lock alone
 * while the first, which has filled, reads on. */
TEST_WITH(test_who_would_fill_an_entry_shares_what_another_has_filled, serving_setup, serving_teardown,
          Serving *serving)
{
    serving_pack(serving, "small", 20, 32, NULL);
    expect_verify(serving, NULL, serving_address(serving, "ok/small"), 0, NULL);
    const char *entry = serving_entry(serving, "small-"),
               *manifest = test_path(&serving->folder, "%s/dataset.json", strrchr(entry, '/') + 1),
               *lock = test_path(&serving->folder, "cache/fshard/datasets/%s.lock", strrchr(entry, '/') + 1);
    char named[1024];
    (void)snprintf(named, sizeof named, "%s/dataset.json", entry);
    test_file_write_text(manifest, ""); /* makes its folder */
    assert_int_equal(rename(named, manifest), 0);
    const int held = open(lock, O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(held, LOCK_SH), 0);
    serving_forget(serving);
    const char *arguments[] = {serving_address(serving, "ok/small"), NULL};
    RunningProgram running = serving_start(serving, NULL, "fverify", arguments);
    for (int waits = 0; !serving_count(serving, "dataset.json") && waits < 500; waits++)
        sleep_seconds(0.02);
    sleep_seconds(0.3);
    assert_int_equal(rename(manifest, named), 0); /* the other has filled it, and holds it */
    RunResult result = run_wait(&running);
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.err, "another process is fetching it; waiting");
    assert_contains_not(result.err, "fetched ");
    run_result_free(&result);
    (void)close(held);
}

TEST_WITH(test_a_killed_fetch_leaves_whole_files_and_the_next_one_goes_on, serving_setup, serving_teardown,
          Serving *serving)
{
    const char *const shards[] = {"--shard-size", "400K", NULL};
    serving_pack(serving, "small", 60, 256, shards); /* 12 MB in some 30 */
    const char *arguments[] = {serving_address(serving, "held/small"), NULL};
    const char *held = test_path(&serving->folder, "www/held-after");
    /* 16 files come side by side. Who has one that is whole asks for the next: after 21 requests five are.
     * Then none. */
    static const struct {
        const char *given;
        size_t requests;
    } moments[] = {{"5", 21}, {"0", 16}};
    for (size_t i = 0; i < 2; i++) {
        test_file_write_text(held, moments[i].given);
        serving_forget(serving);
        RunningProgram running = serving_start(serving, NULL, "fverify", arguments);
        for (int waits = 0; serving_count(serving, ".fshard") < moments[i].requests && waits < 3000; waits++)
            sleep_seconds(0.01);
        assert_int_equal(serving_count(serving, ".fshard"), moments[i].requests);
        (void)kill(running.process, SIGKILL);
        RunResult result = run_wait(&running);
        run_result_free(&result);
    }
    test_file_write_text(held, "1000");
    const char *entry = serving_entry(serving, "small-");
    const size_t before = serving_check_shards(serving, entry, "small");
    assert_int_equal(before, 5);
    serving_forget(serving);
    expect_verify(serving, NULL, arguments[0], 0, NULL);
    const size_t all = serving_check_shards(serving, entry, "small");
    assert_int_equal(serving_count(serving, ".fshard"), all - before);
    assert_int_equal(test_count_files(entry), all + 1); /* and the manifest */
}

/* ---- the other programs ---- */

TEST_WITH(test_fpack_packs_a_dataset_of_a_server_again, serving_setup, serving_teardown, Serving *serving)
{
    serving_pack(serving, "small", 40, 32, small_shards);
    const char *address = serving_address(serving, "ok/small"), *there = test_path(&serving->folder, "again");
    RunResult result = serving_run(serving, NULL, "fpack", "--format", "tar", address, there, NULL);
    if (result.exit_status)
        fail_msg("%s", result.err);
    run_result_free(&result);
    char *manifest = test_file_read(test_path(&serving->folder, "again/dataset.json"), NULL);
    assert_contains(manifest, address);
    free(manifest);
    result = serving_run(serving, NULL, "fpack", "--merge", there, address, NULL);
    assert_int_equal(result.exit_status, 2);
    run_result_free(&result);
    result = serving_run(serving, NULL, "fpack", "--update", address, there, NULL);
    assert_int_equal(result.exit_status, 2);
    run_result_free(&result);
}

TEST_WITH(test_ftrain_trains_on_a_dataset_of_a_server, serving_setup, serving_teardown, Serving *serving)
{
    const char *const keys[] = {"AWS_ACCESS_KEY_ID=testkey", "AWS_SECRET_ACCESS_KEY=test/secret+key", NULL};
    serving_pack(serving, "bucket/set", 32, 32, NULL);
    const char *run = test_path(&serving->folder, "run");
    RunResult result = serving_run(serving, keys, "ftrain", "s3://bucket/set", run, "--epochs", "1",
                                   "--device", "cpu", "--batch-size", "8", "--gpus", "2", NULL);
    if (result.exit_status)
        fail_msg("%s", result.err);
    assert_contains_not(result.out, "fshard/datasets"); /* it is called by its address */
    run_result_free(&result);
    const char *entries[] = {"-r", "-l", "fshard/datasets", run, NULL};
    result = run_program_arguments(NULL, "/bin/grep", entries);
    assert_string_equal(result.out, "");
    run_result_free(&result);
    assert_int_equal(serving_count(serving, "train-00000"), 1);
    const char *search[] = {"-r", "-e", "secret+key", "-e", "testkey", run, NULL};
    result = run_program_arguments(NULL, "/bin/grep", search);
    assert_int_equal(result.exit_status, 1); /* nowhere */
    run_result_free(&result);
    char *arguments = test_file_read(test_path(&serving->folder, "run/args.json"), NULL);
    assert_contains(arguments, "s3://bucket/set");
    free(arguments);
}

TEST_WITH(test_addresses_and_options_that_make_no_sense_are_refused, serving_setup, serving_teardown,
          Serving *serving)
{
    const struct {
        const char *arguments[5], *told;
    } cases[] = {
        {{"fverify", "https://me:hunter2hunter2@host/set"}, "~/.netrc"},
        {{"fverify", "https://host/set?X-Amz-Signature=hunter2hunter2"}, "'?' and '#' have no meaning"},
        {{"fverify", "s3://"}, "names no bucket"},
        {{"fverify", "https:///set"}, "names no host"},
        {{"fverify", "--cache-dir", "/tmp", "/tmp"}, "--cache-dir: is of datasets on servers"},
        {{"ftrain", "--cache-size", "1G", "/tmp", "/tmp/run"}, "--cache-size: is of datasets on servers"},
        {{"fpack", "--fetch-retries", "1", "/tmp", "/tmp/out"}, "--fetch-retries: is of datasets on"},
        {{"fverify", "--set-class-names", "x", "s3://bucket/set"}, "this one is on a server"},
        {{"fpack", "--repair-manifest", "s3://bucket/set"}, "works on folders of this machine"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        RunResult result =
            serving_run(serving, NULL, cases[i].arguments[0], cases[i].arguments[1], cases[i].arguments[2],
                        cases[i].arguments[3], cases[i].arguments[4], NULL);
        assert_int_equal(result.exit_status, 2);
        assert_contains(result.err, cases[i].told);
        assert_contains_not(result.err, "hunter2");
        run_result_free(&result);
    }
    assert_int_equal(serving_count(serving, "GET"), 0);
}
