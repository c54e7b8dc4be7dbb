/* ftrain from outside: several datasets in one run. */
#include "tests/programs/ranks_support.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"

#define CONV8     "--model", "conv8"
#define SHORT     CONV8, "--epochs", "2", "--batch-size", "4", "--force"
#define LEARNT(x) test_path(folder, x "/last.safetensors")

enum { PARTS = 2 };

/* Packs FOLDER/images of pack_named as FOLDER/a and FOLDER/b, whose classes begin with a and b and look
 * alike, so that mean and deviation of each and of both are the same to the bit; returns both packed as
 * one. */
static const char *pack_parts(TestFolder *folder)
{
    static const char *const names[PARTS][COLOURS] = {{"a-red", "a-green", "a-blue"},
                                                      {"b-red", "b-green", "b-blue"}};
    for (size_t i = 0; i < PARTS; i++) {
        (void)pack_named(folder, names[i], 6, 3);
        if (rename(test_path(folder, "shards"), test_path(folder, i ? "b" : "a")))
            fail_msg("rename");
        if (!i && rename(test_path(folder, "images"), test_path(folder, "images-a")))
            fail_msg("rename");
    }
    static const char *const splits[] = {"train", "val"};
    for (size_t s = 0; s < 2; s++)
        for (size_t c = 0; c < COLOURS; c++)
            if (rename(test_path(folder, "images-a/%s/%s", splits[s], names[0][c]),
                       test_path(folder, "images/%s/%s", splits[s], names[0][c])))
                fail_msg("rename");
    const char *both = test_path(folder, "both");
    RunResult result = run_program(NULL, "fpack", "-q", test_path(folder, "images"), both, NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    return both;
}

/* Returns the order digest of the last epoch. */
static char *last_order(TestFolder *folder, const char *run)
{
    char *text = test_file_read(test_path(folder, "%s/metrics.jsonl", run), NULL), *at = NULL;
    for (char *next = strstr(text, "\"order_digest\":"); next; next = strstr(next + 1, "\"order_digest\":"))
        at = next;
    assert_non_null(at);
    char *digest = at ? strndup(at, 33) : NULL;
    free(text);
    return digest;
}

TEST_IN_FOLDER(test_two_sets_learn_what_one_of_both_learns, folder)
{
    const char *both = pack_parts(folder), *a = test_path(folder, "a"), *b = test_path(folder, "b");
    RunResult result = TRAIN(0, SHORT, a, b, test_path(folder, "two"));
    assert_contains(result.err, ", 6 classes, ");
    assert_contains(result.err, "set a: 18 samples of train, 9 of val");
    assert_contains(result.err, "set b: 18 samples of train, 9 of val");
    assert_contains(result.err, "split train: 36 samples, 9 steps of 4 (0 samples left out of each epoch)");
    run_result_free(&result);
    TRAINED(SHORT, both, test_path(folder, "one"));
    assert_true(weights_distance(LEARNT("one"), LEARNT("two")) == 0);
    char *one = last_order(folder, "one"), *two = last_order(folder, "two");
    assert_string_equal(one, two);
    free(one);
    free(two);
    assert_true(summary_number(test_path(folder, "one"), 1, "eval_top1") ==
                summary_number(test_path(folder, "two"), 1, "eval_top1"));

    /* As options, or with weights of 1, it is the same run; in another order it is another. */
    TRAINED(SHORT, "--more-shards", b, "--shards", a, test_path(folder, "options"));
    assert_same_file(folder, "two", "options", true);
    TRAINED(SHORT, "--set-weights", "1,1", a, b, test_path(folder, "ones"));
    assert_same_file(folder, "two", "ones", true);
    TRAINED(SHORT, b, a, test_path(folder, "turned"));
    assert_true(weights_distance(LEARNT("turned"), LEARNT("two")) > 0);
    /* What is written down is read back. */
    TRAINED("--config", test_path(folder, "two/args.json"), "--force", "--output",
            test_path(folder, "again"));
    assert_same_file(folder, "two", "again", true);
    result = TRAIN(0, "--print-config", SHORT, a, b, test_path(folder, "toml"));
    test_file_write_text(test_path(folder, "run.toml"), result.out);
    run_result_free(&result);
    TRAINED("--config", test_path(folder, "run.toml"), "--force");
    assert_same_file(folder, "two", "toml", true);
}

/* Returns the evaluation of weights on the sets as JSON. */
static json_t *evaluate(const char *weights, const char *const *sets, size_t count)
{
    const char *arguments[16] = {"--device",     "cpu", "--evaluate", "--json",
                                 "--batch-size", "4",   "--weights",  weights};
    for (size_t i = 0; i < count; i++)
        arguments[8 + i] = sets[i];
    RunResult result = expect_train(0, NULL, arguments);
    json_t *object = read_json(result.out);
    run_result_free(&result);
    return object;
}

TEST_IN_FOLDER(test_sets_are_evaluated_apart_as_alone, folder)
{
    (void)pack_parts(folder);
    const char *const sets[] = {test_path(folder, "a"), test_path(folder, "b")};
    const char *out = test_path(folder, "out");
    RunResult trained = TRAIN(0, SHORT, "--device", "cpu", "--json", "--model-ema", sets[0], sets[1], out);
    assert_contains(trained.err, " * a  Acc@1 ");
    assert_contains(trained.err, " * EMA b  Acc@1 ");
    json_t *ended = read_json(trained.out);
    run_result_free(&trained);
    json_t *together = evaluate(LEARNT("out"), sets, 2);
    const json_t *parts = json_object_get(together, "sets");
    assert_int_equal(json_array_size(parts), 2);
    double loss = 0;
    for (size_t i = 0; i < 2; i++) {
        const json_t *part = json_array_get(parts, i);
        json_t *alone = evaluate(LEARNT("out"), &sets[i], 1);
        assert_string_equal(json_string_value(json_object_get(part, "name")), i ? "b" : "a");
        assert_int_equal((int)number_of(part, "samples"), 9);
        assert_true(number_of(part, "loss") == number_of(alone, "loss"));
        assert_true(number_of(part, "top1") == number_of(alone, "top1"));
        assert_null(json_object_get(alone, "sets"));
        /* the report of the training's end has the best weights' */
        json_t *best = evaluate(test_path(folder, "out/model_best.safetensors"), &sets[i], 1);
        const json_t *told = json_array_get(json_object_get(ended, "sets"), i);
        assert_string_equal(json_string_value(json_object_get(told, "name")), i ? "b" : "a");
        assert_true(number_of(told, "best_top1") == number_of(best, "top1"));
        const double average =
            summary_number(out, (int)number_of(ended, "best_ema_epoch"), i ? "ema_top1/b" : "ema_top1/a");
        assert_true(fabs(number_of(told, "best_ema_top1") - average) < 1e-3);
        json_decref(best);
        /* training has written the same down */
        const double noted = summary_number(out, 1, i ? "eval_loss/b" : "eval_loss/a");
        assert_true(noted > number_of(alone, "loss") * 0.99999 && noted < number_of(alone, "loss") * 1.00001);
        (void)summary_number(out, 1, i ? "ema_top1/b" : "ema_top1/a");
        loss += number_of(part, "loss") / 2;
        json_decref(alone);
    }
    assert_true(loss > number_of(together, "loss") * 0.99999 && loss < number_of(together, "loss") * 1.00001);
    json_decref(together);
    json_decref(ended);

    json_t *notes = read_json_file(test_path(folder, "out/args.json"));
    const json_t *noted = json_array_get(json_object_get(json_object_get(notes, "chosen"), "sets"), 1);
    assert_string_equal(json_string_value(json_object_get(noted, "path")), sets[1]);
    assert_int_equal(strlen(json_string_value(json_object_get(noted, "dataset_id"))), 32);
    assert_int_equal((int)number_of(noted, "epoch_samples"), 18);
    json_decref(notes);
    char *page = test_file_read(test_path(folder, "out/report.html"), NULL);
    assert_contains(page, "Evaluation by set");
    assert_contains(page, "set b");
    free(page);
}

TEST_IN_FOLDER(test_every_cache_holds_all_sets, folder)
{
    static const char *const caches[] = {"none", "ram", "pixels"};
    (void)pack_parts(folder);
    for (size_t i = 0; i < 3; i++)
        TRAINED(SHORT, "--cache", caches[i], "--set-weights", "1,0.5", test_path(folder, "a"),
                test_path(folder, "b"), test_path(folder, "%s", caches[i]));
    assert_same_file(folder, "none", "ram", true);
    assert_same_file(folder, "none", "pixels", true);
}

/* Writes a file with the labels of each record of pack_parts, "warm|a": the colour, and the set. */
static const char *write_labels(TestFolder *folder, bool several)
{
    static const char *const colours[] = {"red", "green", "blue"};
    const char *csv = test_path(folder, "labels.csv");
    Buffer rows = {0};
    FshError error = {0};
    for (int i = 0; i < 2 * 3 * 9; i++) {
        char row[96];
        const char *set = i % 2 ? "b" : "a";
        (void)snprintf(row, sizeof row, "%s/%s-%s/%03d,%s%s%s\n", i < 36 ? "train" : "val", set,
                       colours[i / 2 % 3], i / 6 % 6, i / 2 % 3 ? "cold" : "warm", several ? "|" : "",
                       !several    ? ""
                       : i / 6 % 2 ? set
                                   : "even");
        assert_ok(buffer_append(&rows, row, strlen(row), &error), &error);
    }
    test_file_write(csv, rows.bytes, rows.length);
    buffer_free(&rows);
    return csv;
}

/* Several labels are measured over the samples of each set alone. */
TEST_IN_FOLDER(test_several_labels_are_measured_apart, folder)
{
    (void)pack_parts(folder);
    const char *const sets[] = {test_path(folder, "a"), test_path(folder, "b")};
    const char *csv = write_labels(folder, true);
    RunResult result =
        TRAIN(0, SHORT, "--device", "cpu", "--labels", csv, sets[0], sets[1], test_path(folder, "out"));
    assert_contains(result.err, "multi-label");
    run_result_free(&result);
    result = TRAIN(0, "--device", "cpu", "--evaluate", "--json", "--batch-size", "4", "--weights",
                   LEARNT("out"), "--labels", csv, sets[0], sets[1]);
    json_t *together = read_json(result.out);
    run_result_free(&result);
    double maps[2];
    for (size_t i = 0; i < 2; i++) {
        const json_t *part = json_array_get(json_object_get(together, "sets"), i);
        result = TRAIN(0, "--device", "cpu", "--evaluate", "--json", "--batch-size", "4", "--weights",
                       LEARNT("out"), "--labels", csv, sets[i]);
        json_t *alone = read_json(result.out);
        maps[i] = number_of(part, "map");
        assert_true(number_of(alone, "map") == maps[i]);
        assert_true(number_of(alone, "f1_micro") == number_of(part, "f1_micro"));
        json_decref(alone);
        run_result_free(&result);
    }
    assert_true(maps[0] != number_of(together, "map") || maps[1] != number_of(together, "map"));
    json_decref(together);
}

/* Writes FOLDER/name.csv with a line for each sample of two sets of 6 and 3 images of each of `classes`: its
 * class, in set b so many classes on. sets: with the set before the key; else there is a line for both. */
static const char *write_set_labels(TestFolder *folder, const char *name, const char *const classes[COLOURS],
                                    int turn, bool sets)
{
    char text[8192] = "key,label\n";
    size_t length = strlen(text);
    for (int set = 0; set < (sets ? PARTS : 1); set++)
        for (int i = 0; i < COLOURS * 9; i++) {
            const int c = i / 9, number = i % 9;
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%s/%s/%03d.jpg,%s\n",
                                       !sets ? ""
                                       : set ? "b/"
                                             : "a/",
                                       number < 6 ? "train" : "val", classes[c], number % 6,
                                       classes[(c + set * turn) % COLOURS]);
        }
    const char *path = test_path(folder, "%s.csv", name);
    test_file_write_text(path, text);
    return path;
}

