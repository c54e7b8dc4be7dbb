/* fresize into a tar that is there, or was there, already: again, moved away, damaged, in parts. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/tools/resize_files.h"

TEST_IN_FOLDER(test_a_finished_tar_that_is_gone_is_made_anew, folder)
{
    write_many(folder, "in", 8, 40);
    const char *in = test_path(folder, "in"), *tar = test_path(folder, "x.tar"),
               *moved = test_path(folder, "moved.tar");
    const char *const dry[] = {"-n", "--max-size=20", in, tar, NULL};
    run_ok("fresize", "--max-size=20", in, tar, NULL);
    assert_int_equal(rename(tar, moved), 0);
    json_t *summary = fresize_json(0, dry);
    assert_int_equal(json_count(summary, "done_before"), 0);
    assert_int_equal(json_count(summary, "resized"), 8);
    json_decref(summary);
    run_ok("fresize", "--max-size=20", in, tar, NULL);
    assert_same_bytes(tar, moved);
    assert_int_equal(unlink(tar), 0);
    run_ok("fresize", "--max-size=30", in, tar, NULL); /* nothing binds a tar that is not there */
    run_ok("fresize", "--max-size=30", "--check", in, tar, NULL);
}

TEST_IN_FOLDER(test_a_finished_tar_is_done_before_until_its_source_changes, folder)
{
    write_many(folder, "in", 8, 40);
    const char *in = test_path(folder, "in"), *tar = test_path(folder, "x.tar"),
               *kept = test_path(folder, "kept.tar"), *report = test_path(folder, "report");
    const char *const again[] = {"--max-size=20", in, tar, NULL};
    const char *const dry[] = {"-n", "--max-size=20", in, tar, NULL};
    run_ok("fresize", "--max-size=20", in, tar, NULL);
    shell(folder, "cp -p x.tar kept.tar");
    json_t *summary = fresize_json(0, again);
    assert_int_equal(json_count(summary, "done_before"), 8);
    json_decref(summary);
    summary = fresize_json(0, dry);
    assert_int_equal(json_count(summary, "done_before"), 8);
    json_decref(summary);
    run_ok("fresize", "--max-size=20", "--report", report, in, tar, NULL);
    assert_true(exists(report));
    assert_same_bytes(tar, kept);
    run_ok("fresize", "--max-size=20", "--check", in, tar, NULL);
    RunResult result = run_expecting(1, "fresize", "--max-size=21", in, tar, NULL);
    assert_contains(result.err, "--force");
    run_result_free(&result);

    write_size(test_path(folder, "in/new.jpg"), 50, 40);
    for (int dry_run = 0; dry_run < 2; dry_run++) {
        result = run_expecting(1, "fresize", dry_run ? "-n" : "-j1", "--max-size=20", in, tar, NULL);
        assert_contains(result.err, "in has changed since: new.jpg is not in it; --force writes it anew");
        run_result_free(&result);
    }
    assert_int_equal(unlink(test_path(folder, "in/new.jpg")), 0);
    write_size(test_path(folder, "in/003.jpg"), 50, 40);
    result = run_expecting(1, "fresize", "--max-size=20", in, tar, NULL);
    assert_contains(result.err, "in has changed since: 003.jpg is another; --force writes it anew");
    run_result_free(&result);
    assert_same_bytes(tar, kept);
    run_ok("fresize", "--max-size=20", "--force", in, tar, NULL);
    run_ok("fresize", "--max-size=20", "--check", in, tar, NULL);
}

TEST_IN_FOLDER(test_a_tar_of_others_is_not_taken_for_the_finished_one, folder)
{
    write_many(folder, "in", 4, 40);
    const char *in = test_path(folder, "in"), *tar = test_path(folder, "x.tar");
    test_file_write_text(tar, "mine");
    RunResult result = run_expecting(1, "fresize", in, tar, NULL);
    assert_contains(result.err, "x.tar: exists already, and fresize has not made it");
    run_result_free(&result);
    run_ok("fresize", "--force", in, tar, NULL);
    test_file_write_text(tar, "mine again");
    result = run_expecting(1, "fresize", in, tar, NULL);
    assert_contains(result.err, "x.tar: is not the tar that fresize wrote");
    run_result_free(&result);
    result = run_expecting(1, "fresize", "-n", in, tar, NULL);
    assert_contains(result.err, "x.tar: is not the tar that fresize wrote");
    run_result_free(&result);
    char *text = test_file_read(tar, NULL);
    assert_string_equal(text, "mine again");
    free(text);
}

