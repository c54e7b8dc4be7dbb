/* What ends with a suffix, and what is UTF-8. */
#include "common/text.h"

#include "tests/support/support.h"

TEST(test_a_suffix_is_told)
{
    assert_true(text_has_suffix("a.tar", ".tar"));
    assert_true(text_has_suffix("a", ""));
    assert_false(text_has_suffix(".tar", ".tar"));
    assert_false(text_has_suffix("a.tar.gz", ".tar"));
    assert_false(text_has_suffix("r", ".tar"));
    assert_false(text_has_suffix("a.TAR", ".tar"));
    assert_false(text_has_suffix("", ""));
}

TEST(test_one_of_a_noun_has_no_s)
{
    assert_string_equal(text_plural(0), "s");
    assert_string_equal(text_plural(1), "");
    assert_string_equal(text_plural(2), "s");
}

TEST(test_utf8_is_told_from_what_is_none)
{
    static const struct {
        const char *text;
        size_t length; /* of the first character; 0: there is none */
    } cases[] = {
        {"a", 1},
        {"\xC3\xA9", 2},
        {"\xE2\x82\xAC", 3},
        {"\xF0\x9F\x98\x80", 4},
        {"\xF4\x8F\xBF\xBF", 4},
        {"\x80", 0},             /* a byte that only goes on */
        {"\xC3", 0},             /* cut short */
        {"\xE2\x82", 0},         /* cut short */
        {"\xC3z", 0},            /* what follows does not go on */
        {"\xC1\xBF", 0},         /* longer than needed */
        {"\xE0\x9F\xBF", 0},     /* longer than needed */
        {"\xF0\x8F\xBF\xBF", 0}, /* longer than needed */
        {"\xED\xA0\x80", 0},     /* a surrogate */
        {"\xF4\x90\x80\x80", 0}, /* beyond Unicode */
        {"\xF5\x80\x80\x80", 0}, /* beyond Unicode */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(text_utf8_length(cases[i].text, strlen(cases[i].text)), cases[i].length);
        assert_int_equal(text_is_utf8(cases[i].text), cases[i].length > 0);
    }
    assert_true(text_is_utf8(""));
    assert_true(text_is_utf8("gr\xC3\xB6\xC3\x9F"
                             "e"));
    assert_false(text_is_utf8("gr\xF6\xDF"
                              "e"));
}
