/* Tars on servers: fresize from and to them, and those of WebDataset without a dataset.json as datasets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/stores/stores_support.h"

static const char *const keys[] = {"AWS_ACCESS_KEY_ID=testkey", "AWS_SECRET_ACCESS_KEY=test/secret+key",
                                   NULL};

/* Makes www/NAME of the images that serving_pack has left in images-SET, by tar(1). */
static void make_tar(Serving *serving, const char *name, const char *set)
{
    const char *path = test_path(&serving->folder, "www/%s", name);
    const char *arguments[] = {"-caf",  path, "-C", test_path(&serving->folder, "images-%s", set),
                               "train", NULL};
    test_file_write_text(path, ""); /* makes its folder */
    RunResult result = run_program_arguments(NULL, "/bin/tar", arguments);
    if (result.exit_status)
        fail_msg("tar: %s", result.err);
    run_result_free(&result);
}

static void assert_same_tree(const char *one, const char *other)
{
    char *difference = test_tree_difference(one, other);
    if (difference)
        fail_msg("%s", difference);
}

static void assert_same_file(const char *one, const char *other)
{
    size_t one_bytes = 0, other_bytes = 0;
    char *a = test_file_read(one, &one_bytes), *b = test_file_read(other, &other_bytes);
    assert_int_equal(one_bytes, other_bytes);
    assert_memory_equal(a, b, one_bytes);
    free(a);
    free(b);
}

/* Runs fresize and asserts that all is well. */
#define RESIZE(serving, environment, ...)                                                                    \
    do {                                                                                                     \
        RunResult resize_result =                                                                            \
            serving_run(serving, environment, "fresize", "--max-size", "24", __VA_ARGS__, NULL);             \
        if (resize_result.exit_status)                                                                       \
            fail_msg("%s", resize_result.err);                                                               \
        run_result_free(&resize_result);                                                                     \
    } while (0)

TEST_WITH(test_fresize_reads_tars_of_servers_as_it_reads_them_here, serving_setup, serving_teardown,
          Serving *serving)
{
    static const char *const names[] = {"photos.tar", "photos.tar.gz", "a b/photos.tar.zst"};
    serving_pack(serving, "set", 12, 32, NULL);
    for (size_t i = 0; i < 3; i++) {
        const char *here = test_path(&serving->folder, "here%zu", i),
                   *there = test_path(&serving->folder, "there%zu", i);
        char path[64];
        make_tar(serving, names[i], "set");
        RESIZE(serving, NULL, test_path(&serving->folder, "www/%s", names[i]), here);
        (void)snprintf(path, sizeof path, "ok/%s", i == 2 ? "a%20b/photos.tar.zst" : names[i]);
        RESIZE(serving, NULL, serving_address(serving, path), there);
        assert_same_tree(test_path(&serving->folder, "here%zu/train", i),
                         test_path(&serving->folder, "there%zu/train", i));
    }
    assert_int_equal(test_count_files(test_path(&serving->folder, "there0/train/cat")), 6);
    serving_forget(serving);
    RESIZE(serving, NULL, serving_address(serving, "ok/photos.tar"), test_path(&serving->folder, "again"));
    assert_int_equal(serving_count(serving, "GET"), 1); /* it is in the cache, and still the same */
}

/* Not the copy in the cache, of which nobody knows: on the terminal and in the report. */
TEST_WITH(test_a_cut_tar_of_a_server_is_called_by_its_address, serving_setup, serving_teardown,
          Serving *serving)
{
    serving_pack(serving, "set", 12, 32, NULL);
    make_tar(serving, "photos.tar", "set");
    test_file_truncate(test_path(&serving->folder, "www/photos.tar"), 9000);
    const char *address = serving_address(serving, "ok/photos.tar"),
               *report = test_path(&serving->folder, "report");
    RunResult result = serving_run(serving, NULL, "fresize", "-q", "--max-size", "24", "--report", report,
                                   address, test_path(&serving->folder, "small"), NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, ": is damaged at byte ");
    assert_contains(result.err, address);
    assert_contains_not(result.err, "/datasets/");
    run_result_free(&result);
    char *text = test_file_read(report, NULL);
    assert_contains(text, address);
    assert_contains_not(text, "/datasets/");
    free(text);
}

