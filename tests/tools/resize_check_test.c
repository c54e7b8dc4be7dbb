/* fresize --check: what is good, what is missing, and what it takes to make it good again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/tools/resize_files.h"

/* Returns all that fresize --check printed: where findings go is the options' affair. */
static char *check_output(const char *in, const char *out)
{
    RunResult result = run_expecting(1, "fresize", "--max-size=20", "--check", in, out, NULL);
    char *text = malloc(strlen(result.out) + strlen(result.err) + 1);
    assert_non_null(text);
    (void)sprintf(text, "%s%s", result.out, result.err);
    run_result_free(&result);
    return text;
}

static void assert_counts(const char *in, const char *out, json_int_t images, json_int_t good,
                          json_int_t missing, json_int_t damaged)
{
    const char *const arguments[] = {"--max-size=20", "--check", in, out, NULL};
    json_t *summary = fresize_json(1, arguments);
    assert_int_equal(json_count(summary, "images"), images);
    assert_int_equal(json_count(summary, "good"), good);
    assert_int_equal(json_count(summary, "missing"), missing);
    assert_int_equal(json_count(summary, "damaged"), damaged);
    json_decref(summary);
}

/* ---- tars ---- */

TEST_IN_FOLDER(test_a_damaged_tar_is_not_good, folder)
{
    write_many(folder, "in", 10, 40);
    const char *in = test_path(folder, "in"), *tar = test_path(folder, "x.tar");
    run_ok("fresize", "--max-size=20", in, tar, NULL);
    test_file_flip_byte(tar, 1700); /* in the first image, after its headers */
    assert_counts(in, tar, 10, 9, 0, 1);
    char *text = check_output(in, tar);
    assert_contains(text, "damaged: 000.jpg: its output is not what was written");
    free(text);
    uint64_t bytes = test_file_size(tar);
    test_file_truncate(tar, bytes - 1024); /* its end alone */
    assert_counts(in, tar, 10, 9, 0, 1);
    run_ok("fresize", "--max-size=20", "--force", in, tar, NULL);
    test_file_truncate(tar, bytes - 1024);
    assert_counts(in, tar, 10, 10, 0, 1);
    text = check_output(in, tar);
    assert_contains(text, "damaged: ");
    assert_contains(text, "x.tar: ends without an end marker: it was cut short");
    free(text);
    test_file_truncate(tar, bytes * 4 / 10); /* within the fourth or fifth image */
    const char *const arguments[] = {"--max-size=20", "--check", in, tar, NULL};
    json_t *summary = fresize_json(1, arguments);
    assert_int_equal(json_count(summary, "images"), 10);
    assert_in_range(json_count(summary, "good"), 3, 4);
    assert_in_range(json_count(summary, "missing"), 5, 7);
    assert_int_equal(
        json_count(summary, "good") + json_count(summary, "missing") + json_count(summary, "damaged"), 10);
    json_decref(summary);
    text = check_output(in, tar);
    assert_contains(text, "missing: 009.jpg: its output is not in the tar, which is damaged at byte ");
    free(text);
}

TEST_IN_FOLDER(test_what_others_put_into_a_tar_is_extra, folder)
{
    write_many(folder, "in", 3, 40);
    const char *in = test_path(folder, "in"), *tar = test_path(folder, "x.tar");
    run_ok("fresize", "--max-size=20", in, tar, NULL);
    shell(folder, "mkdir x && tar xf x.tar -C x && echo mine > x/notes.txt && rm x/001.jpg && "
                  "tar cf x.tar -C x 000.jpg 002.jpg notes.txt 000.jpg");
    assert_counts(in, tar, 3, 2, 1, 0);
    char *text = check_output(in, tar);
    assert_contains(text, "extra: notes.txt: is in the tar, and fresize did not write it");
    assert_contains(text, "extra: 000.jpg: stands in the tar a second time");
    assert_contains(text, "missing: 001.jpg: its output is not in the tar");
    free(text);
}

/* ---- two sources, one name ---- */

TEST_IN_FOLDER(test_a_row_is_that_of_its_own_source, folder)
{
    if (!png_is_supported())
        return;
    write_png(test_path(folder, "in/a.png"), 40, 40);
    shell(folder, "cd in && printf 'P6 30 30 255\\n%02700d' 0 > a.ppm");
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out"),
               *tar = test_path(folder, "out.tar");
    for (int into_tar = 0; into_tar < 2; into_tar++) {
        const char *to = into_tar ? tar : out;
        for (int again = 0; again < 2; again++) {
            RunResult result = run_expecting(1, "fresize", "--max-size=20", in, to, NULL);
            assert_contains(result.err, "a.ppm: would be written to a.png, as a.png is");
            run_result_free(&result);
        }
        assert_counts(in, to, 2, 1, 1, 0);
        char *text = check_output(in, to);
        assert_contains(text, "missing: a.ppm: would be written to a.png, as a.png is");
        assert_null(strstr(text, "stale: "));
        free(text);
    }
}

/* ---- mending ---- */

