#include "trainer/data/sample_condition.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "formats/fshard.h"
#include "tests/support/support.h"

static const char *const classes[] = {"cat", "dog", "wild dog", "n01440764"};
enum { CLASSES = sizeof classes / sizeof *classes };

static SampleCondition *prepared(const char *text)
{
    SampleCondition *condition = NULL;
    FshError error = {0};
    assert_ok(sample_condition_parse(&condition, text, &error), &error);
    assert_ok(sample_condition_prepare(condition, classes, CLASSES, &error), &error);
    sample_condition_take_split(condition, "train");
    return condition;
}

static bool holds(const char *text, int64_t class_index, const char *key)
{
    SampleCondition *condition = prepared(text);
    const bool result = sample_condition_holds(condition, class_index, key, strlen(key));
    const ConditionAnswer answer = sample_condition_of_class(condition, class_index);
    if (answer != CONDITION_BY_KEY)
        assert_int_equal(answer, result ? CONDITION_YES : CONDITION_NO);
    sample_condition_free(&condition);
    assert_null(condition);
    return result;
}

TEST(test_conditions_hold_as_they_read)
{
    assert_true(holds("class = cat", 0, "a"));
    assert_false(holds("class = cat", 1, "a"));
    assert_false(holds("class = cat", FSH_NO_LABEL, "a"));
    assert_true(holds("class != cat", FSH_NO_LABEL, "a"));
    assert_true(holds("class='wild dog'", 2, "a"));
    assert_true(holds("class == \"wild dog\"", 2, "a"));
    assert_true(holds("class ~ '*dog'", 2, "a"));
    assert_false(holds("class !~ '*dog'", 1, "a"));
    assert_true(holds("key ~ 'n0144*'", 3, "n01440764/x_1"));
    assert_true(holds("key = n01440764/x_1", 0, "n01440764/x_1"));
    assert_false(holds("key = n01440764/x_1", 0, "n01440764/x_12"));
    assert_true(holds("split = train", 0, "a"));
    assert_false(holds("split != train", 0, "a"));
    assert_true(holds("split ~ 'tr*'", 0, "a"));
    assert_true(holds("not class = cat and not class = dog", 2, "a"));
    assert_true(holds("not (class = cat or class = dog)", 2, "a"));
    assert_true(holds("not not class = cat", 0, "a"));
    assert_true(holds("class = 'cat' and key = 'and'", 0, "and"));
}

/* `and` binds closer than `or`, and `not` closer than both. */
TEST(test_words_bind_as_they_do_elsewhere)
{
    assert_true(holds("class = cat or class = dog and key = x", 0, "y"));
    assert_false(holds("(class = cat or class = dog) and key = x", 0, "y"));
    assert_true(holds("key = x and class = dog or class = cat", 0, "y"));
    assert_false(holds("not class = cat and key = x", 0, "x"));
    assert_true(holds("not (class = cat and key = y)", 0, "x"));
}

