/* fresize, how it behaves: resuming, refusing, stopping, telling. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/imaging/make_odd.h"
#include "tests/tools/resize_files.h"

TEST_IN_FOLDER(test_missing_and_empty_folders_are_errors, folder)
{
    const char *out = test_path(folder, "out");
    RunResult result = run_expecting(1, "fresize", test_path(folder, "nowhere"), out, NULL);
    assert_contains(result.err, "nowhere");
    assert_contains(result.err, "No such file or directory");
    run_result_free(&result);
    assert_int_equal(mkdir(test_path(folder, "empty"), 0777), 0);
    result = run_expecting(1, "fresize", test_path(folder, "empty"), out, NULL);
    assert_contains(result.err, "empty: no images in it (0 other files)");
    run_result_free(&result);
    test_file_write_text(test_path(folder, "texts/a.txt"), "a");
    test_file_write_text(test_path(folder, "texts/b"), "b");
    result = run_expecting(1, "fresize", test_path(folder, "texts"), out, NULL);
    assert_contains(result.err, "no images in it (2 other files)");
    run_result_free(&result);
    result = run_expecting(1, "fresize", test_path(folder, "texts/a.txt"), out, NULL);
    assert_contains(result.err, "a.txt");
    run_result_free(&result);
    assert_int_not_equal(access(out, F_OK), 0); /* nothing was made */
}

