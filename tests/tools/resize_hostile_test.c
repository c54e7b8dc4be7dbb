/* fresize and what it must not fall for: names that no file can have, links, ledgers of another recipe, a
 * broken state. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tools/resize_files.h"
#include "tools/resize/resize_report.h"

/* ---- names ---- */

TEST_IN_FOLDER(test_a_name_that_no_file_can_have_costs_its_image_only, folder)
{
    char name[252] = {0};
    memset(name, 'x', sizeof name - 1);
    write_size(test_path(folder, "in/%s.jpg", name), 40, 40);
    for (unsigned i = 0; i < 80; i++)
        write_size(test_path(folder, "in/z%02u.jpg", i), 40, 40);
    shell(folder,
          "tar cf long.tar --transform 's|xx.jpg|xxxxxxxxx.jpg|' -C in . && "
          "mkdir flat && cp in/z00.jpg flat/a.jpg && cp in/z00.jpg flat/b.jpg && "
          "tar cf nested.tar -C flat a.jpg && tar rf nested.tar -C flat --transform 's|b|a.jpg/b|' b.jpg && "
          "tar rf nested.tar -C in z01.jpg");
    RunResult result = run_expecting(1, "fresize", "--max-size=20", "-j1", test_path(folder, "long.tar"),
                                     test_path(folder, "long"), NULL);
    assert_contains(result.err, "File name too long");
    assert_contains(result.err, "81 images: 80 resized, 1 failed");
    run_result_free(&result);
    result = run_expecting(1, "fresize", "--max-size=20", "-j1", test_path(folder, "nested.tar"),
                           test_path(folder, "nested"), NULL);
    assert_contains(result.err, "a.jpg/b.jpg: ");
    assert_contains(result.err, "3 images: 2 resized, 1 failed");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_files_without_label_that_are_no_images_are_left_alone, folder)
{
    write_size(test_path(folder, "in/v_1.jpg"), 40, 40);
    test_file_write_text(test_path(folder, "in/LICENSE"), "text");
    test_file_write_text(test_path(folder, "in/README"), "text");
    test_file_write_text(test_path(folder, "labels"), "v_1.jpg cat\n");
    const char *const arguments[] = {
        "--max-size=20",          "--labels", test_path(folder, "labels"), test_path(folder, "in"),
        test_path(folder, "out"), NULL};
    json_t *summary = fresize_json(0, arguments);
    assert_int_equal(json_count(summary, "resized"), 1);
    assert_int_equal(json_count(summary, "other_files"), 2);
    json_decref(summary);
}

TEST_IN_FOLDER(test_a_list_does_not_reach_the_state, folder)
{
    write_size(test_path(folder, "in/.fresize/outputs.ledger"), 60, 60);
    write_size(test_path(folder, "in/a.jpg"), 60, 60);
    test_file_write_text(test_path(folder, "list"), ".fresize/outputs.ledger\na.jpg\n");
    RunResult result = run_expecting(1, "fresize", "--files-from", test_path(folder, "list"),
                                     test_path(folder, "in"), test_path(folder, "out"), NULL);
    assert_contains(result.err, ".fresize/outputs.ledger: would be written into .fresize");
    assert_contains(result.err, "2 images: 1 copied, 1 failed");
    run_result_free(&result);
    result = run_expecting(1, "fresize", "--files-from", test_path(folder, "list"), test_path(folder, "in"),
                           test_path(folder, "out"), NULL);
    assert_contains(result.err, "1 done before");
    run_result_free(&result);
}

/* ---- links ---- */

TEST_IN_FOLDER(test_a_link_is_of_the_file_that_a_symbolic_link_leads_to, folder)
{
    write_size(test_path(folder, "real/a.jpg"), 20, 20);
    shell(folder, "mkdir in && ln -s ../real/a.jpg in/a.jpg");
    run_ok("fresize", "--max-size=30", "--link", test_path(folder, "in"), test_path(folder, "deep/out"),
           NULL);
    struct stat from, to;
    assert_int_equal(stat(test_path(folder, "real/a.jpg"), &from), 0);
    assert_int_equal(lstat(test_path(folder, "deep/out/a.jpg"), &to), 0);
    assert_int_equal(from.st_ino, to.st_ino);
}

