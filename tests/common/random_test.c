#include "common/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

/* From Random123's examples/kat_vectors, "philox4x32 10". */
TEST(test_philox_gives_the_known_answers)
{
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        uint32_t out[4];
        random_philox(vectors[i].counter, vectors[i].key, out);
        assert_memory_equal(out, vectors[i].expected, sizeof out);
    }
}

TEST(test_a_sequence_is_philox_over_position_and_stream)
{
    const uint64_t seed = UINT64_C(0x0123456789abcdef), stream = UINT64_C(0xfedcba9876543210);
    Random random;
    random_start(&random, seed, stream);
    for (uint32_t position = 0; position < 3; position++) {
        const uint32_t counter[4] = {position, 0, 0x76543210, 0xfedcba98}, key[2] = {0x89abcdef, 0x01234567};
        uint32_t expected[4];
        random_philox(counter, key, expected);
        for (int i = 0; i < 4; i++)
            assert_int_equal(random_u32(&random), expected[i]);
    }
}

TEST(test_a_part_of_a_sequence_can_be_drawn_alone)
{
    enum { BLOCKS = 5 };
    static const uint64_t before[] = {0, 7, UINT64_C(0xFFFFFFFE)}; /* blocks: the last carries */
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        Random whole, part;
        random_start(&whole, 3, 9);
        random_skip(&whole, before[i]);
        random_start(&part, 3, 9);
        random_skip(&part, before[i] + BLOCKS);
        for (int k = 0; k < 4 * BLOCKS; k++)
            (void)random_u32(&whole);
        for (int k = 0; k < 9; k++)
            assert_int_equal(random_u32(&whole), random_u32(&part));
    }
}

TEST(test_seed_and_stream_choose_the_sequence)
{
    Random a, b;
    random_start(&a, 1, 2);
    random_start(&b, 1, 2);
    for (int i = 0; i < 10; i++)
        assert_int_equal(random_u32(&a), random_u32(&b));
    uint32_t first[3];
    for (int i = 0; i < 3; i++) {
        random_start(&a, 1 + (i == 1), 2 + (i == 2));
        first[i] = random_u32(&a);
    }
    assert_int_not_equal(first[0], first[1]);
    assert_int_not_equal(first[0], first[2]);
    assert_true(random_stream(1, 2) != random_stream(2, 1));
    assert_true(random_stream(1, 2) != random_stream(1, 3));
    assert_true(random_stream(1, 2) == random_stream(1, 2));
}

/* The position has 64 bits: the carry into its high word. */
TEST(test_a_sequence_does_not_repeat_after_2_to_the_34_values)
{
    Random random;
    random_start(&random, 3, 4);
    random.counter[0] = UINT32_MAX;
    (void)random_u32(&random);
    assert_int_equal(random.counter[0], 0);
    assert_int_equal(random.counter[1], 1);
    assert_int_equal(random.counter[2], 4);
}

/* Returns the sum of squared deviations from equal counts. Its mean is buckets - 1, its standard deviation
 * sqrt(2 (buckets - 1)). */
static double chi_square(const unsigned *counts, size_t buckets, double draws)
{
    double sum = 0, expected = draws / (double)buckets;
    for (size_t i = 0; i < buckets; i++)
        sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    return sum;
}

/* Asserts that chi_square lies less than six standard deviations above its mean. The seeds are fixed, so this
 * never fails by chance, and a wrong distribution always fails. */
static void assert_even(const unsigned *counts, size_t buckets, double draws)
{
    double freedom = (double)buckets - 1;
    assert_true(chi_square(counts, buckets, draws) < freedom + 6 * sqrt(2 * freedom));
}

TEST(test_uniform_numbers_are_even_and_below_one)
{
    enum { DRAWS = 100000, BUCKETS = 64 };
    unsigned single[BUCKETS] = {0}, whole[BUCKETS] = {0};
    Random random;
    random_start(&random, 11, 0);
    for (int i = 0; i < DRAWS; i++) {
        float x = random_uniform(&random);
        double y = random_uniform_double(&random);
        assert_true(x >= 0 && x < 1 && y >= 0 && y < 1);
        single[(size_t)(x * BUCKETS)]++;
        whole[(size_t)(y * BUCKETS)]++;
    }
    assert_even(single, BUCKETS, DRAWS);
    assert_even(whole, BUCKETS, DRAWS);
    /* The largest draw there can be. */
    Random full = {.block = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}};
    assert_true(random_uniform(&full) < 1);
    assert_true(random_uniform_double(&full) < 1);
}

