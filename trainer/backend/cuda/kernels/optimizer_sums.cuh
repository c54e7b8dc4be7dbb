/* optimizer_sums.cuh - sums that the pieces of an update leave (optimizer.cu), added in their order. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_OPTIMIZER_SUMS_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_OPTIMIZER_SUMS_CUH

#include "trainer/backend/cuda/kernels/kernels_reduce.cuh"
#include "trainer/backend/cuda/kernels/optimizer_elements.cuh"

namespace fshard
{

__device__ inline void leave_sum(const Launch &launch, Sum which, double value)
{
    value = block_sum(value);
    if (threadIdx.x == 0)
        launch.sums[which * launch.table.parameter_pieces + blockIdx.x] = value;
}

/* Returns the sum of the gradient's squares, in every thread. For the last block. */
__device__ inline double gradient_square(const Launch &launch)
{
    double sum = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < launch.table.parameter_pieces; i += block_threads)
        sum += __ldcg(&launch.sums[OF_GRADIENT * launch.table.parameter_pieces + i]);
    return block_sum(sum);
}

/* Returns a tensor's sum of squares, in every lane. For one warp. */
__device__ inline double tensor_square(const Launch &launch, const UpdateTensor &tensor, Sum which)
{
    const double *sums = launch.sums + which * launch.table.parameter_pieces + tensor.first_piece;
    double sum = 0;
#pragma unroll 4
    for (int i = (int)threadIdx.x % 32; i < tensor.piece_count; i += 32)
        sum += __ldcg(&sums[i]);
    return warp_sum(sum);
}

} // namespace fshard

#endif
