/* elementwise.cu - operations that read each element once and write each element once: bound by memory, so
 * four elements of a thread travel in one 16-byte access where shapes allow it. */
#include "trainer/backend/cuda/kernels_common.cuh"
#include "trainer/backend/cuda/kernels_pointwise.h"

using namespace fshard;

extern "C" int64_t device_tensor_count(const DeviceTensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; i++)
        count *= tensor->shape[i];
    return count;
}

extern "C" int64_t device_tensor_channels(const DeviceTensor *tensor)
{
    return tensor->shape[tensor->rank - 1];
}

extern "C" int64_t device_tensor_rows(const DeviceTensor *tensor)
{
    return device_tensor_count(tensor) / device_tensor_channels(tensor);
}

extern "C" int64_t device_tensor_stored(const DeviceTensor *tensor)
{
    return tensor->rows * tensor->pitch;
}

namespace
{

/* y[i] = function(a[i], b[i]). The last count % 4 elements go to the first threads. */
template <typename T, typename Function>
__global__ void map_kernel(const T *a, const T *b, T *y, int64_t count, Function function)
{
    int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x,
            threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = thread; i < count / 4; i += threads) {
        float from_a[4], from_b[4];
        load(a + 4 * i, from_a);
        load(b + 4 * i, from_b);
#pragma unroll
        for (int k = 0; k < 4; k++)
            from_a[k] = function(from_a[k], from_b[k]);
        store(y + 4 * i, from_a);
    }
    if (thread < count % 4) {
        int64_t i = count - 1 - thread;
        y[i] = (T)function((float)a[i], (float)b[i]);
    }
}

/* b may be a: the second load of the same address costs nothing. */
template <typename Function>
cudaError_t map(const DeviceTensor *a, const DeviceTensor *b, const DeviceTensor *y, Function function,
                cudaStream_t stream)
{
    int64_t count = device_tensor_count(y);
    return with_storage(y, [&](auto zero) {
        using T = decltype(zero);
        map_kernel<T><<<grid_blocks((count + 3) / 4), block_threads, 0, stream>>>(
            data_of<T>(a), data_of<T>(b), data_of<T>(y), count, function);
    });
}

template <typename T> __global__ void fill_kernel(T *y, int64_t count, float value)
{
    int64_t threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads)
        y[i] = (T)value;
}

struct ChannelConstants {
    float mean[4], deviation[4];
};

template <typename T>
__global__ void normalize_kernel(const uint8_t *x, T *y, int64_t count, int channels,
                                 const __grid_constant__ ChannelConstants constants)
{
    int64_t threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        int c = (int)(i % channels);
        y[i] = (T)(((float)x[i] - constants.mean[c]) / constants.deviation[c]);
    }
}

/* Transposes each sample's matrix [rows, columns], a tile of 32 x 32 in a block at a time; the 33rd column
 * keeps the banks of shared memory apart. */
template <typename T>
__global__ void transpose_kernel(const T *x, T *y, int64_t samples, int rows, int columns)
{
    __shared__ float tile[32][33];
    int row0 = (int)blockIdx.y * 32, column0 = (int)blockIdx.x * 32, lane = (int)threadIdx.x;
    for (int64_t sample = blockIdx.z; sample < samples; sample += gridDim.z) {
        const T *from = x + sample * rows * columns;
        T *to = y + sample * rows * columns;
        for (int i = (int)threadIdx.y; i < 32; i += (int)blockDim.y)
            if (row0 + i < rows && column0 + lane < columns)
                tile[i][lane] = (float)from[(int64_t)(row0 + i) * columns + column0 + lane];
        __syncthreads();
        for (int i = (int)threadIdx.y; i < 32; i += (int)blockDim.y)
            if (column0 + i < columns && row0 + lane < rows)
                to[(int64_t)(column0 + i) * rows + row0 + lane] = (T)tile[lane][i];
        __syncthreads();
    }
}

cudaError_t transpose(const DeviceTensor *x, const DeviceTensor *y, int64_t samples, int64_t rows,
                      int64_t columns, cudaStream_t stream)
{
    constexpr int64_t grid_z_max = 65535;
    dim3 grid((unsigned)((columns + 31) / 32), (unsigned)((rows + 31) / 32),
              (unsigned)(samples < grid_z_max ? samples : grid_z_max));
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        transpose_kernel<T><<<grid, dim3(32, 8), 0, stream>>>(data_of<T>(x), data_of<T>(y), samples,
                                                              (int)rows, (int)columns);
    });
}

struct Rectify {
    float slope;
    __device__ float operator()(float x, float) const
    {
        return x > 0 ? x : slope * x;
    }
};

struct RectifyBackward {
    float slope;
    __device__ float operator()(float dy, float y) const
    {
        return y > 0 ? dy : slope * dy;
    }
};

struct Add {
    __device__ float operator()(float a, float b) const
    {
        return a + b;
    }
};

} // namespace

extern "C" cudaError_t kernel_fill(const DeviceTensor *y, float value, cudaStream_t stream)
{
    int64_t count = device_tensor_count(y);
    return with_storage(y, [&](auto zero) {
        using T = decltype(zero);
        fill_kernel<T><<<grid_blocks(count), block_threads, 0, stream>>>(data_of<T>(y), count, value);
    });
}

extern "C" cudaError_t kernel_normalize(const DeviceTensor *x, const float *mean, const float *deviation,
                                        const DeviceTensor *y, cudaStream_t stream)
{
    int64_t count = device_tensor_count(x), channels = device_tensor_channels(x);
    if (x->element != ELEMENT_U8 || channels > 4)
        return cudaErrorNotSupported;
    ChannelConstants constants = {};
    for (int64_t c = 0; c < channels; c++) {
        constants.mean[c] = mean[c];
        constants.deviation[c] = deviation[c];
    }
    return with_storage(y, [&](auto zero) {
        using T = decltype(zero);
        normalize_kernel<T><<<grid_blocks(count), block_threads, 0, stream>>>(
            data_of<uint8_t>(x), data_of<T>(y), count, (int)channels, constants);
    });
}

extern "C" cudaError_t kernel_relu(const DeviceTensor *x, float slope, const DeviceTensor *y,
                                   cudaStream_t stream)
{
    return map(x, x, y, Rectify{slope}, stream);
}

extern "C" cudaError_t kernel_relu_backward(const DeviceTensor *dy, const DeviceTensor *y, float slope,
                                            const DeviceTensor *dx, cudaStream_t stream)
{
    return map(dy, y, dx, RectifyBackward{slope}, stream);
}

extern "C" cudaError_t kernel_add(const DeviceTensor *a, const DeviceTensor *b, const DeviceTensor *y,
                                  cudaStream_t stream)
{
    return map(a, b, y, Add{}, stream);
}

extern "C" cudaError_t kernel_flatten(const DeviceTensor *x, const DeviceTensor *y, cudaStream_t stream)
{
    return transpose(x, y, x->shape[0], x->shape[1] * x->shape[2], x->shape[3], stream);
}

extern "C" cudaError_t kernel_flatten_backward(const DeviceTensor *dy, const DeviceTensor *dx,
                                               cudaStream_t stream)
{
    return transpose(dy, dx, dx->shape[0], dx->shape[3], dx->shape[1] * dx->shape[2], stream);
}
