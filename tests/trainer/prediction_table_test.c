#include "trainer/inference/prediction_table.h"

#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "tests/support/support.h"

#define HEAD "file,prediction\n"

static const PredictionTableOptions csv = {.identity = "weights 1", .head = HEAD};

/* Opens FOLDER/t.csv, adds rows, and is killed: it is closed without an end. */
static void write_part(TestFolder *folder, const PredictionTableOptions *options, const char *rows)
{
    PredictionTable *table = NULL;
    FshError error = {0};
    assert_ok(prediction_table_open(&table, test_path(folder, "t.csv"), options, &error), &error);
    assert_ok(prediction_table_write(table, rows, strlen(rows), &error), &error);
    prediction_table_close(&table);
    assert_false(file_exists(test_path(folder, "t.csv")));
}

static void finish(TestFolder *folder, const PredictionTableOptions *options, const char *rows,
                   const char *whole)
{
    PredictionTable *table = NULL;
    FshError error = {0};
    assert_ok(prediction_table_open(&table, test_path(folder, "t.csv"), options, &error), &error);
    assert_ok(prediction_table_write(table, rows, strlen(rows), &error), &error);
    assert_ok(prediction_table_finish(table, &error), &error);
    prediction_table_close(&table);
    char *text = test_file_read(test_path(folder, "t.csv"), NULL);
    assert_string_equal(text, whole);
    free(text);
    assert_int_equal(test_count_files(folder->path), 1);
}

TEST_IN_FOLDER(test_rows_of_a_run_that_was_killed_stay, folder)
{
    PredictionTable *table = NULL;
    FshError error = {0};
    write_part(folder, &csv, "a.jpg,cat\n\"b, \"\"2\"\"\nc\",\"dog,\n\"\nd.jpg,ca");
    assert_ok(prediction_table_open(&table, test_path(folder, "t.csv"), &csv, &error), &error);
    assert_true(prediction_table_has(table, "a.jpg"));
    assert_true(prediction_table_has(table, "b, \"2\"\nc"));
    assert_false(prediction_table_has(table, "d.jpg")); /* half a row */
    prediction_table_close(&table);
    finish(folder, &csv, "d.jpg,cat\n", HEAD "a.jpg,cat\n\"b, \"\"2\"\"\nc\",\"dog,\n\"\nd.jpg,cat\n");
    assert_int_equal(prediction_table_open(&table, test_path(folder, "t.csv"), &csv, &error), FSH_ERR_EXISTS);
    assert_null(table);
}

TEST_IN_FOLDER(test_json_lines_go_on_too, folder)
{
    const PredictionTableOptions json = {.identity = "weights 1", .head = "", .json = true};
    PredictionTable *table = NULL;
    FshError error = {0};
    write_part(folder, &json, "{\"file\":\"a.jpg\"}\n{\"file\":\"b.jp");
    assert_ok(prediction_table_open(&table, test_path(folder, "t.csv"), &json, &error), &error);
    assert_true(prediction_table_has(table, "a.jpg"));
    assert_false(prediction_table_has(table, "b.jp"));
    prediction_table_close(&table);
    finish(folder, &json, "{\"file\":\"b.jpg\"}\n", "{\"file\":\"a.jpg\"}\n{\"file\":\"b.jpg\"}\n");
}

/* Other weights, or --force: nothing of the old rows is taken. */
TEST_IN_FOLDER(test_another_table_begins_anew, folder)
{
    PredictionTableOptions other = csv;
    PredictionTable *table = NULL;
    FshError error = {0};
    write_part(folder, &csv, "a.jpg,cat\n");
    other.identity = "weights 2";
    assert_ok(prediction_table_open(&table, test_path(folder, "t.csv"), &other, &error), &error);
    assert_false(prediction_table_has(table, "a.jpg"));
    prediction_table_close(&table); /* without rows: nothing is left */
    assert_int_equal(test_count_files(folder->path), 1);
    other = csv;
    other.force = true;
    finish(folder, &other, "b.jpg,dog\n", HEAD "b.jpg,dog\n");
}

TEST_IN_FOLDER(test_two_runs_do_not_write_one_table, folder)
{
    PredictionTable *first = NULL, *second = NULL;
    FshError error = {0};
    assert_ok(prediction_table_open(&first, test_path(folder, "t.csv"), &csv, &error), &error);
    assert_int_equal(prediction_table_open(&second, test_path(folder, "t.csv"), &csv, &error),
                     FSH_ERR_EXISTS);
    assert_contains(error.message, "another ftrain is writing it");
    assert_int_equal(test_count_files(folder->path), 1);
    prediction_table_close(&first);
}
