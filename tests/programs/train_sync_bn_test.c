/* ftrain --sync-bn as several ranks, on the CPU: k ranks of b do what one process does with a batch of k * b,
 * as exactly as float32 lets them. sync_norm_test.c looks closer, at a network without kinks. */
#include "tests/programs/ranks_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEEDS = 8 };

/* 8 samples are one step of all ranks. */
static const DatasetSpec one_step = {.codec = FSH_CODEC_RAW,
                                     .width = 32,
                                     .height = 32,
                                     .channels = 3,
                                     .class_count = 4,
                                     .train_count = 8,
                                     .val_count = 9,
                                     .shard_count = 2};

#define ONE_UPDATE(network, seed)                                                                            \
    "--amp", "off", "--model", network, "--seed", seed, "--epochs", "1", "--opt", "sgd", "--lr", "0.02",     \
        "--lr-warmup-epochs", "0"

/* Returns how far the weights of a run are from those of FOLDER/one. */
static double far_from_one(TestFolder *folder, const char *run)
{
    return weights_distance(test_path(folder, "one/last.safetensors"),
                            test_path(folder, "%s/last.safetensors", run));
}

/* Makes one update with so many ranks, as one process and --sync-bn do it, and compares. */
static double compare_ranks(TestFolder *folder, const char *network, const char *seed, int ranks,
                            const char *batch)
{
    static const char *const columns[] = {"train_loss", "eval_loss"};
    const char *shards = test_path(folder, "set"), *out = test_path(folder, "ranks");
    RANKS_TRAINED(ranks, ONE_UPDATE(network, seed), "--batch-size", batch, "--sync-bn", "--force", shards,
                  out);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        const double a = summary_number(test_path(folder, "one"), 0, columns[i]),
                     b = summary_number(out, 0, columns[i]);
        if (!(fabs(a - b) <= 1e-4 * fabs(a)))
            fail_msg("%s, %d ranks: %s is %g, of one process %g", network, ranks, columns[i], b, a);
    }
    return far_from_one(folder, "ranks");
}

/* Two and four ranks must make the update of one process. Where a value lies at the kink of a ReLU, or two
 * are the maximum, the last bit decides, and a gradient may differ in its fifth digit: then another seed is
 * looked at. A norm of other statistics is a thousand times further off, whatever the seed. */
static void compare_one_update(TestFolder *folder, const char *network)
{
    const char *shards = make_set(folder, &one_step), *one = test_path(folder, "one");
    double two = 1, four = 1, own = 1;
    for (int seed = 1; seed <= SEEDS && !(two < 1e-6 && four < 1e-6); seed++) {
        char text[8];
        (void)snprintf(text, sizeof text, "%d", seed);
        TRAINED("--device", "cpu", ONE_UPDATE(network, text), "--batch-size", "8", "--force", shards, one);
        const double two_now = compare_ranks(folder, network, text, 2, "4"),
                     four_now = compare_ranks(folder, network, text, 4, "2");
        RANKS_TRAINED(2, ONE_UPDATE(network, text), "--batch-size", "4", "--force", shards,
                      test_path(folder, "own"));
        own = far_from_one(folder, "own");
        print_message("%s, seed %d, one update: 2 ranks %.2g, 4 ranks %.2g; norms of their own %.2g\n",
                      network, seed, two_now, four_now, own);
        assert_true(own > 10 * two_now && own > 10 * four_now);
        two = fmin(two, two_now);
        four = fmin(four, four_now);
    }
    if (!(two < 1e-6) || !(four < 1e-6))
        fail_msg("%s: with every seed 2 ranks are %g and 4 ranks %g or more from one process", network, two,
                 four);
}

TEST_IN_FOLDER(test_ranks_make_one_update_of_resnet9_as_one_process_does, folder)
{
    compare_one_update(folder, "resnet9");
}

/* Its last images are of one pixel. */
TEST_IN_FOLDER(test_ranks_make_one_update_of_resnet18_as_one_process_does, folder)
{
    compare_one_update(folder, "resnet18");
}

TEST_IN_FOLDER(test_the_log_tells_whose_batch_norms_see, folder)
{
    const char *shards = make_set(folder, &one_step);
    RanksResult result = RANKS(2, 0, "--model", "conv8", "--epochs", "1", "--batch-size", "4", "--sync-bn",
                               shards, test_path(folder, "two"));
    assert_contains(result.of[0].err, "batch norms: statistics of the batches of all ranks");
    free_ranks(&result);
    SAYS(0, "batch norms: statistics of this process's batch: --sync-bn is for several ranks", "--device",
         "cpu", "--model", "conv8", "--epochs", "1", "--batch-size", "8", "--sync-batchnorm", shards,
         test_path(folder, "one"));
    const DatasetSpec pairs = {.codec = FSH_CODEC_RAW,
                               .width = 16,
                               .height = 16,
                               .channels = 3,
                               .class_count = 2,
                               .train_count = 4,
                               .shard_count = 1,
                               .kind = FSH_KIND_PAIRS};
    dataset_make(test_path(folder, "pairs"), &pairs);
    REFUSED(2, "--sync-bn: does nothing here; it is for networks with batch norms", test_path(folder, "no"),
            "--device", "cpu", "--model", "unet", "--sync-bn", test_path(folder, "pairs"));
}
