/* window.cu - average pools and reflection pads. How work is divided among threads: window_places.cuh. */
#include "trainer/backend/cuda/kernels/channel_tiles.cuh"
#include "trainer/backend/cuda/kernels/kernels_reduce.cuh"
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

constexpr int pool_rows_in_flight = 4;

/* Sums x [N, pixels, pitch] to y [N, pitch] if a sample is one strip of pixels, else to partial [N, pitch,
 * strips]. */
template <int Width, typename T>
__global__ void __launch_bounds__(block_threads, 4)
    global_avg_pool_kernel(const T *x, T *y, float *partial, int pitch,
                           const __grid_constant__ ChannelTiles t)
{
    const ChannelPlace p = channel_place(t);
    const int64_t c = (int64_t)p.column * Width;
    float sums[1][Width] = {};
    for (int64_t first = p.first; first < p.end; first += pool_rows_in_flight * t.lanes) {
        Raw<T, Width> rows[pool_rows_in_flight];
#pragma unroll
        for (int u = 0; u < pool_rows_in_flight; u++)
            if (first + u * t.lanes < p.end)
                rows[u] = fetch<T, Width>(x + (first + u * t.lanes) * pitch + c);
#pragma unroll
        for (int u = 0; u < pool_rows_in_flight; u++)
            if (first + u * t.lanes < p.end) {
                float values[Width];
                unpack(rows[u], values);
#pragma unroll
                for (int k = 0; k < Width; k++)
                    sums[0][k] += values[k];
            }
    }
    if (t.strips > 1) {
        channel_leave_partial(t, p, pitch, sums, partial);
        return;
    }
    if (!channel_sum_lanes(t, p, sums))
        return;
#pragma unroll
    for (int k = 0; k < Width; k++)
        sums[0][k] /= (float)t.rows;
    put(y + (int64_t)p.sample * pitch + c, sums[0]);
}

/* Joins partial [rows, strips] to y [rows]: sums over strips, divided; a warp for each row. */
template <typename T>
__global__ void __launch_bounds__(block_threads)
    global_avg_pool_join_kernel(const float *partial, T *y, int64_t rows, int strips, int64_t pixels)
{
    const int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int lane = (int)threadIdx.x % 32;
    if (row >= rows)
        return;
    double sum = 0;
    for (int i = lane; i < strips; i += 32)
        sum += (double)partial[row * strips + i];
    sum = warp_sum(sum);
    if (lane == 0)
        y[row] = (T)(float)(sum / (double)pixels);
}

/* Returns tiles of whole rows, padding included. */
ChannelTiles pool_tiles(const DeviceTensor *x, int width)
{
    return channel_tiles(x->shape[0], x->shape[1] * x->shape[2], x->pitch / width);
}

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

/* Returns the position on the axis that position h of the padded axis shows; the edge is the mirror. */
__device__ int reflect(int h, int padding, int count)
{
    const int at = abs(h - padding);
    return at < count ? at : 2 * (count - 1) - at;
}

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

/* Sets positions to those of the padded axis that show position h: itself, and its reflections at either
 * edge. Returns how many. */
__device__ int reflections(int h, int padding, int count, int positions[3])
{
    int found = 0;
    positions[found++] = h + padding;
    if (h >= 1 && h <= padding)
        positions[found++] = padding - h;
    if (h <= count - 2 && h >= count - 1 - padding)
        positions[found++] = 2 * (count - 1) - h + padding;
    return found;
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
    const int width = element_is_narrow(x->element) ? 8 : x->pitch % 4 == 0 ? 4 : 1;
    return (uint64_t)channel_partial_count(pool_tiles(x, width), 1, x->pitch) * sizeof(float);
}

extern "C" cudaError_t kernel_global_avg_pool(const DeviceTensor *x, const DeviceTensor *y, void *scratch,
                                              cudaStream_t stream)
{
    return with_vectors(x, x->pitch % 4 == 0, [&](auto zero, auto width) {
        using T = decltype(zero);
        const ChannelTiles tiles = pool_tiles(x, decltype(width)::value);
        float *partial = static_cast<float *>(scratch);
        global_avg_pool_kernel<decltype(width)::value>
            <<<channel_tiles_grid(tiles), block_threads, 0, stream>>>(data_of<T>(x), data_of<T>(y), partial,
                                                                      (int)x->pitch, tiles);
        if (tiles.strips == 1)
            return;
        const int64_t rows = (int64_t)tiles.samples * x->pitch;
        global_avg_pool_join_kernel<<<(unsigned)((rows + block_warps - 1) / block_warps), block_threads, 0,
                                      stream>>>(partial, data_of<T>(y), rows, (int)tiles.strips, tiles.rows);
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
