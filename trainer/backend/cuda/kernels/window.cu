/* window.cu - average pools and reflection pads. How work is divided among threads: window_places.cuh. */
#include "trainer/backend/cuda/kernels/channel_means.cuh"
#include "trainer/backend/cuda/kernels/kernels_window.h"
#include "trainer/backend/cuda/kernels/reflection.cuh"
#include "trainer/backend/cuda/kernels/window_places.cuh"

using namespace fshard;
using namespace fshard::window;

namespace
{

/* ---- average pools ---- */

/* Returns by what the sum of a window is divided. */
__device__ float window_pixels(const PoolShape &pool, const Image &in, int out_row, int out_column)
{
    if (!pool.ceil)
        return (float)(pool.kernel * pool.kernel);
    return (float)(min(pool.kernel, in.height - out_row * pool.stride) *
                   min(pool.kernel, in.width - out_column * pool.stride));
}

template <typename T, int Width>
__global__ void __launch_bounds__(block_threads)
    avg_pool_kernel(const T *x, Image in, PoolShape pool, T *y, Image out, Places places)
{
    const Place p = place_of_thread(places);
    if (!p.exists)
        return;
    const int c = p.vector * Width;
    float sum[Width] = {};
#pragma unroll 2
    for (int i = 0; i < pool.kernel * pool.kernel; i++) {
        const int h = p.h * pool.stride - pool.padding + i / pool.kernel,
                  w = p.w * pool.stride - pool.padding + i % pool.kernel;
        float values[Width] = {};
        if (in.has(h, w))
            unpack(fetch<T, Width>(x + in.element(p.n, h, w, c)), values);
#pragma unroll
        for (int k = 0; k < Width; k++)
            sum[k] += values[k];
    }
    const float pixels = window_pixels(pool, in, p.h, p.w);
#pragma unroll
    for (int k = 0; k < Width; k++)
        sum[k] /= pixels;
    put(y + out.element(p.n, p.h, p.w, c), sum);
}

template <typename T, int Width>
__global__ void __launch_bounds__(block_threads)
    avg_pool_backward_kernel(const T *dy, Image out, PoolShape pool, T *dx, Image in, Places places)
{
    const Place p = place_of_thread(places);
    if (!p.exists)
        return;
    const int c = p.vector * Width;
    const Range rows = windows_over(p.h, out.height, pool), columns = windows_over(p.w, out.width, pool);
    float sum[Width] = {};
    for (int oh = rows.first; oh <= rows.last; oh++)
        for (int ow = columns.first; ow <= columns.last; ow++) {
            float values[Width];
            unpack(fetch<T, Width>(dy + out.element(p.n, oh, ow, c)), values);
#pragma unroll
            for (int k = 0; k < Width; k++)
                sum[k] += values[k];
        }
    const float pixels = window_pixels(pool, in, rows.first, columns.first);
#pragma unroll
    for (int k = 0; k < Width; k++)
        sum[k] /= pixels;
    put(dx + in.element(p.n, p.h, p.w, c), sum);
}

/* An image as it lies there (channel_means.cuh). */
template <typename T, int Width> struct PlainRows {
    static constexpr int in_flight = 4;
    using Row = Raw<T, Width>;
    const T *x;
    int pitch;
    __device__ Row read(int64_t row, int64_t c) const
    {
        return fetch<T, Width>(x + row * pitch + c);
    }
    __device__ void take(const Row &loaded, int64_t, int64_t, float (&values)[Width]) const
    {
        unpack(loaded, values);
    }
};

template <typename T, int Width>
__global__ void __launch_bounds__(block_threads)
    global_avg_pool_backward_kernel(const T *dy, T *dx, Image in, Places places)
{
    const Place p = place_of_thread(places);
    if (!p.exists)
        return;
    const int c = p.vector * Width;
    const float pixels = (float)(in.height * in.width);
    float values[Width];
    unpack(fetch<T, Width>(dy + (int64_t)p.n * in.pitch + c), values);
#pragma unroll
    for (int k = 0; k < Width; k++)
        values[k] /= pixels;
    put(dx + in.element(p.n, p.h, p.w, c), values);
}

/* ---- reflection pad ---- */

template <typename T, int Width>
__global__ void __launch_bounds__(block_threads)
    reflection_pad_kernel(const T *x, Image in, int padding, T *y, Image out, Places places)
{
    const Place p = place_of_thread(places);
    if (!p.exists)
        return;
    const int c = p.vector * Width, h = reflect(p.h, padding, in.height), w = reflect(p.w, padding, in.width);
    *reinterpret_cast<Raw<T, Width> *>(y + out.element(p.n, p.h, p.w, c)) =
        fetch<T, Width>(x + in.element(p.n, h, w, c));
}

template <typename T, int Width>
__global__ void __launch_bounds__(block_threads)
    reflection_pad_backward_kernel(const T *dy, Image out, int padding, T *dx, Image in, Places places)
{
    const Place p = place_of_thread(places);
    if (!p.exists)
        return;
    const int c = p.vector * Width;
    int rows[3], columns[3];
    const int row_count = reflections(p.h, padding, in.height, rows),
              column_count = reflections(p.w, padding, in.width, columns);
    float sum[Width] = {};
#pragma unroll
    for (int a = 0; a < 3; a++)
#pragma unroll
        for (int b = 0; b < 3; b++)
            if (a < row_count && b < column_count) {
                float values[Width];
                unpack(fetch<T, Width>(dy + out.element(p.n, rows[a], columns[b], c)), values);
#pragma unroll
                for (int k = 0; k < Width; k++)
                    sum[k] += values[k];
            }
    put(dx + in.element(p.n, p.h, p.w, c), sum);
}

} // namespace