TEST_WITH(test_faults_of_a_tars_server_are_outlived_or_told, serving_setup, serving_teardown,
          Serving *serving)
{
    static const struct {
        const char *fault;
        int exit_status;
        const char *told;
    } cases[] = {{"503-twice", 0, "fetched "},
                 {"cuts-twice", 0, "fetched "},
                 {"no-parts", 0, "fetched "},
                 {"cuts", 1, "tried 3 times in"},
                 {"lies-longer", 1, "the server is wrong about it, or a proxy is between"},
                 {"other-part", 1, "sends another part than was asked for"},
                 {"replaced", 1, "it was replaced there while it was fetched; the same command fetches"},
                 {"403", 1, "403 Forbidden (AccessDenied: Access Denied); no credentials"}};
    serving_pack(serving, "set", 40, 256, NULL); /* 8 MB */
    make_tar(serving, "photos.tar", "set");
    RESIZE(serving, NULL, test_path(&serving->folder, "www/photos.tar"), test_path(&serving->folder, "here"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "%s/photos.tar", cases[i].fault);
        const char *there = test_path(&serving->folder, "there%zu", i);
        RunResult result = serving_run(serving, NULL, "fresize", "--max-size", "24", "--fetch-retries", "2",
                                       "--fetch-timeout", "1", serving_address(serving, path), there, NULL);
        if (result.exit_status != cases[i].exit_status)
            fail_msg("%s: exit status %d: %s", cases[i].fault, result.exit_status, result.err);
        assert_contains(result.err, cases[i].told);
        run_result_free(&result);
        if (!cases[i].exit_status)
            assert_same_tree(test_path(&serving->folder, "here/train"),
                             test_path(&serving->folder, "there%zu/train", i));
    }
}

