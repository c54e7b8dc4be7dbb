/* window.cu - pools and reflection pads: each element of the result gathers what it is made of, the gradients
 * too, so nothing is added by atomics. A block makes one row of one image, all columns and channels;
 * neighbouring threads take neighbouring channels, so that accesses are dense. */
#include "trainer/backend/cuda/kernels_common.cuh"
#include "trainer/backend/cuda/kernels_window.h"

using namespace fshard;

namespace
{

/* [N, H, W, C]; rows: N * H, the grid. */
struct Image {
    int64_t rows;
    int height, width, channels;
};

Image image_of(const DeviceTensor *tensor)
{
    return {tensor->shape[0] * tensor->shape[1], (int)tensor->shape[1], (int)tensor->shape[2],
            (int)tensor->shape[3]};
}

/* Calls body(n, h, w, c, i) for each element i of row blockIdx.x. */
template <typename Body> __device__ void for_row(const Image &image, Body body)
{
    int64_t row = blockIdx.x, n = row / image.height;
    int h = (int)(row % image.height);
    for (int e = (int)threadIdx.x; e < image.width * image.channels; e += (int)blockDim.x)
        body(n, h, e / image.channels, e % image.channels, row * image.width * image.channels + e);
}

__device__ int64_t element(const Image &image, int64_t n, int h, int w, int c)
{
    return ((n * image.height + h) * image.width + w) * image.channels + c;
}

/* The windows of a pool that hold position h of the input: first .. last. */
struct Range {
    int first, last;
};
__device__ Range windows_over(int h, int count, const PoolShape &pool)
{
    int from = h + pool.padding - pool.kernel + 1;
    return {from > 0 ? (from + pool.stride - 1) / pool.stride : 0,
            min((h + pool.padding) / pool.stride, count - 1)};
}

template <typename T>
__global__ void max_pool_kernel(const T *x, Image in, PoolShape pool, T *y, uint8_t *index, Image out)
{
    for_row(out, [&](int64_t n, int oh, int ow, int c, int64_t i) {
        float best = -INFINITY;
        int best_position = -1;
        for (int kh = 0; kh < pool.kernel; kh++)
            for (int kw = 0; kw < pool.kernel; kw++) {
                int h = oh * pool.stride - pool.padding + kh, w = ow * pool.stride - pool.padding + kw;
                if (h < 0 || h >= in.height || w < 0 || w >= in.width)
                    continue;
                float value = (float)x[element(in, n, h, w, c)];
                if (best_position < 0 || value > best || isnan(value)) {
                    best = value;
                    best_position = kh * pool.kernel + kw;
                }
            }
        y[i] = (T)best;
        index[i] = (uint8_t)best_position;
    });
}

template <typename T>
__global__ void max_pool_backward_kernel(const T *dy, const uint8_t *index, Image out, PoolShape pool, T *dx,
                                         Image in)
{
    for_row(in, [&](int64_t n, int h, int w, int c, int64_t i) {
        Range rows = windows_over(h, out.height, pool), columns = windows_over(w, out.width, pool);
        float sum = 0;
        for (int oh = rows.first; oh <= rows.last; oh++)
            for (int ow = columns.first; ow <= columns.last; ow++) {
                int64_t o = element(out, n, oh, ow, c);
                int kh = h + pool.padding - oh * pool.stride, kw = w + pool.padding - ow * pool.stride;
                if (index[o] == kh * pool.kernel + kw)
                    sum += (float)dy[o];
            }
        dx[i] = (T)sum;
    });
}

template <typename T> __global__ void avg_pool_kernel(const T *x, Image in, PoolShape pool, T *y, Image out)
{
    for_row(out, [&](int64_t n, int oh, int ow, int c, int64_t i) {
        float sum = 0;
        for (int kh = 0; kh < pool.kernel; kh++)
            for (int kw = 0; kw < pool.kernel; kw++) {
                int h = oh * pool.stride - pool.padding + kh, w = ow * pool.stride - pool.padding + kw;
                if (h >= 0 && h < in.height && w >= 0 && w < in.width)
                    sum += (float)x[element(in, n, h, w, c)];
            }
        y[i] = (T)(sum / (float)(pool.kernel * pool.kernel));
    });
}

template <typename T>
__global__ void avg_pool_backward_kernel(const T *dy, Image out, PoolShape pool, T *dx, Image in)
{
    for_row(in, [&](int64_t n, int h, int w, int c, int64_t i) {
        Range rows = windows_over(h, out.height, pool), columns = windows_over(w, out.width, pool);
        float sum = 0;
        for (int oh = rows.first; oh <= rows.last; oh++)
            for (int ow = columns.first; ow <= columns.last; ow++)
                sum += (float)dy[element(out, n, oh, ow, c)];
        dx[i] = (T)(sum / (float)(pool.kernel * pool.kernel));
    });
}

constexpr int pool_lanes = 8; /* rows of a block that share the pixels of 32 channels */

template <typename T> __global__ void global_avg_pool_kernel(const T *x, T *y, int pixels, int channels)
{
    __shared__ float lanes[pool_lanes][32];
    int c = (int)(blockIdx.y * 32 + threadIdx.x), lane = (int)threadIdx.y;
    float sum = 0;
    if (c < channels)
        for (int p = lane; p < pixels; p += pool_lanes)
            sum += (float)x[((int64_t)blockIdx.x * pixels + p) * channels + c];
    lanes[lane][threadIdx.x] = sum;
    __syncthreads();
    if (lane > 0 || c >= channels)
        return;
    for (int i = 1; i < pool_lanes; i++)
        sum += lanes[i][threadIdx.x];
    y[(int64_t)blockIdx.x * channels + c] = (T)(sum / (float)pixels);
}

template <typename T> __global__ void global_avg_pool_backward_kernel(const T *dy, T *dx, Image in)
{
    float pixels = (float)(in.height * in.width);
    for_row(in, [&](int64_t n, int, int, int c, int64_t i) {
        dx[i] = (T)((float)dy[n * in.channels + c] / pixels);
    });
}

/* Position h of the padded axis in the axis itself: the edge is the mirror. */
__device__ int reflect(int h, int padding, int count)
{
    int at = abs(h - padding);
    return at < count ? at : 2 * (count - 1) - at;
}

template <typename T>
__global__ void reflection_pad_kernel(const T *x, Image in, int padding, T *y, Image out)
{
    for_row(out, [&](int64_t n, int h, int w, int c, int64_t i) {
        y[i] = x[element(in, n, reflect(h, padding, in.height), reflect(w, padding, in.width), c)];
    });
}

/* The positions of the padded axis that show position h: itself, and its images beyond either edge. Returns
 * how many. */
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

template <typename T>
__global__ void reflection_pad_backward_kernel(const T *dy, Image out, int padding, T *dx, Image in)
{
    for_row(in, [&](int64_t n, int h, int w, int c, int64_t i) {
        int rows[3], columns[3];
        int row_count = reflections(h, padding, in.height, rows),
            column_count = reflections(w, padding, in.width, columns);
        float sum = 0;
        for (int a = 0; a < row_count; a++)
            for (int b = 0; b < column_count; b++)
                sum += (float)dy[element(out, n, rows[a], columns[b], c)];
        dx[i] = (T)sum;
    });
}

} // namespace

