/* fresize over a destination that is there already: killed runs, parts, checks, other writers. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/random.h"
#include "tests/tools/resize_files.h"

static void assert_same_trees(const char *a, const char *b)
{
    char *difference = test_tree_difference(a, b);
    if (difference)
        fail_msg("%s", difference);
}

static void write_tree(TestFolder *folder, unsigned count, uint32_t size)
{
    for (unsigned i = 0; i < count; i++)
        write_jpeg(test_path(folder, "in/%u/%03u.jpg", i % 4, i),
                   (MakeJpeg){.width = size + i, .height = size, .colours = MAKE_RGB});
}

/* A hundred kills at random moments: what is there is whole at each, and the tree at the end, state included,
 * is that of a run that nobody killed. */
TEST_IN_FOLDER(test_a_hundred_kills_leave_no_trace, folder)
{
    enum { KILLS = 100, IMAGES = 120 };
    write_tree(folder, IMAGES, 320);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    RunResult whole = run_expecting(0, "fresize", "--max-size=100", in, test_path(folder, "whole"), NULL);
    const char *const arguments[] = {"--max-size=100", "--quiet", in, out, NULL};
    Random random;
    random_start(&random, 20261121, 0);
    for (unsigned i = 0; i < KILLS; i++) {
        RunningProgram running = run_start(NULL, "fresize", arguments);
        sleep_seconds(whole.seconds * 1.2 * (double)random_below(&random, 1000) / 1000);
        (void)kill(running.process, SIGKILL);
        RunResult result = run_wait(&running);
        run_result_free(&result);
        for (unsigned k = i % 7; k < IMAGES; k += 7) {
            const char *path = test_path(folder, "out/%u/%03u.jpg", k % 4, k);
            if (access(path, F_OK) == 0)
                assert_same_bytes(path, test_path(folder, "whole/%u/%03u.jpg", k % 4, k));
        }
        if (i % 10 == 9) { /* a run that comes to its end ends them all: begin again */
            run_ok("fresize", "--max-size=100", in, out, NULL);
            assert_same_trees(test_path(folder, "whole"), out);
            result = run_program(NULL, "/bin/rm", "-r", out, NULL);
            run_result_free(&result);
        }
    }
    run_result_free(&whole);
}

/* ---- what the ledger knows ---- */

TEST_IN_FOLDER(test_a_source_of_another_size_is_done_again_whatever_its_time, folder)
{
    write_tree(folder, 4, 60);
    const char *const arguments[] = {"--max-size=20", test_path(folder, "in"), test_path(folder, "out"),
                                     NULL};
    json_decref(fresize_json(0, arguments));
    struct stat before;
    assert_int_equal(stat(test_path(folder, "in/1/001.jpg"), &before), 0);
    write_jpeg(test_path(folder, "in/1/001.jpg"), (MakeJpeg){.width = 90, .height = 60, .colours = MAKE_RGB});
    const struct timespec times[2] = {before.st_mtim, before.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, test_path(folder, "in/1/001.jpg"), times, 0), 0);
    json_t *summary = fresize_json(0, arguments);
    assert_int_equal(json_count(summary, "resized"), 1);
    assert_int_equal(json_count(summary, "done_before"), 3);
    json_decref(summary);
    assert_image(test_path(folder, "out/1/001.jpg"), IMAGE_JPEG, 30, 20, 3);
}

