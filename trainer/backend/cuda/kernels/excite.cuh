/* excite.cuh - for excite.cu and excite_weights.cu: the width of accesses to two kinds of rows. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_EXCITE_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_EXCITE_CUH

#include <type_traits>

#include "trainer/backend/cuda/kernels/kernels_common.cuh"

namespace fshard
{

/* Calls run(std::integral_constant<int, Width>{}) with the elements of an access. */
template <typename T, typename Run> void with_width(int64_t pitch, int64_t hidden_pitch, Run run)
{
    constexpr int wide = vector_width<T>;
    if constexpr (sizeof(T) != 2)
        if (pitch % wide || hidden_pitch % wide) {
            run(std::integral_constant<int, 1>{});
            return;
        }
    run(std::integral_constant<int, wide>{});
}

} // namespace fshard

#endif
