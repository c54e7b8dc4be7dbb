#include "trainer/report/run_record.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "tests/support/support.h"

static const EpochReport first = {.epoch = 0,
                                  .seconds = 12.5,
                                  .train = {.count = 10, .measured = 7, .sums = {20, 3, 6}},
                                  .learning_rate = 0.05,
                                  .images_per_second = 100,
                                  .order_digest = 0xABCDEF};

static const RecordShape classes = {.main_metric = METRIC_TOP1};

static Record open_record(const char *folder, bool force)
{
    Record record = RECORD_NONE;
    FshError error = {0};
    assert_ok(record_open(&record, folder, force, &classes, "{\"a\": 1}", &error), &error);
    return record;
}

TEST_IN_FOLDER(test_iterations_stand_behind_the_epoch, folder)
{
    const RecordShape shape = {.iterations = true};
    const StepReport step = {.epoch = 0, .step = 4, .iteration = 5, .iterations = 40, .gradient_norm = 1};
    Record record = RECORD_NONE;
    FshError error = {0};
    EpochReport report = first;
    report.iteration = 20;
    report.iterations = 40;
    assert_ok(record_open(&record, test_path(folder, "out"), false, &shape, "{}", &error), &error);
    assert_ok(record_step(&record, &step, &error), &error);
    assert_ok(record_epoch(&record, &report, &error), &error);
    record_close(&record);
    char *text = test_file_read(test_path(folder, "out/summary.csv"), NULL);
    assert_string_equal(text, "epoch,iteration,time,train_loss,eval_loss,eval_top1,eval_top5,lr\n"
                              "0,20,12.500,2,,,,0.05\n");
    free(text);
    text = test_file_read(test_path(folder, "out/metrics.jsonl"), NULL);
    assert_contains(text, "\"step\":4,\"iteration\":5,");
    assert_contains(text, "\"epoch\":0,\"iteration\":20,");
    free(text);
}

TEST_IN_FOLDER(test_epochs_become_rows_of_both_tables, folder)
{
    Record record = open_record(test_path(folder, "a/b/out"), false);
    FshError error = {0};
    EpochReport second = first;
    second.epoch = 1;
    second.evaluated = true;
    second.evaluation = (Metrics){.count = 400, .measured = 7, .sums = {INFINITY, 209, 320}};
    assert_ok(record_epoch(&record, &first, &error), &error);
    assert_ok(record_epoch(&record, &second, &error), &error);
    record_close(&record);

    char *text = test_file_read(test_path(folder, "a/b/out/summary.csv"), NULL);
    assert_string_equal(text, "epoch,time,train_loss,eval_loss,eval_top1,eval_top5,lr\n"
                              "0,12.500,2,,,,0.05\n"
                              "1,12.500,2,inf,52.25,80,0.05\n");
    free(text);
    text = test_file_read(test_path(folder, "a/b/out/metrics.jsonl"), NULL);
    char *end = strchr(text, '\n');
    assert_non_null(end);
    assert_contains(text, "\"order_digest\":\"0000000000abcdef\"");
    json_t *row = json_loads(end + 1, 0, NULL);
    assert_non_null(row);
    assert_true(json_is_null(json_object_get(row, "eval_loss"))); /* JSON has no infinity */
    assert_true(json_number_value(json_object_get(row, "eval_top1")) == 52.25);
    json_decref(row);
    free(text);
    text = test_file_read(test_path(folder, "a/b/out/args.json"), NULL);
    assert_string_equal(text, "{\"a\": 1}");
    free(text);
}

TEST_IN_FOLDER(test_pairs_and_averages_have_columns_of_their_own, folder)
{
    Record record = RECORD_NONE;
    FshError error = {0};
    const RecordShape shape = {.main_metric = METRIC_PSNR, .averaged = true};
    EpochReport report = {.train = {.count = 1, .measured = 1, .sums = {0.5}}, .learning_rate = 0.25};
    assert_ok(record_open(&record, test_path(folder, "out"), false, &shape, "{}", &error), &error);
    assert_ok(record_epoch(&record, &report, &error), &error);
    report.epoch = 1;
    report.evaluated = report.averaged = true;
    report.evaluation = (Metrics){.count = 2,
                                  .measured = 1U << METRIC_PSNR,
                                  .sums = {[METRIC_LOSS] = 4, [METRIC_PSNR] = 61, [METRIC_SSIM] = 1.5}};
    report.average = (Metrics){
        .count = 2, .measured = 1U << METRIC_PSNR, .sums = {[METRIC_PSNR] = 62, [METRIC_SSIM] = 1.75}};
    assert_ok(record_epoch(&record, &report, &error), &error);
    record_close(&record);
    char *text = test_file_read(test_path(folder, "out/summary.csv"), NULL);
    assert_string_equal(text, "epoch,time,train_loss,eval_loss,eval_psnr,eval_ssim,lr,ema_psnr,ema_ssim\n"
                              "0,0.000,0.5,,,,0.25,,\n"
                              "1,0.000,0.5,2,30.5,0.75,0.25,31,0.875\n");
    free(text);
}

static void add_step(Record *record, uint64_t epoch, uint64_t step)
{
    FshError error = {0};
    const StepReport report = {.epoch = epoch, .step = step, .gradient_norm = 1};
    assert_ok(record_step(record, &report, &error), &error);
}

