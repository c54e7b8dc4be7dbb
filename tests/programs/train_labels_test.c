/* ftrain --labels: labels in a file beside the shards, single, several, and numbers. */
#include "tests/programs/ranks_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONV8 "--model", "conv8", "--device", "cpu"
#define SHORT CONV8, "--epochs", "2", "--batch-size", "8", "--force"

/* Writes FOLDER/name: a header and a line for each sample of train_plain, in whose place `format` is given
 * its split, its class and its number. */
static const char *write_labels(TestFolder *folder, const char *name, const char *header,
                                void (*line)(char *text, size_t bytes, unsigned label))
{
    static const struct {
        const char *split;
        unsigned samples;
    } splits[] = {{"train", 40}, {"val", 8}};
    char *text = calloc(1, 16384);
    const char *path = test_path(folder, "%s", name);
    assert_non_null(text);
    size_t length = (size_t)snprintf(text, 16384, "%s", header);
    for (size_t s = 0; s < 2; s++)
        for (unsigned i = 0; i < splits[s].samples; i++) {
            char label[64];
            line(label, sizeof label, i % 4);
            length += (size_t)snprintf(text + length, 16384 - length, "%s/class%02u/%06u.png,%s\n",
                                       splits[s].split, i % 4, i, label);
        }
    test_file_write_text(path, text);
    free(text);
    return path;
}

static void own_class(char *text, size_t bytes, unsigned label)
{
    (void)snprintf(text, bytes, "class%02u", label);
}

static void one_of_four(char *text, size_t bytes, unsigned label)
{
    (void)snprintf(text, bytes, "%d,%d,%d,%d", label == 0, label == 1, label == 2, label == 3);
}

static void two_labels(char *text, size_t bytes, unsigned label)
{
    (void)snprintf(text, bytes, "%s|%s", label % 2 ? "odd" : "even", label < 2 ? "low" : "high");
}

static void two_numbers(char *text, size_t bytes, unsigned label)
{
    (void)snprintf(text, bytes, "%u,%g", label, 1 - label / 2.0);
}

#define ONE_OF_FOUR "key,class00,class01,class02,class03\n"

static char *read_text(const char *path)
{
    size_t length;
    return test_file_read(path, &length);
}

/* ---- one label ---- */

TEST_IN_FOLDER(test_labels_of_a_file_are_those_of_the_records_bit_for_bit, folder)
{
    const char *shards = make_set(folder, &train_plain),
               *labels = write_labels(folder, "one.csv", "file_name,label\n", own_class);
    TRAINED(SHORT, "--mixup-alpha", "0.4", "--sampler", "balanced", "--class-weights", "balanced", shards,
            test_path(folder, "records"));
    SAYS(0, "one.csv, single-label, of 48 records", SHORT, "--mixup-alpha", "0.4", "--sampler", "balanced",
         "--class-weights", "balanced", "--labels", labels, shards, test_path(folder, "file"));
    assert_same_file(folder, "records", "file", true);
    RunResult result = TRAIN(0, "--evaluate", "--weights", test_path(folder, "file/last.safetensors"),
                             "--device", "cpu", "--json", "--labels", labels, shards);
    RunResult plain = TRAIN(0, "--evaluate", "--weights", test_path(folder, "records/last.safetensors"),
                            "--device", "cpu", "--json", shards);
    json_t *ours = read_json(result.out), *theirs = read_json(plain.out);
    assert_true(number_of(ours, "top1") == number_of(theirs, "top1"));
    assert_true(number_of(ours, "loss") == number_of(theirs, "loss"));
    json_decref(ours);
    json_decref(theirs);
    run_result_free(&result);
    run_result_free(&plain);
}

TEST_IN_FOLDER(test_labels_that_do_not_fit_are_told, folder)
{
    const char *shards = make_set(folder, &train_plain), *none = test_path(folder, "out"),
               *labels = write_labels(folder, "one.csv", "", own_class),
               *other = test_path(folder, "other.csv");
    test_file_write_text(other, "class00/000000,a\ntrain/class01/000001.png,b\nnobody,c\n");
    REFUSED(1, "other.csv:1: its key is that of val/class00/000000 and of another record", none, CONV8,
            "--labels", other, shards);
    test_file_write_text(other, "train/class00/000000,a\ntrain/class01/000001.png,b\nnobody,c\n");
    REFUSED(1, "other.csv: has no label for 46 of 48 records: 'class02/000002', ", none, CONV8, "--labels",
            other, shards);
    REFUSED(1, "1 of its 3 lines have no record: 'nobody'", none, CONV8, "--labels", other, shards);
    REFUSED(1, "--where \"key in FILE\" takes the records of a list alone", none, CONV8, "--labels", other,
            shards);
    REFUSED(1, "other.csv: cannot open", none, CONV8, "--labels", labels, "--val-labels",
            test_path(folder, "no/other.csv"), shards);
    REFUSED(2, "--label-names: does nothing here; it is for --labels", none, CONV8, "--label-names", other,
            shards);
    REFUSED(2, "--pos-weight: does nothing here; it is for images of several labels", none, CONV8,
            "--pos-weight", "2", "--labels", labels, shards);
    REFUSED(2, "--loss: mse is for pairs, and this dataset holds classes", none, CONV8, "--loss", "mse",
            "--labels", labels, shards);
    dataset_make(test_path(folder, "pairs"), &train_negatives);
    REFUSED(1, "holds pairs of images, which have no labels", none, "--labels", labels,
            test_path(folder, "pairs"));
}