/* An output that a link leads into the source would replace a photograph. */
TEST_IN_FOLDER(test_a_link_in_the_destination_does_not_lead_into_the_source, folder)
{
    write_size(test_path(folder, "in/a/x.jpg"), 90, 90);
    write_size(test_path(folder, "in/b/x.jpg"), 80, 80);
    shell(folder, "mkdir out && ln -s ../in/b out/a");
    RunResult result = run_expecting(2, "fresize", "--max-size=20", "--force", "-j1", test_path(folder, "in"),
                                     test_path(folder, "out"), NULL);
    run_result_free(&result);
    assert_image(test_path(folder, "in/b/x.jpg"), IMAGE_JPEG, 80, 80, 3);
}

/* A link above the destination, one into it, and one to an output: each was resized again, and a level deeper
 * each time. */
TEST_IN_FOLDER(test_a_link_in_the_source_does_not_lead_into_the_destination, folder)
{
    static const char *const links[] = {"ln -s .. in/z", "ln -s ../out/a in/z",
                                        "ln -s ../out/a/x.jpg in/z.jpg"};
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        write_size(test_path(folder, "in/a/x.jpg"), 90, 90);
        shell(folder, links[i]);
        for (int run = 0; run < 3; run++) {
            RunResult result = run_expecting(1, "fresize", "--max-size=20", test_path(folder, "in"),
                                             test_path(folder, "out"), NULL);
            if (run)
                assert_contains(result.err, "into the destination; not followed");
            run_result_free(&result);
            assert_int_equal(test_count_files(test_path(folder, "out/a")), 1);
            assert_false(exists(test_path(folder, "out/z.jpg")));
            assert_false(exists(test_path(folder, "out/z/out")));
            assert_false(exists(test_path(folder, "out/z/x.jpg")));
        }
        shell(folder, "rm -r in out");
    }
}

/* Returns the lines of a summary, for a caller to free. */
static char *print_summary(const ResizeSummary *summary)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    assert_non_null(stream);
    resize_summary_print(stream, "fresize", summary, false, false);
    assert_int_equal(fclose(stream), 0);
    return text;
}

TEST_IN_FOLDER(test_the_summary_fits_80_columns, folder)
{
    ResizeSummary summary = {.bytes_before = UINT64_C(150) << 30,
                             .bytes_after = UINT64_C(6) << 30,
                             .seconds = 1234,
                             .other_count = 12345,
                             .untold_count = 123,
                             .part = {1, 16}};
    for (size_t i = 0; i < RESIZE_OUTCOME_COUNT; i++)
        summary.outcome_counts[i] = 123456 + i;
    for (size_t i = 0; i < RESIZE_STAGE_COUNT; i++)
        summary.stage_seconds[i] = 10 + (double)i;
    for (size_t i = 0; i < IMAGE_QUIRK_COUNT; i++)
        summary.quirk_counts[i] = 1234;
    char *text = print_summary(&summary);
    assert_contains(text, "; the bottleneck is");
    assert_contains(text, "1234 animation");
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        assert_int_equal(strncmp(line, "fresize: ", 9), 0);
        assert_in_range(strcspn(line, "\n"), 10, 80);
    }
    free(text);
}

/* Wherever the line has to end. */
TEST(test_the_summary_keeps_numbers_with_their_percent_signs)
{
    for (unsigned turn = 1; turn <= 400; turn++) {
        ResizeSummary summary = {.bytes_before = 1, .seconds = 1};
        for (size_t i = 0; i < RESIZE_STAGE_COUNT; i++)
            summary.stage_seconds[i] = (double)((turn * (7 + 13 * i) + i) % 97 + 1);
        char *text = print_summary(&summary);
        assert_contains(text, " %");
        assert_contains_not(text, ":   %");
        free(text);
    }
}

