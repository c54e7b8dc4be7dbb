/* ftrain --sync-bn as several ranks, on the CPU: k ranks of b do what one process does with a batch of k * b,
 * as exactly as float32 lets them. sync_norm_test.c looks closer, at a network without kinks. */
#include "tests/programs/ranks_support.h"
#include "tests/programs/sync_bn_support.h"

static void compare_on_cpu(TestFolder *folder, const char *network)
{
    (void)make_set(folder, &sync_bn_set);
    compare_sync_update(folder, "cpu", network, 2, 1e-6);
    compare_sync_update(folder, "cpu", network, 4, 1e-6);
}

TEST_IN_FOLDER(test_ranks_make_one_update_of_resnet9_as_one_process_does, folder)
{
    compare_on_cpu(folder, "resnet9");
}

/* Its last images are of one pixel. */
TEST_IN_FOLDER(test_ranks_make_one_update_of_resnet18_as_one_process_does, folder)
{
    compare_on_cpu(folder, "resnet18");
}

TEST_IN_FOLDER(test_the_log_tells_whose_batch_norms_see, folder)
{
    const char *shards = make_set(folder, &sync_bn_set);
    RanksResult result = RANKS(2, 0, "--model", "conv8", "--epochs", "1", "--batch-size", "4", "--sync-bn",
                               shards, test_path(folder, "two"));
    assert_contains(result.of[0].err, "batch norms: statistics of the batches of all ranks");
    free_ranks(&result);
    SAYS(0, "batch norms: statistics of this process's batch: --sync-bn is for several ranks", "--device",
         "cpu", "--model", "conv8", "--epochs", "1", "--batch-size", "8", "--sync-batchnorm", shards,
         test_path(folder, "one"));
}

TEST_IN_FOLDER(test_a_network_without_batch_norms_has_nothing_to_sync, folder)
{
    const char *shards = make_set(folder, &train_few_pairs);
    REFUSED(2, "--sync-bn: does nothing here; it is for networks with batch norms", test_path(folder, "no"),
            "--device", "cpu", "--model", "unet", "--sync-bn", shards);
}
