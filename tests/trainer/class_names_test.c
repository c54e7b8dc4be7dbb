/* Names of classes: from one list to another. */
#include "trainer/checkpoint/class_names.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/support.h"

static ClassNames make(const char *const *names, size_t count)
{
    ClassNames made;
    FshError error = {0};
    assert_ok(class_names_copy(&made, names, count, &error), &error);
    return made;
}

#define NAMES(...)                                                                                           \
    make((const char *const[]){__VA_ARGS__}, sizeof(const char *const[]){__VA_ARGS__} / sizeof(char *))

TEST(test_classes_are_found_by_name_in_any_order)
{
    ClassNames dataset = NAMES("dog", "cat, a", "bee"), weights = NAMES("ant", "bee", "cat, a", "dog");
    ClassMap map;
    FshError error = {0};
    assert_ok(class_map_make(&map, &dataset, &weights, &error), &error);
    assert_int_equal(map.count, 3);
    assert_int_equal(map.missing, 0);
    assert_false(map.same);
    assert_int_equal(map.places[0], 3);
    assert_int_equal(map.places[1], 2);
    assert_int_equal(map.places[2], 1);
    class_map_free(&map);
    class_names_free(&dataset);
    class_names_free(&weights);
}

TEST(test_a_class_that_is_not_there_is_counted_and_named)
{
    ClassNames dataset = NAMES("scorpion", "bee", "wasp"), weights = NAMES("bee", "n01770393");
    ClassMap map;
    FshError error = {0};
    char text[200];
    assert_ok(class_map_make(&map, &dataset, &weights, &error), &error);
    assert_int_equal(map.missing, 2);
    assert_int_equal(map.places[0], -1);
    assert_int_equal(map.places[1], 0);
    assert_string_equal(class_names_only_in(&dataset, &weights, text, sizeof text), "'scorpion', 'wasp'");
    assert_string_equal(class_names_only_in(&weights, &dataset, text, sizeof text), "'n01770393'");
    assert_string_equal(class_names_only_in(&weights, &weights, text, sizeof text), "none");
    class_map_free(&map);
    class_names_free(&dataset);
    class_names_free(&weights);
}

TEST(test_equal_lists_are_the_same_even_with_a_name_twice)
{
    ClassNames dataset = NAMES("a", "b", "b"), weights = NAMES("a", "b", "b"), other = NAMES("b", "b", "a");
    ClassMap map;
    FshError error = {0};
    assert_ok(class_map_make(&map, &dataset, &weights, &error), &error);
    assert_true(map.same);
    assert_int_equal(map.places[2], 2);
    class_map_free(&map);
    assert_int_equal(class_map_make(&map, &dataset, &other, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "two classes 'b'");
    class_names_free(&dataset);
    class_names_free(&weights);
    class_names_free(&other);
}

TEST(test_what_is_told_is_short_and_can_be_printed)
{
    enum { COUNT = 20000 };
    static char numbers[COUNT][8];
    static const char *list[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        (void)snprintf(numbers[i], sizeof numbers[i], "c%05zu", i);
        list[i] = numbers[i];
    }
    char text[300], longest[256];
    ClassNames many = make(list, COUNT), none = {0};
    assert_string_equal(class_names_only_in(&many, &none, text, sizeof text),
                        "'c00000', 'c00001', 'c00002', 'c00003' and 19996 more");
    class_names_free(&many);
    for (size_t i = 0; i < sizeof longest - 1; i += 3)
        memcpy(longest + i, "狗", 3);
    longest[sizeof longest - 1] = '\0';
    ClassNames odd = NAMES("\x1B[31mred\n", longest, longest, longest, longest);
    (void)class_names_only_in(&odd, &none, text, sizeof text);
    assert_contains(text, "'?[31mred?', '狗狗");
    assert_contains(text, "狗…'");
    assert_true(strlen(text) < sizeof text);
    assert_string_equal(class_names_only_in(&odd, &none, text, 30), "5");
    class_names_free(&odd);
}