TEST_IN_FOLDER(test_links_in_place_of_the_state_are_refused, folder)
{
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    write_size(test_path(folder, "in/x.jpg"), 90, 90);
    test_file_write_text(test_path(folder, "mine/precious.json"), "{}");
    test_file_write_text(test_path(folder, "mine/tiny"), "tiny");
    shell(folder, "mkdir out && ln -s ../mine out/.fresize");
    RunResult result = run_expecting(1, "fresize", "--force", in, out, NULL);
    assert_contains(result.err, "out/.fresize: is no folder");
    run_result_free(&result);
    assert_true(exists(test_path(folder, "mine/precious.json")));
    shell(folder,
          "rm out/.fresize && mkdir out/.fresize && ln -s ../../mine/tiny out/.fresize/outputs.ledger");
    result = run_expecting(1, "fresize", in, out, NULL);
    assert_contains(result.err, "outputs.ledger: is not a file that fresize made");
    run_result_free(&result);
    assert_int_equal(test_file_size(test_path(folder, "mine/tiny")), 4);
}

/* ---- the ledger ---- */

/* LMDB took 16 GiB of addresses for it. Sanitizers take more themselves. */
TEST_IN_FOLDER(test_a_limit_of_addresses_leaves_room_for_the_ledger, folder)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#else
    struct rlimit before, limit;
    write_size(test_path(folder, "in/a.jpg"), 60, 60);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)1 << 30;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    RunResult result = run_expecting(0, "fresize", "--max-size=30", "-j2", test_path(folder, "in"),
                                     test_path(folder, "out"), NULL);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    run_result_free(&result);
#endif
}

TEST_IN_FOLDER(test_a_damaged_ledger_is_refused_and_an_old_one_named, folder)
{
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    write_size(test_path(folder, "in/a.jpg"), 60, 60);
    run_ok("fresize", "--max-size=30", in, out, NULL);
    const char *ledger = test_path(folder, "out/.fresize/outputs.ledger");
    test_file_flip_byte(ledger, (int64_t)test_file_size(ledger) / 2);
    RunResult result = run_expecting(1, "fresize", "--max-size=30", in, out, NULL);
    assert_contains(result.err, "outputs.ledger: damaged at byte ");
    run_result_free(&result);
    result = run_expecting(1, "fresize", "--max-size=30", "--check", in, out, NULL);
    assert_contains(result.err, "damaged at byte ");
    run_result_free(&result);
    run_ok("fresize", "--max-size=30", "--force", in, out, NULL);
    run_ok("fresize", "--max-size=30", "--check", in, out, NULL);
    assert_int_equal(rename(ledger, test_path(folder, "out/.fresize/ledger.lmdb")), 0);
    result = run_expecting(1, "fresize", "--max-size=30", in, out, NULL);
    assert_contains(result.err, "an older fresize has made this");
    run_result_free(&result);
    run_ok("fresize", "--max-size=30", "--force", in, out, NULL);
    assert_false(exists(test_path(folder, "out/.fresize/ledger.lmdb")));
    run_ok("fresize", "--max-size=30", in, out, NULL);
}

/* A part that began anew by another recipe, and went on as its message says: what the whole did before is not
 * done. */
TEST_IN_FOLDER(test_rows_of_an_earlier_recipe_are_not_taken_for_done, folder)
{
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    write_many(folder, "in", 8, 60);
    run_ok("fresize", "--max-size=40", in, out, NULL);
    run_ok("fresize", "--max-size=20", "--force", "--part=1/2", in, out, NULL);
    run_ok("fresize", "--max-size=20", "--part=1/2", in, out, NULL);
    run_ok("fresize", "--max-size=20", "--part=2/2", in, out, NULL);
    for (unsigned i = 0; i < 8; i++)
        assert_image(test_path(folder, "out/%03u.jpg", i), IMAGE_JPEG, 20, 20, 3);
    run_ok("fresize", "--max-size=20", in, out, NULL);
    run_ok("fresize", "--max-size=20", "--check", in, out, NULL);
}

/* Parts over a finished whole know more than it does. */
TEST_IN_FOLDER(test_check_believes_the_latest_row, folder)
{
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    write_many(folder, "in", 4, 60);
    run_ok("fresize", "--max-size=20", in, out, NULL);
    write_size(test_path(folder, "in/001.jpg"), 90, 60);
    run_ok("fresize", "--max-size=20", "--part=1/1", in, out, NULL);
    run_ok("fresize", "--max-size=20", "--check", in, out, NULL);
    const char *const arguments[] = {"--max-size=20", in, out, NULL};
    json_t *summary = fresize_json(0, arguments);
    assert_int_equal(json_count(summary, "done_before"), 4);
    json_decref(summary);
    run_ok("fresize", "--max-size=20", "--check", in, out, NULL);
}

