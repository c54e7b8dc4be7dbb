/* What a classifier makes of an image, as a row. */
#include "trainer/report/class_rows.h"

#include <math.h>

#include "tests/support/support.h"

static char *const names[] = {"ant", "bee, b", "=cat"};

static void expect_row(ClassRows *rows, const float *logits, const char *expected)
{
    Buffer text = {0};
    FshError error = {0};
    assert_ok(class_rows_add(rows, "a/1", 3, &(RowTruth){.label = 1}, logits, &text, &error), &error);
    assert_ok(buffer_append(&text, "", 1, &error), &error);
    assert_string_equal((const char *)text.bytes, expected);
    buffer_free(&text);
}

TEST(test_the_likeliest_class_comes_first)
{
    ClassRows rows = {.key_name = "key", .labelled = true, .names = names, .classes = 3};
    expect_row(&rows, (const float[]){0, 1, 1},
               "a/1,\"bee, b\",\"bee, b\",0.422319,=cat,0.422319,ant,0.155362\n");
    assert_int_equal(rows.formulas, 1);
    rows.json = true;
    rows.classes = 2;
    expect_row(&rows, (const float[]){100, -INFINITY},
               "{\"key\":\"a/1\",\"label\":\"bee, b\",\"top5\":[{\"class\":\"ant\",\"probability\":1.0},"
               "{\"class\":\"bee, b\",\"probability\":0.0}]}\n");
}

/* A network gone bad is never sure of what it does not know. */
TEST(test_what_is_no_number_is_least_likely)
{
    ClassRows rows = {.key_name = "file", .names = names, .classes = 3};
    expect_row(&rows, (const float[]){NAN, 2, 2}, "a/1,\"bee, b\",0.500000,=cat,0.500000,ant,\n");
    expect_row(&rows, (const float[]){NAN, NAN, NAN}, "a/1,ant,,\"bee, b\",,=cat,\n");
    rows.json = true;
    rows.classes = 1;
    expect_row(&rows, (const float[]){NAN},
               "{\"file\":\"a/1\",\"top5\":[{\"class\":\"ant\",\"probability\":null}]}\n");
}