TEST_IN_FOLDER(test_a_damaged_output_is_made_again, folder)
{
    write_many(folder, "in", 4, 40);
    shell(folder, "touch -d '2020-02-03 04:05:06.789' in/*");
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    const char *const arguments[] = {"--max-size=20", in, out, NULL};
    run_ok("fresize", "--max-size=20", in, out, NULL);
    shell(folder,
          "cp -pr out whole; touch -d '2020-02-03 04:05:08' out/000.jpg"); /* a coarse file system's */
    test_file_flip_byte(test_path(folder, "out/002.jpg"), 200);
    assert_counts(in, out, 4, 3, 0, 1);
    json_t *summary = fresize_json(0, arguments);
    assert_int_equal(json_count(summary, "done_before"), 3);
    assert_int_equal(json_count(summary, "resized"), 1);
    json_decref(summary);
    assert_same_bytes(test_path(folder, "out/002.jpg"), test_path(folder, "whole/002.jpg"));

    test_file_flip_byte(test_path(folder, "out/003.jpg"),
                        200); /* by what leaves the time alone, such as a disk */
    shell(folder, "touch -r in/003.jpg out/003.jpg");
    assert_counts(in, out, 4, 3, 0, 1);
    char *text = check_output(in, out);
    assert_contains(text,
                    "the same command without --check makes missing and stale outputs again; delete the "
                    "damaged ones first\n");
    free(text);
    assert_int_equal(unlink(test_path(folder, "out/003.jpg")), 0);
    run_ok("fresize", "--max-size=20", in, out, NULL);
    RunResult result = run_expecting(0, "fresize", "--max-size=20", "--check", in, out, NULL);
    assert_null(strstr(result.err, "the same command"));
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_damaged_tar_is_to_be_written_anew, folder)
{
    write_many(folder, "in", 4, 40);
    const char *in = test_path(folder, "in"), *tar = test_path(folder, "x.tar");
    run_ok("fresize", "--max-size=20", in, tar, NULL);
    test_file_flip_byte(tar, 1700);
    char *text = check_output(in, tar);
    assert_contains(text, "the same command with --force instead of --check writes the tar anew\n");
    free(text);
}

/* ---- the options of the run ---- */

TEST_IN_FOLDER(test_options_that_are_not_given_are_those_of_the_run, folder)
{
    write_many(folder, "in/blur", 3, 60);
    write_many(folder, "in/sharp", 3, 60);
    const char *in = test_path(folder, "in");
    static const char *const runs[][6] = {
        {"--max-size=20", "--pairs=blur:sharp", "--filter=box", "--exact", "--format=webp", NULL},
        {"--max-size=20", "--edge=long", "--quality=70", "--subsampling=444", "--min-size=61", NULL},
        {"--max-size=20", "--orient=ignore", "--icc=ignore", "--keep-metadata", NULL},
        {"--max-size=20", "--part=1/2", NULL},
        {"--max-size=20", NULL},
    };
    for (size_t i = png_is_supported() ? 0 : 1; i < sizeof runs / sizeof runs[0]; i++) {
        const char *out = test_path(folder, "%zu.tar", i), *arguments[10] = {NULL};
        size_t count = 0;
        for (; runs[i][count]; count++)
            arguments[count] = runs[i][count];
        arguments[count] = in;
        arguments[count + 1] = out;
        json_t *summary = fresize_json(0, arguments);
        const bool in_part = i == 3;
        json_int_t images = json_count(summary, "resized") + json_count(summary, "too_small");
        json_decref(summary);
        const char *const check[] = {"--check", in, in_part ? test_path(folder, "3-1-of-2.tar") : out, NULL};
        summary = fresize_json(0, check);
        assert_int_equal(json_count(summary, "images"), images);
        assert_int_equal(json_count(summary, "good"), images);
        json_decref(summary);
    }
}

TEST_IN_FOLDER(test_an_option_that_differs_is_told_as_it_would_be_given, folder)
{
    write_many(folder, "in/blur", 3, 60);
    write_many(folder, "in/sharp", 3, 60);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    run_ok("fresize", "--max-size=20", "--pairs=blur:sharp", in, out, NULL);
    static const struct {
        const char *arguments[2], *complaint;
    } rows[] = {
        {{"--check", "--max-size=30"}, "out: was made with --max-size 20, not 30\n"},
        {{"--check", "--exact"}, "out: was made without --exact, not with\n"},
        {{"--check", "--pairs=sharp:blur"}, "out: was made with --pairs blur:sharp, not sharp:blur\n"},
        {{"--check", "--filter=box"}, "out: was made with --filter lanczos, not box\n"},
        {{"--max-size=20", "-j1"},
         "out: was made with --pairs blur:sharp, now none; take another destination, "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        RunResult result =
            run_expecting(1, "fresize", rows[i].arguments[0], rows[i].arguments[1], in, out, NULL);
        assert_contains(result.err, rows[i].complaint);
        run_result_free(&result);
    }
    test_file_write_text(test_path(folder, "labels.txt"), "000.jpg cat\n001.jpg dog\n002.jpg dog\n");
    run_ok("fresize", "--labels", test_path(folder, "labels.txt"), test_path(folder, "in/blur"),
           test_path(folder, "labelled"), NULL);
    run_ok("fresize", "--check", test_path(folder, "in/blur"), test_path(folder, "labelled"), NULL);
}