/* A key is only asked for where it decides. */
TEST(test_classes_alone_answer_where_they_can)
{
    static const struct {
        const char *text;
        ConditionAnswer cat, dog;
    } cases[] = {
        {"class = cat", CONDITION_YES, CONDITION_NO},
        {"key = x", CONDITION_BY_KEY, CONDITION_BY_KEY},
        {"class = cat and key = x", CONDITION_BY_KEY, CONDITION_NO},
        {"key = x and class = cat", CONDITION_BY_KEY, CONDITION_NO},
        {"class = cat or key = x", CONDITION_YES, CONDITION_BY_KEY},
        {"key = x or class = cat", CONDITION_YES, CONDITION_BY_KEY},
        {"not key = x", CONDITION_BY_KEY, CONDITION_BY_KEY},
        {"not (class = cat and key = x)", CONDITION_BY_KEY, CONDITION_YES},
        {"split = val and key = x", CONDITION_NO, CONDITION_NO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SampleCondition *condition = prepared(cases[i].text);
        assert_int_equal(sample_condition_of_class(condition, 0), cases[i].cat);
        assert_int_equal(sample_condition_of_class(condition, 1), cases[i].dog);
        sample_condition_free(&condition);
    }
}

static bool matches(const char *glob, const char *text)
{
    return sample_condition_matches(glob, strlen(glob), text, strlen(text));
}

TEST(test_globs_match_as_in_a_shell_and_across_slashes)
{
    assert_true(matches("*", "") && matches("", "") && !matches("", "a") && !matches("?", ""));
    assert_true(matches("a*c", "a/b/c") && matches("*.jpg", "a.b.jpg") && !matches("*.jpg", "a.jpgx"));
    assert_true(matches("*a*b*c*", "xxaxxbxxcxx") && !matches("*a*b*c*", "xxaxxcxxbxx"));
    assert_true(matches("**a", "a") && matches("a**", "a") && matches("a?c", "abc") && !matches("a?c", "ac"));
    assert_true(matches("[a-c]x", "bx") && !matches("[a-c]x", "dx") && matches("[!a-c]x", "dx"));
    assert_true(matches("[]]", "]") && matches("[a-]", "-") && matches("[abc", "[abc") &&
                !matches("[abc", "a"));
    assert_true(matches("*ab", "aab") && matches("*aab", "aaab") && matches("a*a*a*a*b", "aaaaaaaaaaaaab"));
}

TEST_IN_FOLDER(test_files_name_classes_and_keys, folder)
{
    const char *list = test_path(folder, "some list.txt");
    char text[300];
    test_file_write_text(list, "dog\r\n\n  wild dog\tsomething\ndog\n");
    (void)snprintf(text, sizeof text, "class in '%s'", list);
    assert_true(holds(text, 1, "a") && holds(text, 2, "a") && !holds(text, 0, "a"));
    (void)snprintf(text, sizeof text, "class not in '%s'", list);
    assert_true(!holds(text, 1, "a") && holds(text, 0, "a"));
    test_file_write_text(list, "a/b.JPEG\nc.d/e\n.f\nlast");
    (void)snprintf(text, sizeof text, "key in '%s'", list);
    assert_true(holds(text, 0, "a/b") && holds(text, 0, "a/b.JPEG") && holds(text, 0, "c.d/e"));
    assert_true(holds(text, 0, ".f") && holds(text, 0, "last") && !holds(text, 0, "c") &&
                !holds(text, 0, "a"));

    SampleCondition *condition = prepared(text);
    const char *first = NULL, *file = NULL;
    (void)sample_condition_holds(condition, 0, "a/b", 3);
    assert_int_equal(sample_condition_unmet(condition, &first, &file), 3);
    assert_string_equal(first, "c.d/e");
    assert_string_equal(file, list);
    sample_condition_free(&condition);
}

static void expect_refusal(const char *text, const char *expected)
{
    SampleCondition *condition = NULL;
    FshError error = {0};
    assert_int_equal(sample_condition_parse(&condition, text, &error), FSH_ERR_USAGE);
    assert_null(condition);
    assert_string_equal(error.message, expected);
    assert_true(text_is_utf8(error.message));
}

TEST(test_what_cannot_be_read_is_shown)
{
    expect_refusal("class on x",
                   "one of = != ~ !~ in, not in is expected at column 7, where 'on' stands: class "
                   ">>>on x");
    expect_refusal("", "'class', 'key', 'split', 'not' or ( is missing at its end: >>>");
    expect_refusal("class =", "a name is missing at its end: class =>>>");
    expect_refusal("class = and", "a name is expected at column 9, where 'and' stands: class = >>>and");
    expect_refusal("class = ''", "a name is expected at column 9, where '' stands: class = >>>''");
    expect_refusal("(class = a", "'and', 'or' or ) is missing at its end: (class = a>>>");
    expect_refusal("class = a)", "'and', 'or' or the end is expected at column 10, where ')' stands: class = "
                                 "a>>>)");
    expect_refusal("class = 'a", "the quote at column 9 is not closed: class = >>>'a");
    expect_refusal("key not = a", "'in' is expected at column 9, where '=' stands: key not >>>= a");
    expect_refusal("key in ~/a",
                   "the name of a file is expected at column 8, where '~' stands: key in >>>~/a");
    expect_refusal("class = äöü und key = x", "'and', 'or' or the end is expected at column 13, where 'und' "
                                              "stands: class = äöü >>>und key = x");
}

/* Appends `piece` to the text `count` times. */
static void append(char *text, size_t text_bytes, const char *piece, int count)
{
    size_t length = strlen(text);
    for (int i = 0; i < count; i++)
        length += (size_t)snprintf(text + length, text_bytes - length, "%s", piece);
    assert_in_range(length, 1, text_bytes - 1);
}

/* A long text is shown around the place, in whole characters. */
TEST(test_a_long_condition_is_shown_around_the_place)
{
    char text[4096] = "", longer[40000] = "";
    SampleCondition *condition = NULL;
    FshError error = {0};
    append(text, sizeof text, "key = äöü or ", 60);
    append(text, sizeof text, "key ? x", 1);
    append(text, sizeof text, " or key = ßßß", 60);
    assert_int_equal(sample_condition_parse(&condition, text, &error), FSH_ERR_USAGE);
    assert_contains(error.message, "column 785, where '?' stands: …");
    assert_contains(error.message, ">>>? x or key");
    assert_true(text_is_utf8(error.message) && strlen(error.message) < 220);
    for (size_t i = 0; i < sizeof text - 1; i++)
        text[i] = '(';
    assert_int_equal(sample_condition_parse(&condition, text, &error), FSH_ERR_USAGE);
    assert_contains(error.message, "nested too deeply");
    append(longer, sizeof longer, "key = x or ", 1200);
    append(longer, sizeof longer, "key = x", 1);
    assert_int_equal(sample_condition_parse(&condition, longer, &error), FSH_ERR_USAGE);
    assert_contains(error.message, "too long");
}

static void expect_unprepared(const char *text, size_t count, const char *part)
{
    SampleCondition *condition = NULL;
    FshError error = {0};
    assert_ok(sample_condition_parse(&condition, text, &error), &error);
    assert_int_not_equal(sample_condition_prepare(condition, classes, count, &error), FSH_OK);
    assert_contains(error.message, part);
    sample_condition_free(&condition);
}

TEST_IN_FOLDER(test_names_that_are_not_there_are_refused, folder)
{
    char text[300];
    const char *list = test_path(folder, "list");
    expect_unprepared("class = cow", CLASSES, "'cow' is no class of the dataset");
    expect_unprepared("class ~ 'cow*'", CLASSES, "no class of the dataset matches 'cow*'");
    expect_unprepared("class = cat", 0, "the dataset has no classes; test its keys: class = >>>cat");
    (void)snprintf(text, sizeof text, "class in %s", list);
    expect_unprepared(text, CLASSES, "No such file");
    test_file_write_text(list, "cat\n\ncow\n");
    expect_unprepared(text, CLASSES, ":3: 'cow' is no class of the dataset");
    test_file_write_text(list, "\n \n\n");
    expect_unprepared(text, CLASSES, "names nothing");
    test_file_write(list, "cat\0dog", 7);
    expect_unprepared(text, CLASSES, "has a zero byte");
}
