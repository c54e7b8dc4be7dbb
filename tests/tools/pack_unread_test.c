/* What the system cannot read today: a dataset without it is not finished, and the same command goes on with
 * it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "tests/tools/sources.h"

/* Makes two classes, one by a link; small shards: many outputs. */
static const char *make_source(TestFolder *folder)
{
    const char *root = test_path(folder, "photos");
    source_class(root, "cat", 9);
    source_class(test_path(folder, "elsewhere"), "dog", 9);
    assert_int_equal(symlink(test_path(folder, "elsewhere/dog"), test_path(folder, "photos/dog")), 0);
    return root;
}

static RunResult pack(const char *bad_disk, const char *on_error, const char *source, const char *target)
{
    const RunOptions options = {.bad_disk = bad_disk};
    const char *const arguments[] = {"--shard-size", "4K", "--on-error", on_error, source, target, NULL};
    return run_program_arguments(&options, "fpack", arguments);
}

/* Expects that fpack ends with 1, names the path and the reason, and has finished nothing; and that the same
 * command then packs all. */
static void expect_unfinished(TestFolder *folder, const char *bad_disk, const char *named)
{
    const char *source = test_path(folder, "photos"), *target = test_path(folder, "shards");
    const char *manifest = test_path(folder, "shards/dataset.json");
    RunResult result = pack(bad_disk, "stop", source, target);
    if (result.exit_status != 1 || file_exists(manifest))
        fail_msg("%s: exit status %d, %s\n%s", bad_disk, result.exit_status,
                 file_exists(manifest) ? "finished" : "not finished", result.err);
    assert_contains(result.err, named);
    run_result_free(&result);
    result = pack(NULL, "stop", source, target);
    if (result.exit_status)
        fail_msg("%s, then again: exit status %d\n%s", bad_disk, result.exit_status, result.err);
    run_result_free(&result);
    assert_int_equal(packed_count(target, "train"), 18);
    run_ok("fverify", "-q", target, NULL);
    result = run_program(NULL, "/bin/rm", "-r", target, NULL);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_files_that_cannot_be_read_leave_the_dataset_unfinished, folder)
{
    (void)make_source(folder);
    const struct {
        const char *what;
        int number;
    } failures[] = {{"read", EIO},    {"read", ESTALE}, {"open", EACCES},
                    {"open", ESTALE}, {"open", ENOMEM}, {"open", EMFILE}};
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        char rule[64];
        (void)snprintf(rule, sizeof rule, "cat/4.jpg:%s:%d", failures[i].what, failures[i].number);
        expect_unfinished(folder, rule, "cat/4.jpg");
    }
}

TEST_IN_FOLDER(test_folders_that_cannot_be_listed_leave_the_dataset_unfinished, folder)
{
    (void)make_source(folder);
    const struct {
        const char *end, *what;
        int number;
    } failures[] = {{"/cat", "list", EIO},          {"/cat", "open", EACCES},       {"/cat", "open", ESTALE},
                    {"photos/dog", "stat", ESTALE}, {"photos/dog", "stat", ENOMEM}, {"/dog", "list", ESTALE}};
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        char rule[64];
        (void)snprintf(rule, sizeof rule, "%s:%s:%d", failures[i].end, failures[i].what, failures[i].number);
        expect_unfinished(folder, rule, failures[i].end[1] == 'c' ? "cat" : "dog");
    }
}

TEST_IN_FOLDER(test_a_class_folder_that_cannot_be_listed_is_not_called_empty, folder)
{
    const char *source = make_source(folder);
    source_class(source, "owl", 3);
    run_ok("/bin/mkdir", test_path(folder, "photos/ant"), NULL);
    for (int skips = 0; skips < 2; skips++) {
        RunResult result = pack("/owl:open:13", skips ? "skip" : "stop", source, test_path(folder, "shards"));
        assert_int_equal(result.exit_status, 1);
        assert_contains(result.err, "ant: a class folder without images");
        assert_contains(result.err, "owl: ");
        assert_null(strstr(result.err, "owl: a class folder without images"));
        run_result_free(&result);
    }
}

TEST_IN_FOLDER(test_outputs_without_such_files_are_kept, folder)
{
    const char *source = make_source(folder), *target = test_path(folder, "shards");
    RunResult result = pack("dog/8.jpg:read:5", "stop", source, target);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "not finished: 1 sample could not be read");
    assert_contains(result.err, "--on-error skip");
    run_result_free(&result);
    result = pack(NULL, "stop", source, target);
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.err, "kept");
    run_result_free(&result);
    assert_int_equal(packed_count(target, "train"), 18);
}

TEST_IN_FOLDER(test_skip_finishes_without_them, folder)
{
    const char *source = make_source(folder), *target = test_path(folder, "shards");
    RunResult result = pack("cat/4.jpg:read:5", "skip", source, target);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "cat/4.jpg: cannot read: Input/output error; left out");
    run_result_free(&result);
    assert_int_equal(packed_count(target, "train"), 17);
    const char *without = test_path(folder, "without");
    result = pack("/dog:list:5", "skip", source, without);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "dog: cannot read the folder: Input/output error; left out");
    run_result_free(&result);
    assert_int_equal(packed_count(without, "train"), 9);
}
