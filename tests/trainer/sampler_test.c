#include "trainer/data/sampler.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/golden.h"

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
                samples[count++] = sampler_at(&sampler, epoch, step, slot).sample;
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
        uint64_t sample = sampler_at(&large, 1, place / 64, place % 64).sample;
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
        digests[sampler_at(&sampler, 0, 0, 0).sample] = sampler_order_digest(&sampler, 0);
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

/* ---- repeats ---- */

static Sampler make_repeats(uint64_t samples, uint64_t repeats, uint64_t batch, uint64_t world_size,
                            uint64_t rank)
{
    return (Sampler){.sample_count = samples,
                     .batch = batch,
                     .rank = rank,
                     .world_size = world_size,
                     .repeats = repeats,
                     .seed = SEED,
                     .training = true};
}

static int compare_u64(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* Returns a number for a sample's place in the epoch: the sum over its places tells which batches of which
 * ranks it stands in. */
static uint64_t mark(uint64_t rank, uint64_t step)
{
    const uint64_t place[2] = {rank, step};
    return XXH3_64bits(place, sizeof place);
}

static void hold_to_timm(const json_t *case_)
{
    const uint64_t samples = (uint64_t)golden_integer(case_, "samples"),
                   repeats = (uint64_t)golden_integer(case_, "repeats"),
                   ranks = (uint64_t)golden_integer(case_, "ranks"),
                   batch = (uint64_t)golden_integer(case_, "batch"),
                   steps = (uint64_t)golden_integer(case_, "steps");
    uint64_t *ours = calloc(samples, sizeof *ours), *theirs = calloc(samples, sizeof *theirs);
    assert_true(ours && theirs && steps > 0);
    for (uint64_t rank = 0; rank < ranks; rank++) {
        const json_t *own = json_array_get(json_object_get(case_, "indices"), rank);
        const Sampler sampler = make_repeats(samples, repeats, batch, ranks, rank);
        assert_int_equal(sampler_step_count(&sampler), samples / (ranks * batch));
        assert_true(sampler_step_count(&sampler) >= steps);
        assert_int_equal(json_array_size(own), steps * batch);
        for (uint64_t i = 0; i < steps * batch; i++) {
            theirs[json_integer_value(json_array_get(own, i))] += mark(rank, i / batch);
            ours[sampler_at(&sampler, 2, i / batch, i % batch).sample] += mark(rank, i / batch);
        }
    }
    qsort(ours, samples, sizeof *ours, compare_u64);
    qsort(theirs, samples, sizeof *theirs, compare_u64);
    assert_memory_equal(ours, theirs, samples * sizeof *ours);
    free(ours);
    free(theirs);
}

/* A sample for a sample: as many in an epoch, and each in as many places of the same ranks' batches. */
TEST(test_repeats_are_dealt_out_as_timm_does)
{
    json_t *golden = golden_load("sampler.json");
    const json_t *cases = json_object_get(golden, "repeated");
    assert_true(json_array_size(cases) > 0);
    for (size_t i = 0; i < json_array_size(cases); i++)
        hold_to_timm(json_array_get(cases, i));
    json_decref(golden);
}

TEST(test_repeats_have_turns_of_their_own)
{
    enum { EPOCHS = 6, REPEATS = 3, TURNS = EPOCHS * REPEATS };
    static uint8_t seen[SAMPLES][TURNS];
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
        for (uint64_t i = 0; i < 960; i++) {
            const Sampler sampler = make_repeats(SAMPLES, REPEATS, 16, 4, i / 16 % 4);
            const SamplerPick pick = sampler_at(&sampler, epoch, i / 64, i % 16);
            assert_int_equal(pick.turn / REPEATS, epoch);
            assert_int_equal(seen[pick.sample][pick.turn]++, 0);
        }
}

/* Mixing mixes places 2 k and 2 k + 1. */
TEST(test_neighbours_are_not_views_of_one_sample)
{
    static const uint64_t batches[] = {6, 16, 64};
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
        const Sampler sampler = make_repeats(SAMPLES, 3, batches[b], 1, 0);
        for (uint64_t i = 0; i < sampler_step_count(&sampler) * batches[b]; i += 2)
            assert_int_not_equal(sampler_at(&sampler, 0, i / batches[b], i % batches[b]).sample,
                                 sampler_at(&sampler, 0, (i + 1) / batches[b], (i + 1) % batches[b]).sample);
    }
}

