#include "trainer/data/sampler.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tests/support/support.h"

enum { SAMPLES = 1000, SEED = 7 };

static Sampler make_sampler(uint64_t batch, uint64_t world_size, uint64_t rank, bool training)
{
    return (Sampler){.sample_count = SAMPLES,
                     .batch = batch,
                     .rank = rank,
                     .world_size = world_size,
                     .seed = SEED,
                     .training = training};
}

/* Sets samples to those of an epoch in the order in which the steps take them, all ranks of a step together;
 * returns their number. */
static uint64_t read_epoch(uint64_t batch, uint64_t world_size, bool training, uint64_t epoch,
                           uint64_t *samples)
{
    uint64_t count = 0;
    const Sampler first = make_sampler(batch, world_size, 0, training);
    for (uint64_t step = 0; step < sampler_step_count(&first); step++)
        for (uint64_t rank = 0; rank < world_size; rank++) {
            const Sampler sampler = make_sampler(batch, world_size, rank, training);
            for (uint64_t slot = 0; slot < batch; slot++)
                samples[count++] = sampler_at(&sampler, epoch, step, slot);
        }
    return count;
}

TEST(test_training_sees_each_sample_at_most_once)
{
    uint64_t samples[SAMPLES];
    uint8_t seen[SAMPLES] = {0};
    uint64_t count = read_epoch(64, 1, true, 3, samples);
    assert_int_equal(count, 960); /* 15 whole batches: the last 40 are left out */
    for (uint64_t i = 0; i < count; i++) {
        assert_true(samples[i] < SAMPLES);
        assert_int_equal(seen[samples[i]]++, 0);
    }
}

TEST(test_training_with_a_batch_that_divides_sees_every_sample)
{
    uint64_t samples[SAMPLES];
    uint8_t seen[SAMPLES] = {0};
    assert_int_equal(read_epoch(50, 1, true, 0, samples), SAMPLES);
    for (size_t i = 0; i < SAMPLES; i++)
        seen[samples[i]] = 1;
    for (size_t i = 0; i < SAMPLES; i++)
        assert_int_equal(seen[i], 1);
}

/* 1000 samples are 20 updates of 48, however an update is cut. */
TEST(test_an_epoch_is_a_whole_number_of_updates)
{
    static const uint64_t cuts[][3] = {
        {48, 1, 20}, {16, 3, 60}, {8, 6, 120}, {2, 24, 480}}; /* 62, 125 and 500 fit */
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        Sampler sampler = make_sampler(cuts[i][0], 1, 0, true);
        sampler.update_steps = cuts[i][1];
        assert_int_equal(sampler_step_count(&sampler), cuts[i][2]);
        sampler.training = false;
        assert_int_equal(sampler_step_count(&sampler), (SAMPLES + cuts[i][0] - 1) / cuts[i][0]);
    }
    Sampler longer = make_sampler(100, 1, 0, true);
    longer.update_steps = 15;
    assert_int_equal(sampler_step_count(&longer), 10); /* its updates reach into the next epoch */
}

TEST(test_order_is_the_same_for_every_world_size)
{
    uint64_t one[SAMPLES], several[SAMPLES];
    uint64_t count = read_epoch(40, 1, true, 5, one);
    const uint64_t world_sizes[] = {2, 4, 5, 8};
    for (size_t i = 0; i < sizeof world_sizes / sizeof *world_sizes; i++) {
        assert_int_equal(read_epoch(40 / world_sizes[i], world_sizes[i], true, 5, several), count);
        assert_memory_equal(one, several, count * sizeof *one);
    }
}

TEST(test_order_differs_between_epochs_and_seeds)
{
    Sampler sampler = make_sampler(100, 1, 0, true);
    uint64_t digest = sampler_order_digest(&sampler, 0);
    assert_int_equal(digest, sampler_order_digest(&sampler, 0));
    assert_int_not_equal(digest, sampler_order_digest(&sampler, 1));
    sampler.seed++;
    assert_int_not_equal(digest, sampler_order_digest(&sampler, 0));
}

TEST(test_digest_does_not_depend_on_batch_or_world_size)
{
    const Sampler one = make_sampler(64, 1, 0, true), other = make_sampler(25, 4, 3, true);
    assert_int_equal(sampler_order_digest(&one, 2), sampler_order_digest(&other, 2));
}

/* There are enough samples for several threads, whose sum must be that of one thread. */
TEST(test_digest_does_not_depend_on_threads)
{
    const Sampler large = {
        .sample_count = 300000, .batch = 64, .world_size = 1, .seed = SEED, .training = true};
    uint64_t digest = sampler_order_digest(&large, 1), expected = 0;
    for (uint64_t place = 0; place < large.sample_count; place++) {
        uint64_t sample = sampler_at(&large, 1, place / 64, place % 64);
        unsigned char pair[16];
        for (int i = 0; i < 8; i++) {
            pair[i] = (unsigned char)(place >> (8 * i));
            pair[8 + i] = (unsigned char)(sample >> (8 * i));
        }
        expected += XXH3_64bits(pair, sizeof pair);
    }
    assert_int_equal(digest, expected);
}

TEST(test_digest_notices_a_swap)
{
    /* Two samples, either order: with more seeds than orders, both must come up and give different digests.
     */
    uint64_t digests[2] = {0};
    for (uint64_t seed = 0; seed < 64; seed++) {
        const Sampler sampler = {
            .sample_count = 2, .batch = 2, .world_size = 1, .seed = seed, .training = true};
        digests[sampler_at(&sampler, 0, 0, 0)] = sampler_order_digest(&sampler, 0);
    }
    assert_int_not_equal(digests[0], 0);
    assert_int_not_equal(digests[1], 0);
    assert_int_not_equal(digests[0], digests[1]);
}

TEST(test_evaluation_sees_every_sample_once_in_stored_order)
{
    uint64_t samples[SAMPLES + 64];
    const uint64_t world_sizes[] = {1, 3};
    for (size_t w = 0; w < 2; w++) {
        uint64_t count = read_epoch(12, world_sizes[w], false, 9, samples);
        assert_true(count >= SAMPLES && count < SAMPLES + 12 * world_sizes[w]);
        for (uint64_t i = 0; i < count; i++)
            assert_int_equal(samples[i], i < SAMPLES ? i : SAMPLER_PADDING);
    }
}

TEST(test_fewer_samples_than_a_step_give_no_training_step)
{
    const Sampler training = make_sampler(SAMPLES + 1, 1, 0, true),
                  evaluation = make_sampler(SAMPLES + 1, 1, 0, false);
    assert_int_equal(sampler_step_count(&training), 0);
    assert_int_equal(sampler_step_count(&evaluation), 1);
}