TEST_IN_FOLDER(test_check_tells_all_that_is_wrong, folder)
{
    write_tree(folder, 8, 60);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    const char *const arguments[] = {"--max-size=20", "--check", in, out, NULL};
    run_ok("fresize", "--max-size=20", in, out, NULL);
    json_t *summary = fresize_json(0, arguments);
    assert_int_equal(json_count(summary, "good"), 8);
    json_decref(summary);
    assert_int_equal(unlink(test_path(folder, "out/0/000.jpg")), 0);
    test_file_flip_byte(test_path(folder, "out/1/001.jpg"), 200);
    test_file_truncate(test_path(folder, "out/2/002.jpg"), 100);
    write_jpeg(test_path(folder, "in/3/003.jpg"), (MakeJpeg){.width = 99, .height = 60, .colours = MAKE_RGB});
    assert_int_equal(unlink(test_path(folder, "in/0/004.jpg")), 0);
    write_jpeg(test_path(folder, "in/1/new.jpg"), (MakeJpeg){.width = 99, .height = 60, .colours = MAKE_RGB});
    test_file_write_text(test_path(folder, "out/notes.txt"), "mine");
    test_file_write_text(test_path(folder, "in/notes.txt"), "no image");
    uint64_t files = test_count_files(out);
    RunResult result = run_expecting(1, "fresize", "--max-size=20", "--check", in, out, NULL);
    assert_contains(result.out, "missing: 0/000.jpg: its output is not there\n");
    assert_contains(result.out, "damaged: 1/001.jpg: its output is not what was written\n");
    assert_contains(result.out, "damaged: 2/002.jpg: ");
    assert_contains(result.out, "stale: 3/003.jpg: has changed since: ");
    assert_contains(result.out, "source gone: 0/004.jpg: its source 0/004.jpg is gone\n");
    assert_contains(result.out, "missing: 1/new.jpg: has no output\n");
    assert_contains(result.out, "extra: notes.txt: ");
    assert_contains(result.err,
                    "3 of 8 images have the output they should have, 2 missing, 1 stale, 2 damaged, 1 extra, "
                    "1 source gone");
    run_result_free(&result);
    assert_int_equal(test_count_files(out), files);
    /* the same for programs */
    summary = fresize_json(1, arguments);
    const json_t *problems = json_object_get(summary, "problems");
    assert_int_equal(json_array_size(problems), 7);
    const json_t *first = json_array_get(problems, 0);
    assert_string_equal(json_string_value(json_object_get(first, "kind")), "missing");
    assert_string_equal(json_string_value(json_object_get(first, "path")), "0/000.jpg");
    assert_string_equal(json_string_value(json_object_get(first, "reason")), "its output is not there");
    assert_int_equal(json_count(summary, "good"), 3);
    json_decref(summary);
    result = run_expecting(1, "fresize", "--max-size=20", "--check", "--report=-", in, out, NULL);
    assert_contains(result.out, "{\"path\":\"0/000.jpg\",\"status\":\"missing\",\"reason\":");
    assert_contains_not(result.out, "missing: ");
    run_result_free(&result);
    const char *report = test_path(folder, "report");
    for (unsigned i = 0; i < 2; i++) { /* a second one is not mixed with the first */
        result = run_expecting(1, "fresize", "--max-size=20", "--check", "--report", report, in, out,
                               i ? "--force" : NULL, NULL);
        run_result_free(&result);
    }
    char *lines = test_file_read(report, NULL);
    size_t count = 0;
    for (const char *end = strchr(lines, '\n'); end; end = strchr(end + 1, '\n'))
        count++;
    assert_int_equal(count, 7);
    free(lines);
    result = run_expecting(1, "fresize", "--max-size=20", "--check", "--report", report, in, out, NULL);
    assert_contains(result.err, "the report exists already");
    run_result_free(&result);
    result = run_expecting(1, "fresize", "--max-size=30", "--check", in, out, NULL);
    assert_contains(result.err, "was made with --max-size 20, not 30");
    run_result_free(&result);
    run_ok("fresize", "--max-size=20", in, out,
           NULL); /* what was damaged keeps its size in one case: only --check sees it */
    assert_image(test_path(folder, "out/2/002.jpg"), IMAGE_JPEG, 21, 20, 3);
}

TEST_IN_FOLDER(test_an_image_that_was_taken_away_with_its_output_is_nothing_to_tell, folder)
{
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    write_many(folder, "in", 4, 60);
    run_ok("fresize", "--max-size=20", in, out, NULL);
    assert_int_equal(unlink(test_path(folder, "in/001.jpg")), 0);
    RunResult result = run_expecting(1, "fresize", "--check", in, out, NULL);
    assert_contains(result.out, "source gone: 001.jpg: ");
    run_result_free(&result);
    assert_int_equal(unlink(test_path(folder, "out/001.jpg")), 0);
    result = run_expecting(0, "fresize", "--check", in, out, NULL);
    assert_string_equal(result.out, "");
    assert_contains(result.err, "3 of 3 images have the output they should have");
    run_result_free(&result);
}

/* ---- parts ---- */