TEST(test_a_step_with_repeats_is_the_same_for_every_world_size)
{
    static const uint64_t world_sizes[] = {1, 2, 4, 5, 8};
    for (uint64_t step = 0; step < 25; step += 6) {
        uint64_t views[2][40];
        for (size_t w = 0; w < sizeof world_sizes / sizeof *world_sizes; w++) {
            uint64_t *own = views[w > 0], count = 0;
            const uint64_t ranks = world_sizes[w], batch = 40 / ranks;
            for (; count < 40; count++) {
                const Sampler sampler = make_repeats(SAMPLES, 4, batch, ranks, count / batch);
                const SamplerPick pick = sampler_at(&sampler, 5, step, count % batch);
                own[count] = pick.turn * SAMPLES + pick.sample;
            }
            qsort(own, 40, sizeof *own, compare_u64);
            assert_memory_equal(own, views[0], sizeof views[0]);
        }
    }
}

/* ---- balanced ---- */

enum { CLASSES = 5 };

/* 600, 250, 0, 148 and 2 samples, mixed. */
static void draw_labels(int64_t labels[SAMPLES])
{
    static const uint64_t ends[CLASSES] = {600, 850, 850, 998, 1000};
    for (uint64_t i = 0; i < SAMPLES; i++) {
        const uint64_t place = random_permute(i, SAMPLES, 3, 3);
        labels[i] = 0;
        while (place >= ends[labels[i]])
            labels[i]++;
    }
}

TEST(test_classes_are_listed_with_their_samples)
{
    int64_t labels[SAMPLES];
    ClassOrder order;
    draw_labels(labels);
    assert_ok(class_order_of_labels(&order, labels, SAMPLES, NULL), NULL);
    static const int64_t places[] = {0, 1, 3, 4};
    static const uint64_t starts[] = {0, 600, 850, 998, 1000};
    assert_int_equal(order.class_count, 4); /* one is empty */
    assert_memory_equal(order.starts, starts, sizeof starts);
    for (uint64_t c = 0; c < order.class_count; c++)
        for (uint64_t i = order.starts[c]; i < order.starts[c + 1]; i++) {
            assert_int_equal(labels[order.samples[i]], places[c]);
            assert_true(i == order.starts[c] || order.samples[i] > order.samples[i - 1]);
        }
    class_order_free(&order);
}

static Sampler make_balanced(const ClassOrder *classes, uint64_t repeats, uint64_t world_size, uint64_t rank)
{
    return (Sampler){.sample_count = SAMPLES,
                     .batch = 40 / world_size,
                     .rank = rank,
                     .world_size = world_size,
                     .repeats = repeats,
                     .classes = classes,
                     .seed = SEED,
                     .training = true};
}

/* Counts samples and classes of an epoch, and checks that no sample comes twice in the same turn. */
static void count_balanced(const ClassOrder *order, const int64_t *labels, uint64_t repeats, uint64_t epoch,
                           uint64_t of_class[CLASSES], uint64_t *of_sample)
{
    enum { TURNS = 4096 };
    uint8_t *seen = calloc(SAMPLES, TURNS);
    assert_non_null(seen);
    for (uint64_t place = 0; place < SAMPLES; place++) {
        const Sampler sampler = make_balanced(order, repeats, 4, place / 10 % 4);
        const SamplerPick pick = sampler_at(&sampler, epoch, place / 40, place % 10);
        of_class[labels[pick.sample]]++;
        of_sample[pick.sample]++;
        assert_true(pick.turn < TURNS);
        assert_int_equal(seen[pick.sample * TURNS + pick.turn]++, 0);
    }
    free(seen);
}

