/* Paths as text. */
#include <stdio.h>
#include <string.h>

#include "common/path.h"
#include "tests/support/support.h"

static void test_parts_that_go_up_are_found(void **state)
{
    (void)state;
    static const char *const up[] = {"..", "../a", "a/..", "a/../b", "/..", "a//../b"};
    static const char *const not_up[] = {"", "a", "...", "..a", "a..", "a/..b/c", "."};
    for (size_t i = 0; i < sizeof up / sizeof *up; i++)
        assert_true(path_goes_up(up[i]));
    for (size_t i = 0; i < sizeof not_up / sizeof *not_up; i++)
        assert_false(path_goes_up(not_up[i]));
}

static void test_a_folder_holds_itself_and_what_is_below(void **state)
{
    (void)state;
    assert_true(path_lies_in("/a", "/a"));
    assert_true(path_lies_in("/a/b", "/a"));
    assert_true(path_lies_in("/a", "/"));
    assert_false(path_lies_in("/ab", "/a"));
    assert_false(path_lies_in("/", "/a"));
    assert_false(path_lies_in("/b/a", "/a"));
}

static void test_cleaned_paths_are_equal_where_files_are(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"./a//b/./c", "a/b/c"}, {"a/", "a"},  {"//a", "a"}, {".", ""}, {"", ""},
        {".a/..b", ".a/..b"},    {"././.", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[32];
        (void)snprintf(path, sizeof path, "%s", rows[i][0]);
        path_clean(path);
        assert_string_equal(path, rows[i][1]);
    }
}

static void test_a_stem_ends_before_the_last_dot_of_the_name(void **state)
{
    (void)state;
    assert_int_equal(path_stem_bytes("a.b/c"), 5);
    assert_int_equal(path_stem_bytes("a/b.tar.gz"), 7);
    assert_int_equal(path_stem_bytes("a/.hidden"), 9);
    assert_int_equal(path_stem_bytes(""), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_that_go_up_are_found),
        cmocka_unit_test(test_a_folder_holds_itself_and_what_is_below),
        cmocka_unit_test(test_cleaned_paths_are_equal_where_files_are),
        cmocka_unit_test(test_a_stem_ends_before_the_last_dot_of_the_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
