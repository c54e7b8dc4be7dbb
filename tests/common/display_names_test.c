#include "common/display_names.h"

#include <string.h>

#include "tests/support/support.h"

enum { CLASSES = 3 };
static char *const ids[CLASSES] = {(char *)"n01440764", (char *)"n01443537", (char *)"n02002724"};

static FshStatus read_text(TestFolder *folder, const char *text, bool by_place, char ***names, size_t *named,
                           FshError *error)
{
    const char *path = test_path(folder, "names");
    test_file_write_text(path, text);
    return display_names_read(path, ids, CLASSES, by_place, names, named, error);
}

static void assert_names(TestFolder *folder, const char *text, const char *const expected[CLASSES])
{
    char **names = NULL;
    size_t named = 0, wanted = 0;
    FshError error = {0};
    assert_ok(read_text(folder, text, true, &names, &named, &error), &error);
    for (size_t i = 0; i < CLASSES; i++) {
        if (strcmp(names[i], expected[i]) != 0)
            fail_msg("%s: class %zu is '%s', not '%s'", text, i, names[i], expected[i]);
        wanted += expected[i][0] != '\0';
    }
    assert_int_equal(named, wanted);
    display_names_free(names, CLASSES);
}

/* Each is a form that people have on their disks. */
TEST_IN_FOLDER(test_every_form_of_the_field_is_read, folder)
{
    static const char *const all[CLASSES] = {"tench, Tinca tinca", "goldfish", "black stork"};
    static const char *const files[] = {
        "n00001740\tentity\nn02002724\tblack stork\nn01440764\ttench, Tinca tinca\nn01443537\tgoldfish\n",
        "n01440764 tench, Tinca tinca\r\nn01443537 goldfish\r\nn02002724 black stork",
        "\xEF\xBB\xBFn01440764\ttench, Tinca tinca\n\nn01443537\tgoldfish\nn02002724\tblack stork\n",
        "id,name\nn01440764,tench, Tinca tinca\nn01443537,goldfish\nn02002724,black stork\n",
        "{\"0\": [\"n01440764\", \"tench, Tinca tinca\"], \"388\": [\"n02510455\", \"giant panda\"], "
        "\"1\": [\"n01443537\", \"goldfish\"], \"7\": [\"n02002724\", \"black stork\"]}",
        "{\"n02002724\": \"black stork\", \"n01443537\": \"goldfish\", \"n01440764\": \"tench, Tinca "
        "tinca\"}",
        "[[\"n01440764\", \"tench, Tinca tinca\"], [\"n01443537\", \"goldfish\"], [\"n02002724\", \"black "
        "stork\"]]",
        "tench, Tinca tinca\ngoldfish\nblack stork\n",
        "  [\"tench, Tinca tinca\", \"goldfish\", \"black stork\"]",
        "{\"2\": \"black stork\", \"0\": \"tench, Tinca tinca\", \"1\": \"goldfish\"}",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_names(folder, files[i], all);
}

TEST_IN_FOLDER(test_classes_that_a_file_does_not_know_stay_without_names, folder)
{
    static const char *const two[CLASSES] = {"tench", "", "black stork"};
    assert_names(folder, "n02002724 black stork\nn01440764 tench\nn99999999 nobody\n", two);
    assert_names(folder, "n02002724 black stork\nn01440764 tench\nn01440764 another\nn01443537\n", two);
}

TEST_IN_FOLDER(test_a_file_that_knows_none_is_refused, folder)
{
    static const char *const files[][2] = {
        {"", "names none of the classes (n01440764, n01443537): no id of theirs is in it, and 0 entries are "
             "no list of 3"},
        {"cat\ndog\n", "2 entries are no list of 3"},
        {"[\"a\", \"b\", \"c\", \"d\"]", "4 entries are no list of 3"},
        {"{\"0\": \"a\", \"1\": \"b\", \"3\": \"c\"}", "3 entries are no list of 3"},
        {"{\"0\": 7}", "an entry is neither a name nor a list of id and name"},
        {"{\"0\": [\"n01440764\"]}", "an entry is neither"},
        {"{\"0\": ", "line 1: "},
        {"n01440764 ten\x01"
         "ch\n",
         "holds a control character"},
        {"n01440764 ten\xff"
         "ch\n",
         "is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char **names = NULL;
        size_t named = 0;
        FshError error = {0};
        assert_int_equal(read_text(folder, files[i][0], true, &names, &named, &error), FSH_ERR_CORRUPT);
        assert_contains(error.message, files[i][1]);
        assert_null(names);
    }
}

/* As $FSHARD_CLASS_NAMES is asked. */
TEST_IN_FOLDER(test_by_id_alone_a_list_says_nothing, folder)
{
    char **names = NULL;
    size_t named = 7;
    FshError error = {0};
    assert_ok(read_text(folder, "tench\ngoldfish\nblack stork\n", false, &names, &named, &error), &error);
    assert_int_equal(named, 0);
    assert_string_equal(names[1], "");
    display_names_free(names, CLASSES);
    assert_int_equal(display_names_read("/nowhere", ids, CLASSES, false, &names, &named, &error),
                     FSH_ERR_NOT_FOUND);
    assert_null(names);
}

/* After an empty line of a list all names would be those of the values before. */
TEST_IN_FOLDER(test_a_list_of_values_has_no_empty_line_within, folder)
{
    static const struct {
        const char *text, *message; /* NULL: it is read */
    } files[] = {
        {"a\nb\nc\n\n \n", NULL},
        {"2 c\n\n0 a\n1 b\n", NULL},
        {"a\r\n\r\nc\r\n", "line 2 is empty"},
        {"\na\nb\n", "write there what the value 0 is called"},
        {"a\nb\n\n\nc\n", "line 3 is empty"},
    };
    const char *path = test_path(folder, "names.txt");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char **names = NULL;
        size_t count = 0;
        FshError error = {0};
        test_file_write_text(path, files[i].text);
        const FshStatus status = display_names_of_values(path, 255, &names, &count, &error);
        if (files[i].message) {
            assert_int_equal(status, FSH_ERR_CORRUPT);
            assert_contains(error.message, files[i].message);
            assert_null(names);
            continue;
        }
        assert_ok(status, &error);
        assert_int_equal(count, 3);
        assert_string_equal(names[2], "c");
        display_names_free(names, count);
    }
}
