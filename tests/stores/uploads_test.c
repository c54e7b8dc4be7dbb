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
    /* After it goes but the note of what was being sent. */
    assert_int_equal(last_request(serving, "PUT /s3/bucket/set/dataset.json"),
                     serving_count(serving, " /") - 1);
    assert_int_equal(last_request(serving, "DELETE /s3/bucket/set/.fpack-sent"),
                     serving_count(serving, " /"));
    assert_int_equal(test_count_files(test_path(&serving->folder, "www/bucket/set")), 4);
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

/* Kills a program when so many requests with this in them have come. */
static void kill_at(Serving *serving, RunningProgram *running, const char *request, size_t count)
{
    for (int waits = 0; serving_count(serving, request) < count && waits < 1500; waits++)
        sleep_seconds(0.02);
    assert_in_range(serving_count(serving, request), count, 1000);
    (void)kill(running->process, SIGKILL);
    RunResult result = run_wait(running);
    run_result_free(&result);
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
        kill_at(serving, &running, moments[i].request, moments[i].count);
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

/* The next whole dataset takes away what the replaced one and a run of another cut have left. */
TEST_WITH(test_what_a_killed_replacement_leaves_goes_with_the_next, serving_setup, serving_teardown,
          Serving *serving)
{
    pack_set(serving);
    RunResult result = serving_run(serving, keys, "fpack", "--no-check", "--shard-size", "10M",
                                   test_path(&serving->folder, "images-set"), "s3://bucket/set", NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    const size_t before = test_count_files(test_path(&serving->folder, "www/bucket/set"));
    assert_in_range(before, 6, 99);
    test_file_write_text(test_path(&serving->folder, "www/slow-uploads"), "");
    test_file_write_text(test_path(&serving->folder, "www/fail-manifest"),
                         ""); /* however late it is killed */
    test_file_write_text(test_path(&serving->folder, "www/bucket/set/another.fshard"), "not of fpack");
    const char *arguments[] = {
        "--no-check",      "--force", "--shard-size", "15M", test_path(&serving->folder, "images-set"),
        "s3://bucket/set", NULL};
    serving_forget(serving);
    RunningProgram running = serving_start(serving, keys, "fpack", arguments);
    kill_at(serving, &running, "PUT /s3/bucket/set/train-00001", 1);
    assert_false(is_there(serving, "dataset.json"));
    assert_true(is_there(serving, ".fpack-sent"));
    (void)unlink(test_path(&serving->folder, "www/slow-uploads"));
    (void)unlink(test_path(&serving->folder, "www/fail-manifest"));
    /* From another host, which has nothing of it. */
    result = serving_run(serving, keys, "fpack", "--no-check", "--shard-size", "25M", "--cache-dir",
                         test_path(&serving->folder, "other-host"), test_path(&serving->folder, "images-set"),
                         "s3://bucket/set", NULL);
    if (result.exit_status)
        fail_msg("%s", result.err);
    run_result_free(&result);
    assert_true(is_there(serving, "another.fshard"));
    (void)unlink(test_path(&serving->folder, "www/bucket/set/another.fshard"));
    assert_int_equal(check_sent(serving), 3);
    assert_int_equal(test_count_files(test_path(&serving->folder, "www/bucket/set")), 4);
}

TEST_WITH(test_an_upload_whose_id_cannot_be_noted_is_ended, serving_setup, serving_teardown, Serving *serving)
{
    pack_set(serving);
    const char *names[] = {"train-00000-of-00002", "train-00001-of-00002", "val-00000-of-00001"};
    char text[2048] = "";
    for (size_t i = 0; i < 3; i++) /* a folder stands where the id would be noted */
        (void)snprintf(text + strlen(text), sizeof text - strlen(text),
                       "%s/fshard/datasets/.uploads/*/%s.fshard.upload\n", serving->cache, names[i]);
    test_file_write_text(test_path(&serving->folder, "www/spoil-uploads"), text);
    send_in_vain(serving, ".upload");
    assert_int_equal(serving_count(serving, "?uploads="), 1);
    assert_int_equal(serving_count(serving, "DELETE"), 1);
}

TEST_WITH(test_tars_and_lmdbs_are_sent_too, serving_setup, serving_teardown, Serving *serving)
{
    static const char *const formats[] = {"tar", "lmdb"};
    for (size_t i = 0; i < 2; i++) {
        const char *size = i ? NULL : "--shard-size=600K";
        const char *const more[] = {"--format", formats[i], size, NULL};
        char address[32];
        serving_pack(serving, formats[i], 12, 256, more);
        (void)snprintf(address, sizeof address, "s3://bucket/%s", formats[i]);
        RunResult result =
            serving_run(serving, keys, "fpack", "--format", formats[i],
                        test_path(&serving->folder, "images-%s", formats[i]), address, size, NULL);
        if (result.exit_status)
            fail_msg("%s", result.err);
        run_result_free(&result);
        const char *remove[] = {"-c", "find \"$0\" -name lock.mdb -delete",
                                test_path(&serving->folder, "www/%s", formats[i]), NULL};
        result = run_program_arguments(NULL, "/bin/sh", remove);
        run_result_free(&result);
        char *difference = test_tree_difference(test_path(&serving->folder, "www/%s", formats[i]),
                                                test_path(&serving->folder, "www/bucket/%s", formats[i]));
        if (difference)
            fail_msg("%s", difference);
        result = serving_run(serving, keys, "fverify", address, NULL);
        if (result.exit_status)
            fail_msg("%s", result.out);
        assert_contains(result.out, address);
        assert_contains_not(result.out, "fshard/datasets");
        run_result_free(&result);
    }
    assert_int_equal(test_count_files(test_path(&serving->folder, "cache/fshard/datasets/.uploads")), 0);
    RunResult result = serving_run(serving, keys, "fpack", "--layout", "basicsr", "--pairs", "dog:cat",
                                   test_path(&serving->folder, "images-tar"), "s3://bucket/sides", NULL);
    assert_int_equal(result.exit_status, 2);
    assert_contains(result.err, "BasicSR's LMDBs are packed into a folder");
    run_result_free(&result);
}

/* ---- parts ---- */

static RunResult send_part(Serving *serving, const char *part, const char *size)
{
    return serving_run(serving, keys, "fpack", "--no-check", "--shard-size", size, "--part", part,
                       test_path(&serving->folder, "images-set"), "s3://bucket/set", NULL);
}

static RunResult merge_parts(Serving *serving, const char *more)
{
    return serving_run(serving, keys, "fpack", "--merge", "s3://bucket/set", more, NULL);
}

TEST_WITH(test_parts_of_many_hosts_are_merged_where_they_lie, serving_setup, serving_teardown,
          Serving *serving)
{
    static const char *const parts[] = {"1/3", "2/3", "3/3"};
    const char *const more[] = {"--no-check", "--shard-size", "1M", NULL};
    serving_pack(serving, "set", 40, 256, more); /* 8 MB in some 16 shards */
    RunResult result = merge_parts(serving, NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "s3://bucket/set: no parts are there; fpack --part I/N");
    run_result_free(&result);
    for (size_t i = 0; i < 2; i++) {
        result = send_part(serving, parts[i], "1M");
        if (result.exit_status)
            fail_msg("%s", result.err);
        assert_contains_not(result.err, "secret");
        run_result_free(&result);
    }
    assert_false(is_there(serving, "dataset.json"));
    result = merge_parts(serving, NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "s3://bucket/set: ");
    assert_contains(result.err, "pack again part 3 of 3 (fpack --part 3/3");
    assert_contains_not(result.err, ".uploads");
    run_result_free(&result);
    result = send_part(serving, "3/3", "2M");
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "parts of another packing are there");
    run_result_free(&result);
    result = send_part(serving, "3/3", "1M");
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    result = merge_parts(serving, "--dry-run");
    if (result.exit_status)
        fail_msg("%s", result.err);
    run_result_free(&result);
    assert_false(is_there(serving, "dataset.json"));
    serving_forget(serving);
    result = merge_parts(serving, NULL);
    if (result.exit_status)
        fail_msg("%s", result.err);
    run_result_free(&result);
    assert_int_equal(serving_count(serving, "PUT"), 1); /* dataset.json: no shard is moved */
    assert_int_equal(test_count_files(test_path(&serving->folder, "cache/fshard/datasets/.uploads")), 0);
    const char *remove[] = {"-c", "rm -f \"$0\"/.[!.]*", test_path(&serving->folder, "www/set"), NULL};
    result = run_program_arguments(NULL, "/bin/sh", remove); /* sources, which stay here */
    run_result_free(&result);
    char *difference = test_tree_difference(test_path(&serving->folder, "www/set"),
                                            test_path(&serving->folder, "www/bucket/set"));
    if (difference)
        fail_msg("%s", difference);
    result = send_part(serving, "1/3", "1M");
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "a dataset is there already");
    run_result_free(&result);
    result = serving_run(serving, keys, "fverify", "s3://bucket/set", NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
}

TEST_WITH(test_a_dry_merge_keeps_what_a_stopped_packing_has_left, serving_setup, serving_teardown,
          Serving *serving)
{
    const char *uploads = test_path(&serving->folder, "cache/fshard/datasets/.uploads");
    const char *refusal = test_path(&serving->folder, "www/fail-manifest");
    serving_pack(serving, "set", 8, 64, NULL);
    for (size_t i = 0; i < 2; i++) {
        RunResult result = send_part(serving, i ? "2/2" : "1/2", "1M");
        assert_int_equal(result.exit_status, 0);
        run_result_free(&result);
    }
    test_file_write_text(refusal, "");
    RunResult result = serving_run(serving, keys, "fpack", "--no-check", "--shard-size", "1M",
                                   test_path(&serving->folder, "images-set"), "s3://bucket/set", NULL);
    assert_int_equal(result.exit_status, 1);
    run_result_free(&result);
    const size_t left = test_count_files(uploads);
    assert_true(left > 0);
    result = merge_parts(serving, "--dry-run");
    if (result.exit_status)
        fail_msg("%s", result.err);
    run_result_free(&result);
    assert_in_range(test_count_files(uploads), left, SIZE_MAX);
}

/* Whoever may write the list of what is to be removed cannot have another folder's files removed by it. */
TEST_WITH(test_nothing_of_other_folders_is_removed, serving_setup, serving_teardown, Serving *serving)
{
    static const char *const others[] = {"other/train.fshard", "other/dataset.json"};
    serving_pack(serving, "set", 8, 64, NULL);
    test_file_write_text(test_path(&serving->folder, "www/bucket/set/.fpack-sent"),
                         "old.fshard\nother/train.fshard\nother/dataset.json\n../x/other\n");
    test_file_write_text(test_path(&serving->folder, "www/bucket/set/old.fshard"), "x");
    for (size_t i = 0; i < 2; i++)
        test_file_write_text(test_path(&serving->folder, "www/bucket/set/%s", others[i]), "x");
    RunResult result = serving_run(serving, keys, "fpack", "--no-check",
                                   test_path(&serving->folder, "images-set"), "s3://bucket/set", NULL);
    if (result.exit_status)
        fail_msg("%s", result.err);
    run_result_free(&result);
    assert_false(is_there(serving, "old.fshard"));
    for (size_t i = 0; i < 2; i++)
        assert_true(is_there(serving, others[i]));
}

TEST_WITH(test_a_shard_of_a_part_that_was_changed_there_is_not_merged, serving_setup, serving_teardown,
          Serving *serving)
{
    const char *const more[] = {"--no-check", "--shard-size", "1M", NULL};
    serving_pack(serving, "set", 20, 256, more);
    for (size_t i = 0; i < 2; i++) {
        RunResult result = send_part(serving, i ? "2/2" : "1/2", "1M");
        assert_int_equal(result.exit_status, 0);
        run_result_free(&result);
    }
    const char *cut[] = {"-c", "cd \"$0\" && set -- val-*.fshard && truncate -s -1 \"$1\"",
                         test_path(&serving->folder, "www/bucket/set"), NULL};
    RunResult result = run_program_arguments(NULL, "/bin/sh", cut);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    result = merge_parts(serving, NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "s3://bucket/set/val-00000-of-0000");
    run_result_free(&result);
    assert_false(is_there(serving, "dataset.json"));
}

TEST_WITH(test_what_is_not_done_in_buckets_is_refused, serving_setup, serving_teardown, Serving *serving)
{
    static const struct {
        const char *arguments[5], *told;
    } cases[] = {
        {{"--merge", "s3://bucket/set", "/tmp/part1"}, "the parts that were sent there are merged"},
        {{"--merge", "/tmp/set", "s3://bucket/part"}, "--merge works on folders of this machine"},
        {{"--update", "/tmp", "s3://bucket/set"}, "--update and --append change a dataset in its folder"},
        {{"--append", "/tmp", "s3://bucket/set"}, "--update and --append change a dataset in its folder"},
        {{"--format", "lmdb", "--part=1/2", "/tmp", "s3://bucket/set"}, "parts of shards alone"},
        {{"--force", "s3://bucket/set", "s3://bucket/set/"}, "is where the source lies too"},
        {{"--force", "s3://bucket/set/x-{0..9}.tar", "s3://bucket/set"}, "is where the source lies too"},
        {{"/tmp", "s3://bucket/set.tar"}, "is the name of a file; a dataset is several"},
        {{"/tmp", "https://host/set"}, "datasets are written to s3:// and gs://"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const *arguments = cases[i].arguments;
        RunResult result = serving_run(serving, keys, "fpack", arguments[0], arguments[1], arguments[2],
                                       arguments[3], arguments[4], NULL);
        if (result.exit_status != 2)
            fail_msg("case %zu: exit status %d: %s", i, result.exit_status, result.err);
        assert_contains(result.err, cases[i].told);
        run_result_free(&result);
    }
    assert_int_equal(serving_count(serving, " /"), 0);
}

/* ---- dry runs ---- */

TEST_WITH(test_dry_runs_send_nothing, serving_setup, serving_teardown, Serving *serving)
{
    pack_set(serving);
    RunResult result = send_set(serving, "--dry-run");
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.err, "s3://bucket/set");
    run_result_free(&result);
    assert_int_equal(serving_count(serving, "PUT") + serving_count(serving, "POST"), 0);
    const char *uploads = test_path(&serving->folder, "cache/fshard/datasets/.uploads");
    assert_int_equal(access(uploads, F_OK), -1); /* and make nothing */
    test_file_write_text(test_path(&serving->folder, "www/fail-manifest"), "");
    send_in_vain(serving, "dataset.json: the server says 403");
    const size_t left = test_count_files(uploads);
    result = send_set(serving, "--dry-run");
    if (result.exit_status)
        fail_msg("%s", result.err);
    run_result_free(&result);
    assert_int_equal(test_count_files(uploads), left); /* and remove nothing */
    (void)unlink(test_path(&serving->folder, "www/fail-manifest"));
    send_whole(serving, NULL);
}
