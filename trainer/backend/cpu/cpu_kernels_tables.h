/* cpu_kernels_tables.h - one table of kernels.c for each of its compilations; kernels_choose.c chooses. */
#ifndef FSHARD_TRAINER_BACKEND_CPU_CPU_KERNELS_TABLES_H
#define FSHARD_TRAINER_BACKEND_CPU_CPU_KERNELS_TABLES_H

#include "trainer/backend/cpu/cpu_kernels.h"

extern const CpuKernels cpu_kernels_baseline_f32, cpu_kernels_baseline_bf16;
#ifdef FSHARD_X86_KERNELS
extern const CpuKernels cpu_kernels_avx2_f32, cpu_kernels_avx2_bf16;
extern const CpuKernels cpu_kernels_avx512_f32, cpu_kernels_avx512_bf16;
#endif

#endif
