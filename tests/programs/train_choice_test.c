/* ftrain from outside: samples and classes chosen when a run begins (--where, --classes, --limit). */
#include "tests/programs/ranks_support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"

#define CONV8     "--model", "conv8"
#define SHORT     CONV8, "--epochs", "2", "--batch-size", "4", "--force"
#define LEARNT(x) test_path(folder, x "/last.safetensors")

/* What is chosen in several ways is the same, and so is what is learnt of it. */
TEST_IN_FOLDER(test_choices_of_the_same_samples_learn_the_same, folder)
{
    const char *shards = pack_colours(folder, 8, 2), *list = test_path(folder, "list.txt");
    test_file_write_text(list, "green\nred\n");
    RunResult result = TRAIN(0, SHORT, "--where", "class != blue", shards, test_path(folder, "not"));
    assert_contains(result.err, ", 2 classes, ");
    assert_contains(result.err, "split train: 16 samples, 4 steps of 4");
    assert_contains(result.err,
                    "chosen: 16 of 24 samples of train, 4 of 6 samples of val, 2 of 3 classes, in ");
    assert_contains(result.err, "chosen: no sample of 'blue', which the network does not have");
    run_result_free(&result);
    TRAINED(SHORT, "--classes", list, shards, test_path(folder, "classes"));
    TRAINED(SHORT, "--where", "key ~ 'red/*' or key ~ 'green/*'", shards, test_path(folder, "keys"));
    char where[400];
    (void)snprintf(where, sizeof where, "class in %s", list);
    TRAINED(SHORT, "--where", where, shards, test_path(folder, "file"));
    TRAINED(SHORT, shards, test_path(folder, "all"));
    assert_same_file(folder, "not", "classes", true);
    assert_same_file(folder, "not", "keys", true);
    assert_same_file(folder, "not", "file", true);

    /* In the other order the last layer has other rows. */
    test_file_write_text(list, "red\ngreen\n");
    TRAINED(SHORT, "--classes", list, shards, test_path(folder, "order"));
    assert_same_file(folder, "not", "order", false);
    char *table = test_file_read(test_path(folder, "order/per_class.csv"), NULL);
    assert_true(strstr(table, "red") < strstr(table, "green"));
    free(table);
}

TEST_IN_FOLDER(test_every_cache_holds_the_chosen_samples_alone, folder)
{
    static const char *const caches[] = {"none", "ram", "pixels"};
    const char *shards = pack_colours(folder, 8, 2);
    for (size_t i = 0; i < 3; i++) {
        RunResult result = TRAIN(0, SHORT, "--where", "class != green", "--limit", "50%", "--cache",
                                 caches[i], shards, test_path(folder, "%s", caches[i]));
        if (i == 2)
            assert_contains(result.err, "train: 8 samples, 24 KiB of pixels");
        run_result_free(&result);
    }
    assert_same_file(folder, "none", "ram", true);
    assert_same_file(folder, "none", "pixels", true);
}

TEST_IN_FOLDER(test_the_choice_is_noted_and_compared, folder)
{
    const char *shards = pack_colours(folder, 8, 2), *page = test_path(folder, "page.html");
    const char *all = test_path(folder, "all"), *some = test_path(folder, "some"),
               *fewer = test_path(folder, "fewer");
    TRAINED(SHORT, shards, all);
    TRAINED(SHORT, "--where", "class != blue", "--limit", "5", shards, some);
    TRAINED(SHORT, "--limit", "5", shards, fewer);
    SAYS(0, "chosen: --limit leaves out none: it counts samples of each class", SHORT, "--limit", "8", "-n",
         shards, test_path(folder, "none"));
    json_t *notes = read_json_file(test_path(folder, "some/args.json"));
    const json_t *chosen = json_object_get(notes, "chosen"), *choice = json_object_get(chosen, "choice");
    assert_int_equal((int)number_of(chosen, "train_samples"), 10);
    assert_int_equal((int)number_of(chosen, "classes"), 2);
    assert_int_equal((int)number_of(choice, "train_samples_of"), 24);
    assert_int_equal(strlen(json_string_value(json_object_get(choice, "digest"))), 32);
    assert_string_equal(json_string_value(json_object_get(json_object_get(notes, "options"), "where")),
                        "class != blue");
    json_decref(notes);
    RunResult result = TRAIN(0, "--compare", "--output", page, all, some);
    assert_contains(result.out, "The runs were trained on different datasets");
    assert_contains(result.out, "class != blue");
    run_result_free(&result);
    result = TRAIN(0, "--compare", "--force", "--output", page, all, fewer); /* evaluated alike */
    assert_contains_not(result.out, "different datasets");
    assert_contains(result.out, "limit");
    run_result_free(&result);
    /* Options of the run that is named are those of the next one. */
    TRAINED("--config", test_path(folder, "some/args.json"), "--force", shards, test_path(folder, "again"));
    assert_same_file(folder, "some", "again", true);
}