TEST_IN_FOLDER(test_a_line_may_name_its_set, folder)
{
    /* the same keys in both sets, of other images */
    static const char *const classes[COLOURS] = {"red", "green", "blue"}, *const turned[COLOURS] = {
                                                                              "green", "blue", "red"};
    (void)pack_named(folder, classes, 6, 3);
    if (rename(test_path(folder, "shards"), test_path(folder, "a")))
        fail_msg("rename");
    (void)pack_named(folder, turned, 6, 3);
    if (rename(test_path(folder, "shards"), test_path(folder, "b")))
        fail_msg("rename");
    const char *a = test_path(folder, "a"), *b = test_path(folder, "b");
    const char *same = write_set_labels(folder, "same", classes, 0, true),
               *other = write_set_labels(folder, "other", classes, 1, true);
    TRAINED(SHORT, a, b, test_path(folder, "records"));
    TRAINED(SHORT, "--labels", same, a, b, test_path(folder, "file"));
    assert_same_file(folder, "records", "file", true);
    TRAINED(SHORT, "--labels", other, a, b, test_path(folder, "other"));
    assert_true(weights_distance(LEARNT("other"), LEARNT("records")) > 0);
    /* of one of them alone, the lines of the other have no record */
    SAYS(0, "labels: 27 of 54 lines are of no record here: 'a/train/red/000.jpg'", CONV8, "--dry-run",
         "--labels", same, b);
    REFUSED(1, "of sets that train together, with the set's name before all", test_path(folder, "no"), CONV8,
            "--labels", write_set_labels(folder, "plain", classes, 0, false), a, b);
}

