#include "trainer/report/run_history.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

static RunHistory read_text(TestFolder *folder, const char *text)
{
    const char *path = test_path(folder, "metrics.jsonl");
    RunHistory history;
    FshError error = {0};
    test_file_write_text(path, text);
    assert_ok(run_history_read(&history, path, &error), &error);
    return history;
}

TEST_IN_FOLDER(test_epochs_and_steps_become_columns, folder)
{
    RunHistory history =
        read_text(folder, "{\"event\":\"step\",\"epoch\":0,\"step\":3,\"loss\":2.5}\n"
                          "{\"event\":\"epoch\",\"epoch\":0,\"train_loss\":2,\"note\":\"x\"}\n"
                          "{\"event\":\"other\",\"epoch\":0}\n"
                          "{\"event\":\"epoch\",\"epoch\":1,\"train_loss\":null,\"eval_top1\":50}\n");
    assert_int_equal(history.epochs.row_count, 2);
    assert_int_equal(history.steps.row_count, 1);
    const double *loss = run_table_column(&history.epochs, "train_loss");
    const double *top1 = run_table_column(&history.epochs, "eval_top1");
    assert_true(loss[0] == 2 && isnan(loss[1]));
    assert_true(isnan(top1[0]) && top1[1] == 50);
    assert_true(run_table_column(&history.steps, "loss")[0] == 2.5);
    assert_null(run_table_column(&history.epochs, "note"));
    assert_null(run_table_column(&history.steps, "train_loss"));
    run_history_free(&history);
    assert_int_equal(history.epochs.row_count, 0);
}

TEST_IN_FOLDER(test_a_row_cut_in_half_is_passed_over, folder)
{
    RunHistory history =
        read_text(folder, "{\"event\":\"epoch\",\"epoch\":0}\n\n[1]\n{\"event\":\"epoch\",\"epo");
    assert_int_equal(history.epochs.row_count, 1);
    run_history_free(&history);
}

TEST_IN_FOLDER(test_long_runs_and_many_columns_fit, folder)
{
    char *text = malloc(200000), *at = text;
    for (int i = 0; i < 1000; i++)
        at += sprintf(at, "{\"event\":\"epoch\",\"epoch\":%d,\"c%d\":%d}\n", i, i % 300, i);
    RunHistory history = read_text(folder, text);
    free(text);
    assert_int_equal(history.epochs.row_count, 1000);
    assert_int_equal(history.epochs.column_count, RUN_COLUMNS_MAX);
    const double *epoch = run_table_column(&history.epochs, "epoch");
    const double *late = run_table_column(&history.epochs, "c62");
    for (int i = 0; i < 1000; i++) {
        assert_true(epoch[i] == i);
        assert_true(i % 300 == 62 ? late[i] == i : isnan(late[i]));
    }
    run_history_free(&history);
}

TEST_IN_FOLDER(test_a_file_that_is_not_there_is_told, folder)
{
    RunHistory history;
    FshError error = {0};
    assert_int_equal(run_history_read(&history, test_path(folder, "none"), &error), FSH_ERR_NOT_FOUND);
    assert_int_equal(history.epochs.row_count, 0);
}
