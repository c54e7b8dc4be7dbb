/* ftrain from outside: which samples an epoch consists of, and how much each counts. */
#include "tests/programs/train_support.h"

#include <stdlib.h>
#include <string.h>

#define CONV8 "--model", "conv8"

TEST_IN_FOLDER(test_repeats_are_told_and_change_what_is_learnt, folder)
{
    const char *shards = make_set(folder, &train_plain);
    SAYS(0, "split train: 40 samples, 5 steps of 8, each sample 3 times: 14 of them in an epoch", CONV8,
         "--batch-size", "8", "--aug-repeats", "3", "--dry-run", shards);
    static const char *const names[] = {"none", "zero", "one", "three"}, *const repeats[] = {"0", "1", "3"};
    TRAINED(CONV8, "--epochs", "2", "--batch-size", "8", shards, test_path(folder, "none"));
    for (size_t i = 0; i < 3; i++)
        TRAINED(CONV8, "--epochs", "2", "--batch-size", "8", "--aug-repeats", repeats[i], shards,
                test_path(folder, "%s", names[i + 1]));
    assert_same_file(folder, "none", "zero", true);
    assert_same_file(folder, "none", "one", true);
    assert_same_file(folder, "none", "three", false);
    REFUSED(2, "--aug-repeats: does nothing here; it is for random views", test_path(folder, "out"), CONV8,
            "--aug-repeats", "3", "--no-aug", shards);
}

TEST_IN_FOLDER(test_balanced_epochs_are_told, folder)
{
    const char *shards = make_set(folder, &train_plain);
    SAYS(0, "split train: 40 samples, 5 steps of 8, each class equally often", CONV8, "--batch-size", "8",
         "--sampler", "balanced", "--dry-run", shards);
    TRAINED(CONV8, "--epochs", "2", "--batch-size", "8", shards, test_path(folder, "plain"));
    TRAINED(CONV8, "--epochs", "2", "--batch-size", "8", "--sampler", "balanced", shards,
            test_path(folder, "balanced"));
    assert_same_file(folder, "plain", "balanced", false);
    const char *none = test_path(folder, "out");
    dataset_make(test_path(folder, "pairs"), &train_negatives);
    REFUSED(2, "--sampler: does nothing here; it is for classes", none, "--sampler", "balanced",
            test_path(folder, "pairs"));
}

/* ---- weights of classes ---- */

/* Weights that are all alike change nothing, to the bit, whatever they are. */
TEST_IN_FOLDER(test_weights_of_classes_count_against_each_other, folder)
{
    const char *shards = make_set(folder, &train_plain), *file = test_path(folder, "weights.txt");
    static const char *const losses[] = {"cross-entropy", "bce"};
    for (size_t i = 0; i < 2; i++) {
#define SHORT                                                                                                \
    CONV8, "--epochs", "2", "--batch-size", "8", "--label-smoothing", "0", "--loss", losses[i], "--force"
        TRAINED(SHORT, shards, test_path(folder, "plain"));
        test_file_write_text(file, "1\n1\n1\n1\n");
        TRAINED(SHORT, "--class-weights", file, shards, test_path(folder, "ones"));
        assert_same_file(folder, "plain", "ones", true);
        test_file_write_text(file, "4\n4\n4\n4\n");
        TRAINED(SHORT, "--class-weights", file, shards, test_path(folder, "fours"));
        assert_same_file(folder, "plain", "fours", i == 0); /* of cross-entropy they are relative */
        test_file_write_text(file, "1\n1\n1\n0.5\n");
        SAYS(0, ", classes weighted from 0.5 to 1", SHORT, "--class-weights", file, shards,
             test_path(folder, "other"));
        assert_same_file(folder, "plain", "other", false);
    }
}

TEST_IN_FOLDER(test_balanced_weights_of_classes_are_told, folder)
{
    DatasetSpec spec = train_plain;
    spec.train_count = 39; /* one class has 9 samples, three have 10 */
    const char *shards = make_set(folder, &spec), *none = test_path(folder, "out");
    SAYS(0, "cross-entropy (label smoothing 0.1), classes weighted from 0.975 to 1.08", CONV8,
         "--class-weights", "balanced", "--dry-run", shards);
    TRAINED(CONV8, "--epochs", "1", "--class-weights", "balanced", "--mixup-alpha", "0.2", "--sampler",
            "balanced", shards, test_path(folder, "all"));
    REFUSED(1, "cannot open: No such file", none, CONV8, "--class-weights", test_path(folder, "nothing.txt"),
            shards);
    dataset_make(test_path(folder, "pairs"), &train_negatives);
    REFUSED(2, "--class-weights: does nothing here; it is for classes", none, "--class-weights", "balanced",
            test_path(folder, "pairs"));
}