/* A choice is made of the union, and weights are of what is left of each set. */
TEST_IN_FOLDER(test_choices_and_labels_are_of_all_sets, folder)
{
    (void)pack_parts(folder);
    const char *a = test_path(folder, "a"), *b = test_path(folder, "b"), *csv = write_labels(folder, false);
    RunResult result = TRAIN(0, SHORT, "--where", "class != 'a-red'", "--limit", "50%", "--set-weights",
                             "2,1", a, b, test_path(folder, "chosen"));
    assert_contains(result.err, "set a: 6 samples of train, weight 2: 12 in an epoch, 6 of val");
    assert_contains(result.err, "set b: 9 samples of train, weight 1: 9 in an epoch, 9 of val");
    assert_contains(result.err, "split train: 15 samples, 21 drawn in an epoch, 5 steps of 4 (1 sample left");
    assert_contains(result.err, "5 of 6 classes");
    run_result_free(&result);
    result = TRAIN(0, SHORT, "--labels", csv, a, b, test_path(folder, "labels"));
    assert_contains(result.err, ", 2 classes, ");
    assert_contains(result.err, "single-label, of 54 records");
    run_result_free(&result);
}

/* ---- going on ---- */

TEST_IN_FOLDER(test_a_run_goes_on_with_its_sets_alone, folder)
{
    const char *both = pack_parts(folder), *a = test_path(folder, "a"), *b = test_path(folder, "b"),
               *out = test_path(folder, "stopped");
#define WEIGHTED                                                                                             \
    "--jobs", "1", CONV8, "--epochs", "3", "--batch-size", "4", "--checkpoint-interval", "3", "--resume",    \
        "auto"
    const char *const first[] = {WEIGHTED, "--set-weights", "0.5,1.5", a, b, out, NULL};
    TRAINED(WEIGHTED, "--set-weights", "0.5,1.5", a, b, test_path(folder, "whole"));
    kill_train(first);
    SAYS(1, "the run had other options: --set-weights 1,1.5 (was 0.5,1.5)", WEIGHTED, "--set-weights",
         "1,1.5", a, b, out);
    SAYS(1, "the run had other options: --set-weights not given (was 0.5,1.5)", WEIGHTED, a, b, out);
    SAYS(1, "is of a run on other sets than ", WEIGHTED, "--set-weights", "0.5,1.5", b, a, out);
    SAYS(1, ": it had a, b; give the same in the same order", WEIGHTED, a, out);
    SAYS(1, ": it had a, b, and not both; give the same", WEIGHTED, "--set-weights", "0.5,1.5", a, both, out);
    /* Where the sets lie does not matter. */
    if (rename(b, test_path(folder, "elsewhere")))
        fail_msg("rename");
    SAYS(0, "checkpoint.safetensors: epoch ", WEIGHTED, "--set-weights", "0.5,1.5", a,
         test_path(folder, "elsewhere"), out);
    assert_same_file(folder, "whole", "stopped", true);
}

