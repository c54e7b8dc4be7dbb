/* ftrain from outside: which samples an epoch consists of, and how long a run is. */
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
