/* ftrain --compare from outside: what it tells of several runs. */
#include "tests/programs/train_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"

#define TINY "--model", "conv8", "--epochs", "2"

static const json_t *group_of(const json_t *object, size_t index)
{
    return json_array_get(json_object_get(object, "groups"), index);
}

static double measure_of(const json_t *object, size_t group, const char *measure, const char *part)
{
    return number_of(json_object_get(group_of(object, group), measure), part);
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        count++;
    return count;
}

TEST_IN_FOLDER(test_runs_of_several_seeds_are_one_group, folder)
{
    const char *shards = make_set(folder, &train_plain), *page = test_path(folder, "page.html");
    const char *a = test_path(folder, "runs/a"), *b = test_path(folder, "runs/b");
    TRAINED(TINY, "--lr", "0.01", "--seed", "1", shards, a);
    TRAINED(TINY, "--lr", "0.01", "--seed", "2", "--log-interval", "1", shards, b); /* decides nothing */
    TRAINED(TINY, "--lr", "0.02", shards, test_path(folder, "runs/c"));
    RunResult result = TRAIN(0, "--compare", "--output", page, a, b, test_path(folder, "runs/c"));
    assert_contains(result.out, "best top-1");
    assert_contains(result.out, "\nlr 0.01     2       2  ");
    assert_contains(result.out, "\nlr 0.02     1       2  ");
    assert_contains(result.out, "±: standard deviation over seeds");
    assert_contains(result.err, "page: ");
    run_result_free(&result);

    /* The folder that holds them stands for them. */
    result = TRAIN(0, "--compare", "--json", "--force", "--output", page, test_path(folder, "runs"));
    json_t *object = read_json(result.out);
    const double first = summary_number(a, 1, "eval_loss"), second = summary_number(b, 1, "eval_loss");
    assert_int_equal(json_array_size(json_object_get(object, "groups")), 2);
    assert_true(fabs(measure_of(object, 0, "loss", "mean") - (first + second) / 2) < 1e-4);
    assert_true(fabs(measure_of(object, 0, "loss", "deviation") - fabs(first - second) / sqrt(2)) < 1e-4);
    assert_string_equal(json_string_value(json_object_get(group_of(object, 1), "label")), "lr 0.02");
    json_decref(object);
    run_result_free(&result);

    char *text = test_file_read(page, NULL);
    assert_contains(text, "<h1>3 runs compared</h1>");
    assert_contains(text, "Options that differ");
    assert_int_equal(count_of(text, "<path class=\"run r0\""), 6); /* top-1 and two losses, each twice */
    assert_int_equal(count_of(text, "<path class=\"run thin r0\""), 12); /* of two seeds */
    assert_int_equal(count_of(text, "<path class=\"run thin r1\""), 0);
    free(text);
}