TEST(test_below_is_even_for_any_bound)
{
    enum { DRAWS = 60000 };
    static const uint32_t bounds[] = {1, 2, 3, 6, 7, 100};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        unsigned counts[100] = {0};
        Random random;
        random_start(&random, 5, i);
        for (int draw = 0; draw < DRAWS; draw++) {
            uint32_t value = random_below(&random, bounds[i]);
            assert_true(value < bounds[i]);
            counts[value]++;
        }
        if (bounds[i] > 1)
            assert_even(counts, bounds[i], DRAWS);
    }
    /* Three quarters of 2^32, the worst of all: without rejection every third value is twice as likely as the
     * others. */
    unsigned residues[3] = {0};
    Random random;
    random_start(&random, 6, 0);
    for (int draw = 0; draw < DRAWS; draw++)
        residues[random_below(&random, UINT32_C(3) << 30) % 3]++;
    assert_even(residues, 3, DRAWS);
}

TEST(test_normal_numbers_have_mean_0_and_variance_1)
{
    enum { DRAWS = 200000 };
    double sum = 0, squares = 0, fourths = 0, neighbours = 0, before = 0;
    Random random;
    random_start(&random, 9, 0);
    for (int i = 0; i < DRAWS; i++) {
        double x = random_normal(&random);
        sum += x;
        squares += x * x;
        fourths += x * x * x * x;
        neighbours += x * before;
        before = x;
    }
    /* Standard errors 0.0022, 0.0032, 0.022, 0.0022. */
    assert_true(fabs(sum / DRAWS) < 0.01);
    assert_true(fabs(squares / DRAWS - 1) < 0.015);
    assert_true(fabs(fourths / DRAWS - 3) < 0.1);
    assert_true(fabs(neighbours / DRAWS) < 0.01);
}

TEST(test_permute_is_a_bijection)
{
    static const uint64_t counts[] = {1,  2,  3,  4,   5,   6,   7,   8,    9,    15,
                                      16, 17, 99, 100, 255, 256, 257, 1000, 4096, 65537};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        bool *hit = calloc(counts[i], sizeof *hit);
        assert_non_null(hit);
        for (uint64_t index = 0; index < counts[i]; index++) {
            uint64_t image = random_permute(index, counts[i], 42, i);
            assert_true(image < counts[i]);
            assert_false(hit[image]);
            hit[image] = true;
        }
        free(hit);
    }
    /* Too many to try all: different images for neighbours, all in range. */
    const uint64_t huge = (UINT64_C(1) << 62) + 12345;
    uint64_t before = huge;
    for (uint64_t index = huge - 100; index < huge; index++) {
        uint64_t image = random_permute(index, huge, 1, 1);
        assert_true(image < huge && image != before);
        before = image;
    }
}

/* Every order of 3 and of 4 items comes up equally often over the streams (epochs). */
TEST(test_permute_reaches_every_order_evenly)
{
    enum { STREAMS = 48000 };
    for (uint64_t count = 3; count <= 4; count++) {
        unsigned by_code[256] = {0}, orders[24] = {0};
        for (uint64_t stream = 0; stream < STREAMS; stream++) {
            size_t code = 0;
            for (uint64_t index = 0; index < count; index++)
                code = code * 4 + (size_t)random_permute(index, count, 99, stream);
            by_code[code]++;
        }
        size_t seen = 0;
        for (size_t i = 0; i < 256; i++)
            if (by_code[i] && seen < 24)
                orders[seen++] = by_code[i];
        assert_int_equal(seen, count == 3 ? 6 : 24);
        assert_even(orders, seen, STREAMS);
    }
}

TEST(test_permute_spreads_every_item_evenly)
{
    enum { STREAMS = 30000, COUNT = 300 };
    static const uint64_t items[] = {0, 1, 17, COUNT - 1};
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        unsigned counts[COUNT] = {0};
        for (uint64_t stream = 0; stream < STREAMS; stream++)
            counts[random_permute(items[i], COUNT, 7, stream)]++;
        assert_even(counts, COUNT, STREAMS);
    }
    /* Neighbours do not stay neighbours: the distance of their images is spread too. */
    unsigned distances[COUNT] = {0};
    for (uint64_t stream = 0; stream < STREAMS; stream++)
        distances[(random_permute(8, COUNT, 7, stream) + COUNT - random_permute(7, COUNT, 7, stream)) %
                  COUNT]++;
    assert_int_equal(distances[0], 0);
    assert_even(distances + 1, COUNT - 1, STREAMS);
}
