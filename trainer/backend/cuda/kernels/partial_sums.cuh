/* partial_sums.cuh - joins what blocks have left: float32 [parts][count], a part of each block, added up in
 * float64 in the order of parts. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_PARTIAL_SUMS_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_PARTIAL_SUMS_CUH

#include "trainer/backend/cuda/kernels/kernels_common.cuh"

namespace fshard
{

constexpr int join_columns = 32, join_rows = 16;

/* Returns the sum of element i over the parts, in the threads of the first row. */
__device__ inline double join_parts(const float *partial, int i, int parts, int count)
{
    __shared__ double joined[join_rows][join_columns];
    const int column = (int)threadIdx.x % join_columns, row = (int)threadIdx.x / join_columns;
    double sum = 0;
#pragma unroll 8
    for (int part = i < count ? row : parts; part < parts; part += join_rows)
        sum += (double)partial[(int64_t)part * count + i];
    joined[row][column] = sum;
    __syncthreads();
    for (int k = 1; k < join_rows && row == 0; k++)
        sum += joined[k][column];
    return sum;
}

/* Joins the moments of the blocks: sums[i] for i < count. */
static __global__ void __launch_bounds__(join_columns *join_rows)
    join_moments_kernel(const float *partial, float *sums, int parts, int count)
{
    const int i = (int)(blockIdx.x * join_columns + threadIdx.x % join_columns);
    const double sum = join_parts(partial, i, parts, count);
    if (threadIdx.x < join_columns && i < count)
        sums[i] = (float)sum;
}

static inline void join_moments(const float *partial, float *sums, int parts, int count, cudaStream_t stream)
{
    join_moments_kernel<<<(unsigned)((count + join_columns - 1) / join_columns), join_columns * join_rows, 0,
                          stream>>>(partial, sums, parts, count);
}

} // namespace fshard

#endif