/* Labels and lists of keys may be of some records alone; those of the split that only training reads are
 * told as such in an evaluation. */
TEST_IN_FOLDER(test_a_part_of_the_records_is_labelled_and_chosen, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out"),
               *labels = write_labels(folder, "some.csv", "", own_class),
               *keys = test_path(folder, "keys.txt");
    char where[400], list[1000] = "", *text = test_file_read(labels, NULL);
    (void)snprintf(where, sizeof where, "key in %s", keys);
    for (unsigned i = 0; i < 36; i++)
        (void)snprintf(list + strlen(list), sizeof list - strlen(list), "class%02u/%06u\n", i % 4, i);
    test_file_write_text(keys, list);
    char *last_four = strstr(text, "train/class00/000036"), *val = strstr(text, "val/");
    memmove(last_four, val, strlen(val) + 1);
    test_file_write_text(labels, text);
    free(text);
    RunResult result = TRAIN(0, CONV8, "--epochs", "1", "--batch-size", "4", "--labels", labels, "--where",
                             where, shards, out);
    assert_contains(result.err, "chosen: 36 of 40 samples of train");
    assert_contains_not(result.err, "no sample's key");
    assert_contains_not(result.err, "of no record here");
    run_result_free(&result);
    result = TRAIN(0, "--evaluate", "--weights", test_path(folder, "out/last.safetensors"), "--labels",
                   labels, "--where", where, shards);
    static const char other[] = "; not looked at: the other samples, of train\n";
    for (int i = 0; i < 2; i++) {
        const char *told = strstr(result.err, i ? "of no record here" : "no sample's key");
        assert_non_null(told);
        told = strchr(told, '\n') + 1;
        assert_memory_equal(told - strlen(other), other, strlen(other));
    }
    run_result_free(&result);
}

/* ---- several ---- */

/* Compares a column of two runs. */
static void assert_near(const char *a, const char *b, const char *column)
{
    for (size_t epoch = 0; epoch < 2; epoch++) {
        const double x = summary_number(a, epoch, column), y = summary_number(b, epoch, column);
        if (!(fabs(x - y) <= 2e-5 * fabs(x)))
            fail_msg("epoch %zu: %s %g and %g", epoch, column, x, y);
    }
}

/* With one label of each image, several labels are binary cross-entropy of classes, mixed images too. */
TEST_IN_FOLDER(test_rows_of_one_label_are_binary_cross_entropy, folder)
{
    const char *shards = make_set(folder, &train_plain),
               *labels = write_labels(folder, "many.csv", ONE_OF_FOUR, one_of_four),
               *classes = test_path(folder, "classes"), *rows = test_path(folder, "rows");
    static const char *const mixings[] = {"--no-aug", "--mixup-alpha=0.8", "--cutmix-alpha=1"};
    for (size_t i = 0; i < sizeof mixings / sizeof *mixings; i++) {
#define BINARY SHORT, "--loss", "bce", "--opt", "sgd", "--lr", "0.01", mixings[i]
        TRAINED(BINARY, "--label-smoothing", "0", shards, classes);
        TRAINED(BINARY, "--labels", labels, shards, rows);
        assert_near(classes, rows, "train_loss");
        assert_near(classes, rows, "eval_loss");
        assert_true(weights_distance(test_path(folder, "classes/last.safetensors"),
                                     test_path(folder, "rows/last.safetensors")) < 1e-4);
    }
    TRAINED(SHORT, "--labels", labels, "--pos-weight", "balanced", "--class-weights", "balanced",
            "--model-ema", shards, test_path(folder, "weighted"));
    TRAINED(SHORT, "--labels", labels, "--model-ema", shards, test_path(folder, "plain"));
    assert_same_file(folder, "weighted", "plain", false);
    assert_true(isfinite(summary_number(test_path(folder, "weighted"), 1, "ema_map")));
}