TEST(test_a_balanced_epoch_has_each_class_equally_often)
{
    int64_t labels[SAMPLES];
    ClassOrder order;
    draw_labels(labels);
    assert_ok(class_order_of_labels(&order, labels, SAMPLES, NULL), NULL);
    for (uint64_t repeats = 1; repeats <= 3; repeats++) {
        uint64_t of_sample[SAMPLES] = {0};
        for (uint64_t epoch = 0; epoch < 4; epoch++) {
            uint64_t of_class[CLASSES] = {0};
            count_balanced(&order, labels, repeats, epoch, of_class, of_sample);
            for (uint64_t c = 0; c < CLASSES; c++)
                assert_true(c == 2 ? of_class[c] == 0
                                   : of_class[c] + repeats >= 250 && of_class[c] <= 250 + repeats);
        }
        /* 1000 visits of each class: all samples of it in turn. */
        for (uint64_t i = 0; i < SAMPLES && repeats == 1; i++) {
            static const uint64_t least[CLASSES] = {1, 4, 0, 6, 500}, most[CLASSES] = {2, 4, 0, 7, 500};
            assert_true(of_sample[i] >= least[labels[i]] && of_sample[i] <= most[labels[i]]);
        }
    }
    class_order_free(&order);
}

TEST(test_a_balanced_order_differs_between_epochs_and_not_between_world_sizes)
{
    int64_t labels[SAMPLES];
    ClassOrder order;
    draw_labels(labels);
    assert_ok(class_order_of_labels(&order, labels, SAMPLES, NULL), NULL);
    const Sampler one = make_balanced(&order, 1, 1, 0), fourth = make_balanced(&order, 1, 4, 3);
    for (uint64_t slot = 0; slot < 10; slot++)
        assert_int_equal(sampler_at(&one, 3, 7, 30 + slot).sample, sampler_at(&fourth, 3, 7, slot).sample);
    assert_int_equal(sampler_order_digest(&one, 3), sampler_order_digest(&fourth, 3));
    assert_int_not_equal(sampler_order_digest(&one, 3), sampler_order_digest(&one, 4));
    class_order_free(&order);
}

/* Ours is nearer to equal than PyTorch's 10,000 draws with weights are, which shows what is meant. */
TEST(test_balanced_classes_are_those_of_weighted_draws_in_the_mean)
{
    json_t *golden = golden_load("sampler.json");
    const json_t *weighted = json_object_get(golden, "weighted");
    const json_t *counts = json_object_get(weighted, "counts"),
                 *drawn = json_object_get(weighted, "of_class");
    const uint64_t draws = (uint64_t)golden_integer(weighted, "draws");
    uint64_t samples = 0, of_class[CLASSES] = {0};
    int64_t labels[SAMPLES];
    ClassOrder order;
    for (size_t c = 0; c < json_array_size(counts); c++)
        for (json_int_t i = 0; i < json_integer_value(json_array_get(counts, c)); i++)
            labels[samples++] = (int64_t)c;
    assert_ok(class_order_of_labels(&order, labels, samples, NULL), NULL);
    Sampler sampler = make_balanced(&order, 1, 1, 0);
    sampler.sample_count = samples;
    const uint64_t places = sampler_step_count(&sampler) * 40;
    for (uint64_t i = 0; i < draws; i++)
        of_class[labels[sampler_at(&sampler, i / places, i % places / 40, i % 40).sample]]++;
    for (size_t c = 0; c < json_array_size(counts); c++) {
        const int64_t ours = (int64_t)of_class[c] - 2500,
                      theirs = json_integer_value(json_array_get(drawn, c)) - 2500;
        assert_true(llabs(ours) <= 16 && llabs(theirs) <= 5 * 44); /* five deviations of a binomial */
    }
    class_order_free(&order);
    json_decref(golden);
}
