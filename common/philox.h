/* philox.h - the arithmetic of random.h, written once for the processor and for CUDA kernels: a number
 * depends on its place in a sequence, not on earlier draws.
 *
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11). */
#ifndef FSHARD_COMMON_PHILOX_H
#define FSHARD_COMMON_PHILOX_H

#include <math.h>
#include <stdint.h>

/* Marks functions that both sides compile. */
#ifdef __CUDACC__
#define FSH_HOST_DEVICE __host__ __device__
#else
#define FSH_HOST_DEVICE
#endif

/* Computes 128 bits from a 128-bit counter and a 64-bit key. Constants and rounds: the paper's table 2 and
 * section 3.3. */
FSH_HOST_DEVICE static inline void philox_block(const uint32_t counter[4], const uint32_t key[2],
                                                uint32_t out[4])
{
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t product0 = (uint64_t)0xD2511F53U * x0, product1 = (uint64_t)0xCD9E8D57U * x2;
        x0 = (uint32_t)(product1 >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)product1;
        x2 = (uint32_t)(product0 >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)product0;
        k0 += 0x9E3779B9U; /* golden ratio */
        k1 += 0xBB67AE85U; /* sqrt(3) - 1 */
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

/* Returns number `place` (0, 1, …) of the sequence that random_u32 gives after random_start(seed, stream). */
FSH_HOST_DEVICE static inline uint32_t philox_at(uint64_t seed, uint64_t stream, uint64_t place)
{
    const uint64_t block = place / 4;
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream,
                                 (uint32_t)(stream >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    philox_block(counter, key, out);
    return out[place % 4];
}

/* Computes two normal numbers (Box and Muller) from two draws. */
FSH_HOST_DEVICE static inline void philox_normals(uint32_t first, uint32_t second, float normals[2])
{
    const double two_pi = 6.283185307179586, unit = 1.0 / 4294967296.0;
    const double radius = sqrt(-2 * log(((double)first + 1) * unit)); /* in (0, 1], so finite */
    const double angle = two_pi * unit * (double)second;
    normals[0] = (float)(radius * cos(angle));
    normals[1] = (float)(radius * sin(angle));
}

#endif
