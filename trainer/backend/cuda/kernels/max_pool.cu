/* max_pool.cu - max pools. How work is divided among threads: window_places.cuh. */
#include "trainer/backend/cuda/kernels/window_places.cuh"

using namespace fshard;
using namespace fshard::window;

namespace
{

/* Places of maxima, u8, packed; the pitch may differ from the image's. */
template <int Width> struct alignas(Width) Places8 {
    uint8_t values[Width];
};

template <int Width>
__device__ void put_index(uint8_t *index, const Image &like, int index_pitch, int64_t pixel, int c,
                          const int (&positions)[Width])
{
    uint8_t *to = index + pixel * index_pitch + c;
    if (index_pitch == like.pitch) {
        Places8<Width> pack;
#pragma unroll
        for (int k = 0; k < Width; k++)
            pack.values[k] = (uint8_t)positions[k];
        *reinterpret_cast<Places8<Width> *>(to) = pack;
        return;
    }
#pragma unroll
    for (int k = 0; k < Width; k++)
        if (c + k < index_pitch)
            to[k] = (uint8_t)positions[k];
}

template <int Width>
__device__ Places8<Width> fetch_index(const uint8_t *index, const Image &like, int index_pitch, int64_t pixel,
                                      int c)
{
    const uint8_t *from = index + pixel * index_pitch + c;
    if (index_pitch == like.pitch)
        return *reinterpret_cast<const Places8<Width> *>(from);
    Places8<Width> pack;
#pragma unroll
    for (int k = 0; k < Width; k++)
        pack.values[k] = c + k < index_pitch ? from[k] : 0; /* in the padding dy is 0 */
    return pack;
}

/* Takes a value into the maximum: of equal values the first stays, and NaN wins, as in PyTorch. */
template <typename T, int Width>
__device__ void meet(const Raw<T, Width> &raw, int position, float (&best)[Width], int (&positions)[Width])
{
    float values[Width];
    unpack(raw, values);
#pragma unroll
    for (int k = 0; k < Width; k++) {
        const bool wins = positions[k] < 0 || values[k] > best[k] || isnan(values[k]);
        best[k] = wins ? values[k] : best[k];
        positions[k] = wins ? position : positions[k];
    }
}

/* Computes maxima and their places. Kernel: the size if the compiler knows it, so that all loads of a window
 * are in flight at once; else 0. */
template <typename T, int Width, int Kernel>
__global__ void __launch_bounds__(block_threads)
    max_pool_kernel(const T *x, Image in, PoolShape pool, T *y, uint8_t *index, int index_pitch, Image out,
                    Places places)
{
    const Place p = place_of_thread(places);
    if (!p.exists)
        return;
    const int c = p.vector * Width, top = p.h * pool.stride - pool.padding,
              left = p.w * pool.stride - pool.padding;
    float best[Width];
    int positions[Width];
#pragma unroll
    for (int k = 0; k < Width; k++) {
        best[k] = 0;
        positions[k] = -1;
    }
    if constexpr (Kernel > 0) {
        Raw<T, Width> window[Kernel * Kernel];
#pragma unroll
        for (int i = 0; i < Kernel * Kernel; i++)
            if (in.has(top + i / Kernel, left + i % Kernel))
                window[i] = fetch<T, Width>(x + in.element(p.n, top + i / Kernel, left + i % Kernel, c));
#pragma unroll
        for (int i = 0; i < Kernel * Kernel; i++)
            if (in.has(top + i / Kernel, left + i % Kernel))
                meet<T, Width>(window[i], i, best, positions);
    } else {
        for (int i = 0; i < pool.kernel * pool.kernel; i++) {
            const int h = top + i / pool.kernel, w = left + i % pool.kernel;
            if (in.has(h, w))
                meet<T, Width>(fetch<T, Width>(x + in.element(p.n, h, w, c)), i, best, positions);
        }
    }
    put(y + out.element(p.n, p.h, p.w, c), best);
    put_index<Width>(index, out, index_pitch, out.pixel(p.n, p.h, p.w), c, positions);
}

template <typename T, int Width>
__global__ void __launch_bounds__(block_threads)
    max_pool_backward_kernel(const T *dy, const uint8_t *index, int index_pitch, Image out, PoolShape pool,
                             T *dx, Image in, Places places)
{
    const Place p = place_of_thread(places);
    if (!p.exists)
        return;
    const int c = p.vector * Width;
    const Range rows = windows_over(p.h, out.height, pool), columns = windows_over(p.w, out.width, pool);
    float sum[Width] = {};
    for (int oh = rows.first; oh <= rows.last; oh++)
        for (int ow = columns.first; ow <= columns.last; ow++) {
            const int position =
                (p.h + pool.padding - oh * pool.stride) * pool.kernel + p.w + pool.padding - ow * pool.stride;
            const Places8<Width> where =
                fetch_index<Width>(index, out, index_pitch, out.pixel(p.n, oh, ow), c);
            float values[Width];
            unpack(fetch<T, Width>(dy + out.element(p.n, oh, ow, c)), values);
#pragma unroll
            for (int k = 0; k < Width; k++)
                sum[k] += where.values[k] == position ? values[k] : 0;
        }
    put(dx + in.element(p.n, p.h, p.w, c), sum);
}

/* Computes the gradient for a shape known to the compiler: a thread computes Stride x Stride pixels from the
 * windows x windows windows that contain any of them, all in flight at once. */
template <typename T, int Width, int Kernel, int Stride, int Padding>
__global__ void __launch_bounds__(block_threads)
    max_pool_backward_tile_kernel(const T *dy, const uint8_t *index, int index_pitch, Image out, T *dx,
                                  Image in, Places places)
{
    /* Pixel q * Stride + r lies in windows q + first(r) .. q + last(r). */
    constexpr int first = -((Kernel - 1 - Padding) / Stride), last = (Stride - 1 + Padding) / Stride;
    constexpr int windows = last - first + 1;
    const Place p = place_of_thread(places);
    if (!p.exists)
        return;
    const int c = p.vector * Width;
    Raw<T, Width> gradients[windows * windows];
    Places8<Width> where[windows * windows];
#pragma unroll
    for (int i = 0; i < windows * windows; i++) {
        const int oh = p.h + first + i / windows, ow = p.w + first + i % windows;
        if (out.has(oh, ow)) {
            gradients[i] = fetch<T, Width>(dy + out.element(p.n, oh, ow, c));
            where[i] = fetch_index<Width>(index, out, index_pitch, out.pixel(p.n, oh, ow), c);
        }
    }
    float sums[Stride * Stride][Width] = {};
#pragma unroll
    for (int i = 0; i < windows * windows; i++) {
        if (!out.has(p.h + first + i / windows, p.w + first + i % windows))
            continue;
        float values[Width];
        unpack(gradients[i], values);
#pragma unroll
        for (int r = 0; r < Stride * Stride; r++) {
            /* The pixel's place in the window. */
            const int kh = r / Stride + Padding - (first + i / windows) * Stride,
                      kw = r % Stride + Padding - (first + i % windows) * Stride;
            if (kh < 0 || kh >= Kernel || kw < 0 || kw >= Kernel)
                continue;
#pragma unroll
            for (int k = 0; k < Width; k++)
                sums[r][k] += where[i].values[k] == kh * Kernel + kw ? values[k] : 0;
        }
    }
#pragma unroll
    for (int r = 0; r < Stride * Stride; r++) {
        const int h = p.h * Stride + r / Stride, w = p.w * Stride + r % Stride;
        if (in.has(h, w))
            put(dx + in.element(p.n, h, w, c), sums[r]);
    }
}

bool pool_is(const PoolShape *pool, int kernel, int stride, int padding)
{
    return pool->kernel == kernel && pool->stride == stride && pool->padding == padding;
}

} // namespace

