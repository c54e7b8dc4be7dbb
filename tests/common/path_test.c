/* Paths as text. */
#include <stdio.h>
#include <string.h>

#include "common/path.h"
#include "tests/support/support.h"

TEST(test_parts_that_go_up_are_found)
{
    static const char *const up[] = {"..", "../a", "a/..", "a/../b", "/..", "a//../b"};
    static const char *const not_up[] = {"", "a", "...", "..a", "a..", "a/..b/c", "."};
    for (size_t i = 0; i < sizeof up / sizeof *up; i++)
        assert_true(path_goes_up(up[i]));
    for (size_t i = 0; i < sizeof not_up / sizeof *not_up; i++)
        assert_false(path_goes_up(not_up[i]));
}

TEST(test_a_folder_holds_itself_and_what_is_below)
{
    assert_true(path_lies_in("/a", "/a"));
    assert_true(path_lies_in("/a/b", "/a"));
    assert_true(path_lies_in("/a", "/"));
    assert_false(path_lies_in("/ab", "/a"));
    assert_false(path_lies_in("/", "/a"));
    assert_false(path_lies_in("/b/a", "/a"));
}

TEST(test_cleaned_paths_are_equal_where_files_are)
{
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

TEST(test_a_stem_ends_before_the_last_dot_of_the_name)
{
    assert_int_equal(path_stem_bytes("a.b/c"), 5);
    assert_int_equal(path_stem_bytes("a/b.tar.gz"), 7);
    assert_int_equal(path_stem_bytes("a/.hidden"), 9);
    assert_int_equal(path_stem_bytes(""), 0);
}