TEST_WITH(test_fresize_writes_a_tar_into_a_bucket_when_it_is_whole, serving_setup, serving_teardown,
          Serving *serving)
{
    const char *small = test_path(&serving->folder, "www/bucket/small.tar"),
               *here = test_path(&serving->folder, "small.tar"),
               *uploads = test_path(&serving->folder, "cache/fshard/datasets/.uploads");
    serving_pack(serving, "set", 12, 900, NULL); /* 29 MB as PNG: two parts */
    make_tar(serving, "bucket/photos.tar", "set");
    RunResult result = serving_run(serving, NULL, "fresize", "--max-size", "900",
                                   test_path(&serving->folder, "www/bucket/photos.tar"), here, NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
#define SEND(...)                                                                                            \
    serving_run(serving, keys, "fresize", "--max-size", "900", "--fetch-retries", "2",                       \
                "s3://bucket/photos.tar", "s3://bucket/small.tar", __VA_ARGS__)
    result = SEND("--dry-run", NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    assert_int_equal(access(uploads, F_OK), -1);
    test_file_write_text(test_path(&serving->folder, "www/fail-uploads"), "");
    result = SEND(NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "s3://bucket/small.tar: the server says 403 Forbidden");
    assert_contains_not(result.err, ".uploads");
    run_result_free(&result);
    assert_int_equal(access(small, F_OK), -1);
    assert_int_equal(serving_count(serving, "uploads="), serving_count(serving, "DELETE"));
    (void)unlink(test_path(&serving->folder, "www/fail-uploads"));
    result = SEND(NULL); /* made before, sent now */
    if (result.exit_status)
        fail_msg("%s", result.err);
    assert_contains(result.err, "12 done before");
    assert_contains(result.err, "fresize: s3://bucket/small.tar: sent ");
    assert_contains_not(result.err, "secret");
    run_result_free(&result);
    assert_same_file(small, here);
    assert_int_equal(test_count_files(uploads), 0);
    serving_forget(serving);
    result = SEND(NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "s3://bucket/small.tar: exists already; --force replaces it");
    run_result_free(&result);
    assert_int_equal(serving_count(serving, "PUT") + serving_count(serving, "POST"), 0);
    test_file_write_text(small, "another");
    result = SEND("--force", NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    assert_same_file(small, here);
    const char *const token[] = {"GOOGLE_OAUTH_ACCESS_TOKEN=testtoken", NULL};
    RESIZE(serving, token, here, "gs://bucket/g/small.tar");
    assert_int_equal(access(test_path(&serving->folder, "www/bucket/g/small.tar"), F_OK), 0);
}

TEST_WITH(test_parts_of_a_tar_become_tars_of_the_bucket, serving_setup, serving_teardown, Serving *serving)
{
    serving_pack(serving, "set", 12, 32, NULL);
    make_tar(serving, "bucket/photos.tar", "set");
    RESIZE(serving, keys, "--part", "1/2", "s3://bucket/photos.tar", "s3://bucket/small.tar");
    RESIZE(serving, keys, "--part", "2/2", "s3://bucket/photos.tar", "s3://bucket/small.tar");
    assert_int_equal(access(test_path(&serving->folder, "www/bucket/small-1-of-2.tar"), F_OK), 0);
    assert_int_equal(access(test_path(&serving->folder, "www/bucket/small-2-of-2.tar"), F_OK), 0);
}

TEST_WITH(test_what_fresize_does_not_do_with_servers_is_refused, serving_setup, serving_teardown,
          Serving *serving)
{
    static const struct {
        const char *arguments[4], *told;
    } cases[] = {
        {{"s3://bucket/photos", "/tmp/x"}, "is no tar; folders of servers are not listed"},
        {{"/tmp", "s3://bucket/photos"}, "name it s3://bucket/photos/images.tar"},
        {{"/tmp", "s3://bucket/photos.tar.gz"}, "tars are written uncompressed"},
        {{"/tmp", "http://host/photos.tar"}, "files are written to s3:// and gs://"},
        {{"--check", "/tmp", "s3://bucket/photos.tar"}, "--check looks at what is on this machine"},
        {{"--force", "s3://bucket/x.tar", "s3://bucket/x.tar"}, "s3://bucket/x.tar: is the source too"},
        {{"--force", "gs://a/b/x-{0..9}.tar", "gs://a/b/x-7.tar"}, "gs://a/b/x-7.tar: is the source"},
        {{"--fetch-retries", "1", "/tmp", "/tmp/x"}, "--fetch-retries: is of datasets on servers"},
        {{"https://me:hunter2hunter2@host/x.tar", "/tmp/x"}, "~/.netrc"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const *arguments = cases[i].arguments;
        RunResult result = serving_run(serving, keys, "fresize", arguments[0], arguments[1], arguments[2],
                                       arguments[3], NULL);
        assert_int_equal(result.exit_status, 2);
        assert_contains(result.err, cases[i].told);
        assert_contains_not(result.err, "hunter2");
        run_result_free(&result);
    }
    assert_int_equal(serving_count(serving, " /"), 0);
}

/* ---- as datasets ---- */

/* Packs tars of WebDataset to www/tars, and takes away what others do not write. Returns how many are
 * train's. */
static size_t pack_tars(Serving *serving)
{
    const char *const more[] = {"--format", "tar", "--shard-size", "20K", NULL};
    serving_pack(serving, "tars", 40, 32, more);
    const char *remove[] = {"-c", "cd \"$0\" && rm -f dataset.json *.idx *.json && ls train-*.tar | wc -l",
                            test_path(&serving->folder, "www/tars"), NULL};
    RunResult result = run_program_arguments(NULL, "/bin/sh", remove);
    assert_int_equal(result.exit_status, 0);
    const size_t count = strtoull(result.out, NULL, 10);
    run_result_free(&result);
    assert_in_range(count, 2, 99);
    return count;
}

TEST_WITH(test_tars_of_webdataset_are_datasets_without_a_manifest, serving_setup, serving_teardown,
          Serving *serving)
{
    char list[256], one[256];
    const size_t count = pack_tars(serving);
    (void)snprintf(list, sizeof list, "ok/tars/train-{000000..%06zu}.tar", count - 1);
    const char *address = serving_address(serving, list);
    RunResult result = serving_run(serving, NULL, "fverify", "--decode", address, NULL);
    if (result.exit_status)
        fail_msg("%s", result.err);
    assert_contains(result.out, address); /* and not the entry of the cache */
    assert_contains_not(result.out, "fshard/datasets");
    assert_contains(result.out, "40 images decoded");
    run_result_free(&result);
    serving_forget(serving);
    (void)snprintf(one, sizeof one, "ok/tars/train-%06zu.tar", (size_t)0);
    result = serving_run(serving, NULL, "fverify", serving_address(serving, one), NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    assert_int_equal(serving_count(serving, "GET"), 2); /* how long it is, and the file */
    /* As of tars here: it opens them, and wants to know mean and deviation. */
    result = serving_run(serving, NULL, "ftrain", address, test_path(&serving->folder, "run"), "--epochs",
                         "1", "--device", "cpu", NULL);
    (void)snprintf(list, sizeof list, "%s: has no mean and deviation", address);
    assert_contains(result.err, list);
    run_result_free(&result);
    result = serving_run(serving, NULL, "fpack", address, test_path(&serving->folder, "packed"), NULL);
    if (result.exit_status)
        fail_msg("%s", result.err);
    run_result_free(&result);
    result = serving_run(serving, NULL, "fverify", test_path(&serving->folder, "packed"), NULL);
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.out, "40");
    run_result_free(&result);
}

TEST_WITH(test_lists_that_cannot_be_are_refused, serving_setup, serving_teardown, Serving *serving)
{
    const size_t count = pack_tars(serving);
    char list[256];
    (void)snprintf(list, sizeof list, "ok/tars/train-{000000..%06zu}.tar", count);
    RunResult result = serving_run(serving, NULL, "fverify", serving_address(serving, list), NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, ".tar: the server says 404 Not Found");
    run_result_free(&result);
    result = serving_run(serving, NULL, "fverify", "s3://a/x.tar::s3://b/x.tar", NULL);
    assert_int_equal(result.exit_status, 2);
    assert_contains(result.err, "the files of a list are in one folder");
    run_result_free(&result);
    result = serving_run(serving, NULL, "fverify", "s3://a/{x,x}.tar", NULL);
    assert_int_equal(result.exit_status, 2);
    assert_contains(result.err, "names 'x.tar' twice");
    run_result_free(&result);
    result = serving_run(serving, NULL, "fverify", "s3://a/{x,y}", NULL);
    assert_int_equal(result.exit_status, 2);
    assert_contains(result.err, "is no tar and no .fshard file");
    run_result_free(&result);
}