TEST_IN_FOLDER(test_parts_are_disjoint_and_complete_and_become_one, folder)
{
    enum { IMAGES = 60, PARTS = 4 };
    write_tree(folder, IMAGES, 60);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    json_int_t sum = 0, least = INT64_MAX, most = 0;
    for (unsigned part = PARTS; part >= 1; part--) {
        char option[32];
        (void)snprintf(option, sizeof option, "--part=%u/%u", part, PARTS);
        const char *const arguments[] = {"--max-size=20", option, in, out, NULL};
        json_t *summary = fresize_json(0, arguments);
        json_int_t bytes = json_count(summary, "bytes_before");
        assert_int_equal(json_count(summary, "done_before"), 0); /* disjoint */
        sum += json_count(summary, "resized");
        least = bytes < least ? bytes : least;
        most = bytes > most ? bytes : most;
        json_decref(summary);
        if (part == 2) {
            json_decref(fresize_json(0, arguments)); /* again: nothing to do */
            char *text = test_file_read(test_path(folder, "out/.fresize/recipe.json"), NULL);
            assert_contains(text, "\"complete\": false");
            free(text);
        }
    }
    assert_int_equal(sum, IMAGES);
    uint64_t largest = 0;
    for (unsigned i = 0; i < IMAGES; i++) {
        uint64_t bytes = test_file_size(test_path(folder, "in/%u/%03u.jpg", i % 4, i));
        largest = bytes > largest ? bytes : largest;
    }
    assert_in_range(most - least, 0, 2 * largest); /* equal in bytes but for an image at each end */
    const char *const whole[] = {"--max-size=20", in, out, NULL};
    json_t *summary = fresize_json(0, whole);
    assert_int_equal(json_count(summary, "done_before"), IMAGES);
    json_decref(summary);
    run_ok("fresize", "--max-size=20", in, test_path(folder, "alone"), NULL);
    assert_same_trees(out, test_path(folder, "alone"));
}

TEST_IN_FOLDER(test_slurm_says_which_part, folder)
{
    write_tree(folder, 9, 60);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    const char *const arguments[] = {"--max-size=20", "--part=auto", in, out, NULL};
    const char *const variables[] = {"SLURM_ARRAY_TASK_ID=11",   "SLURM_ARRAY_TASK_MIN=10",
                                     "SLURM_ARRAY_TASK_MAX=12",  "SLURM_ARRAY_TASK_STEP=1",
                                     "SLURM_ARRAY_TASK_COUNT=3", NULL};
    RunResult result = run_program_arguments(&(RunOptions){.environment = variables}, "fresize", arguments);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    assert_int_equal(count_outputs(out), 3);
    assert_int_equal(access(test_path(folder, "out/.fresize/part-2-of-3.ledger"), F_OK), 0);
}

TEST_IN_FOLDER(test_parts_of_a_source_that_changes_are_refused, folder)
{
    write_tree(folder, 10, 60);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    run_ok("fresize", "--max-size=20", "--part=1/2", in, out, NULL);
    write_jpeg(test_path(folder, "in/0/more.jpg"),
               (MakeJpeg){.width = 60, .height = 60, .colours = MAKE_RGB});
    RunResult result = run_expecting(1, "fresize", "--max-size=20", "--part=2/2", in, out, NULL);
    assert_contains(result.err, "the source has changed since part 1/2 began");
    run_result_free(&result);
    result = run_expecting(1, "fresize", "--max-size=20", "--part=2/3", in, out, NULL);
    assert_contains(result.err, "part 1 was made of 2 parts, this one is of 3");
    run_result_free(&result);
    run_ok("fresize", "--max-size=20", in, out, NULL); /* does what is missing */
    assert_int_equal(count_outputs(out), 11);
    run_ok("fresize", "--max-size=20", "--check", in, out, NULL);
}

/* ---- two writers ---- */

TEST_IN_FOLDER(test_a_second_writer_is_refused, folder)
{
    write_tree(folder, 4, 60);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    run_ok("fresize", "--max-size=20", "--part=1/2", in, out, NULL);
    int lock = open(test_path(folder, "out/.fresize/lock"), O_RDWR | O_CLOEXEC);
    assert_true(lock >= 0);
    assert_int_equal(flock(lock, LOCK_SH), 0); /* as a part holds it */
    RunResult result = run_expecting(1, "fresize", "--max-size=20", in, out, NULL);
    assert_contains(result.err, "out: another fresize is writing it");
    run_result_free(&result);
    result = run_expecting(1, "fresize", "--max-size=20", "--force", in, out, NULL);
    assert_contains(result.err, "out: another fresize is writing it");
    run_result_free(&result);
    run_ok("fresize", "--max-size=20", "--part=2/2", in, out, NULL); /* the other part may */
    assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);             /* as a run of the whole holds it */
    result = run_expecting(1, "fresize", "--max-size=20", "--part=2/2", in, out, NULL);
    assert_contains(result.err, "out: another fresize is writing it");
    run_result_free(&result);
    (void)close(lock);
}
