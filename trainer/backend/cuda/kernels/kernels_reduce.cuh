/* kernels_reduce.cuh - sums over a warp and over a block, in an order fixed by the sizes; and the test for
 * the last block. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_REDUCE_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_REDUCE_CUH

#include "trainer/backend/cuda/kernels/kernels_common.cuh"

namespace fshard
{

constexpr int block_warps = block_threads / 32;

/* Returns the sum over the warp, in every lane: addition commutes, so all lanes get the same bits. */
template <typename T> __device__ T warp_sum(T value)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xFFFFFFFFU, value, offset);
    return value;
}

__device__ inline float warp_max(float value)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, offset));
    return value;
}

/* Returns the sum over a block of block_threads, in every thread. All of them must call it. */
template <typename T> __device__ T block_sum(T value)
{
    __shared__ T sums[block_warps];
    value = warp_sum(value);
    __syncthreads(); /* the sums of an earlier call have been read */
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
#pragma unroll
    for (int i = 0; i < block_warps; i++)
        value += sums[i];
    return value;
}

__device__ inline float block_max(float value)
{
    __shared__ float greatest[block_warps];
    value = warp_max(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        greatest[threadIdx.x / 32] = value;
    __syncthreads();
    value = greatest[0];
#pragma unroll
    for (int i = 1; i < block_warps; i++)
        value = fmaxf(value, greatest[i]);
    return value;
}

/* Returns true in all threads of the last block of the grid to call it, which sees everything that the others
 * wrote before their call. *arrivals must be 0 before the launch, and is 0 after it. */
__device__ inline bool block_is_last(unsigned *arrivals)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicInc(arrivals, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    __threadfence();
    return last;
}

} // namespace fshard

#endif
