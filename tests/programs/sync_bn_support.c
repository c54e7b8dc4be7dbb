#include "tests/programs/sync_bn_support.h"

#include <math.h>
#include <stdio.h>

#include "tests/programs/ranks_support.h"

enum { SEEDS = 8 };

const DatasetSpec sync_bn_set = {.codec = FSH_CODEC_RAW,
                                 .width = 32,
                                 .height = 32,
                                 .channels = 3,
                                 .class_count = 4,
                                 .train_count = 8,
                                 .val_count = 9,
                                 .shard_count = 2};

typedef struct Update {
    const char *device, *network, *amp;
    int seed;
} Update;

/* Makes the update with so many ranks, into FOLDER/NAME. */
static void make_update(TestFolder *folder, const Update *update, int ranks, bool sync, const char *name)
{
    char seed[8], batch[8], count[8];
    (void)snprintf(seed, sizeof seed, "%d", update->seed);
    (void)snprintf(batch, sizeof batch, "%d", (int)sync_bn_set.train_count / ranks);
    (void)snprintf(count, sizeof count, "%d", ranks);
    const char *shards = test_path(folder, "set"), *out = test_path(folder, "%s", name);
    const char *const arguments[] = {"--jobs",
                                     "1",
                                     "--device",
                                     update->device,
                                     "--gpus",
                                     count,
                                     "--model",
                                     update->network,
                                     "--amp",
                                     update->amp,
                                     "--seed",
                                     seed,
                                     "--epochs",
                                     "1",
                                     "--opt",
                                     "sgd",
                                     "--lr",
                                     "0.02",
                                     "--lr-warmup-epochs",
                                     "0",
                                     "--deterministic",
                                     "--batch-size",
                                     batch,
                                     "--force",
                                     shards,
                                     out,
                                     sync ? "--sync-bn" : NULL,
                                     NULL};
    RunResult result = expect_train(0, NULL, arguments);
    run_result_free(&result);
}

/* Returns how far the weights of a run are from those of FOLDER/one. */
static double far_from_one(TestFolder *folder, const char *run)
{
    return weights_distance(test_path(folder, "one/last.safetensors"),
                            test_path(folder, "%s/last.safetensors", run));
}

static void compare_losses(TestFolder *folder, const Update *update, int ranks)
{
    static const char *const columns[] = {"train_loss", "eval_loss"};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        const double a = summary_number(test_path(folder, "one"), 0, columns[i]),
                     b = summary_number(test_path(folder, "ranks"), 0, columns[i]);
        if (!(fabs(a - b) <= 1e-4 * fabs(a)))
            fail_msg("%s, %d ranks: %s is %g, of one process %g", update->network, ranks, columns[i], b, a);
    }
}

void compare_sync_update(TestFolder *folder, const char *device, const char *network, int ranks, double bound)
{
    double least = 1;
    for (int seed = 1; seed <= SEEDS && !(least < bound); seed++) {
        const Update update = {device, network, "off", seed};
        make_update(folder, &update, 1, false, "one");
        make_update(folder, &update, ranks, true, "ranks");
        make_update(folder, &update, ranks, false, "own");
        const double far = far_from_one(folder, "ranks"), own = far_from_one(folder, "own");
        print_message("%s, seed %d, one update by %d ranks: %.2g; norms of their own %.2g\n", network, seed,
                      ranks, far, own);
        assert_true(own > 10 * far);
        compare_losses(folder, &update, ranks);
        least = fmin(least, far);
    }
    if (!(least < bound))
        fail_msg("%s: with every seed %d ranks are %g or more from one process", network, ranks, least);
}

double sync_update_share(TestFolder *folder, const char *device, const char *network, const char *amp)
{
    const Update update = {device, network, amp, 1};
    make_update(folder, &update, 1, false, "one");
    make_update(folder, &update, 2, true, "ranks");
    make_update(folder, &update, 2, false, "own");
    const double far = far_from_one(folder, "ranks"), own = far_from_one(folder, "own");
    print_message("%s, --amp %s, one update by 2 ranks: %.2g; norms of their own %.2g\n", network, amp, far,
                  own);
    return far / own;
}