TEST_IN_FOLDER(test_wrong_usage_is_exit_2, folder)
{
    write_many(folder, "in", 2, 40);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out"),
               *inside = test_path(folder, "in/out");
    static const struct {
        const char *option, *complaint;
    } rows[] = {
        {"--max-size=0", "--max-size"},
        {"--max-size=big", "--max-size"},
        {"--quality=101", "--quality"},
        {"--filter=sinc", "--filter"},
        {"--edge=both", "--edge"},
        {"--subsampling=422", "--subsampling"},
        {"--on-error=panic", "--on-error"},
        {"--orient=up", "--orient"},
        {"--max-pixels=0", "--max-pixels"},
        {"--icc=cmyk", "--icc"},
        {"--format=jpg", "did you mean jpeg?"},
        {"--subsampling=4:4:4", "did you mean 444?"},
        {"--max-sizes=3", "--max-sizes"},
        {"--exact=yes", "--exact"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        RunResult result = run_expecting(2, "fresize", rows[i].option, in, out, NULL);
        assert_contains(result.err, rows[i].complaint);
        run_result_free(&result);
    }
    RunResult result = run_expecting(2, "fresize", in, NULL);
    assert_contains(result.err, "DST, the folder to write to, is missing");
    run_result_free(&result);
    result = run_expecting(2, "fresize", in, out, "third", NULL);
    run_result_free(&result);
    result = run_expecting(2, "fresize", "--src", in, "--dst", out, "third", NULL);
    assert_contains(result.err, "'third': one argument too many");
    run_result_free(&result);
    result = run_expecting(2, "fresize", in, test_path(folder, "x.tar.gz"), NULL);
    assert_contains(result.err, "x.tar.gz: tars are written uncompressed: name it ");
    assert_contains(result.err, "/x.tar\n");
    run_result_free(&result);
    assert_false(exists(test_path(folder, "x.tar.gz")));
    assert_int_equal(mkdir(test_path(folder, "y.tgz"), 0777), 0); /* whoever has such a folder means it */
    run_ok("fresize", in, test_path(folder, "y.tgz"), NULL);
    /* a destination inside the source would be read by the next run, and the other way round overwrites */
    result = run_expecting(2, "fresize", in, inside, NULL);
    assert_contains(result.err, "lie in each other");
    run_result_free(&result);
    result = run_expecting(2, "fresize", "--force", in, folder->path, NULL);
    assert_contains(result.err, "lie in each other");
    run_result_free(&result);
    result = run_expecting(2, "fresize", in, in, NULL);
    run_result_free(&result);
    assert_int_not_equal(access(out, F_OK), 0);
    assert_int_equal(test_count_files(in), 2);
}

TEST_IN_FOLDER(test_destination_of_others_is_refused_without_force, folder)
{
    write_many(folder, "in", 2, 40);
    test_file_write_text(test_path(folder, "out/notes.txt"), "mine");
    test_file_write_text(test_path(folder, "out/000.jpg"), "mine, too");
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    RunResult result = run_expecting(1, "fresize", in, out, NULL);
    assert_contains(result.err, "is not empty");
    assert_null(strstr(result.err, "--force")); /* nobody is led to replace what is not ours */
    run_result_free(&result);
    char *kept = test_file_read(test_path(folder, "out/000.jpg"), NULL);
    assert_string_equal(kept, "mine, too");
    free(kept);
    assert_int_equal(test_count_files(out), 2);
    run_ok("fresize", "--force", in, out, NULL);
    assert_same_bytes(test_path(folder, "out/000.jpg"), test_path(folder, "in/000.jpg"));
    kept = test_file_read(test_path(folder, "out/notes.txt"), NULL);
    assert_string_equal(kept, "mine");
    free(kept);
    test_file_write_text(test_path(folder, "file"), "a file");
    result = run_expecting(1, "fresize", in, test_path(folder, "file"), NULL);
    assert_contains(result.err, "file");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_swapped_names_never_replace_the_originals, folder)
{
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out"),
               *tar = test_path(folder, "out.tar"), *before = test_path(folder, "before"),
               *smaller = test_path(folder, "smaller");
    write_many(folder, "in/a", 2, 60);
    write_many(folder, "in/b", 2, 60);
    run_ok("fresize", "--max-size=20", in, out, NULL);
    run_ok("fresize", "--max-size=20", in, tar, NULL);
    run_ok("fresize", "--max-size=10", out, smaller, NULL); /* what is made from what was made is fine */
    run_ok("/bin/cp", "-a", in, before, NULL);
    const struct {
        const char *source, *destination;
    } swapped[] = {{out, in},
                   {test_path(folder, "out/a"), test_path(folder, "in/a")},
                   {test_path(folder, "out/../out"), test_path(folder, "in/new")},
                   {tar, in},
                   {smaller, in}};
    for (size_t i = 0; i < sizeof swapped / sizeof *swapped; i++) {
        for (int dry = 0; dry < 2; dry++) {
            RunResult result = run_expecting(2, "fresize", "--force", dry ? "-n" : "-v", swapped[i].source,
                                             swapped[i].destination, NULL);
            assert_contains(result.err, "was made from it, and its images would replace the originals");
            run_result_free(&result);
        }
        assert_null(test_tree_difference(in, before));
    }
    RunResult result = run_expecting(2, "fresize", out, in, NULL);
    assert_null(strstr(result.err, "--force"));
    run_result_free(&result);
    /* The other order of names is fine. */
    run_ok("fresize", "--max-size=20", "--force", in, out, NULL);
    assert_null(test_tree_difference(in, before));
}

TEST_IN_FOLDER(test_other_recipe_is_refused_and_force_does_all_anew, folder)
{
    write_many(folder, "in", 3, 60);
    write_many(folder, "other", 3, 60);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    run_ok("fresize", "--max-size=20", in, out, NULL);
    static const char *const changes[] = {"--max-size=30",   "--quality=80",      "--filter=box",
                                          "--exact",         "--edge=long",       "--icc=ignore",
                                          "--orient=ignore", "--subsampling=444", "--format=png",
                                          "--min-size=1",    "--keep-metadata"};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const char *size = i == 0 ? "-v" : "--max-size=20";
        RunResult result = run_expecting(1, "fresize", size, changes[i], in, out, NULL);
        const char *option = strndupa(changes[i], strcspn(changes[i], "="));
        assert_contains(result.err, "was made with");
        assert_contains(result.err, option);
        assert_contains(result.err, ", now ");
        run_result_free(&result);
    }
    RunResult result = run_expecting(1, "fresize", "--max-size=20", test_path(folder, "other"), out, NULL);
    assert_contains(result.err, "another source");
    run_result_free(&result);
    run_ok("fresize", "--force", "--max-size=30", in, out, NULL);
    for (unsigned i = 0; i < 3; i++)
        assert_image(test_path(folder, "out/%03u.jpg", i), IMAGE_JPEG, 30, 30, 3);
    test_file_write_text(test_path(folder, "out/.fresize/recipe.json"), "{not json");
    result = run_expecting(1, "fresize", "--max-size=30", in, out, NULL);
    assert_contains(result.err, ".fresize/recipe.json: line 1: ");
    assert_contains(result.err, "--force makes all images anew");
    run_result_free(&result);
    run_ok("fresize", "--force", "--max-size=30", in, out, NULL);
    /* One digit, and the quality would have been another. */
    char *recipe = test_file_read(test_path(folder, "out/.fresize/recipe.json"), NULL);
    char *quality = strstr(recipe, "\"quality\": 9");
    assert_non_null(quality);
    quality[strlen("\"quality\": ")] = '8';
    test_file_write_text(test_path(folder, "out/.fresize/recipe.json"), recipe);
    free(recipe);
    result = run_expecting(1, "fresize", "--max-size=30", in, out, NULL);
    assert_contains(result.err, "recipe.json: is not what was written: its checksum differs; --force");
    run_result_free(&result);
}