TEST_IN_FOLDER(test_changed_labels_are_another_recipe, folder)
{
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    const char *labels = test_path(folder, "labels");
    write_size(test_path(folder, "in/a.jpg"), 60, 60);
    test_file_write_text(labels, "a.jpg cat\n");
    run_ok("fresize", "--max-size=20", "--labels", labels, in, out, NULL);
    test_file_write_text(labels, "a.jpg dog\n");
    RunResult result = run_expecting(1, "fresize", "--max-size=20", "--labels", labels, in, out, NULL);
    assert_contains(result.err, "was made with other --labels: the file has changed since");
    run_result_free(&result);
    assert_int_equal(count_outputs(out), 1);
}

/* ---- parts and pairs ---- */

TEST_IN_FOLDER(test_one_name_for_images_of_two_parts_is_told, folder)
{
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    const char *list = test_path(folder, "list");
    write_many(folder, "in", 4, 60);
    test_file_write_text(list, "000.jpg\n001.jpg\n000.jpg\n003.jpg\n");
    const char *const first[] = {"--part=1/2", "--files-from", list, in, out, NULL};
    const char *const second[] = {"--part=2/2", "--files-from", list, in, out, NULL};
    json_decref(fresize_json(0, first));
    json_t *summary = fresize_json(1, second);
    assert_int_equal(json_count(summary, "failed"), 1);
    json_decref(summary);
}

/* The second sides come all at the end of the source; an image without partner is told of once. */
TEST_IN_FOLDER(test_parts_of_pairs_are_of_one_size, folder)
{
    enum { PAIRS = 40, PARTS = 4 };
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    write_many(folder, "in/blur", PAIRS, 60);
    write_many(folder, "in/sharp", PAIRS + 1, 60);
    json_int_t failed = 0;
    for (unsigned part = 1; part <= PARTS; part++) {
        char option[32];
        (void)snprintf(option, sizeof option, "--part=%u/%u", part, PARTS);
        RunResult result = run_program(NULL, "fresize", "--max-size=20", "--json", option,
                                       "--pairs=blur:sharp", in, out, NULL);
        json_t *summary = json_loads(result.out, 0, NULL);
        assert_in_range(json_count(summary, "resized"), 2 * PAIRS / PARTS - 2, 2 * PAIRS / PARTS + 2);
        failed += json_count(summary, "failed");
        json_decref(summary);
        run_result_free(&result);
    }
    assert_int_equal(failed, 1);
    assert_int_equal(count_outputs(out), 2 * PAIRS);
}

TEST_IN_FOLDER(test_a_side_that_changes_is_compared_again, folder)
{
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    write_size(test_path(folder, "in/blur/1.jpg"), 60, 60);
    write_size(test_path(folder, "in/sharp/1.jpg"), 60, 60);
    const char *const arguments[] = {"--max-size=20", "--pairs=blur:sharp", in, out, NULL};
    json_decref(fresize_json(0, arguments));
    write_jpeg(test_path(folder, "in/sharp/1.jpg"),
               (MakeJpeg){.width = 60, .height = 60, .colours = MAKE_RGB, .quality = 50});
    json_t *summary = fresize_json(0, arguments);
    assert_int_equal(json_count(summary, "done_before"), 1);
    assert_int_equal(json_count(summary, "resized"), 1);
    json_decref(summary);
    write_size(test_path(folder, "in/sharp/1.jpg"), 90, 60);
    RunResult result = run_expecting(1, "fresize", "--max-size=20", "--pairs=blur:sharp", in, out, NULL);
    assert_contains(result.err, "a pair must be of one size");
    run_result_free(&result);
    assert_image(test_path(folder, "out/sharp/1.jpg"), IMAGE_JPEG, 20, 20, 3);
}

TEST_IN_FOLDER(test_a_folder_is_no_partner, folder)
{
    write_size(test_path(folder, "in/sharp/1.jpg"), 60, 60);
    write_size(test_path(folder, "in/blur/1.jpg/notes.jpg"), 60, 60);
    RunResult result = run_expecting(1, "fresize", "--pairs=blur:sharp", test_path(folder, "in"),
                                     test_path(folder, "out"), NULL);
    assert_contains(result.err, "sharp/1.jpg: has no partner");
    run_result_free(&result);
}

