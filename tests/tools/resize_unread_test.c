/* What the system cannot read today: a folder or a tar without it is not finished; the same command goes
 * on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/tools/resize_files.h"

typedef struct Failure {
    const char *end, *what;
    int number;
} Failure;

static const Failure failures[] = {
    {"photos/cat/004.jpg", "read", EIO},
    {"photos/cat/004.jpg", "read", ESTALE},
    {"photos/cat/004.jpg", "open", EACCES},
    {"photos/cat/004.jpg", "open", ESTALE},
    {"photos/cat/004.jpg", "open", ENOMEM},
    {"photos/cat/004.jpg", "open", EMFILE},
    {"photos/cat/004.jpg", "stat", ESTALE},
    {"photos/cat", "list", EIO},
    {"photos/cat", "open", EACCES},
    {"photos/cat", "open", ESTALE},
    {"photos/dog", "stat", ESTALE},
    {"photos/dog", "stat", ENOMEM},
    {"/dog", "list", ESTALE},
};
enum { FAILURES = sizeof failures / sizeof *failures, IMAGES = 14 };

static const char *rule(char text[128], const Failure *failure)
{
    (void)snprintf(text, 128, "%s:%s:%d", failure->end, failure->what, failure->number);
    return text;
}

/* Makes two folders of images, one by a link. */
static const char *make_source(TestFolder *folder)
{
    write_many(folder, "photos/cat", IMAGES / 2, 40);
    write_many(folder, "elsewhere/dog", IMAGES / 2, 40);
    assert_int_equal(symlink(test_path(folder, "elsewhere/dog"), test_path(folder, "photos/dog")), 0);
    return test_path(folder, "photos");
}

/* Runs fresize --max-size 20 with two more arguments, one of them an option's value. */
static RunResult resize(int exit_status, const char *bad_disk, const char *option, const char *value,
                        const char *source, const char *target)
{
    const RunOptions options = {.bad_disk = bad_disk};
    const char *const arguments[] = {"--max-size", "20", option, value, source, target, NULL};
    RunResult result = run_program_arguments(&options, "fresize", arguments);
    if (result.exit_status != exit_status)
        fail_msg("%s: exit status %d\n%s", bad_disk ? bad_disk : "undisturbed", result.exit_status,
                 result.err);
    return result;
}

static void resize_ok(const char *source, const char *target)
{
    RunResult result = resize(0, NULL, "--on-error", "stop", source, target);
    run_result_free(&result);
}

static bool is_finished(const char *recipe)
{
    char *text = test_file_read(recipe, NULL);
    const bool finished = strstr(text, "\"complete\": true");
    free(text);
    return finished;
}

TEST_IN_FOLDER(test_a_folder_without_them_is_not_finished, folder)
{
    const char *source = make_source(folder), *whole = test_path(folder, "whole");
    resize_ok(source, whole);
    for (size_t i = 0; i < FAILURES; i++) {
        char text[128];
        const char *target = test_path(folder, "small-%zu", i);
        const char *recipe = test_path(folder, "small-%zu/.fresize/recipe.json", i);
        RunResult result = resize(1, rule(text, &failures[i]), "--on-error", "stop", source, target);
        if (is_finished(recipe))
            fail_msg("%s: finished\n%s", text, result.err);
        assert_contains(result.err, strstr(failures[i].end, "cat") ? "fresize: cat" : "fresize: dog");
        const char *told = test_path(
            folder, "photos: 1 of its files and folders could not be read, and %s is not finished; ", target);
        assert_contains(result.err, told);
        assert_contains(result.err, "--on-error skip");
        run_result_free(&result);
        assert_true(count_outputs(target) >= IMAGES / 2); /* what can be read is done */
        resize_ok(source, target);
        assert_true(is_finished(recipe));
        assert_int_equal(count_outputs(target), IMAGES);
    }
}

TEST_IN_FOLDER(test_a_tar_without_them_is_not_put_in_place, folder)
{
    const char *source = make_source(folder), *whole = test_path(folder, "whole.tar");
    resize_ok(source, whole);
    for (size_t i = 0; i < FAILURES; i++) {
        char text[128];
        const char *target = test_path(folder, "small-%zu.tar", i);
        RunResult result = resize(1, rule(text, &failures[i]), "--on-error", "stop", source, target);
        if (exists(target))
            fail_msg("%s: put in place\n%s", text, result.err);
        assert_contains(result.err, strstr(failures[i].end, "cat") ? "fresize: cat" : "fresize: dog");
        assert_contains(result.err, test_path(folder, "photos: "));
        assert_contains(result.err, "could not be read, and is next in ");
        assert_contains(result.err, "--on-error skip");
        run_result_free(&result);
        resize_ok(source, target);
        assert_same_bytes(target, whole);
    }
}