/* Files of the old recipe have their source's time, too. A forced run that stops must not have them taken for
 * its own. */
TEST_IN_FOLDER(test_forced_run_that_stops_resumes_with_its_own_recipe, folder)
{
    write_many(folder, "in", 6, 60);
    write_jpeg(test_path(folder, "in/000.jpg"), (MakeJpeg){.width = 50, .height = 60, .colours = MAKE_RGB});
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    run_ok("fresize", "--max-size=20", in, out, NULL);
    const char *const arguments[] = {"--force", "--max-size=30", "-j1", in, out, NULL};
    RunResult result =
        run_program_arguments(&(RunOptions){.limit_disk = true, .disk_bytes = 3000}, "fresize", arguments);
    assert_int_equal(result.exit_status, 1); /* the disk is full after some */
    run_result_free(&result);
    run_ok("fresize", "--max-size=30", in, out, NULL);
    run_ok("fresize", "--max-size=30", in, test_path(folder, "fresh"), NULL);
    char *difference = test_tree_difference(out, test_path(folder, "fresh"));
    if (difference)
        fail_msg("%s", difference);
}

TEST_IN_FOLDER(test_finished_files_are_skipped_and_changed_ones_are_not, folder)
{
    write_many(folder, "in", 5, 60);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out"),
               *report = test_path(folder, "report");
    const char *const arguments[] = {"--max-size=20", "--report", report, in, out, NULL};
    json_decref(fresize_json(0, arguments));
    struct stat before, source, after;
    assert_int_equal(stat(test_path(folder, "out/001.jpg"), &before), 0);
    assert_int_equal(stat(test_path(folder, "in/001.jpg"), &source), 0);
    assert_int_equal(before.st_mtim.tv_nsec, source.st_mtim.tv_nsec);
    /* gone, changed at its source, lost by a power cut */
    assert_int_equal(unlink(test_path(folder, "out/000.jpg")), 0);
    write_jpeg(test_path(folder, "in/002.jpg"), (MakeJpeg){.width = 80, .height = 60, .colours = MAKE_RGB});
    test_file_truncate(test_path(folder, "out/003.jpg"), 0);
    json_t *summary = fresize_json(0, arguments);
    assert_int_equal(json_count(summary, "images"), 5);
    assert_int_equal(json_count(summary, "done_before"), 2);
    assert_int_equal(json_count(summary, "resized"), 3);
    json_decref(summary);
    assert_int_equal(stat(test_path(folder, "out/001.jpg"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_image(test_path(folder, "out/002.jpg"), IMAGE_JPEG, 27, 20, 3);
    assert_image(test_path(folder, "out/003.jpg"), IMAGE_JPEG, 20, 20, 3);
    /* the report goes on where it was: 5 lines, then 3 */
    char *lines = test_file_read(report, NULL);
    unsigned count = 0;
    for (const char *line = strchr(lines, '\n'); line; line = strchr(line + 1, '\n'))
        count++;
    assert_int_equal(count, 8);
    free(lines);
}

/* Killed at many moments: what is there is whole, and going on gives the tree of a run that nobody killed. */
TEST_IN_FOLDER(test_killed_run_resumes_to_the_same_tree, folder)
{
    enum { IMAGES = 60, KILLS = 12 };
    for (uint32_t i = 0; i < IMAGES; i++)
        write_jpeg(test_path(folder, "in/%u/%02u.jpg", i % 4, i),
                   (MakeJpeg){.width = 300 + i, .height = 260, .colours = MAKE_RGB});
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    RunResult whole = run_expecting(0, "fresize", "--max-size=100", in, test_path(folder, "whole"), NULL);
    const char *const arguments[] = {"--max-size=100", "--quiet", in, out, NULL};
    for (unsigned i = 0; i < KILLS;
         i++) { /* from before the first file to the last ones, on slow machines, too */
        RunningProgram running = run_start(NULL, "fresize", arguments);
        sleep_seconds(whole.seconds * (i + 1) / (KILLS + 1));
        (void)kill(running.process, SIGKILL);
        RunResult result = run_wait(&running);
        run_result_free(&result);
        for (uint32_t k = 0; k < IMAGES; k++) {
            const char *path = test_path(folder, "out/%u/%02u.jpg", k % 4, k);
            if (access(path, F_OK) == 0)
                assert_same_bytes(path, test_path(folder, "whole/%u/%02u.jpg", k % 4, k));
        }
    }
    /* as kills in the middle of a write leave it */
    test_file_write_text(test_path(folder, "out/1/.01.jpg.tmp-999999-0"), "half");
    test_file_write_text(test_path(folder, "out/.fresize/.recipe.json.tmp-999999-0"), "half");
    test_file_write_text(test_path(folder, "out/.fresize/outputs.ledger.new"), "half");
    run_ok("fresize", "--max-size=100", in, out, NULL);
    char *difference = test_tree_difference(test_path(folder, "whole"), out);
    if (difference)
        fail_msg("%s", difference);
    run_result_free(&whole);
}

/* Killed before its state had its name: nothing of it counts, and nothing of it stays. */
TEST_IN_FOLDER(test_run_killed_at_its_start_is_no_obstacle, folder)
{
    write_many(folder, "in", 2, 40);
    test_file_write_text(test_path(folder, "out/.fresize/.recipe.json.tmp-999999-0"), "half");
    test_file_write_text(test_path(folder, "out/.fresize/lock"), "");
    run_ok("fresize", test_path(folder, "in"), test_path(folder, "out"), NULL);
    assert_int_equal(count_outputs(test_path(folder, "out")), 2);
    assert_int_equal(test_count_files(test_path(folder, "out")), 5); /* recipe, ledger, lock */
}

TEST_IN_FOLDER(test_interrupt_finishes_what_is_in_hand_and_says_how_to_go_on, folder)
{
    write_many(folder, "in", 400, 700);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    const char *const arguments[] = {"--max-size=300", in, out, NULL};
    const RunOptions stops = {.stop_at = "out/001.jpg"};
    RunningProgram running = run_start(&stops, "fresize", arguments);
    run_wait_until_stopped(&running);
    run_go_on(&running, SIGINT);
    RunResult result = run_wait(&running);
    assert_int_equal(result.exit_status, 130);
    assert_contains(result.err, "the same command goes on");
    run_result_free(&result);
    uint64_t written = count_outputs(out);
    assert_in_range(written, 2, 399);
    for (uint64_t i = 0; i < written; i++) /* in order, no gap, no temporary file */
        assert_image(test_path(folder, "out/%03u.jpg", (unsigned)i), IMAGE_JPEG, 300, 300, 3);
    const char *smaller = test_path(folder, "smaller");
    result = run_expecting(0, "fresize", "--max-size=200", out, smaller, NULL);
    assert_contains(result.err, "the run of fresize that makes SRC has not come to its end");
    run_result_free(&result);
    const char *const more[] = {"--max-size=300", in, out, NULL};
    json_t *summary = fresize_json(0, more);
    assert_int_equal(json_count(summary, "done_before"), written);
    assert_int_equal(json_count(summary, "resized"), 400 - written);
    json_decref(summary);
    result = run_expecting(0, "fresize", "--max-size=200", out, smaller, NULL);
    assert_null(strstr(result.err, "has not come"));
    run_result_free(&result);
    assert_int_equal(count_outputs(smaller), 400);
}

TEST_IN_FOLDER(test_full_disk_stops_with_the_path_and_tears_nothing, folder)
{
    write_many(folder, "in", 40, 200);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    const char *const arguments[] = {"--max-size=100", "-j2", in, out, NULL};
    RunResult result =
        run_program_arguments(&(RunOptions){.limit_disk = true, .disk_bytes = 20000}, "fresize", arguments);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, out);
    assert_contains(result.err, "No space left on device");
    assert_contains(result.err, "with more room, the same command goes on from here");
    run_result_free(&result);
    /* How many files are left is told where it is known: always in a part, which has counted them. */
    const char *const part[] = {"--max-size=100", "-j1", "--part=1/1", in, test_path(folder, "part"), NULL};
    result = run_program_arguments(&(RunOptions){.limit_disk = true, .disk_bytes = 40000}, "fresize", part);
    assert_int_equal(result.exit_status, 1);
    const char *left = strstr(result.err, "stopped before the end, ");
    assert_non_null(left);
    /* The last one was looked at, and found no room. */
    const int count = left ? atoi(left + strlen("stopped before the end, ")) : 0;
    assert_in_range(count, 1, 39 - count_outputs(test_path(folder, "part")) + 1);
    run_result_free(&result);
    uint64_t written = count_outputs(out);
    assert_in_range(written, 1, 39);
    for (unsigned i = 0; i < 40; i++) {
        const char *path = test_path(folder, "out/%03u.jpg", i);
        if (access(path, F_OK) == 0)
            assert_image(path, IMAGE_JPEG, 100, 100, 3);
    }
    result = run_expecting(0, "fresize", "--max-size=100", in, out, NULL);
    assert_null(strstr(result.err, "stopped"));
    run_result_free(&result);
    assert_int_equal(count_outputs(out), 40);
    /* not even the state fits */
    const char *const nothing[] = {in, test_path(folder, "none"), NULL};
    result = run_program_arguments(&(RunOptions){.limit_disk = true, .disk_bytes = 10}, "fresize", nothing);
    assert_int_equal(result.exit_status, 1);
    assert_int_equal(count_outputs(test_path(folder, "none")), 0);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_source_is_never_its_own_destination, folder)
{
    write_many(folder, "in", 2, 60);
    write_many(folder, "in/deep", 1, 60);
    write_many(folder, "before", 2, 60);
    write_many(folder, "before/deep", 1, 60);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    /* "new" is not there yet: once it is made, new/.. is the folder of in */
    static const char *const paths[] = {"new/../in", "new/../in/", "new/./../in/deeper",
                                        "new/newer/../../in"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        RunResult result =
            run_expecting(2, "fresize", "--max-size=20", in, test_path(folder, "%s", paths[i]), NULL);
        assert_contains(result.err, "goes up from a folder that does not exist");
        run_result_free(&result);
    }
    assert_int_not_equal(access(test_path(folder, "new"), F_OK), 0);
    assert_int_equal(mkdir(out, 0777), 0);
    assert_int_equal(symlink("../in/deep", test_path(folder, "out/deep")), 0);
    RunResult result = run_expecting(2, "fresize", "--force", "--max-size=20", in, out, NULL);
    assert_contains(result.err, "out/deep/000.jpg: lies in the folder of its own source");
    run_result_free(&result);
    char *difference = test_tree_difference(in, test_path(folder, "before"));
    assert_null(difference);
    /* names with dots that go nowhere */
    run_ok("fresize", "--max-size=20", in, test_path(folder, "...new/..x/"), NULL);
    assert_image(test_path(folder, "...new/..x/deep/000.jpg"), IMAGE_JPEG, 20, 20, 3);
}

static void set_time(const char *path, time_t seconds, long nanoseconds)
{
    const struct timespec time = {.tv_sec = seconds, .tv_nsec = nanoseconds};
    const struct timespec times[2] = {time, time};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

TEST_IN_FOLDER(test_images_of_any_age_are_written_and_known_again, folder)
{
    write_many(folder, "in", 4, 60);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    set_time(test_path(folder, "in/000.jpg"), -315619200, 500000000); /* 1960 */
    set_time(test_path(folder, "in/001.jpg"), 12000000000, 5);        /* 2350 */
    set_time(test_path(folder, "in/002.jpg"), 1763700001, 123456789);
    set_time(test_path(folder, "in/003.jpg"), 1763700001, 123456789);
    const char *const arguments[] = {"--max-size=20", in, out, NULL};
    json_decref(fresize_json(0, arguments));
    struct stat status;
    assert_int_equal(stat(test_path(folder, "out/000.jpg"), &status), 0);
    assert_int_equal(status.st_mtim.tv_sec, -315619200);
    assert_int_equal(status.st_mtim.tv_nsec, 500000000);
    /* what happens to an output's time is nobody's business; a source's tells of a change */
    set_time(test_path(folder, "out/002.jpg"), 1763700000, 0);
    set_time(test_path(folder, "in/003.jpg"), 1763700001, 123456788);
    json_t *summary = fresize_json(0, arguments);
    assert_int_equal(json_count(summary, "done_before"), 3);
    assert_int_equal(json_count(summary, "resized"), 1);
    json_decref(summary);
}

TEST_IN_FOLDER(test_terminals_are_not_obeyed_by_names, folder)
{
    write_many(folder, "in", 1, 20);
    test_file_write_text(test_path(folder, "in/\33[2J\n\177фото.jpg"), "text");
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    RunResult result = run_expecting(1, "fresize", in, out, NULL);
    assert_contains(result.err, "fresize: ?[2J??фото.jpg: not an image of a known format; left out\n");
    run_result_free(&result);
    result = run_expecting(1, "fresize", test_path(folder, "no\33[31m"), out, NULL);
    assert_contains(result.err, "no?[31m: No such file or directory\n");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_closed_streams_do_not_write_into_files, folder)
{
    write_many(folder, "in", 2, 20);
    test_file_write_text(test_path(folder, "in/text.jpg"), "text");
    test_file_write_text(test_path(folder, "in/a: b/text"), "text");
    assert_int_equal(symlink("nothing", test_path(folder, "in/a: b/x.jpg")), 0);
    const char *report = test_path(folder, "report"), *command = "exec \"$FSHARD_BIN/fresize\" \"$@\" 2>&-";
    RunResult result = run_program(NULL, "/bin/sh", "-c", command, "sh", "--report", report,
                                   test_path(folder, "in"), test_path(folder, "out"), NULL);
    assert_int_equal(result.exit_status, 1);
    run_result_free(&result);
    char *lines = test_file_read(report, NULL);
    assert_contains(lines, "\"text.jpg\"");
    assert_contains(lines, "{\"path\":\"a: b/x.jpg\",\"status\":\"failed\",\"reason\":\"link to nothing\"");
    assert_contains_not(lines, "fresize:");
    free(lines);
}

TEST_IN_FOLDER(test_dry_run_writes_nothing, folder)
{
    write_many(folder, "in", 3, 60);
    write_jpeg(test_path(folder, "in/small.jpg"), (MakeJpeg){.width = 8, .height = 9, .colours = MAKE_RGB});
    test_file_write_text(test_path(folder, "in/text.jpg"), "text");
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out"),
               *report = test_path(folder, "report");
    const char *const arguments[] = {"--dry-run", "--max-size=20", "--report", report, in, out, NULL};
    json_t *summary = fresize_json(1, arguments);
    assert_int_equal(json_count(summary, "resized"), 3);
    assert_int_equal(json_count(summary, "copied"), 1);
    assert_int_equal(json_count(summary, "failed"), 1);
    assert_true(json_is_true(json_object_get(summary, "dry_run")));
    json_decref(summary);
    assert_int_not_equal(access(out, F_OK), 0);
    assert_int_not_equal(access(report, F_OK), 0);
    static const char *const loudness[] = {"-v", "-q"}; /* the plan is what is asked for */
    for (size_t i = 0; i < 2; i++) {
        RunResult told = run_expecting(1, "fresize", "-n", loudness[i], "--max-size=20", in, out, NULL);
        assert_contains(told.err, "3 would be resized, 1 would be copied, 1 failed");
        assert_contains(told.err, "nothing written");
        run_result_free(&told);
    }
    RunResult result = run_expecting(1, "fresize", "-n", "--max-pixels=100", in, out, NULL);
    assert_contains(result.err, "fresize: 000.jpg: the header claims 60 x 60 pixels");
    assert_contains(result.err, "1 would be copied, 4 failed");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_report_of_others_is_refused_without_force, folder)
{
    write_many(folder, "in", 2, 20);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out"),
               *report = test_path(folder, "report");
    test_file_write_text(report, "precious\n");
    RunResult result = run_expecting(1, "fresize", "--report", report, in, out, NULL);
    assert_contains(result.err, "the report exists already");
    assert_contains_not(result.err, "images"); /* no summary of nothing */
    run_result_free(&result);
    assert_int_equal(test_file_size(report), 9);
    assert_int_not_equal(access(out, F_OK), 0);
    run_ok("fresize", "--force", "--report", report, in, out, NULL);
    char *lines = test_file_read(report, NULL);
    assert_contains_not(lines, "precious");
    free(lines);
    /* half a line, as a killed run leaves it, stays a line of its own */
    test_file_write_text(report, "{\"path\":\"00");
    assert_int_equal(unlink(test_path(folder, "out/001.jpg")), 0);
    run_ok("fresize", "--report", report, in, out, NULL);
    lines = test_file_read(report, NULL);
    assert_contains(lines, "{\"path\":\"00\n{\"path\":\"001.jpg\",\"status\":\"copied\"");
    free(lines);
    /* a run that goes on does not add to what is no report */
    test_file_write_text(report, "precious\n");
    result = run_expecting(1, "fresize", "--report", report, in, out, NULL);
    assert_contains(result.err, "report: exists and is no report of fresize");
    run_result_free(&result);
    assert_int_equal(test_file_size(report), 9);
}

TEST_IN_FOLDER(test_report_goes_down_a_pipe_and_not_into_the_destination, folder)
{
    write_many(folder, "in", 2, 20);
    test_file_write_text(test_path(folder, "in/text.jpg"), "text");
    const char *in = test_path(folder, "in");
    static const char *const commands[] = {
        "exec \"$FSHARD_BIN/fresize\" --report - \"$@\"",
        "exec \"$FSHARD_BIN/fresize\" --report /dev/stdout \"$@\" | cat",
        "mkfifo \"$2.pipe\"; cat \"$2.pipe\" & \"$FSHARD_BIN/fresize\" --report \"$2.pipe\" \"$@\"; wait",
    };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        const char *out = test_path(folder, "out%zu", i);
        RunResult result = run_program(NULL, "/bin/sh", "-c", commands[i], "sh", in, out, NULL);
        assert_contains(result.out, "{\"path\":\"000.jpg\",\"status\":\"copied\"");
        assert_contains(result.out, "{\"path\":\"text.jpg\",\"status\":\"failed\"");
        run_result_free(&result);
        assert_int_equal(count_outputs(out), 2);
    }
    assert_false(exists("-"));
    RunResult result = run_expecting(2, "fresize", "--report", test_path(folder, "new/r.jsonl"), in,
                                     test_path(folder, "new"), NULL);
    assert_contains(result.err, "choose a name outside");
    run_result_free(&result);
    result = run_expecting(2, "fresize", "--check", "--report", test_path(folder, "out0/.fresize/r"), in,
                           test_path(folder, "out0"), NULL);
    assert_contains(result.err, "choose a name outside");
    assert_false(exists(test_path(folder, "out0/.fresize/r")));
    run_result_free(&result);
    result = run_expecting(2, "fresize", "--report", test_path(folder, "x.tar"), in,
                           test_path(folder, "x.tar"), NULL);
    run_result_free(&result);
    result = run_expecting(2, "fresize", "--report=-", "--json", in, test_path(folder, "new"), NULL);
    assert_contains(result.err, "both want standard output");
    run_result_free(&result);
    result = run_expecting(1, "fresize", "--check", "--report", test_path(folder, "r"), in,
                           test_path(folder, "new"), NULL);
    assert_false(exists(test_path(folder, "r"))); /* fresize has not made this */
    run_result_free(&result);
}

TEST_IN_FOLDER(test_summary_claims_no_rate_of_nothing, folder)
{
    write_many(folder, "in", 2, 20);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    RunResult result = run_expecting(0, "fresize", "--part=2/2", in, out, NULL);
    assert_contains(result.err, "fresize: part 2/2: 1 image: 1 copied\n");
    assert_contains(result.err, "images/s");
    run_result_free(&result);
    for (unsigned i = 0; i < 2; i++) {
        result = run_expecting(0, "fresize", in, out, NULL);
        run_result_free(&result);
    }
    result = run_expecting(0, "fresize", in, out, NULL);
    assert_contains(result.err, "fresize: 2 images: 2 done before\nfresize: nothing was written, in ");
    assert_contains_not(result.err, "images/s");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_summary_as_json_and_quiet, folder)
{
    write_many(folder, "in", 2, 40);
    test_file_write_text(test_path(folder, "in/notes.txt"), "words");
    const char *in = test_path(folder, "in");
    RunResult result = run_expecting(0, "fresize", "-q", in, test_path(folder, "quiet"), NULL);
    assert_string_equal(result.err, "");
    assert_string_equal(result.out, "");
    run_result_free(&result);
    const char *const arguments[] = {"-q", "--max-size=20", in, test_path(folder, "out"), NULL};
    json_t *summary = fresize_json(0, arguments);
    assert_int_equal(json_count(summary, "other_files"), 1);
    assert_int_equal(json_count(summary, "bytes_before"),
                     2 * test_file_size(test_path(folder, "in/000.jpg")));
    assert_int_equal(json_count(summary, "bytes_after"),
                     2 * test_file_size(test_path(folder, "out/000.jpg")));
    json_decref(summary);
    char *text = test_file_read(test_path(folder, "out/.fresize/recipe.json"), NULL);
    json_t *object = json_loads(text, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(object, "tool")), "fresize");
    assert_int_equal(json_count(object, "max_size"), 20);
    assert_string_equal(json_string_value(json_object_get(object, "filter")), "lanczos");
    assert_true(json_is_true(json_object_get(object, "complete")));
    json_decref(object);
    free(text);
}

TEST_IN_FOLDER(test_only_a_compressed_tar_needs_libarchive, folder)
{
    const char *const tar[] = {test_path(folder, "a.tar"), test_path(folder, "out"), NULL};
    const char *const files[] = {test_path(folder, "in"), test_path(folder, "out"), NULL};
    const char *const plain[] = {test_path(folder, "b.tar"), test_path(folder, "out2"), NULL};
    write_png(test_path(folder, "in/a.png"), 40, 30);
    test_file_write_text(test_path(folder, "plugins/libfshard-archive.so"), "no library");
    char environment[512];
    (void)snprintf(environment, sizeof environment, "FSHARD_PLUGINS=%s", test_path(folder, "plugins"));
    const char *const variables[] = {environment, NULL};
    RunResult made = run_program(NULL, "/bin/tar", "-C", folder->path, "-czf", tar[0], "in", NULL);
    assert_int_equal(made.exit_status, 0);
    run_result_free(&made);
    made = run_program(NULL, "/bin/tar", "-C", folder->path, "-cf", plain[0], "in", NULL);
    assert_int_equal(made.exit_status, 0);
    run_result_free(&made);
    RunResult result = run_program_arguments(&(RunOptions){.environment = variables}, "fresize", tar);
    assert_int_equal(result.exit_status, 1);
    assert_contains(
        result.err,
        "a.tar: reading a compressed tar needs libarchive (Debian: libarchive13): cannot load a plugin");
    run_result_free(&result);
    result = run_program_arguments(&(RunOptions){.environment = variables}, "fresize", plain);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    result = run_program_arguments(&(RunOptions){.environment = variables}, "fresize", files);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_build_without_the_plugin_says_what_is_missing, folder)
{
    static const uint8_t grays[4 * 4] = {0};
    Buffer gif = {0};
    size_t codes_at = 0;
    make_gif(4, 4, grays, &gif, &codes_at);
    test_file_write(test_path(folder, "in/a.gif"), gif.bytes, gif.length);
    buffer_free(&gif);
    write_png(test_path(folder, "in/b.png"), 40, 30);
    test_file_write_text(test_path(folder, "plugins/libfshard-vips.so"), "no library");
    char environment[512];
    (void)snprintf(environment, sizeof environment, "FSHARD_PLUGINS=%s", test_path(folder, "plugins"));
    const char *const variables[] = {environment, NULL};
    const char *const arguments[] = {test_path(folder, "in"), test_path(folder, "out"), NULL};
    RunResult result = run_program_arguments(&(RunOptions){.environment = variables}, "fresize", arguments);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "fresize: a.gif: this needs the libvips plugin");
    assert_true(file_exists(test_path(folder, "out/b.png")));
    run_result_free(&result);
}
