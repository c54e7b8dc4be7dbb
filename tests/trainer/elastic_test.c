/* How the images of an update are dealt out when the number of ranks changes. */
#include "tests/support/support.h"
#include "trainer/elastic.h"
#include "trainer/plan/train_options.h"

static RunShape shape(uint64_t ranks, uint64_t batch, uint64_t accumulation)
{
    return (RunShape){.ranks = ranks, .batch = batch, .accumulation = accumulation};
}

static void expect_deal(RunShape was, uint64_t ranks, uint64_t batch, uint64_t accumulation)
{
    RunShape now;
    elastic_deal(&was, ranks, &now);
    assert_int_equal(now.ranks, ranks);
    if (now.batch != batch || now.accumulation != accumulation)
        fail_msg("%d x %d x %d on %d ranks: batch %d, accumulation %d", (int)was.ranks, (int)was.batch,
                 (int)was.accumulation, (int)ranks, (int)now.batch, (int)now.accumulation);
    assert_int_equal(now.ranks * now.batch * now.accumulation, was.ranks * was.batch * was.accumulation);
}

TEST(test_each_update_takes_the_same_images)
{
    expect_deal(shape(4, 64, 1), 2, 64, 2); /* the batch stays */
    expect_deal(shape(4, 64, 1), 1, 64, 4);
    expect_deal(shape(2, 64, 2), 4, 64, 1); /* and when ranks come back */
    expect_deal(shape(4, 48, 1), 3, 32, 2); /* 64 images of a rank: two batches that are smaller */
    expect_deal(shape(8, 60, 1), 6, 40, 2);
    expect_deal(shape(2, 5, 1), 1, 5, 2);
    expect_deal(shape(3, 2, 1), 2, 1, 3); /* 3 images: nothing smaller but 1, which is half */
    expect_deal(shape(4, 3, 3), 6, 3, 2);
    expect_deal(shape(11, 10, 1), 10, 11, 1); /* 11 images, a prime: more memory */
    expect_deal(shape(2, 64, 1), 4, 32, 1);
}

TEST(test_as_many_ranks_go_on_as_divide_an_update)
{
    const RunShape of_256 = shape(4, 64, 1), unknown = shape(4, 0, 1);
    assert_int_equal(elastic_ranks(&of_256, 4), 4);
    assert_int_equal(elastic_ranks(&of_256, 3), 2);
    assert_int_equal(elastic_ranks(&of_256, 1), 1);
    assert_int_equal(elastic_ranks(&unknown, 3), 3);
}

TEST(test_the_options_follow)
{
    FshError error = {0};
    TrainOptions options = train_options_default();
    const RunShape was = shape(4, 64, 1);
    options.training.batch_size = 64;
    assert_ok(elastic_apply(&was, 2, &options, &error), &error);
    assert_int_equal(options.training.batch_size, 64);
    assert_int_equal(options.training.grad_accum_steps, 2);
    options.ranks.parallel = RANK_PARALLEL_DP;
    options.training.batch_size = 256;
    assert_ok(elastic_apply(&was, 2, &options, &error), &error);
    assert_int_equal(options.training.batch_size, 128); /* of both ranks */
    assert_int_equal(elastic_apply(&was, 3, &options, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "takes 256 images, which 3 ranks cannot share alike; start 2");
}

/* A total for evaluation that the ranks could not share would end a restart as wrong usage. */
TEST(test_the_total_of_evaluation_follows)
{
    FshError error = {0};
    TrainOptions options = train_options_default();
    const RunShape was = shape(4, 48, 1), unknown = shape(4, 0, 1);
    options.training.batch_size = 192;
    options.training.val_batch_size = 64;
    assert_ok(elastic_apply(&was, 3, &options, &error), &error);
    assert_int_equal(options.training.val_batch_size, 64); /* of each rank */
    options.ranks.parallel = RANK_PARALLEL_DP;
    assert_ok(elastic_apply(&was, 4, &options, &error), &error);
    assert_int_equal(options.training.val_batch_size, 64);
    assert_ok(elastic_apply(&was, 3, &options, &error), &error);
    assert_int_equal(options.training.val_batch_size, 66);
    options.training.val_batch_size = 64;
    assert_ok(elastic_apply(&unknown, 3, &options, &error), &error);
    assert_int_equal(options.training.val_batch_size, 66);
    options.training.val_batch_size = 0; /* as in training */
    assert_ok(elastic_apply(&was, 3, &options, &error), &error);
    assert_int_equal(options.training.val_batch_size, 0);
}
