/* fpack to an object store: what is sent, in which order, and what is left of a run that was stopped. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/stores/stores_support.h"

static const char *const keys[] = {"AWS_ACCESS_KEY_ID=testkey", "AWS_SECRET_ACCESS_KEY=test/secret+key",
                                   NULL};

/* Packs images of the dataset SET, which was packed to www/SET, to s3://bucket/SET. 21 MB shards are sent in
 * two parts. */
static RunResult send_set(Serving *serving, const char *more)
{
    return serving_run(serving, keys, "fpack", "--no-check", "--shard-size", "25M", "--fetch-retries", "2",
                       test_path(&serving->folder, "images-set"), "s3://bucket/set", more, NULL);
}

static size_t check_sent(Serving *serving)
{
    return serving_check_shards(serving, test_path(&serving->folder, "www/bucket/set"), "set");
}

/* Sends the set and asserts that it is there. */
static void send_whole(Serving *serving, const char *more)
{
    RunResult result = send_set(serving, more);
    if (result.exit_status)
        fail_msg("%s", result.err);
    run_result_free(&result);
    assert_int_equal(check_sent(serving), 3);
}

/* Sends the set, and asserts that it fails and says `part`. */
static void send_in_vain(Serving *serving, const char *part)
{
    RunResult result = send_set(serving, NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, part);
    run_result_free(&result);
}

static void pack_set(Serving *serving)
{
    const char *const more[] = {"--no-check", "--shard-size", "25M", NULL};
    serving_pack(serving, "set", 14, 1024, more); /* 42 MB in 2 shards of two parts each, and one of val */
}

static bool is_there(Serving *serving, const char *name)
{
    return access(test_path(&serving->folder, "www/bucket/set/%s", name), F_OK) == 0;
}

/* Returns the place of the last request with this in it, from 1; 0: there is none. */
static size_t last_request(Serving *serving, const char *part)
{
    size_t last = 0, number = 0;
    char *text = test_file_read(test_path(&serving->folder, "log"), NULL), *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        number++;
        last = strstr(line, part) ? number : last;
    }
    free(text);
    return last;
}