TEST_IN_FOLDER(test_weights_are_evaluated_on_the_chosen_samples, folder)
{
    const char *shards = pack_colours(folder, 8, 2), *csv = test_path(folder, "table.csv");
    TRAINED(SHORT, shards, test_path(folder, "a"));
    static const char *const colours[] = {"red", "green", "blue"};
    double right = 0, whole = 0;
    for (size_t i = 0; i < 4; i++) {
        RunResult result = TRAIN(
            0, CONV8, "--evaluate", "--json", "--weights", LEARNT("a"), "--where",
            i < 3 ? test_path(folder, "class = %s", colours[i]) + strlen(folder->path) + 1 : "split = val",
            shards);
        json_t *object = read_json(result.out);
        assert_int_equal((int)number_of(object, "samples"), i < 3 ? 2 : 6);
        *(i < 3 ? &right : &whole) += number_of(object, "top1") * number_of(object, "samples");
        json_decref(object);
        run_result_free(&result);
    }
    assert_true(right > whole - 0.1 && right < whole + 0.1);
    TRAINED("--weights", LEARNT("a"), "--export", csv, "--where", "key ~ '*/*0' and class != red", shards);
    char *table = test_file_read(csv, NULL);
    assert_contains_not(table, "red/");
    assert_contains(table, "blue/");
    assert_true(count_lines(table) < 1 + 4);
    free(table);
}

/* A network of some of the classes is evaluated on the samples of these, as the options of its run choose
 * them; samples of the others are refused. */
TEST_IN_FOLDER(test_a_run_on_some_classes_is_evaluated_as_it_was_trained, folder)
{
    const char *shards = pack_colours(folder, 8, 2), *list = test_path(folder, "list.txt"),
               *csv = test_path(folder, "table.csv"), *notes = test_path(folder, "some/args.json");
    char where[400];
    test_file_write_text(list, "red\nblue\n"); /* stored as blue, green, red */
    (void)snprintf(where, sizeof where, "class in %s", list);
    TRAINED(SHORT, "--where", where, shards, test_path(folder, "some"));
    const double trained = summary_number(test_path(folder, "some"), 1, "eval_top1");
    for (int i = 0; i < 2; i++) {
        RunResult result = TRAIN(0, "--evaluate", "--json", "--weights", LEARNT("some"),
                                 i ? "--where" : "--config", i ? where : notes, shards);
        json_t *object = read_json(result.out);
        assert_int_equal((int)number_of(object, "samples"), 4);
        assert_true(number_of(object, "top1") > trained - 0.01 && number_of(object, "top1") < trained + 0.01);
        json_decref(object);
        assert_contains(result.err, "classes: 2, found by their names among the 2 of the weights");
        run_result_free(&result);
    }
    TRAINED("--weights", LEARNT("some"), "--export", csv, "--where", where, shards);
    char *table = test_file_read(csv, NULL);
    assert_contains_not(table, "green");
    assert_int_equal(count_lines(table), 1 + 4);
    free(table);
    SAYS(1, "1 of its 3 classes is not among the 2 of ", "--evaluate", "--weights", LEARNT("some"), shards);
    SAYS(1, "'green'; the weights alone know none; leave them out with --where \"class in FILE\"",
         "--evaluate", "--weights", LEARNT("some"), "--where", "class != red", shards);
}

/* ---- going on ---- */

TEST_IN_FOLDER(test_a_run_goes_on_with_its_choice_alone, folder)
{
    const char *shards = pack_colours(folder, 8, 2), *out = test_path(folder, "stopped"),
               *list = test_path(folder, "list.txt");
    test_file_write_text(list, "red\ngreen\n");
#define LIMITED                                                                                              \
    "--jobs", "1", CONV8, "--epochs", "4", "--batch-size", "2", "--checkpoint-interval", "3", "--resume",    \
        "auto"
    const char *const first[] = {LIMITED, "--classes", list, "--limit", "70%", shards, out, NULL};
    TRAINED(LIMITED, "--classes", list, "--limit", "70%", shards, test_path(folder, "whole"));
    kill_train(first);
    SAYS(1, "the run had other options: --limit 60% (was 70%)", LIMITED, "--classes", list, "--limit", "60%",
         shards, out);
    SAYS(1, "the run had other options: --limit not given (was 70%)", LIMITED, "--classes", list, shards,
         out);
    SAYS(1, "--where key ~ '*' (was not given)", LIMITED, "--classes", list, "--limit", "70%", "--where",
         "key ~ '*'", shards, out);
    test_file_write_text(list, "green\nred\n");
    SAYS(1, "checkpoint.safetensors: the run took other samples of ", LIMITED, "--classes", list, "--limit",
         "70%", shards, out);
    test_file_write_text(list, "red\ngreen\n");
    SAYS(0, "checkpoint.safetensors: epoch ", LIMITED, "--classes", list, "--limit", "70%", shards,
         out);
    assert_same_file(folder, "whole", "stopped", true);
}

