#include "common/random.h"

#include <math.h>

#include "common/philox.h"

void random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    philox_block(counter, key, out);
}

/* Returns 64 bits that depend on all of a, b and key. */
static uint64_t mix(uint64_t a, uint64_t b, uint64_t key)
{
    const uint32_t counter[4] = {(uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32)};
    const uint32_t key_words[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    uint32_t out[4];
    random_philox(counter, key_words, out);
    return (uint64_t)out[1] << 32 | out[0];
}

uint64_t random_stream(uint64_t a, uint64_t b)
{
    return mix(a, b, 0);
}

void random_start(Random *random, uint64_t seed, uint64_t stream)
{
    *random = (Random){
        .key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
        .counter = {0, 0, (uint32_t)stream, (uint32_t)(stream >> 32)},
        .used = 4,
    };
}

void random_skip(Random *random, uint64_t blocks)
{
    const uint64_t counter = ((uint64_t)random->counter[1] << 32 | random->counter[0]) + blocks;
    random->counter[0] = (uint32_t)counter;
    random->counter[1] = (uint32_t)(counter >> 32);
}

uint32_t random_u32(Random *random)
{
    if (random->used == 4) {
        random_philox(random->counter, random->key, random->block);
        random->used = 0;
        if (++random->counter[0] == 0)
            random->counter[1]++;
    }
    return random->block[random->used++];
}

float random_uniform(Random *random)
{
    return (float)(random_u32(random) >> 8) * 0x1p-24F;
}

double random_uniform_double(Random *random)
{
    uint64_t high = random_u32(random) >> 5, low = random_u32(random) >> 6;
    return (double)(high << 26 | low) * 0x1p-53;
}

uint32_t random_below(Random *random, uint32_t bound)
{
    /* Lemire, "Fast random integer generation in an interval", 2019: the high word of the product is the
     * result, and the low word identifies the few draws that would make some results likelier. */
    uint64_t product = (uint64_t)random_u32(random) * bound;
    if ((uint32_t)product < bound) {
        uint32_t threshold = (0 - bound) % bound;
        while ((uint32_t)product < threshold)
            product = (uint64_t)random_u32(random) * bound;
    }
    return (uint32_t)(product >> 32);
}

float random_normal(Random *random)
{
    if (random->normal_waits) {
        random->normal_waits = false;
        return random->second_normal;
    }
    float normals[2];
    const uint32_t first = random_u32(random), second = random_u32(random);
    philox_normals(first, second, normals);
    random->normal_waits = true;
    random->second_normal = normals[1];
    return normals[0];
}

uint64_t random_permute(uint64_t index, uint64_t count, uint64_t seed, uint64_t stream)
{
    /* index is written as (left, right) on a grid of about sqrt(count) by sqrt(count) cells, slightly more
     * than count in all. Each round shifts one half by a function of the other, which can be undone: so the
     * whole is a permutation of the cells. A result outside 0..count-1 is permuted again until it is inside
     * ("cycle walking"), which is rare. */
    enum { ROUNDS = 8, ROUNDS_SMALL = 16, SMALL = 256 };
    if (count < 2)
        return 0;
    /* A grid of a few cells mixes slowly: with 8 rounds, 4 items show an unevenness of 3 %, with 16 none
     * (tests). */
    const uint32_t rounds = count < SMALL ? ROUNDS_SMALL : ROUNDS;
    const uint64_t lefts = (uint64_t)sqrt((double)count) + 1;
    const uint64_t rights = count / lefts + (count % lefts != 0);
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    do {
        uint64_t left = index / rights, right = index % rights;
        for (uint32_t round = 0; round < rounds; round++) {
            const uint32_t half = (uint32_t)(round % 2 ? left : right);
            /* The top bit keeps these counters apart from those of random_u32. */
            const uint32_t counter[4] = {half, UINT32_C(1) << 31 | round, (uint32_t)stream,
                                         (uint32_t)(stream >> 32)};
            uint32_t out[4];
            random_philox(counter, key, out);
            uint64_t shift = (uint64_t)out[1] << 32 | out[0];
            if (round % 2)
                right = (right + shift % rights) % rights;
            else
                left = (left + shift % lefts) % lefts;
        }
        index = left * rights + right;
    } while (index >= count);
    return index;
}
