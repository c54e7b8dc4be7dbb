/* random.h - random numbers that depend on (seed, stream, counter), not on earlier draws.
 *
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11). The draw for sample 17
 * of epoch 3 is the same on any thread, rank or device, and after a resume. */
#ifndef FSHARD_COMMON_RANDOM_H
#define FSHARD_COMMON_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

/* Computes 128 bits from a 128-bit counter and a 64-bit key: the block function. */
void random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A sequence, chosen by seed and stream (epoch, sample, parameter index …); reading advances its counter. */
typedef struct Random {
    uint32_t key[2];
    uint32_t counter[4]; /* [0..1] position, [2..3] stream */
    uint32_t block[4];
    int used;          /* words of block that were read; 4: all */
    bool normal_waits; /* the second value of Box-Muller has not been read yet */
    float second_normal;
} Random;

void random_start(Random *random, uint64_t seed, uint64_t stream);

/* Goes on by `blocks` times four numbers of random_u32, which are not drawn: parts of a sequence can be drawn
 * on several threads. Only before the first draw, or behind a multiple of four. */
void random_skip(Random *random, uint64_t blocks);

/* Returns one stream for a key of two parts, such as (epoch, sample). */
uint64_t random_stream(uint64_t a, uint64_t b);

uint32_t random_u32(Random *random);
/* Returns a number in [0, 1) of 24 bits. */
float random_uniform(Random *random);
/* Returns a number in [0, 1) of 53 bits. */
double random_uniform_double(Random *random);
/* Returns a number in 0..bound-1, without bias (Lemire). bound > 0. */
uint32_t random_below(Random *random, uint32_t bound);
/* Returns a normal number of mean 0 and variance 1 (Box-Muller, both values used). */
float random_normal(Random *random);

/* Returns the image of index under a permutation of 0..count-1 chosen by seed and stream: a Feistel network
 * of Philox rounds with cycle walking (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA
 * 2002). O(1) memory. index < count < 2^63. Takes about a quarter of a microsecond. */
uint64_t random_permute(uint64_t index, uint64_t count, uint64_t seed, uint64_t stream);

#endif
