/* Names of files come from strangers: no program lets a terminal obey what is in them, or show it in another
 * order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "tests/programs/train_support.h"

/* ESC, U+009B (the C1 control that stands for ESC [), the same as a byte alone, U+202E (right to left),
 * U+2066. */
#define NASTY                                                                                                \
    "a\x1b[31mb\xc2\x9b"                                                                                     \
    "31mc\xe2\x80\xae"                                                                                       \
    "d\xe2\x81\xa6"                                                                                          \
    "e"

static void assert_harmless(const char *what, const char *text)
{
    for (size_t i = 0, left = strlen(text), bytes = 0; left; i += bytes, left -= bytes) {
        bool control = false;
        bytes = text_character(text + i, left, &control);
        if (control && text[i] != '\n' && text[i] != '\t' && text[i] != '\r')
            fail_msg("%s lets byte %02X through after \"%.60s\"", what, (unsigned char)text[i],
                     i > 60 ? text + i - 60 : text);
    }
}

static void run_harmless(int exit_status, const char *part, const char *program, const char *const *arguments)
{
    RunResult result = run_program_arguments(NULL, program, arguments);
    if (result.exit_status != exit_status)
        fail_msg("%s %s: exit status %d\n%s%s", program, arguments[0], result.exit_status, result.out,
                 result.err);
    assert_harmless(program, result.out);
    assert_harmless(program, result.err);
    if (!strstr(result.out, part) && !strstr(result.err, part))
        fail_msg("%s %s does not say %s\n%s%s", program, arguments[0], part, result.out, result.err);
    run_result_free(&result);
}

#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SHOWN          "a?[31mb?31mc?d?e" /* what people see of it */

TEST_IN_FOLDER(test_no_program_lets_a_terminal_obey_names, folder)
{
    const char *images = test_path(folder, "images"), *set = test_path(folder, "shards");
    (void)pack_colours(folder, 3, 2); /* for its images */
    for (int i = 0; i < 2; i++) {
        size_t length = 0;
        char *bytes = test_file_read(test_path(folder, "images/train/red/00%d.jpg", i), &length);
        test_file_write(test_path(folder, "images/train/red/" NASTY "%d.jpg", i), bytes, length);
        free(bytes);
    }
    test_file_write_text(test_path(folder, "images/train/red/" NASTY "broken.jpg"), "\xff\xd8\xff no more");
    RunResult removed = run_program(NULL, "/bin/rm", "-r", set, NULL);
    run_result_free(&removed);
    run_harmless(1, SHOWN "broken", "fresize",
                 ARGUMENTS("--max-size", "16", images, test_path(folder, "small")));
    run_harmless(1, SHOWN "broken", "fpack", ARGUMENTS(images, set));
    /* A record of that name is damaged: found by its key in the shard. */
    const char *shard = test_path(folder, "shards/train-00000-of-00001.fshard");
    size_t length = 0;
    char *bytes = test_file_read(shard, &length);
    const char *key = memmem(bytes, length, NASTY "0", strlen(NASTY "0"));
    assert_non_null(key);
    test_file_flip_byte(shard, key - bytes + 400);
    free(bytes);
    run_harmless(1, SHOWN "0", "fverify", ARGUMENTS("--decode", set));
    run_harmless(1, SHOWN "0", "fverify", ARGUMENTS("--extract", test_path(folder, "tree"), set));
    run_harmless(1, SHOWN "0", "fverify", ARGUMENTS("--repair", test_path(folder, "whole"), shard));
    run_harmless(0, "\\x1B[31mb\\xC2\\x9B31mc\\xE2\\x80\\xAEd\\xE2\\x81\\xA6e", "fverify",
                 ARGUMENTS("--list", set));
    run_harmless(1, SHOWN "0", "ftrain",
                 ARGUMENTS("--jobs", "1", "--device", "cpu", "--model", "toynet", "--epochs", "1",
                           "--batch-size", "2", "--train-crop-size", "32", "--val-crop-size", "32",
                           "--on-error", "skip", set, test_path(folder, "out")));
    run_harmless(1, SHOWN "0", "ftrain",
                 ARGUMENTS("--jobs", "1", "--device", "cpu", "--model", "toynet", "--epochs", "1",
                           "--batch-size", "2", "--train-crop-size", "32", "--val-crop-size", "32", set,
                           test_path(folder, "out2")));
}

/* For scripts the name is exact: as JSON escapes it. */
TEST_IN_FOLDER(test_json_keeps_names_as_they_are, folder)
{
    (void)pack_colours(folder, 1, 1);
    test_file_write_text(test_path(folder, "images/train/red/" NASTY ".jpg"), "\xff\xd8\xff no more");
    RunResult result =
        run_program(NULL, "fpack", "--json", test_path(folder, "images"), test_path(folder, "again"), NULL);
    assert_int_equal(result.exit_status, 1);
    json_t *json = read_json(result.out);
    const json_t *left_out = json_array_get(json_object_get(json, "left_out"), 0);
    assert_string_equal(json_string_value(json_object_get(left_out, "path")), "train/red/" NASTY ".jpg");
    json_decref(json);
    run_result_free(&result);
}

TEST(test_characters_are_told_apart)
{
    static const struct {
        const char *text;
        size_t bytes;
        bool control;
    } cases[] = {{"a", 1, false},        {"\x1b", 1, true},          {"\x7f", 1, true},
                 {"\n", 1, true},        {"\x9b", 1, true},          {"\xe9", 1, false},
                 {"\xc2\x9b", 2, true},  {"\xc2\xa0", 2, false},     {"\xc3\x9b", 2, false},
                 {"\xc3", 1, false},     {"\xe2\x80\xae", 3, true},  {"\xe2\x80\x93", 3, false},
                 {"\xe2\x80", 1, false}, {"\xe2\x81\xa9", 3, true},  {"\xe2\x80\xa8", 3, true},
                 {"\xd8\x9c", 2, true},  {"\xe2\x80\x8f", 3, true},  {"\xf0\x9f\x90\x88", 4, false},
                 {"\xff", 1, false},     {"\xf5\x80\x80", 1, false}, {"\xc0\x9b", 1, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool control = false;
        assert_int_equal(text_character(cases[i].text, strlen(cases[i].text), &control), cases[i].bytes);
        assert_int_equal(control, cases[i].control);
    }
}
