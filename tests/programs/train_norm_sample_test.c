/* ftrain --norm-sample on the CPU: how a run tells that it samples, and what is refused. sync_norm_test.c and
 * op_cases.c look at the arithmetic. */
#include "tests/programs/ranks_support.h"
#include "tests/programs/sync_bn_support.h"

#include <stdlib.h>

#define CONV8 "--device", "cpu", "--model", "conv8", "--epochs", "1"

/* Returns whether a file of a run holds a part. */
static void assert_file_has(const char *path, const char *part)
{
    char *text = test_file_read(path, NULL);
    assert_contains(text, part);
    free(text);
}

TEST_IN_FOLDER(test_a_run_that_samples_is_told_apart, folder)
{
    const char *shards = make_set(folder, &train_plain);
    const char *plain = test_path(folder, "plain"), *sampled = test_path(folder, "sampled");
    TRAINED(CONV8, "--batch-size", "8", shards, plain);
    RunResult result = TRAIN(0, CONV8, "--batch-size", "8", "--norm_sample", "4", "--json", shards, sampled);
    assert_contains(result.err, "batch norms: statistics of one image in 4 (2 of 8) of each batch");
    json_t *object = read_json(result.out);
    assert_int_equal(json_integer_value(json_object_get(object, "norm_sample")), 4);
    json_decref(object);
    run_result_free(&result);
    assert_file_has(test_path(folder, "sampled/args.json"), "\"norm_sample\": 4");
    assert_file_has(test_path(folder, "plain/args.json"), "\"norm_sample\": 1");
    assert_file_has(test_path(folder, "sampled/report.html"), "one image in 4 (2 of 8) of each batch");

    result = TRAIN(0, "--compare", "--output", test_path(folder, "page.html"), plain, sampled);
    assert_contains(result.out, "norm-sample 1");
    assert_contains(result.out, "norm-sample 4");
    run_result_free(&result);

    double losses[2];
    for (int i = 0; i < 2; i++)
        losses[i] = summary_number(i ? sampled : plain, 0, "train_loss");
    assert_true(losses[0] != losses[1]);

    /* It goes on as what it is. */
    REFUSED(1, "--norm-sample 2 (was 4)", test_path(folder, "none"), CONV8, "--batch-size", "8",
            "--norm-sample", "2", "--resume", test_path(folder, "sampled/checkpoint.safetensors"), shards);
}

TEST_IN_FOLDER(test_it_samples_each_batch_of_an_update_and_of_each_rank, folder)
{
    const char *shards = make_set(folder, &sync_bn_set);
    TRAINED(CONV8, "--batch-size", "4", "--grad-accum-steps", "2", "--norm-sample", "4", shards,
            test_path(folder, "accumulated"));
    RanksResult result = RANKS(2, 0, "--model", "conv8", "--epochs", "1", "--batch-size", "4", "--sync-bn",
                               "--norm-sample", "2", shards, test_path(folder, "two"));
    assert_contains(result.of[0].err,
                    "batch norms: statistics of one image in 2 (2 of 4) of the batches of all ranks");
    free_ranks(&result);
}

TEST_IN_FOLDER(test_what_makes_no_sense_is_refused, folder)
{
    const char *no = test_path(folder, "no"), *shards = make_set(folder, &train_plain);
    REFUSED(2,
            "--norm-sample: there is no one image in 16 in a batch of 8; give 8 or less, or a larger "
            "--batch-size",
            no, CONV8, "--batch-size", "8", "--norm-sample", "16", shards);
    REFUSED(2, "norm-sample", no, CONV8, "--norm-sample", "0", shards);
    REFUSED(2, "--norm-sample: with --on-error skip an image that is left out", no, CONV8, "--batch-size",
            "8", "--norm-sample", "4", "--on-error", "skip", shards);
    TRAINED(CONV8, "--batch-size", "8", "--norm-sample", "1", "--on-error", "skip", shards,
            test_path(folder, "all"));
    test_folder_remove(folder);
    test_folder_make(folder);
    REFUSED(2, "--norm-sample: does nothing here; it is for networks with batch norms",
            test_path(folder, "no"), "--device", "cpu", "--model", "unet", "--norm-sample", "2",
            make_set(folder, &train_few_pairs));
}
