#include "trainer/backend/cpu/kernels.h"

#include <stddef.h>

const CpuKernels *cpu_kernels_variant(int i)
{
#ifdef FSHARD_X86_KERNELS
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (i == 1 && avx2)
        return &cpu_kernels_avx2;
    if (i == 2 && avx512)
        return &cpu_kernels_avx512;
#endif
    return i == 0 ? &cpu_kernels_baseline : NULL;
}

const CpuKernels *cpu_kernels_choose(void)
{
    const CpuKernels *best = cpu_kernels_variant(0);
    for (int i = 1; cpu_kernels_variant(i); i++)
        best = cpu_kernels_variant(i);
    return best;
}
