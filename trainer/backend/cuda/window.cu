/* window.cu - pools and reflection pads: each element of the result gathers what it is made of, the gradients too, so nothing is
 * added by atomics. A thread makes 16 bytes of channels of one pixel (of a small tile of pixels, where windows overlap);
 * neighbouring threads take neighbouring channels, then pixels, so that accesses are dense and what windows share is found in the
 * cache. Bytes: each operand once, from device memory. */
#include "trainer/backend/cuda/channel_tiles.cuh"
#include "trainer/backend/cuda/kernels_reduce.cuh"
#include "trainer/backend/cuda/kernels_window.h"
#include "trainer/backend/cuda/rows.cuh"

using namespace fshard;

namespace
{

/* Division of numbers below 2^31 by one divisor, as a multiplication (Granlund and Montgomery 1994). */
struct Divider {
    unsigned divisor, factor, shift;
    explicit Divider(int d) : divisor((unsigned)d), factor(0), shift(0)
    {
        while ((1ULL << shift) < divisor)
            shift++;
        factor = (unsigned)((((1ULL << shift) - divisor) << 32) / divisor + 1);
    }
    __device__ unsigned quotient(unsigned n) const
    {
        return (__umulhi(n, factor) + n) >> shift;
    }
};

/* What threads are dealt: `vectors` of 16 bytes (or single floats) for each of height x width places of each image. */
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

__device__ Place place_of_thread(const Places &places)
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

/* [N, H, W, C] as it lies: pitch elements from pixel to pixel. */
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

Image image_of(const DeviceTensor *tensor)
{
    return {(int)tensor->shape[1], (int)tensor->shape[2], (int)tensor->pitch, (int)tensor->shape[3]};
}

/* Launches kernel<T, Width>(…) for every place of the image. False where the places are too many to count. */
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

/* As with_storage, for launches that give a code of their own. */
template <typename Launch> cudaError_t with_storage_checked(const DeviceTensor *tensor, Launch launch)
{
    cudaError_t code = cudaSuccess;
    const cudaError_t launched = with_storage(tensor, [&](auto zero) { code = launch(zero); });
    return code != cudaSuccess ? code : launched;
}

/* ---- max pool ---- */

/* The places of maxima, u8, packed: pitch need not be that of the image. */
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
        pack.values[k] = c + k < index_pitch ? from[k] : 0; /* what lies between is 0 in dy */
    return pack;
}

/* The first of equals stays; NaN wins, as in PyTorch. */
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

/* Kernel: known when compiling, so that all of a window is in flight at once, or 0. */
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

/* The windows of a pool that hold position h of the input: first .. last. */
struct Range {
    int first, last;
};
__device__ Range windows_over(int h, int count, const PoolShape &pool)
{
    const int from = h + pool.padding - pool.kernel + 1;
    return {from > 0 ? (from + pool.stride - 1) / pool.stride : 0,
            min((h + pool.padding) / pool.stride, count - 1)};
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

/* The same where the shape is known when compiling: a thread makes Stride x Stride pixels out of the Windows x Windows windows that
 * hold any of them, all in flight at once. */
template <typename T, int Width, int Kernel, int Stride, int Padding>
__global__ void __launch_bounds__(block_threads)
    max_pool_backward_tile_kernel(const T *dy, const uint8_t *index, int index_pitch, Image out, T *dx,
                                  Image in, Places places)
{
    /* Of pixel q * Stride + r: windows q + first(r) .. q + last(r). */
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
            /* Where in the window this pixel lies. */
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

/* ---- average pools ---- */

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
#pragma unroll
    for (int k = 0; k < Width; k++)
        sum[k] /= (float)(pool.kernel * pool.kernel);
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
#pragma unroll
    for (int k = 0; k < Width; k++)
        sum[k] /= (float)(pool.kernel * pool.kernel);
    put(dx + in.element(p.n, p.h, p.w, c), sum);
}

constexpr int pool_rows_in_flight = 4;

/* x [N, pixels, pitch] -> y [N, pitch] where a sample is one strip of pixels, else partial [N, pitch, strips]. */
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

/* partial [rows, strips] -> y [rows]: sums over strips, divided; a warp for each row. */
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

/* Tiles of whole rows, pads too. */
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

/* Position h of the padded axis in the axis itself: the edge is the mirror. */
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

/* The positions of the padded axis that show position h: itself, and its images beyond either edge. Returns how many. */
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