TEST_IN_FOLDER(test_a_forced_run_that_stops_leaves_the_finished_tar, folder)
{
    write_many(folder, "in", 200, 500);
    const char *in = test_path(folder, "in"), *tar = test_path(folder, "x.tar");
    const char *const forced[] = {"--max-size=250", "--force", in, tar, NULL};
    run_ok("fresize", "--max-size=20", in, tar, NULL);
    shell(folder, "cp -p x.tar kept.tar");
    RunningProgram running = run_start(NULL, "fresize", forced);
    assert_true(wait_for_file(test_path(folder, ".x.tar.fresize/images.tar"), 20));
    assert_int_equal(kill(running.process, SIGINT), 0);
    RunResult result = run_wait(&running);
    assert_int_equal(result.exit_status, 130);
    assert_contains(result.err, "x.tar is as it was, and the same command begins anew");
    run_result_free(&result);
    assert_same_bytes(tar, test_path(folder, "kept.tar"));
    for (int check = 0; check < 2; check++) { /* what is known of the new one is not taken for the old */
        result = run_expecting(1, "fresize", "--max-size=250", check ? "--check" : "-j1", in, tar, NULL);
        run_result_free(&result);
    }
    assert_same_bytes(tar, test_path(folder, "kept.tar"));
    json_decref(fresize_json(0, forced));
    run_ok("fresize", "--check", in, tar, NULL);
}

/* ---- parts ---- */

TEST_IN_FOLDER(test_each_part_has_a_tar_of_its_own, folder)
{
    enum { IMAGES = 30, PARTS = 3 };
    write_many(folder, "in", IMAGES, 40);
    const char *in = test_path(folder, "in"), *tar = test_path(folder, "x.tar");
    json_int_t sum = 0;
    for (unsigned part = 1; part <= PARTS; part++) {
        char option[32];
        (void)snprintf(option, sizeof option, "--part=%u/%u", part, PARTS);
        const char *const arguments[] = {"--max-size=20", option, in, tar, NULL};
        json_t *summary = fresize_json(0, arguments);
        sum += json_count(summary, "resized");
        assert_in_range(json_count(summary, "resized"), 8, 12);
        json_decref(summary);
        summary = fresize_json(0, arguments);
        assert_int_equal(json_count(summary, "resized"), 0);
        json_decref(summary);
        assert_true(exists(test_path(folder, "x-%u-of-%u.tar", part, PARTS)));
    }
    assert_int_equal(sum, IMAGES);
    assert_false(exists(tar)); /* nobody takes a part for the whole */
    run_ok("fresize", "--max-size=20", in, test_path(folder, "out"), NULL);
    shell(folder, "mkdir x && for i in 1 2 3; do tar xf x-$i-of-3.tar -C x; done && rm -r out/.fresize && "
                  "diff -r out x");
    const char *const check[] = {"--max-size=20", "--check", "--part=2/3", in, tar, NULL};
    json_t *summary = fresize_json(0, check);
    assert_in_range(json_count(summary, "good"), 8, 12);
    assert_int_equal(json_count(summary, "images"), json_count(summary, "good"));
    json_decref(summary);
    test_file_flip_byte(test_path(folder, "x-2-of-3.tar"), 1700);
    summary = fresize_json(1, check);
    assert_int_equal(json_count(summary, "damaged"), 1);
    json_decref(summary);
    RunResult result = run_expecting(2, "fresize", "--max-size=20", "--check", "--part=2/3", in,
                                     test_path(folder, "out"), NULL);
    assert_contains(result.err, "--part");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_part_of_pairs_is_checked_with_both_sides, folder)
{
    write_many(folder, "in/blur", 12, 40);
    write_many(folder, "in/sharp", 12, 40);
    const char *in = test_path(folder, "in"), *tar = test_path(folder, "x.tar");
    json_int_t written = 0, good = 0;
    for (unsigned part = 1; part <= 2; part++) {
        char option[32];
        (void)snprintf(option, sizeof option, "--part=%u/2", part);
        const char *const run[] = {"--max-size=20", "--pairs=blur:sharp", option, in, tar, NULL};
        const char *const check[] = {"--max-size=20", "--pairs=blur:sharp", option, "--check", in, tar, NULL};
        json_t *summary = fresize_json(0, run);
        written += json_count(summary, "resized");
        json_decref(summary);
        summary = fresize_json(0, check);
        good += json_count(summary, "good");
        json_decref(summary);
    }
    assert_int_equal(written, 24);
    assert_int_equal(good, 24);
}