/* ---- ranks ---- */

/* On any number of ranks the same samples are chosen, and a run goes on with others. */
TEST_IN_FOLDER(test_ranks_choose_alike, folder)
{
    const DatasetSpec pairs = rank_pairs(50, 10);
    const char *shards = make_set(folder, &pairs), *one = test_path(folder, "one"),
               *two = test_path(folder, "two"), *out = test_path(folder, "stopped");
#define CHOSEN RANKS_UNET("3"), "--where", "key ~ '*[02468]'", "--limit", "20"
    TRAINED("--device", "cpu", CHOSEN, "--batch-size", "6", shards, one);
    RanksResult result = RANKS(2, 0, CHOSEN, "--batch-size", "3", shards, two);
    assert_contains(result.of[0].err, "chosen: 20 of 50 samples of train, 5 of 10 samples of val");
    free_ranks(&result);
    assert_true(weights_distance(LEARNT("one"), LEARNT("two")) < 2e-6);
    const char *const first[] = {
        "--jobs", "1",    "--device", "cpu", CHOSEN, "--batch-size", "6", "--checkpoint-interval",
        "2",      shards, out,        NULL};
    kill_train(first);
    RANKS_TRAINED(2, CHOSEN, "--batch-size", "3", "--resume", "auto", shards, out);
    assert_true(weights_distance(LEARNT("one"), LEARNT("stopped")) < 2e-6);
    result = RANKS(2, 1, CHOSEN, "--batch-size", "3", "--seed", "3", "--resume", "auto", shards, out);
    assert_contains(result.of[0].err, "the run had other options: --seed 3 (was 0, the default)");
    free_ranks(&result);
}

/* ---- refusals ---- */

TEST_IN_FOLDER(test_what_cannot_be_chosen_is_refused_before_anything_is_written, folder)
{
    const char *shards = pack_colours(folder, 8, 2), *none = test_path(folder, "out"),
               *list = test_path(folder, "list.txt");
    test_file_write_text(list, "red\npurple\n");
    REFUSED(2,
            "--where: one of = != ~ !~ in, not in is expected at column 7, where 'on' stands: class >>>on x",
            none, CONV8, "--where", "class on x", shards);
    REFUSED(1, "--where: chooses none of the 24 samples of split 'train' of", none, CONV8, "--where",
            "key = x", shards);
    REFUSED(1, "--where: chooses none of the 6 samples of split 'val' of", none, CONV8, "--where",
            "split = train", shards);
    REFUSED(1, "--where: leaves one class, 'red'", none, CONV8, "--where", "class = red", shards);
    REFUSED(2, "'purple' is no class of the dataset", none, CONV8, "--where", "class = purple", shards);
    REFUSED(1, "list.txt:2: 'purple' is no class of", none, CONV8, "--classes", list, shards);
    REFUSED(2, "--limit: '0' is neither", none, CONV8, "--limit", "0", shards);
    REFUSED(1, "split 'val' has images of class 'red', split 'train' has none that were chosen", none, CONV8,
            "--where", "split = val or class != red", shards);
    dataset_make(test_path(folder, "pairs"), &train_negatives);
    REFUSED(2, "--where: the dataset has no classes; test its keys: class = >>>red", none, "--where",
            "class = red", test_path(folder, "pairs"));
    REFUSED(2, "--classes: ", none, "--classes", list, test_path(folder, "pairs"));
    TRAINED(SHORT, shards, test_path(folder, "a"));
    SAYS(2, "--limit: does nothing with --evaluate; it is for training", CONV8, "--evaluate", "--weights",
         LEARNT("a"), "--limit", "10%", shards);
    SAYS(2, "--where: does nothing with images that nobody has packed; it is for datasets", "--weights",
         LEARNT("a"), "--predict", test_path(folder, "p.csv"), "--where", "class = red",
         test_path(folder, "images/val/red/000.jpg"));
}
