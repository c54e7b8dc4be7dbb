/* narrow.cu - rounds all weights to their narrow copies in one launch: a column of blocks for each weight,
 * eight elements of a row in each thread. Run after weights were loaded; the update writes the copies
 * itself. */
#include "trainer/backend/cuda/kernels/kernels_common.cuh"
#include "trainer/backend/cuda/kernels/kernels_narrow.h"

using namespace fshard;

namespace
{

constexpr unsigned blocks_of_copy = 64;

template <typename T> __device__ void round_copy(const NarrowCopy &copy)
{
    constexpr int width = vector_width<T>;
    int64_t vectors = copy.pitch / width, count = copy.rows * vectors;
    int64_t threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        int64_t row = i / vectors, channel = i % vectors * width;
        const float *from = copy.weight + row * copy.channels + channel;
        float values[width];
#pragma unroll
        for (int k = 0; k < width; k++)
            values[k] = channel + k < copy.channels ? from[k] : 0;
        store(static_cast<T *>(copy.copy) + row * copy.pitch + channel, values);
    }
}

__global__ void narrow_kernel(const NarrowCopy *copies)
{
    NarrowCopy copy = copies[blockIdx.y];
    if (copy.element == ELEMENT_BF16)
        round_copy<__nv_bfloat16>(copy);
    else
        round_copy<__half>(copy);
}

} // namespace

extern "C" cudaError_t kernel_narrow_copies(const NarrowCopy *copies, int64_t count, cudaStream_t stream)
{
    if (count == 0)
        return cudaSuccess;
    narrow_kernel<<<dim3(blocks_of_copy, (unsigned)count), block_threads, 0, stream>>>(copies);
    return cudaGetLastError();
}
