#include "common/csv.h"

#include <math.h>
#include <string.h>

#include "tests/support/support.h"

TEST(test_text_is_quoted_where_it_has_to_be)
{
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"", ""},
        {"tench", "tench"},
        {"tench, Tinca tinca", "\"tench, Tinca tinca\""},
        {"the \"big\" one", "\"the \"\"big\"\" one\""},
        {"two\nlines", "\"two\nlines\""},
        {"two\r\nlines", "\"two\r\nlines\""},
        {" blank ", " blank "},
        {"a;b\tc", "a;b\tc"},
        {"=1+1", "=1+1"}, /* as it is: csv.h says why */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Buffer row = {0};
        FshError error = {0};
        assert_ok(csv_append_text(&row, rows[i].text, strlen(rows[i].text), &error), &error);
        assert_int_equal(row.length, strlen(rows[i].expected));
        if (row.length)
            assert_memory_equal(row.bytes, rows[i].expected, row.length);
        buffer_free(&row);
    }
}

TEST(test_what_spreadsheets_run_is_known)
{
    static const char *const run[] = {"=1+1", "+1", "-1", "@SUM(1)", "\tx", "\rx"};
    static const char *const plain[] = {"", "a=1", "1-1", " =1", "'=1"};
    for (size_t i = 0; i < sizeof run / sizeof *run; i++)
        assert_true(csv_is_formula(run[i], strlen(run[i])));
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        assert_false(csv_is_formula(plain[i], strlen(plain[i])));
}

TEST(test_numbers_have_as_many_digits_as_asked)
{
    Buffer row = {0};
    FshError error = {0};
    assert_ok(csv_append_number(&row, 62.5, 6, &error), &error);
    assert_ok(csv_append_number(&row, 1.0 / 3, 7, &error), &error);
    assert_ok(csv_append_number(&row, (double)NAN, 6, &error), &error);
    assert_ok(csv_append_number(&row, -HUGE_VAL, 6, &error), &error);
    assert_ok(csv_append_number(&row, -1e300, 6, &error), &error);
    assert_ok(buffer_append(&row, "", 1, &error), &error);
    assert_string_equal((const char *)row.bytes, ",62.5,0.3333333,,,-1e+300");
    buffer_free(&row);
}