/* Of equals the one with the least loss is the best, wherever it stands. */
TEST_IN_FOLDER(test_equal_runs_are_told_apart_by_loss, folder)
{
    const char *shards = make_set(folder, &train_plain), *page = test_path(folder, "page.html");
    const char *const runs[] = {test_path(folder, "a"), test_path(folder, "b")};
    const char *const rates[] = {"0.00001", "0.001"};
    size_t least = 0;
    for (size_t i = 0; i < 2; i++) {
        TRAINED("--model", "conv8", "--epochs", "1", "--lr", rates[i], shards, runs[i]);
        assert_true(summary_number(runs[i], 0, "eval_top1") == summary_number(runs[0], 0, "eval_top1"));
        if (summary_number(runs[i], 0, "eval_loss") < summary_number(runs[least], 0, "eval_loss"))
            least = i;
    }
    RunResult result = TRAIN(0, "--compare", "--output", page, runs[0], runs[1]);
    const char *line =
        strstr(result.out, test_path(folder, "lr %g", atof(rates[least])) + strlen(folder->path) + 1);
    assert_int_equal(count_of(result.out, "  *\n"), 1);
    assert_non_null(line);
    assert_memory_equal(strchr(line, '\n') - 3, "  *", 3);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_iterations_are_shown_where_a_run_counts_them, folder)
{
    const char *shards = make_set(folder, &train_plain), *page = test_path(folder, "page.html");
    const char *a = test_path(folder, "a"), *b = test_path(folder, "b"), *c = test_path(folder, "c");
    TRAINED("--model", "conv8", "--iters", "6", "--val-every", "2", "--lr", "0.01", shards, a);
    TRAINED("--model", "conv8", "--iters", "6", "--val-every", "2", "--lr", "0.02", shards, b);
    RunResult result = TRAIN(0, "--compare", "--output", page, a, b);
    assert_contains(result.out, "\nlr 0.01     1           6  ");
    run_result_free(&result);
    char *text = test_file_read(page, NULL);
    assert_contains(text, "<th class=\"n\">iterations<th class=\"n\">best<th class=\"n\">at iteration<");
    assert_contains(text, "<td class=\"n\">6 of 6<");
    assert_contains(text, " at iteration 4<");
    assert_contains_not(text, "epoch");
    free(text);
    result = TRAIN(0, "--compare", "--json", "--force", "--output", page, a, b);
    json_t *object = read_json(result.out);
    const json_t *run = json_array_get(json_object_get(group_of(object, 0), "runs"), 0);
    assert_int_equal((int)number_of(run, "iterations"), 6);
    assert_int_equal((int)number_of(run, "planned_iterations"), 6);
    assert_int_equal((int)number_of(run, "epochs"), 3); /* stretches between evaluations */
    json_decref(object);
    run_result_free(&result);

    TRAINED(TINY, "--lr", "0.01", shards, c);
    result = TRAIN(0, "--compare", "--force", "--output", page, a, c);
    assert_contains(result.out, "  runs  iterations  ");
    assert_contains(result.out, "iters 6, val-every 2, epochs -     1           6  ");
    assert_contains(result.out, "iters 0, val-every 0, epochs 2     1          10  "); /* of 5 steps each */
    run_result_free(&result);
    text = test_file_read(page, NULL);
    assert_contains(text, "<td class=\"n\">6 of 6<");
    assert_contains(text, "<td class=\"n\">10 of 10<");
    assert_contains(text, "<th class=\"n\">at iteration<");
    assert_contains(text, " at iteration 5<");
    assert_contains_not(text, " at epoch ");
    free(text);
}

TEST_IN_FOLDER(test_wide_numbers_do_not_run_together, folder)
{
    const char *shards = make_set(folder, &train_plain);
    static const char *const losses[] = {"54.1391", "106.3067"};
    for (size_t i = 0; i < 2; i++) {
        const char *rows = test_path(folder, "runs/%zu/metrics.jsonl", i), *seed = i ? "2" : "1";
        TRAINED(TINY, "--lr", "0.01", "--seed", seed, shards, test_path(folder, "runs/%zu", i));
        test_file_write_text(rows, test_path(folder,
                                             "{\"event\":\"epoch\",\"epoch\":0,\"time\":1.5,\"eval_top1\":25,"
                                             "\"eval_loss\":%s}\n",
                                             losses[i]) +
                                       strlen(folder->path) + 1);
    }
    RunResult result =
        TRAIN(0, "--compare", "--output", test_path(folder, "page.html"), test_path(folder, "runs"));
    const char *cells = strstr(result.out, "25.00 ± 0.00  25.00 ± 0.00  80.2229 ± 36.8881  1.50 ± 0.00\n");
    assert_non_null(cells);
    /* headings end where their columns do */
    const char *heading = strstr(result.out, "last loss");
    const char *line = cells;
    while (line > result.out && line[-1] != '\n')
        line--;
    const size_t marks = 3; /* each ± is two bytes */
    assert_int_equal((size_t)(heading - result.out) + strlen("last loss"),
                     (size_t)(strstr(line, "36.8881") - line) + strlen("36.8881") - marks);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_what_cannot_be_compared_is_said, folder)
{
    const char *colours = pack_colours(folder, 24, 4), *classes = test_path(folder, "classes");
    assert_int_equal(rename(make_set(folder, &train_plain), classes), 0); /* the name is wanted again */
    const char *a = test_path(folder, "a"), *b = test_path(folder, "b"), *c = test_path(folder, "c");
    const char *page = test_path(folder, "page.html");
    TRAINED(TINY, classes, a);
    TRAINED(TINY, colours, b);
    TRAINED("--model", "unet", "--width", "4", "--epochs", "1", make_set(folder, &train_negatives), c);
    RunResult result = TRAIN(0, "--compare", "--output", page, a, b);
    assert_contains(result.out, "The runs were trained on different datasets");
    assert_contains(result.out, "\na  "); /* labels: nothing else differs */
    assert_contains_not(result.out, "*"); /* none is the best */
    run_result_free(&result);
    result = TRAIN(0, "--compare", "--force", "--output", page, a, c);
    assert_contains(result.out, "The runs have different tasks: their numbers cannot be compared");
    assert_contains(result.out, "options that differ:");
    assert_contains(result.out, "  best value  last value  ");
    assert_contains_not(result.out, "*");
    assert_contains(result.out, "  model                   conv8, unet\n");
    run_result_free(&result);
    char *text = test_file_read(page, NULL);
    assert_contains(text, ">Top-1 accuracy <small>%");
    assert_contains(text, ">PSNR <small>dB");
    free(text);
}

