/* cpu_kernels_value.h - the type in which a kernel's activations are stored: for kernels*.c alone.
 *
 * A kernel file is compiled once for each instruction set and each type. Activations come as void *; a loop
 * gives them the type Value, reads each with load, computes in float, and writes with store:
 *
 *   static void add(const void *left, const void *right, void *sum, int64_t count)
 *   {
 *       const Value *a = left, *b = right;
 *       Value *y = sum;
 *   #pragma omp simd
 *       for (int64_t i = 0; i < count; i++)
 *           y[i] = store(load(a[i]) + load(b[i]));
 *   }
 *
 * Coefficients, statistics, sums and all that is added up stay float or double: a value is rounded once,
 * where it is written. Parameters and what belongs to the optimizer are float in every compilation. */
#ifndef FSHARD_TRAINER_BACKEND_CPU_CPU_KERNELS_VALUE_H
#define FSHARD_TRAINER_BACKEND_CPU_CPU_KERNELS_VALUE_H

#include <stdint.h>
#include <string.h>

#ifdef FSHARD_VALUE_BF16

/* bfloat16: the upper half of a float. */
typedef uint16_t Value;

static inline float load(Value value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* Rounds to the nearest, of two as near to the even one; NaN stays NaN. */
static inline Value store(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = bits + 0x7FFF + (bits >> 16 & 1), quiet = bits | 0x400000;
    return (Value)((value != value ? quiet : rounded) >> 16);
}

#else

typedef float Value;

static inline float load(Value value)
{
    return value;
}

static inline Value store(float value)
{
    return value;
}

#endif

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