TEST_IN_FOLDER(test_a_run_that_goes_on_drops_what_came_after_its_checkpoint, folder)
{
    const char *out = test_path(folder, "out");
    FshError error = {0};
    Record record = open_record(out, false);
    EpochReport second = first;
    second.epoch = 1;
    add_step(&record, 0, 5);
    assert_ok(record_epoch(&record, &first, &error), &error);
    add_step(&record, 1, 0);
    add_step(&record, 1, 1);
    add_step(&record, 1, 2);
    assert_ok(record_epoch(&record, &second, &error), &error);
    record_close(&record);
    FILE *torn = fopen(test_path(folder, "out/summary.csv"), "a");
    assert_non_null(torn);
    assert_true(fputs("0,12", torn) >= 0 && fclose(torn) == 0);

    assert_ok(record_resume(&record, out, &classes, "{\"b\": 2}", 1, 2, &error), &error);
    add_step(&record, 1, 2);
    record_close(&record);
    char *text = test_file_read(test_path(folder, "out/summary.csv"), NULL);
    assert_string_equal(text, "epoch,time,train_loss,eval_loss,eval_top1,eval_top5,lr\n0,12.500,2,,,,0.05\n");
    free(text);
    text = test_file_read(test_path(folder, "out/metrics.jsonl"), NULL);
    size_t rows = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        rows++;
    assert_int_equal(rows, 5); /* 0.5, epoch 0, 1.0, 1.1, the new 1.2 */
    free(text);
    text = test_file_read(test_path(folder, "out/args.json"), NULL);
    assert_string_equal(text, "{\"b\": 2}");
    free(text);
}

TEST_IN_FOLDER(test_a_run_that_goes_on_without_tables_begins_them, folder)
{
    FshError error = {0};
    Record record = RECORD_NONE;
    assert_ok(record_resume(&record, test_path(folder, "out"), &classes, "{}", 3, 0, &error), &error);
    record_close(&record);
    char *text = test_file_read(test_path(folder, "out/summary.csv"), NULL);
    assert_string_equal(text, "epoch,time,train_loss,eval_loss,eval_top1,eval_top5,lr\n");
    free(text);
}

TEST_IN_FOLDER(test_steps_become_objects, folder)
{
    Record record = open_record(test_path(folder, "out"), false);
    FshError error = {0};
    const StepReport report = {.epoch = 2,
                               .step = 7,
                               .now = {.count = 2, .measured = 1, .sums = {3}},
                               .learning_rate = 0.1,
                               .gradient_norm = NAN};
    assert_ok(record_step(&record, &report, &error), &error);
    record_close(&record);
    char *text = test_file_read(test_path(folder, "out/metrics.jsonl"), NULL);
    json_t *row = json_loads(text, 0, NULL);
    assert_non_null(row);
    assert_string_equal(json_string_value(json_object_get(row, "event")), "step");
    assert_int_equal(json_integer_value(json_object_get(row, "step")), 7);
    assert_true(json_number_value(json_object_get(row, "loss")) == 1.5);
    assert_null(json_object_get(row, "gradient_norm"));
    assert_null(json_object_get(row, "top1"));
    json_decref(row);
    free(text);
}

TEST_IN_FOLDER(test_an_empty_folder_is_used_and_a_full_one_is_not, folder)
{
    const char *out = test_path(folder, "out");
    FshError error = {0};
    assert_int_equal(mkdir(out, 0755), 0);
    assert_ok(record_check_folder(out, false, &error), &error);
    test_file_write_text(test_path(folder, "out/.hidden"), "");
    assert_int_equal(record_check_folder(out, false, &error), FSH_ERR_EXISTS);
    assert_ok(record_check_folder(out, true, &error), &error);
    assert_int_equal(record_check_folder(test_path(folder, "out/.hidden"), true, &error), FSH_ERR_EXISTS);
}

TEST_IN_FOLDER(test_force_removes_an_earlier_run_and_nothing_else, folder)
{
    const char *out = test_path(folder, "out");
    test_file_write_text(test_path(folder, "out/model_best.safetensors"), "old");
    test_file_write_text(test_path(folder, "out/summary.csv"), "old\n");
    test_file_write_text(test_path(folder, "out/checkpoint-12.safetensors"), "old");
    test_file_write_text(test_path(folder, "out/events.out.tfevents.1.host"), "old");
    test_file_write_text(test_path(folder, "out/notes"), "mine");
    test_file_write_text(test_path(folder, "out/checkpoint-notes.safetensors"), "mine");
    Record record = open_record(out, true);
    record_close(&record);
    assert_false(file_exists(test_path(folder, "out/model_best.safetensors")));
    char *text = test_file_read(test_path(folder, "out/summary.csv"), NULL);
    assert_contains_not(text, "old");
    free(text);
    assert_int_equal(test_count_files(out), 5);
}

TEST_IN_FOLDER(test_a_folder_that_cannot_be_made_leaves_nothing, folder)
{
    test_file_write_text(test_path(folder, "file"), "");
    Record record = RECORD_NONE;
    FshError error = {0};
    assert_int_not_equal(record_open(&record, test_path(folder, "file/out"), false, &classes, "{}", &error),
                         FSH_OK);
    assert_contains(error.message, "file");
    assert_null(record.folder);
    record_close(&record);
    assert_int_equal(test_count_files(folder->path), 1);
}