/* An epoch may have more steps than there are samples. */
TEST_IN_FOLDER(test_a_run_of_heavy_sets_goes_on, folder)
{
    (void)pack_parts(folder);
    const char *a = test_path(folder, "a"), *b = test_path(folder, "b"),
               *out = test_path(folder, "heavy/stopped");
    const char *const first[] = {WEIGHTED, "--set-weights", "6,6", a, b, out, NULL};
    kill_train(first);
    SAYS(0, "checkpoint.safetensors: epoch ", WEIGHTED, "--set-weights", "6,6", a, b, out);
}

/* ---- ranks ---- */

TEST_IN_FOLDER(test_ranks_share_the_sets, folder)
{
    DatasetSpec pairs = rank_pairs(22, 5);
    const char *a = test_path(folder, "a"), *b = test_path(folder, "b"), *one = test_path(folder, "one"),
               *two = test_path(folder, "two");
    dataset_make(a, &pairs);
    pairs.train_count = 13;
    pairs.val_count = 2;
    dataset_make(b, &pairs);
#define UNEVEN RANKS_UNET("2"), "--set-weights", "1,0.7"
    TRAINED("--device", "cpu", UNEVEN, "--batch-size", "6", a, b, one);
    RanksResult result = RANKS(2, 0, UNEVEN, "--batch-size", "3", a, b, two);
    assert_contains(result.of[0].err, "set b: 13 samples of train, weight 0.7: 9 in an epoch, 2 of val");
    assert_contains(result.of[0].err, " * b  PSNR ");
    free_ranks(&result);
    assert_true(weights_distance(LEARNT("one"), LEARNT("two")) < 2e-6);
    static const char *const columns[] = {"eval_psnr/a", "eval_psnr/b", "eval_psnr"};
    for (size_t i = 0; i < 3; i++) {
        const double first = summary_number(one, 1, columns[i]), second = summary_number(two, 1, columns[i]);
        assert_true(first > 0 && first > second - 0.001 && first < second + 0.001);
    }

    /* Ranks with other sets do not train. */
    const char *const sets[2][2] = {{a, b}, {b, a}};
    RunningProgram running[2];
    for (int i = 0; i < 2; i++)
        running[i] = start_rank(i, 2, 7, NULL,
                                (const char *const[]){UNEVEN, "--batch-size", "3", sets[i][0], sets[i][1],
                                                      test_path(folder, "none"), NULL});
    RunResult refused[2] = {run_wait(&running[0]), run_wait(&running[1])};
    assert_int_equal(refused[0].exit_status, 2);
    assert_int_equal(refused[1].exit_status, 2);
    assert_contains(refused[0].err, "the ranks were not started alike: the dataset is ");
    assert_false(file_exists(test_path(folder, "none")));
    for (int i = 0; i < 2; i++)
        run_result_free(&refused[i]);
}