/* ---- what is said ---- */

TEST_IN_FOLDER(test_dry_run_knows_what_is_done, folder)
{
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    write_many(folder, "in", 4, 60);
    run_ok("fresize", "--max-size=20", "--part=1/2", in, out, NULL);
    const char *const arguments[] = {"--max-size=20", "--dry-run", in, out, NULL};
    json_t *summary = fresize_json(0, arguments);
    assert_int_equal(json_count(summary, "done_before"), 2);
    assert_int_equal(json_count(summary, "resized"), 2);
    json_decref(summary);
}

TEST_IN_FOLDER(test_reasons_of_libraries_are_in_words, folder)
{
    if (!png_is_supported())
        skip();
    const char *png = test_path(folder, "in/a.png");
    write_png(png, 200, 150);
    test_file_truncate(png, (int64_t)test_file_size(png) / 2);
    RunResult result = run_expecting(1, "fresize", test_path(folder, "in"), test_path(folder, "out"), NULL);
    assert_contains(result.err, "a.png: damaged or truncated (");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_check_tells_why_an_image_has_no_output, folder)
{
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out"),
               *tar = test_path(folder, "in.tar");
    write_size(test_path(folder, "in/a.jpg"), 60, 60);
    test_file_write_text(test_path(folder, "in/b.jpg"), "no image");
    shell(folder, "tar cf in.tar -C in .");
    const char *const sources[] = {in, tar};
    for (size_t i = 0; i < 2; i++) {
        RunResult result = run_expecting(1, "fresize", "--force", sources[i], out, NULL);
        run_result_free(&result);
        result = run_expecting(1, "fresize", "--check", sources[i], out, NULL);
        assert_string_equal(result.out, "missing: b.jpg: has no output: not an image of a known format\n");
        run_result_free(&result);
    }
}

TEST_IN_FOLDER(test_check_misses_images_whose_names_promise_none, folder)
{
    const char *out = test_path(folder, "out"), *from_tar = test_path(folder, "from-tar");
    write_size(test_path(folder, "in/a"), 60, 60);
    write_size(test_path(folder, "in/b.jpg"), 60, 60);
    test_file_write_text(test_path(folder, "in/notes"), "no image");
    shell(folder, "tar cf in.tar -C in . && printf 'b.jpg\\n' >list");
    run_ok("fresize", "--files-from", test_path(folder, "list"), test_path(folder, "in"), out, NULL);
    RunResult result = run_expecting(1, "fresize", "--check", test_path(folder, "in"), out, NULL);
    assert_contains(result.out, "missing: a: has no output");
    assert_contains_not(result.err, "notes");
    run_result_free(&result);
    RunResult part = run_expecting(0, "fresize", "--part=3/3", test_path(folder, "in.tar"), from_tar, NULL);
    run_result_free(&part);
    result = run_expecting(1, "fresize", "--check", test_path(folder, "in.tar"), from_tar, NULL);
    assert_contains(result.err, "of 2 images");
    assert_contains_not(result.err, "notes");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_report_of_nothing_is_not_left, folder)
{
    const char *report = test_path(folder, "report.jsonl");
    shell(folder, "mkdir empty");
    RunResult result = run_expecting(1, "fresize", "--report", report, test_path(folder, "empty"),
                                     test_path(folder, "out"), NULL);
    assert_contains(result.err, "no images in it");
    run_result_free(&result);
    assert_false(exists(report));
}

TEST_IN_FOLDER(test_a_second_writer_leaves_the_report_of_the_first, folder)
{
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    const char *report = test_path(folder, "report.jsonl");
    write_many(folder, "in", 2, 60);
    run_ok("fresize", "--report", report, in, out, NULL);
    const uint64_t bytes = test_file_size(report);
    int lock = open(test_path(folder, "out/.fresize/lock"), O_RDWR | O_CLOEXEC);
    assert_true(lock >= 0 && flock(lock, LOCK_EX) == 0);
    RunResult result = run_expecting(1, "fresize", "--force", "--report", report, in, out, NULL);
    assert_contains(result.err, "another fresize is writing it");
    run_result_free(&result);
    assert_int_equal(test_file_size(report), bytes);
    (void)close(lock);
}