TEST_IN_FOLDER(test_several_labels_are_learnt_measured_and_predicted, folder)
{
    const char *shards = make_set(folder, &train_plain),
               *labels = write_labels(folder, "many.csv", "", two_labels), *out = test_path(folder, "out"),
               *weights = test_path(folder, "out/model_best.safetensors");
    RunResult result =
        TRAIN(0, CONV8, "--epochs", "12", "--batch-size", "4", "--no-aug", "--labels", labels, shards, out);
    assert_contains(result.err, "4 classes, ");
    assert_contains(result.err, "12 epochs, bce, ");
    assert_contains(result.out, "best mAP ");
    run_result_free(&result);
    assert_true(summary_number(out, 11, "eval_map") > 90);
    assert_true(summary_number(out, 11, "eval_f1") > 60);
    char *table = read_text(test_path(folder, "out/per_class.csv"));
    assert_contains(table,
                    "index,class,samples,correct,predicted,average_precision,recall,precision,f1\n0,even,4,");
    free(table);
    TRAINED("--predict", test_path(folder, "predicted"), "--weights", weights, "--device", "cpu", "--labels",
            labels, shards);
    table = read_text(test_path(folder, "predicted/predictions.csv"));
    assert_contains(table, "key,labels,predictions,even,high,low,odd\nclass00/000000,even|low,");
    assert_int_equal(count_lines(table), 9);
    free(table);
    SAYS(1, "is a multi-label network; ", "--evaluate", "--weights", weights, "--device", "cpu", shards);
    /* Ranks evaluate parts, and measure the whole. */
    result =
        TRAIN(0, "--evaluate", "--weights", weights, "--device", "cpu", "--json", "--labels", labels, shards);
    RanksResult ranks = RANKS(2, 0, "--evaluate", "--weights", weights, "--batch-size", "2", "--json",
                              "--labels", labels, shards);
    json_t *one = read_json(result.out), *two = read_json(ranks.of[0].out);
    static const char *const measured[] = {"map", "f1", "f1_micro", "samples"};
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
        assert_true(fabs(number_of(one, measured[i]) - number_of(two, measured[i])) < 1e-9);
    assert_int_equal(json_array_size(json_object_get(one, "classes")), 4);
    json_decref(one);
    json_decref(two);
    run_result_free(&result);
    free_ranks(&ranks);
}

TEST_IN_FOLDER(test_a_run_goes_on_with_its_own_labels_alone, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out"),
               *labels = write_labels(folder, "many.csv", "", two_labels);
#define RESUMED CONV8, "--epochs", "2", "--batch-size", "8", "--resume", "auto"
    TRAINED(RESUMED, "--labels", labels, shards, out);
    TRAINED(RESUMED, "--labels", labels, shards, out);
    SAYS(1, "is of a run on other classes than those of", RESUMED, shards, out);
    replace_in_file(labels, "000000.png,even|low", "000000.png,even|odd");
    SAYS(1, "is of a run with other labels than those of --labels", RESUMED, "--labels", labels, shards, out);
}

/* ---- numbers ---- */

TEST_IN_FOLDER(test_numbers_are_learnt_measured_and_predicted, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out"),
               *labels = write_labels(folder, "numbers.csv", "key,digit,slope\n", two_numbers),
               *none = test_path(folder, "none");
    static const char *const losses[] = {"mse", "l1", "huber"};
    for (size_t i = 0; i < 3; i++) {
        RunResult result =
            TRAIN(0, CONV8, "--epochs", "12", "--batch-size", "4", "--no-aug", "--problem-type", "regression",
                  "--labels", labels, "--loss", losses[i], "--lr", "0.01", "--force", shards, out);
        assert_contains(result.err, "2 numbers of each image, ");
        assert_contains(result.out, "best MAE ");
        run_result_free(&result);
        const double first = summary_number(out, 0, "eval_mae"), last = summary_number(out, 11, "eval_mae");
        if (!(last < 0.5 && last < first && summary_number(out, 11, "eval_rmse") >= last))
            fail_msg("%s: MAE from %g to %g", losses[i], first, last);
    }
    TRAINED("--predict", test_path(folder, "predicted"), "--weights",
            test_path(folder, "out/model_best.safetensors"), "--device", "cpu", "--labels", labels,
            "--problem-type", "regression", shards);
    char *table = read_text(test_path(folder, "predicted/predictions.csv"));
    assert_contains(table, "key,digit_target,slope_target,digit,slope\nclass00/000000,0,1,");
    free(table);
    REFUSED(2, "--loss: bce is for classes, and this dataset holds numbers", none, CONV8, "--loss", "bce",
            "--problem-type", "regression", "--labels", labels, shards);
    REFUSED(2, "--early-stop-metric: top1 is measured on classes, and this dataset holds numbers", none,
            CONV8, "--early-stop-patience", "1", "--early-stop-metric", "top1", "--problem-type",
            "regression", "--labels", labels, shards);
    REFUSED(2, "--label-smoothing: does nothing here; it is for classes", none, CONV8, "--label-smoothing",
            "0.1", "--problem-type", "regression", "--labels", labels, shards);
}
