/* fresize into a tar that is there, or was there, already: again, moved away, damaged, in parts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/tools/resize_files.h"

static void test_a_finished_tar_that_is_gone_is_made_anew(void **state)
{
    TestFolder *folder = *state;
    write_many(folder, "in", 8, 40);
    const char *in = test_path(folder, "in"), *tar = test_path(folder, "x.tar"),
               *moved = test_path(folder, "moved.tar");
    const char *const dry[] = {"-n", "--max-size=20", in, tar, NULL};
    fresize_ok("--max-size=20", in, tar, NULL);
    assert_int_equal(rename(tar, moved), 0);
    json_t *summary = fresize_json(0, dry);
    assert_int_equal(json_count(summary, "done_before"), 0);
    assert_int_equal(json_count(summary, "resized"), 8);
    json_decref(summary);
    fresize_ok("--max-size=20", in, tar, NULL);
    assert_same_bytes(tar, moved);
    assert_int_equal(unlink(tar), 0);
    fresize_ok("--max-size=30", in, tar, NULL); /* nothing binds a tar that is not there */
    fresize_ok("--max-size=30", "--check", in, tar, NULL);
}

static void test_a_finished_tar_is_done_before_until_its_source_changes(void **state)
{
    TestFolder *folder = *state;
    write_many(folder, "in", 8, 40);
    const char *in = test_path(folder, "in"), *tar = test_path(folder, "x.tar"),
               *kept = test_path(folder, "kept.tar"), *report = test_path(folder, "report");
    const char *const again[] = {"--max-size=20", in, tar, NULL};
    const char *const dry[] = {"-n", "--max-size=20", in, tar, NULL};
    fresize_ok("--max-size=20", in, tar, NULL);
    shell(folder, "cp -p x.tar kept.tar");
    json_t *summary = fresize_json(0, again);
    assert_int_equal(json_count(summary, "done_before"), 8);
    json_decref(summary);
    summary = fresize_json(0, dry);
    assert_int_equal(json_count(summary, "done_before"), 8);
    json_decref(summary);
    fresize_ok("--max-size=20", "--report", report, in, tar, NULL);
    assert_true(exists(report));
    assert_same_bytes(tar, kept);
    fresize_ok("--max-size=20", "--check", in, tar, NULL);
    RunResult result = fresize_expecting(1, "--max-size=21", in, tar, NULL);
    assert_contains(result.err, "--force");
    run_result_free(&result);

    write_size(test_path(folder, "in/new.jpg"), 50, 40);
    for (int dry_run = 0; dry_run < 2; dry_run++) {
        result = fresize_expecting(1, dry_run ? "-n" : "-j1", "--max-size=20", in, tar, NULL);
        assert_contains(result.err, "in has changed since: new.jpg is not in it; --force writes it anew");
        run_result_free(&result);
    }
    assert_int_equal(unlink(test_path(folder, "in/new.jpg")), 0);
    write_size(test_path(folder, "in/003.jpg"), 50, 40);
    result = fresize_expecting(1, "--max-size=20", in, tar, NULL);
    assert_contains(result.err, "in has changed since: 003.jpg is another; --force writes it anew");
    run_result_free(&result);
    assert_same_bytes(tar, kept);
    fresize_ok("--max-size=20", "--force", in, tar, NULL);
    fresize_ok("--max-size=20", "--check", in, tar, NULL);
}

static void test_a_tar_of_others_is_not_taken_for_the_finished_one(void **state)
{
    TestFolder *folder = *state;
    write_many(folder, "in", 4, 40);
    const char *in = test_path(folder, "in"), *tar = test_path(folder, "x.tar");
    test_file_write_text(tar, "mine");
    RunResult result = fresize_expecting(1, in, tar, NULL);
    assert_contains(result.err, "x.tar: exists already, and fresize has not made it");
    run_result_free(&result);
    fresize_ok("--force", in, tar, NULL);
    test_file_write_text(tar, "mine again");
    result = fresize_expecting(1, in, tar, NULL);
    assert_contains(result.err, "x.tar: is not the tar that fresize wrote");
    run_result_free(&result);
    result = fresize_expecting(1, "-n", in, tar, NULL);
    assert_contains(result.err, "x.tar: is not the tar that fresize wrote");
    run_result_free(&result);
    char *text = test_file_read(tar, NULL);
    assert_string_equal(text, "mine again");
    free(text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_folder_setup, test_folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_finished_tar_that_is_gone_is_made_anew),
        TEST(test_a_finished_tar_is_done_before_until_its_source_changes),
        TEST(test_a_tar_of_others_is_not_taken_for_the_finished_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