extern "C" cudaError_t kernel_avg_pool(const DeviceTensor *x, const PoolShape *pool, const DeviceTensor *y,
                                       cudaStream_t stream)
{
    const Image in = image_of(x), out = image_of(y);
    return with_storage_checked(x, [&](auto zero) {
        using T = decltype(zero);
        return for_places<T>(y, 1, [&](auto width, const Places &places, unsigned blocks) {
            avg_pool_kernel<T, decltype(width)::value>
                <<<blocks, block_threads, 0, stream>>>(data_of<T>(x), in, *pool, data_of<T>(y), out, places);
        });
    });
}

extern "C" cudaError_t kernel_avg_pool_backward(const DeviceTensor *dy, const PoolShape *pool,
                                                const DeviceTensor *dx, cudaStream_t stream)
{
    const Image in = image_of(dx), out = image_of(dy);
    return with_storage_checked(dy, [&](auto zero) {
        using T = decltype(zero);
        return for_places<T>(dx, 1, [&](auto width, const Places &places, unsigned blocks) {
            avg_pool_backward_kernel<T, decltype(width)::value><<<blocks, block_threads, 0, stream>>>(
                data_of<T>(dy), out, *pool, data_of<T>(dx), in, places);
        });
    });
}

extern "C" uint64_t kernel_global_avg_pool_scratch_bytes(const DeviceTensor *x)
{
    return mean_scratch_bytes(x);
}

extern "C" cudaError_t kernel_global_avg_pool(const DeviceTensor *x, const DeviceTensor *y, void *scratch,
                                              cudaStream_t stream)
{
    return with_vectors(x, x->pitch % 4 == 0, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int Width = decltype(width)::value;
        means_of<Width, T>(PlainRows<T, Width>{data_of<T>(x), (int)x->pitch}, x, y, scratch, stream);
    });
}

extern "C" cudaError_t kernel_global_avg_pool_backward(const DeviceTensor *dy, const DeviceTensor *dx,
                                                       cudaStream_t stream)
{
    const Image in = image_of(dx);
    return with_storage_checked(dy, [&](auto zero) {
        using T = decltype(zero);
        return for_places<T>(dx, 1, [&](auto width, const Places &places, unsigned blocks) {
            global_avg_pool_backward_kernel<T, decltype(width)::value>
                <<<blocks, block_threads, 0, stream>>>(data_of<T>(dy), data_of<T>(dx), in, places);
        });
    });
}

extern "C" cudaError_t kernel_reflection_pad(const DeviceTensor *x, int padding, const DeviceTensor *y,
                                             cudaStream_t stream)
{
    const Image in = image_of(x), out = image_of(y);
    return with_storage_checked(x, [&](auto zero) {
        using T = decltype(zero);
        return for_places<T>(y, 1, [&](auto width, const Places &places, unsigned blocks) {
            reflection_pad_kernel<T, decltype(width)::value><<<blocks, block_threads, 0, stream>>>(
                data_of<T>(x), in, padding, data_of<T>(y), out, places);
        });
    });
}

extern "C" cudaError_t kernel_reflection_pad_backward(const DeviceTensor *dy, int padding,
                                                      const DeviceTensor *dx, cudaStream_t stream)
{
    const Image in = image_of(dx), out = image_of(dy);
    return with_storage_checked(dy, [&](auto zero) {
        using T = decltype(zero);
        return for_places<T>(dx, 1, [&](auto width, const Places &places, unsigned blocks) {
            reflection_pad_backward_kernel<T, decltype(width)::value><<<blocks, block_threads, 0, stream>>>(
                data_of<T>(dy), out, padding, data_of<T>(dx), in, places);
        });
    });
}