/* ---- refusals ---- */

TEST_IN_FOLDER(test_what_makes_no_sense_is_refused_before_anything_is_written, folder)
{
    (void)pack_parts(folder);
    const char *a = test_path(folder, "a"), *b = test_path(folder, "b"), *none = test_path(folder, "out");
    dataset_make(test_path(folder, "pairs"), &train_negatives);
    DatasetSpec untrained = train_plain;
    untrained.train_count = 0;
    dataset_make(test_path(folder, "untrained"), &untrained);
    REFUSED(1, "is the same dataset as ", none, CONV8, a, test_path(folder, "./a/"));
    REFUSED(1, "holds pairs of images, not classes", none, CONV8, a, test_path(folder, "pairs"));
    REFUSED(1, "holds pairs of images, and ", none, a, test_path(folder, "pairs"));
    REFUSED(1, "has no split 'train', which every set of a run needs", none, CONV8, a,
            test_path(folder, "untrained"));
    REFUSED(1, "is files that nobody has packed, which are no set of several", none, CONV8, a,
            test_path(folder, "images"));
    REFUSED(1, "--set-weights: 3 weights for 2 sets: a, b", none, CONV8, "--set-weights", "1,2,3", a, b);
    REFUSED(1, "--set-weights: 1 weight for 2 sets: a, b", none, CONV8, "--set-weights", "2", a, b);
    static const char *const wrong[] = {"1,0", "1,-1", "1,", "1,x", "1,nan", "1,inf", ",1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        REFUSED(2, "is not a number above 0 for each set", none, CONV8, "--set-weights", wrong[i], a, b);
    REFUSED(2, "--set-weights: does nothing here; it is for several datasets", none, CONV8, "--set-weights",
            "1", a);
    REFUSED(2, "--set-weights: does nothing here; it is for --sampler shuffle", none, CONV8, "--sampler",
            "balanced", "--set-weights", "1,2", a, b);
    SAYS(1, "it is a dataset, not an output folder", CONV8, a, b);
    TRAINED(SHORT, a, b, test_path(folder, "w"));
    SAYS(2, "--set-weights: does nothing with --evaluate", "--evaluate", "--weights", LEARNT("w"),
         "--set-weights", "1,2", a, b);
    SAYS(2, "--more-shards: does nothing with --predict", "--weights", LEARNT("w"), "--predict",
         test_path(folder, "p.csv"), "--more-shards", b, a);
    /* Without OUTPUT the last dataset is one. */
    SAYS(0, "set b: 18 samples", CONV8, "--dry-run", a, b);
    SAYS(0, "set b: 18 samples", CONV8, "--dry-run", a, b, test_path(folder, "foreseen"));
}
