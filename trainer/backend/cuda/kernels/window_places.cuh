/* window_places.cuh - shared by max_pool.cu, norm_pool.cu, stem_image.cuh and window.cu. Each element of a
 * result, of a gradient too, gathers what it is made of, so there are no atomics. A thread computes 16 bytes
 * of channels of one pixel (of a small tile of pixels if windows overlap); neighbouring threads take
 * neighbouring channels, then pixels, so that accesses are dense and what windows share is found in the
 * cache. Device memory moves each operand once. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_WINDOW_PLACES_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_WINDOW_PLACES_CUH

#include "trainer/backend/cuda/kernels/divider.cuh"
#include "trainer/backend/cuda/kernels/kernels_window.h"
#include "trainer/backend/cuda/kernels/rows.cuh"

namespace fshard
{
namespace window
{

/* The work of a launch: `vectors` of 16 bytes (or single floats) for each of height x width places of each
 * image. */
struct Places {
    int height, width, vectors;
    Divider by_height, by_width, by_vectors;
    int64_t total;
    Places(int64_t images, int height_, int width_, int vectors_)
        : height(height_), width(width_), vectors(vectors_), by_height(height_), by_width(width_),
          by_vectors(vectors_), total(images * height_ * width_ * vectors_)
    {
    }
};

struct Place {
    int n, h, w, vector;
    bool exists;
};

__device__ inline Place place_of_thread(const Places &places)
{
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned v = (unsigned)thread, pixel = places.by_vectors.quotient(v),
                   row = places.by_width.quotient(pixel), n = places.by_height.quotient(row);
    Place place;
    place.exists = thread < places.total;
    place.vector = (int)(v - pixel * (unsigned)places.vectors);
    place.w = (int)(pixel - row * (unsigned)places.width);
    place.h = (int)(row - n * (unsigned)places.height);
    place.n = (int)n;
    return place;
}

/* [N, H, W, C] in memory, pixels `pitch` elements apart. */
struct Image {
    int height, width, pitch, channels;
    __device__ int64_t pixel(int n, int h, int w) const
    {
        return ((int64_t)n * height + h) * width + w;
    }
    __device__ int64_t element(int n, int h, int w, int c) const
    {
        return pixel(n, h, w) * pitch + c;
    }
    __device__ bool has(int h, int w) const
    {
        return (unsigned)h < (unsigned)height && (unsigned)w < (unsigned)width;
    }
};

inline Image image_of(const DeviceTensor *tensor)
{
    return {(int)tensor->shape[1], (int)tensor->shape[2], (int)tensor->pitch, (int)tensor->shape[3]};
}

/* Launches kernel<T, Width>(…) for every place of the image. cudaErrorNotSupported: there are 2^31 places or
 * more. */
template <typename T, typename Launch>
cudaError_t for_places(const DeviceTensor *image, int tile, Launch launch)
{
    const int width = width_for<T>(image);
    const Places places(image->shape[0], (int)((image->shape[1] + tile - 1) / tile),
                        (int)((image->shape[2] + tile - 1) / tile), (int)(image->pitch / width));
    if (places.total >= INT64_C(1) << 31)
        return cudaErrorNotSupported;
    const unsigned blocks = (unsigned)((places.total + block_threads - 1) / block_threads);
    if constexpr (sizeof(T) != 2)
        if (width == 1) {
            launch(std::integral_constant<int, 1>{}, places, blocks);
            return cudaGetLastError();
        }
    launch(std::integral_constant<int, vector_width<T>>{}, places, blocks);
    return cudaGetLastError();
}

/* Does what with_storage does, for launches that return a code of their own. */
template <typename Launch> cudaError_t with_storage_checked(const DeviceTensor *tensor, Launch launch)
{
    cudaError_t code = cudaSuccess;
    const cudaError_t launched = with_storage(tensor, [&](auto zero) { code = launch(zero); });
    return code != cudaSuccess ? code : launched;
}

/* The windows of a pool that contain position h of the input: first .. last. */
struct Range {
    int first, last;
};

__device__ inline Range windows_over(int h, int count, const PoolShape &pool)
{
    const int from = h + pool.padding - pool.kernel + 1;
    return {from > 0 ? (from + pool.stride - 1) / pool.stride : 0,
            min((h + pool.padding) / pool.stride, count - 1)};
}

} // namespace window
} // namespace fshard

#endif