/* A run of a version that did not have an option is one with its default. */
TEST_IN_FOLDER(test_options_that_a_run_did_not_know_have_their_defaults, folder)
{
    const char *shards = make_set(folder, &train_plain), *a = test_path(folder, "a"),
               *b = test_path(folder, "b");
    TRAINED(TINY, "--seed", "1", shards, a);
    TRAINED(TINY, "--seed", "2", shards, b);
    json_t *notes = read_json_file(test_path(folder, "b/args.json"));
    assert_int_equal(json_object_del(json_object_get(notes, "options"), "label_smoothing"), 0);
    assert_int_equal(json_dump_file(notes, test_path(folder, "b/args.json"), 0), 0);
    json_decref(notes);
    RunResult result = TRAIN(0, "--compare", "--output", test_path(folder, "page.html"), a, b);
    assert_contains_not(result.out, "label-smoothing");
    assert_contains(result.out, "\na     2       2  ");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_an_unfinished_run_is_said_to_be_one, folder)
{
    const char *shards = make_set(folder, &train_plain), *a = test_path(folder, "a"),
               *b = test_path(folder, "b");
    TRAINED(TINY, "--lr", "0.01", shards, a);
    TRAINED(TINY, "--lr", "0.02", shards, b);
    char *rows = test_file_read(test_path(folder, "b/metrics.jsonl"), NULL);
    char *last = strstr(rows, "\"epoch\":1");
    while (last > rows && last[-1] != '\n')
        last--;
    *last = '\0';
    test_file_write_text(test_path(folder, "b/metrics.jsonl"), rows);
    free(rows);
    RunResult result = TRAIN(0, "--compare", "--output", test_path(folder, "page.html"), a, b);
    assert_contains(result.out, "1 of 2 runs have less training than was asked for");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_page_is_replaced_by_the_next, folder)
{
    const char *shards = make_set(folder, &train_plain), *a = test_path(folder, "a"),
               *b = test_path(folder, "b");
    const char *page = test_path(folder, "compare.html");
    TRAINED(TINY, shards, a);
    TRAINED(TINY, "--lr", "0.02", shards, b);
    RunResult result = TRAIN(0, "--compare", "--output", folder->path, a);
    assert_contains(result.err, "compare.html");
    run_result_free(&result);
    char *first = test_file_read(page, NULL);
    assert_contains(first, "1 run compared");
    result = TRAIN(0, "--compare", "--output", page, a, b);
    run_result_free(&result);
    char *second = test_file_read(page, NULL);
    assert_contains(second, "2 runs compared");
    free(first);
    free(second);
}

TEST_IN_FOLDER(test_comparisons_that_make_no_sense_are_refused, folder)
{
    const char *shards = make_set(folder, &train_plain), *a = test_path(folder, "a");
    const char *page = test_path(folder, "page.html");
    TRAINED(TINY, shards, a);
    SAYS(2, "the runs are missing", "--compare");
    SAYS(1, "set: holds no run of ftrain", "--compare", "--output", page, a, shards);
    SAYS(1, "nowhere: ", "--compare", "--output", page, a, test_path(folder, "nowhere"));
    SAYS(2, "--epochs: does nothing with --compare; it is for training", "--compare", "--epochs", "3", a);
    assert_false(file_exists(page));
    test_file_write_text(page, "mine");
    SAYS(1, "page.html: exists, and is no page of --compare; --output names another page", "--compare",
         "--output", page, a);
    char *left = test_file_read(page, NULL);
    assert_string_equal(left, "mine");
    free(left);
    test_file_write_text(test_path(folder, "a/args.json"), "{}");
    SAYS(1, "args.json: is none of ftrain's", "--compare", "--force", "--output", page, a);
}
