#include "trainer/report/class_counts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

static void add(ClassCounts *counts, int64_t label, int64_t prediction)
{
    FshError error = {0};
    assert_ok(class_counts_add(counts, label, prediction, &error), &error);
}

/* Returns counts of three classes: cat, 1 of 3 known; dog, no sample, taken for once; fox, 1 sample, never
 * known. */
static ClassCounts small_counts(void)
{
    ClassCounts counts = {0};
    FshError error = {0};
    assert_ok(class_counts_reset(&counts, 3, &error), &error);
    add(&counts, 0, 0);
    add(&counts, 0, 2);
    add(&counts, 0, 2);
    add(&counts, 2, 1);
    add(&counts, -1, 1); /* no label */
    return counts;
}

TEST(test_samples_are_counted_by_label_and_prediction)
{
    ClassCounts counts = small_counts();
    static const uint64_t confusion[] = {1, 0, 2, 0, 0, 0, 0, 1, 0};
    assert_memory_equal(counts.confusion, confusion, sizeof confusion);
    const ClassRow cat = class_counts_row(&counts, 0), dog = class_counts_row(&counts, 1),
                   fox = class_counts_row(&counts, 2);
    assert_true(cat.samples == 3 && cat.right == 1 && cat.taken == 1);
    assert_true(fabs(cat.recall - 100.0 / 3) < 1e-9 && cat.precision == 100 && cat.f1 == 50);
    assert_true(cat.confused_with == 2 && cat.confused_count == 2);
    assert_true(isnan(dog.recall) && dog.precision == 0 && isnan(dog.f1) && dog.confused_with == -1);
    assert_true(fox.recall == 0 && fox.precision == 0 && fox.f1 == 0);
    FshError error = {0};
    assert_int_equal(class_counts_add(&counts, 3, 0, &error), FSH_ERR_MISMATCH);
    assert_int_equal(class_counts_add(&counts, 0, -1, &error), FSH_ERR_MISMATCH);
    assert_ok(class_counts_reset(&counts, 3, &error), &error);
    assert_false(class_counts_any(&counts));
    class_counts_free(&counts);
}

TEST(test_the_highest_logit_names_the_class)
{
    assert_int_equal(class_of_logits((const float[]){1, 3, 3, 2}, 4), 1);
    assert_int_equal(class_of_logits((const float[]){NAN, -INFINITY, NAN}, 3), 1);
    assert_int_equal(class_of_logits((const float[]){NAN, NAN}, 2), 0);
}

TEST(test_very_many_classes_have_no_table_of_confusion)
{
    ClassCounts counts = {0};
    FshError error = {0};
    assert_ok(class_counts_reset(&counts, CONFUSION_CLASSES_MAX + 1, &error), &error);
    assert_null(counts.confusion);
    add(&counts, CONFUSION_CLASSES_MAX, 0);
    assert_int_equal(class_counts_row(&counts, CONFUSION_CLASSES_MAX).confused_with, -1);
    assert_true(class_counts_any(&counts));
    class_counts_free(&counts);
}

TEST_IN_FOLDER(test_the_table_keeps_its_columns_whatever_the_names, folder)
{
    static const char *const names[] = {"tench, \"Tinca tinca\"", "=1+1", "<script>"};
    ClassCounts counts = small_counts();
    FshError error = {0};
    const char *path = test_path(folder, "per_class.csv");
    assert_ok(class_table_write(&counts, names, path, &error), &error);
    char *text = test_file_read(path, NULL);
    assert_string_equal(
        text, "index,class,samples,correct,predicted,recall,precision,f1,confused_with,confused_count\n"
              "0,\"tench, \"\"Tinca tinca\"\"\",3,1,1,33.3333,100,50,<script>,2\n"
              "1,=1+1,0,0,1,,0,,,0\n"
              "2,<script>,1,0,2,0,0,0,=1+1,1\n");
    free(text);
    assert_ok(class_table_write(&counts, NULL, path, &error), &error); /* another time, without names */
    text = test_file_read(path, NULL);
    assert_contains(text, "\n2,2,1,0,2,0,0,0,1,1\n");
    free(text);
    class_counts_free(&counts);
}

TEST(test_what_is_not_known_is_null)
{
    static const char *const names[] = {"cat", "dog", "fox"};
    ClassCounts counts = small_counts();
    json_t *array = class_table_json(&counts, names);
    const json_t *cat = json_array_get(array, 0), *dog = json_array_get(array, 1);
    assert_int_equal(json_array_size(array), 3);
    assert_string_equal(json_string_value(json_object_get(cat, "confused_with")), "fox");
    assert_true(json_number_value(json_object_get(cat, "f1")) == 50);
    assert_true(json_is_null(json_object_get(dog, "recall")));
    assert_true(json_is_null(json_object_get(dog, "confused_with")));
    json_decref(array);
    class_counts_free(&counts);
}