TEST_WITH(test_what_is_sent_is_what_is_packed_and_the_manifest_comes_last, serving_setup, serving_teardown,
          Serving *serving)
{
    pack_set(serving);
    RunResult result = send_set(serving, NULL);
    if (result.exit_status)
        fail_msg("%s", result.err);
    assert_contains(result.err, "s3://bucket/set: sent 3 files");
    assert_contains_not(result.err, "secret");
    run_result_free(&result);
    assert_int_equal(check_sent(serving), 3);
    assert_int_equal(last_request(serving, "PUT /s3/bucket/set/dataset.json"), serving_count(serving, " /"));
    assert_int_equal(test_count_files(test_path(&serving->folder, "cache/fshard/datasets/.uploads")), 0);
    result = serving_run(serving, keys, "fverify", "s3://bucket/set", NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
}

TEST_WITH(test_a_dataset_that_is_there_is_replaced_by_force_alone, serving_setup, serving_teardown,
          Serving *serving)
{
    pack_set(serving);
    test_file_write_text(test_path(&serving->folder, "www/bucket/set/dataset.json"), "{}");
    send_in_vain(serving, "a dataset is there already; --force replaces it");
    assert_int_equal(serving_count(serving, "PUT"), 0);
    (void)unlink(test_path(&serving->folder, "www/bucket/set/dataset.json"));
    RunResult result = serving_run(serving, keys, "fpack", "--no-check",
                                   test_path(&serving->folder, "images-set"), "s3://bucket/set", NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    assert_true(is_there(serving, "train-00000-of-00001.fshard"));
    send_whole(serving, "--force");
    assert_false(is_there(serving, "train-00000-of-00001.fshard"));
}

TEST_WITH(test_an_upload_that_fails_is_ended_and_the_next_run_goes_on, serving_setup, serving_teardown,
          Serving *serving)
{
    pack_set(serving);
    test_file_write_text(test_path(&serving->folder, "www/fail-uploads"), "");
    RunResult result = send_set(serving, NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "s3://bucket/set/train-0000");
    assert_contains(result.err, "403 Forbidden (AccessDenied: The quota is used up.)");
    run_result_free(&result);
    assert_int_equal(serving_count(serving, "uploads="), serving_count(serving, "DELETE"));
    assert_false(is_there(serving, "dataset.json"));
    (void)unlink(test_path(&serving->folder, "www/fail-uploads"));
    test_file_write_text(test_path(&serving->folder, "www/fail-completions"), "");
    send_in_vain(serving, "the server says 200 OK (InternalError: Please try again.); tried 3 times");
    assert_int_equal(serving_count(serving, "uploads="), serving_count(serving, "DELETE"));
    (void)unlink(test_path(&serving->folder, "www/fail-completions"));
    send_whole(serving, NULL);
}

TEST_WITH(test_a_dataset_that_may_be_hidden_is_replaced_by_force_alone, serving_setup, serving_teardown,
          Serving *serving)
{
    pack_set(serving);
    test_file_write_text(test_path(&serving->folder, "www/hidden-files"), "");
    send_in_vain(serving, "the server does not tell these keys whether a dataset is there");
    assert_int_equal(serving_count(serving, "PUT"), 0);
    send_whole(serving, "--force");
}

/* Returns the bytes that the files below a folder take on the disk. */
static uint64_t disk_bytes(const char *folder)
{
    const char *arguments[] = {"-s", "--block-size=1", folder, NULL};
    RunResult result = run_program_arguments(NULL, "/usr/bin/du", arguments);
    const uint64_t bytes = strtoull(result.out, NULL, 10);
    run_result_free(&result);
    return bytes;
}

TEST_WITH(test_a_killed_run_goes_on_and_takes_little_room, serving_setup, serving_teardown, Serving *serving)
{
    pack_set(serving);
    test_file_write_text(test_path(&serving->folder, "www/slow-uploads"), "");
    const char *arguments[] = {
        "--no-check", "--shard-size", "25M", test_path(&serving->folder, "images-set"), "s3://bucket/set",
        NULL};
    const char *uploads = test_path(&serving->folder, "cache/fshard/datasets/.uploads");
    /* Killed while the first shard is sent, and when it was sent and the second begins. */
    const struct {
        const char *request;
        size_t count;
    } moments[] = {{"partNumber=", 1}, {"?uploads=", 3}};
    for (size_t i = 0; i < 2; i++) {
        RunningProgram running = serving_start(serving, keys, "fpack", arguments);
        for (int waits = 0; serving_count(serving, moments[i].request) < moments[i].count && waits < 1500;
             waits++)
            sleep_seconds(0.02);
        (void)kill(running.process, SIGKILL);
        RunResult result = run_wait(&running);
        run_result_free(&result);
        assert_false(is_there(serving, "dataset.json"));
    }
    assert_in_range(serving_count(serving, "DELETE"), 1, 2); /* the second has ended what the first began */
    const size_t sent = check_sent(serving);
    assert_in_range(sent, 1, 2);
    assert_in_range(disk_bytes(uploads), 1, (3 - sent + 1) * ((uint64_t)25 << 20));
    (void)unlink(test_path(&serving->folder, "www/slow-uploads"));
    serving_forget(serving);
    RunResult result = send_set(serving, NULL);
    if (result.exit_status)
        fail_msg("%s", result.err);
    run_result_free(&result);
    assert_int_equal(check_sent(serving), 3);
    assert_int_equal(serving_count(serving, "uploads="),
                     3 - sent - 1); /* val's, of 12 MB, goes in one part */
    assert_int_equal(test_count_files(uploads), 0);
}

TEST_WITH(test_dry_runs_send_nothing, serving_setup, serving_teardown, Serving *serving)
{
    pack_set(serving);
    RunResult result = send_set(serving, "--dry-run");
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.err, "s3://bucket/set");
    run_result_free(&result);
    assert_int_equal(serving_count(serving, "PUT") + serving_count(serving, "POST"), 0);
}
