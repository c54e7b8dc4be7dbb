#include <stddef.h>

#include "trainer/backend/cpu/cpu_kernels_tables.h"

const CpuKernels *cpu_kernels_variant(DataType type, int i)
{
    const bool bf16 = type == DATA_BF16;
#ifdef FSHARD_X86_KERNELS
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (i == 1 && avx2)
        return bf16 ? &cpu_kernels_avx2_bf16 : &cpu_kernels_avx2_f32;
    if (i == 2 && avx512)
        return bf16 ? &cpu_kernels_avx512_bf16 : &cpu_kernels_avx512_f32;
#endif
    return i != 0 ? NULL : bf16 ? &cpu_kernels_baseline_bf16 : &cpu_kernels_baseline_f32;
}

const CpuKernels *cpu_kernels_choose(DataType type)
{
    const CpuKernels *best = cpu_kernels_variant(type, 0);
    for (int i = 1; cpu_kernels_variant(type, i); i++)
        best = cpu_kernels_variant(type, i);
    return best;
}