TEST_IN_FOLDER(test_skip_finishes_without_them, folder)
{
    const char *source = make_source(folder);
    for (size_t i = 0; i < FAILURES; i++) {
        char text[128];
        const char *target = test_path(folder, "small-%zu", i);
        const char *tar = test_path(folder, "small-%zu.tar", i);
        RunResult result = resize(1, rule(text, &failures[i]), "--on-error", "skip", source, target);
        assert_true(is_finished(test_path(folder, "small-%zu/.fresize/recipe.json", i)));
        assert_contains(result.err, "left out");
        run_result_free(&result);
        result = resize(1, text, "--on-error", "skip", source, tar);
        assert_true(exists(tar));
        run_result_free(&result);
        resize_ok(source, target); /* a folder still takes them */
        assert_int_equal(count_outputs(target), IMAGES);
    }
}

TEST_IN_FOLDER(test_damaged_images_are_left_out_of_what_is_finished, folder)
{
    const char *source = make_source(folder), *target = test_path(folder, "small");
    test_file_write(test_path(folder, "photos/cat/004.jpg"), "no image", 8);
    RunResult result = resize(1, NULL, "--on-error", "stop", source, target);
    assert_contains(result.err, "cat/004.jpg: not an image of a known format; left out");
    assert_true(is_finished(test_path(folder, "small/.fresize/recipe.json")));
    assert_int_equal(count_outputs(target), IMAGES - 1);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_file_that_may_be_an_image_is_not_passed_over, folder)
{
    const char *source = make_source(folder), *target = test_path(folder, "small");
    assert_int_equal(rename(test_path(folder, "photos/cat/004.jpg"), test_path(folder, "photos/cat/four")),
                     0);
    RunResult result = resize(1, "photos/cat/four:open:5", "--on-error", "stop", source, target);
    assert_contains(result.err, "cat/four: cannot be read, and may be an image: Input/output error");
    assert_false(is_finished(test_path(folder, "small/.fresize/recipe.json")));
    run_result_free(&result);
    result = resize(1, "photos/cat/four:open:5", "--check", "-q", source, target);
    assert_contains(result.out, "cat/four: cannot be read, and may be an image: Input/output error");
    run_result_free(&result);
    resize_ok(source, target);
    assert_int_equal(count_outputs(target), IMAGES);
}

TEST_IN_FOLDER(test_pairs_whose_partner_cannot_be_read_are_not_finished, folder)
{
    static const Failure of_pairs[] = {
        {"photos/b/004.jpg", "stat", EIO}, {"photos/b/004.jpg", "read", EIO}, {"photos/b", "open", EACCES}};
    write_many(folder, "photos/a", 7, 40);
    write_many(folder, "photos/b", 7, 40);
    const char *source = test_path(folder, "photos");
    for (size_t i = 0; i < sizeof of_pairs / sizeof *of_pairs; i++) {
        char text[128];
        const char *target = test_path(folder, "small-%zu", i);
        RunResult result = resize(1, rule(text, &of_pairs[i]), "--pairs", "a:b", source, target);
        assert_false(is_finished(test_path(folder, "small-%zu/.fresize/recipe.json", i)));
        assert_contains(result.err, " is not finished; ");
        assert_null(strstr(result.err, "has no partner"));
        run_result_free(&result);
        result = resize(0, NULL, "--pairs", "a:b", source, target);
        run_result_free(&result);
        assert_int_equal(count_outputs(target), 14);
    }
}

/* Parts that saw sources of other sizes would leave images out. */
TEST_IN_FOLDER(test_a_part_is_not_cut_without_them, folder)
{
    const char *source = make_source(folder);
    for (size_t i = 0; i < FAILURES; i++) {
        char text[128];
        const char *target = test_path(folder, "small-%zu.tar", i);
        if (strcmp(failures[i].what, "read") == 0 ||
            (strcmp(failures[i].what, "open") == 0 && strstr(failures[i].end, "jpg")))
            continue; /* its size is known */
        RunResult result = resize(1, rule(text, &failures[i]), "--part", "2/2", source, target);
        assert_contains(result.err, "parts are cut by the sizes of all files");
        assert_false(exists(test_path(folder, "small-%zu-2-of-2.tar", i)));
        run_result_free(&result);
    }
}

TEST_IN_FOLDER(test_the_state_of_a_destination_is_listed_to_its_end, folder)
{
    const char *source = make_source(folder), *target = test_path(folder, "small");
    RunResult result = resize(0, NULL, "--part", "1/2", source, target);
    run_result_free(&result);
    result = resize(1, "small/.fresize:list:5", "--on-error", "skip", source, target);
    assert_contains(result.err, "small/.fresize: cannot be listed: Input/output error");
    run_result_free(&result);
    assert_true(exists(test_path(folder, "small/.fresize/part-1-of-2.ledger")));
    result = resize(0, NULL, "--on-error", "stop", source, target);
    assert_contains(result.err, "done before");
    run_result_free(&result);
}
