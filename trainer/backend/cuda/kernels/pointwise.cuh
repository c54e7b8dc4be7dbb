/* pointwise.cuh - the gradient of a function of one value, for elementwise.cu and pointwise_sums.cu. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_POINTWISE_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_POINTWISE_CUH

#include "trainer/backend/pointwise_math.h"

namespace fshard
{

/* Slope: the function's derivative. */
template <float (*Slope)(float)> struct PointwiseBackward {
    __device__ float operator()(float dy, float x) const
    {
        return dy * Slope(x);
    }
};

} // namespace fshard

#endif