extern "C" cudaError_t kernel_max_pool(const DeviceTensor *x, const PoolShape *pool, const DeviceTensor *y,
                                       const DeviceTensor *index, cudaStream_t stream)
{
    const Image in = image_of(x), out = image_of(y);
    const int index_pitch = (int)index->pitch;
    if (index->element != ELEMENT_U8 || pool->kernel > 16)
        return cudaErrorNotSupported;
    return with_storage_checked(x, [&](auto zero) {
        using T = decltype(zero);
        return for_places<T>(y, 1, [&](auto width, const Places &places, unsigned blocks) {
            constexpr int Width = decltype(width)::value;
            auto kernel = pool->kernel == 3   ? max_pool_kernel<T, Width, 3>
                          : pool->kernel == 2 ? max_pool_kernel<T, Width, 2>
                                              : max_pool_kernel<T, Width, 0>;
            kernel<<<blocks, block_threads, 0, stream>>>(data_of<T>(x), in, *pool, data_of<T>(y),
                                                         data_of<uint8_t>(index), index_pitch, out, places);
        });
    });
}

extern "C" cudaError_t kernel_max_pool_backward(const DeviceTensor *dy, const DeviceTensor *index,
                                                const PoolShape *pool, const DeviceTensor *dx,
                                                cudaStream_t stream)
{
    const Image in = image_of(dx), out = image_of(dy);
    const int index_pitch = (int)index->pitch;
    const bool is_3_2_1 = pool_is(pool, 3, 2, 1), is_2_2_0 = pool_is(pool, 2, 2, 0);
    if (index->element != ELEMENT_U8)
        return cudaErrorNotSupported;
    return with_storage_checked(dy, [&](auto zero) {
        using T = decltype(zero);
        return for_places<T>(
            dx, is_3_2_1 || is_2_2_0 ? 2 : 1, [&](auto width, const Places &places, unsigned blocks) {
                constexpr int Width = decltype(width)::value;
                const T *gradient = data_of<T>(dy);
                const uint8_t *where = data_of<uint8_t>(index);
                if (is_3_2_1)
                    max_pool_backward_tile_kernel<T, Width, 3, 2, 1><<<blocks, block_threads, 0, stream>>>(
                        gradient, where, index_pitch, out, data_of<T>(dx), in, places);
                else if (is_2_2_0)
                    max_pool_backward_tile_kernel<T, Width, 2, 2, 0><<<blocks, block_threads, 0, stream>>>(
                        gradient, where, index_pitch, out, data_of<T>(dx), in, places);
                else
                    max_pool_backward_kernel<T, Width><<<blocks, block_threads, 0, stream>>>(
                        gradient, where, index_pitch, out, *pool, data_of<T>(dx), in, places);
            });
    });
}