extern "C" cudaError_t kernel_max_pool(const DeviceTensor *x, const PoolShape *pool, const DeviceTensor *y,
                                       const DeviceTensor *index, cudaStream_t stream)
{
    Image in = image_of(x), out = image_of(y);
    if (index->element != ELEMENT_U8 || pool->kernel > 16)
        return cudaErrorNotSupported;
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        max_pool_kernel<<<(unsigned)out.rows, block_threads, 0, stream>>>(
            data_of<T>(x), in, *pool, data_of<T>(y), data_of<uint8_t>(index), out);
    });
}

extern "C" cudaError_t kernel_max_pool_backward(const DeviceTensor *dy, const DeviceTensor *index,
                                                const PoolShape *pool, const DeviceTensor *dx,
                                                cudaStream_t stream)
{
    Image in = image_of(dx), out = image_of(dy);
    if (index->element != ELEMENT_U8)
        return cudaErrorNotSupported;
    return with_storage(dy, [&](auto zero) {
        using T = decltype(zero);
        max_pool_backward_kernel<<<(unsigned)in.rows, block_threads, 0, stream>>>(
            data_of<T>(dy), data_of<uint8_t>(index), out, *pool, data_of<T>(dx), in);
    });
}

extern "C" cudaError_t kernel_avg_pool(const DeviceTensor *x, const PoolShape *pool, const DeviceTensor *y,
                                       cudaStream_t stream)
{
    Image in = image_of(x), out = image_of(y);
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        avg_pool_kernel<<<(unsigned)out.rows, block_threads, 0, stream>>>(data_of<T>(x), in, *pool,
                                                                          data_of<T>(y), out);
    });
}

extern "C" cudaError_t kernel_avg_pool_backward(const DeviceTensor *dy, const PoolShape *pool,
                                                const DeviceTensor *dx, cudaStream_t stream)
{
    Image in = image_of(dx), out = image_of(dy);
    return with_storage(dy, [&](auto zero) {
        using T = decltype(zero);
        avg_pool_backward_kernel<<<(unsigned)in.rows, block_threads, 0, stream>>>(data_of<T>(dy), out, *pool,
                                                                                  data_of<T>(dx), in);
    });
}

extern "C" cudaError_t kernel_global_avg_pool(const DeviceTensor *x, const DeviceTensor *y,
                                              cudaStream_t stream)
{
    Image in = image_of(x);
    dim3 grid((unsigned)x->shape[0], (unsigned)((in.channels + 31) / 32));
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        global_avg_pool_kernel<<<grid, dim3(32, pool_lanes), 0, stream>>>(data_of<T>(x), data_of<T>(y),
                                                                          in.height * in.width, in.channels);
    });
}

extern "C" cudaError_t kernel_global_avg_pool_backward(const DeviceTensor *dy, const DeviceTensor *dx,
                                                       cudaStream_t stream)
{
    Image in = image_of(dx);
    return with_storage(dy, [&](auto zero) {
        using T = decltype(zero);
        global_avg_pool_backward_kernel<<<(unsigned)in.rows, block_threads, 0, stream>>>(data_of<T>(dy),
                                                                                         data_of<T>(dx), in);
    });
}

extern "C" cudaError_t kernel_reflection_pad(const DeviceTensor *x, int padding, const DeviceTensor *y,
                                             cudaStream_t stream)
{
    Image in = image_of(x), out = image_of(y);
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        reflection_pad_kernel<<<(unsigned)out.rows, block_threads, 0, stream>>>(data_of<T>(x), in, padding,
                                                                                data_of<T>(y), out);
    });
}

extern "C" cudaError_t kernel_reflection_pad_backward(const DeviceTensor *dy, int padding,
                                                      const DeviceTensor *dx, cudaStream_t stream)
{
    Image in = image_of(dx), out = image_of(dy);
    return with_storage(dy, [&](auto zero) {
        using T = decltype(zero);
        reflection_pad_backward_kernel<<<(unsigned)in.rows, block_threads, 0, stream>>>(
            data_of<T>(dy), out, padding, data_of<T>(dx), in);
    });
}
