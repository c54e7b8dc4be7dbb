/* kernels_common.cuh - shared by the .cu files: wide accesses, launch sizes, choice of the instance for a
 * storage type. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_COMMON_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "trainer/backend/cuda/kernels/kernels.h"

namespace fshard
{

constexpr int block_threads = 256;
/* Enough blocks to fill any card several times over; kernels loop over the rest. */
constexpr int64_t grid_blocks_max = 4096;

inline unsigned grid_blocks(int64_t threads_wanted)
{
    int64_t blocks = (threads_wanted + block_threads - 1) / block_threads;
    return (unsigned)(blocks < grid_blocks_max ? (blocks > 0 ? blocks : 1) : grid_blocks_max);
}

/* Returns as many blocks as have a thread for each of so many elements: of what is small, as a filter is. */
inline unsigned blocks_for(int64_t threads)
{
    return (unsigned)((threads + block_threads - 1) / block_threads);
}

/* Width elements that one instruction loads: 16 bytes are four floats or eight narrow elements. */
template <typename T, int Width> struct alignas(sizeof(T) * Width) Pack {
    T values[Width];
};

template <int Width, typename T> __device__ void load(const T *from, float (&values)[Width])
{
    Pack<T, Width> pack = *reinterpret_cast<const Pack<T, Width> *>(from);
#pragma unroll
    for (int i = 0; i < Width; i++)
        values[i] = (float)pack.values[i];
}

template <int Width, typename T> __device__ void store(T *to, const float (&values)[Width])
{
    Pack<T, Width> pack;
#pragma unroll
    for (int i = 0; i < Width; i++)
        pack.values[i] = (T)values[i];
    *reinterpret_cast<Pack<T, Width> *>(to) = pack;
}

/* The number of elements in one 16-byte access. */
template <typename T> constexpr int vector_width = 16 / (int)sizeof(T);

/* Calls launch(T{}) with the C++ type of the storage type. A new type needs a line here. */
template <typename Launch> cudaError_t with_storage(const DeviceTensor *tensor, Launch launch)
{
    switch (tensor->element) {
    case ELEMENT_F32:
        launch(float{});
        return cudaGetLastError();
    case ELEMENT_BF16:
        launch(__nv_bfloat16{});
        return cudaGetLastError();
    case ELEMENT_F16:
        launch(__half{});
        return cudaGetLastError();
    default:
        return cudaErrorNotSupported;
    }
}

template <typename T> T *data_of(const DeviceTensor *tensor)
{
    return static_cast<T *>(tensor->data);
}

/* Returns the address that instructions on shared memory take. */
__device__ inline unsigned shared_address(const void *memory)
{
    return (unsigned)__cvta_generic_to_shared(memory);
}

/* Returns the most bytes of shared memory that the card allows a block, once cudaFuncSetAttribute has asked
 * for them; 0 where that cannot be found out. */
inline int shared_bytes_most()
{
    int device = 0, most = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess) {
        (void)cudaGetLastError(); /* or the next launch would be blamed for it */
        return 0;
    }
    return most;
}

/* Returns how many of them are left to the kernel as dynamic ones; 0 where that cannot be found out. */
inline int shared_bytes_most(const void *kernel)
{
    const int most = shared_bytes_most();
    cudaFuncAttributes attributes = {};
    if (most == 0 || cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess)
        return 0;
    return most - (int)attributes.sharedSizeBytes;
}

/* Returns whether the tensor is float32 or absent. */
inline bool is_f32(const DeviceTensor *tensor)
{
    return !tensor || tensor->element == ELEMENT_F32;
}

} // namespace fshard

#endif
