/* self_attention.cu - see kernels_self_attention.h. */
#include "trainer/backend/cuda/kernels/kernels_reduce.cuh"
#include "trainer/backend/cuda/kernels/kernels_self_attention.h"

using namespace fshard;

namespace
{

constexpr int64_t sum_blocks_max = 512;

/* Returns how many blocks make partial sums of so many elements. */
unsigned sum_blocks(int64_t count)
{
    const int64_t blocks = (count / vector_width<float> + block_threads - 1) / block_threads;
    return (unsigned)(blocks < 1 ? 1 : blocks < sum_blocks_max ? blocks : sum_blocks_max);
}

/* Sums a * b, a partial sum for each block; Scales: a becomes factor * a. */
template <bool Scales>
__global__ void __launch_bounds__(block_threads)
    product_sums_kernel(float *a, const float *b, const float *factor, int64_t count, double *partial)
{
    constexpr int width = vector_width<float>;
    const int64_t first = (int64_t)blockIdx.x * block_threads + threadIdx.x,
                  stride = (int64_t)gridDim.x * block_threads, packs = count / width;
    const float by = Scales ? *factor : 1.0F;
    double sum = 0;
    for (int64_t i = first; i < packs; i += stride) {
        float left[width], right[width];
        load(a + i * width, left);
        load(b + i * width, right);
        float products = 0;
#pragma unroll
        for (int k = 0; k < width; k++) {
            products += left[k] * right[k];
            left[k] *= by;
        }
        sum += (double)products;
        if (Scales)
            store(a + i * width, left);
    }
    if (first < count - packs * width) { /* those that fill no pack */
        const int64_t i = packs * width + first;
        sum += (double)(a[i] * b[i]);
        if (Scales)
            a[i] *= by;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

/* Returns the sum of all partial sums, in every thread of the block. */
__device__ double joined(const double *partial, int count)
{
    double sum = 0;
    for (int i = (int)threadIdx.x; i < count; i += block_threads)
        sum += partial[i];
    return block_sum(sum);
}

__global__ void __launch_bounds__(block_threads) join_kernel(const double *partial, int count, float *result)
{
    const double sum = joined(partial, count);
    if (threadIdx.x == 0)
        *result = (float)sum;
}

/* ---- spectral norm ---- */

constexpr int column_lanes = 32, column_groups = block_threads / column_lanes;

/* Sums weight[i, j] * u[i] over i. A block has column_lanes columns, and each of its warps every
 * column_groups-th row of them. */
__global__ void __launch_bounds__(block_threads)
    columns_kernel(const float *weight, const float *u, int rows, int columns, double *products)
{
    __shared__ double sums[column_groups][column_lanes];
    const int lane = (int)threadIdx.x % column_lanes, group = (int)threadIdx.x / column_lanes;
    const int column = (int)blockIdx.x * column_lanes + lane;
    double sum = 0;
    for (int i = group; i < rows && column < columns; i += column_groups)
        sum += (double)weight[(int64_t)i * columns + column] * (double)u[i];
    sums[group][lane] = sum;
    __syncthreads();
    if (group > 0 || column >= columns)
        return;
    for (int k = 1; k < column_groups; k++)
        sum += sums[k][lane];
    products[column] = sum;
}

/* Returns the length of a vector, in every thread of the block; not below PyTorch's epsilon. */
__device__ double length_of(const double *vector, int count)
{
    double squares = 0;
    for (int i = (int)threadIdx.x; i < count; i += block_threads)
        squares += vector[i] * vector[i];
    return fmax(sqrt(block_sum(squares)), 1e-12);
}

/* Sums weight[i, j] * v[j] over j. A warp has a row. from: what v is the direction of; NULL: v stays. */
__global__ void __launch_bounds__(block_threads)
    rows_kernel(const float *weight, const double *from, int rows, int columns, float *v, double *products)
{
    const int lane = (int)threadIdx.x % 32, row = (int)(blockIdx.x * block_warps + threadIdx.x / 32);
    const double length = from ? length_of(from, columns) : 1;
    double sum = 0;
    for (int j = lane; j < columns && row < rows; j += 32)
        sum += (double)weight[(int64_t)row * columns + j] * (double)(from ? (float)(from[j] / length) : v[j]);
    sum = warp_sum(sum);
    if (lane == 0 && row < rows)
        products[row] = sum;
    for (int j = (int)threadIdx.x; from && blockIdx.x == 0 && j < columns; j += block_threads)
        v[j] = (float)(from[j] / length); /* which no other block reads */
}

/* Divides the weight by sigma. moves: u becomes the direction of products. */
__global__ void __launch_bounds__(block_threads)
    divide_kernel(const float *weight, const double *products, bool moves, int rows, int64_t count, float *u,
                  float *sigma_ret, float *y)
{
    const double length = moves ? length_of(products, rows) : 1;
    double sigma = 0;
    for (int i = (int)threadIdx.x; i < rows; i += block_threads)
        sigma += products[i] * (double)(moves ? (float)(products[i] / length) : u[i]);
    sigma = block_sum(sigma);
    const int64_t first = (int64_t)blockIdx.x * block_threads + threadIdx.x,
                  stride = (int64_t)gridDim.x * block_threads;
    for (int64_t i = first; i < count; i += stride)
        y[i] = (float)((double)weight[i] / sigma);
    for (int i = (int)threadIdx.x; moves && blockIdx.x == 0 && i < rows; i += block_threads)
        u[i] = (float)(products[i] / length);
    if (first == 0)
        *sigma_ret = (float)sigma;
}

__global__ void __launch_bounds__(block_threads)
    spectral_norm_backward_kernel(const float *dy, const double *partial, int partial_count, const float *u,
                                  const float *v, const float *sigma, int columns, int64_t count,
                                  float *dweight)
{
    const double product = joined(partial, partial_count), divisor = (double)*sigma;
    const int64_t stride = (int64_t)gridDim.x * block_threads;
    for (int64_t i = (int64_t)blockIdx.x * block_threads + threadIdx.x; i < count; i += stride)
        dweight[i] =
            (float)(((double)dy[i] - product * (double)u[i / columns] * (double)v[i % columns]) / divisor);
}

/* ---- self-attention ---- */

template <typename T>
__global__ void __launch_bounds__(block_threads)
    mixing_scale_kernel(const float *mixing, const float *gamma, int64_t count, T *result)
{
    constexpr int width = vector_width<float>;
    const int64_t stride = (int64_t)gridDim.x * block_threads * width;
    const float factor = *gamma;
    for (int64_t i = ((int64_t)blockIdx.x * block_threads + threadIdx.x) * width; i < count; i += stride) {
        float values[width];
        load(mixing + i, values);
#pragma unroll
        for (int k = 0; k < width; k++)
            values[k] *= factor;
        store(result + i, values);
    }
}

constexpr int tile = 32, tile_rows = block_threads / tile;

/* A block has a tile of a matrix, and reads the one across the diagonal, too. */
template <typename T>
__global__ void __launch_bounds__(block_threads)
    add_transposed_kernel(const float *matrices, int64_t count, int side, T *results)
{
    __shared__ float across[tile][tile + 1];
    const int x = (int)threadIdx.x % tile, y = (int)threadIdx.x / tile;
    const int column = (int)blockIdx.x * tile, row = (int)blockIdx.y * tile;
    for (int64_t n = blockIdx.z; n < count; n += gridDim.z) {
        const float *matrix = matrices + n * side * side;
        for (int k = y; k < tile; k += tile_rows)
            if (column + k < side && row + x < side)
                across[k][x] = matrix[(int64_t)(column + k) * side + row + x];
        __syncthreads();
        for (int k = y; k < tile; k += tile_rows)
            if (row + k < side && column + x < side) {
                const int64_t at = (int64_t)(row + k) * side + column + x;
                results[n * side * side + at] = (T)(matrix[at] + across[x][k]);
            }
        __syncthreads();
    }
}

} // namespace

extern "C" uint64_t kernel_spectral_norm_scratch_bytes(const DeviceTensor *weight)
{
    const uint64_t vectors =
        (uint64_t)(weight->shape[0] + device_tensor_count(weight) / weight->shape[0]) * sizeof(double);
    const uint64_t sums = sum_blocks_max * sizeof(double);
    return vectors > sums ? vectors : sums;
}

extern "C" cudaError_t kernel_spectral_norm(const SpectralNormTensors *tensors, bool moves,
                                            const DeviceTensor *y, void *scratch, cudaStream_t stream)
{
    const int64_t count = device_tensor_count(tensors->weight);
    const int rows = (int)tensors->weight->shape[0], columns = (int)(count / rows);
    const float *weight = data_of<float>(tensors->weight);
    double *of_rows = static_cast<double *>(scratch), *of_columns = of_rows + rows;
    if (moves)
        columns_kernel<<<(unsigned)((columns + column_lanes - 1) / column_lanes), block_threads, 0, stream>>>(
            weight, data_of<float>(tensors->u), rows, columns, of_columns);
    rows_kernel<<<(unsigned)((rows + block_warps - 1) / block_warps), block_threads, 0, stream>>>(
        weight, moves ? of_columns : nullptr, rows, columns, data_of<float>(tensors->v), of_rows);
    divide_kernel<<<grid_blocks(count), block_threads, 0, stream>>>(
        weight, of_rows, moves, rows, count, data_of<float>(tensors->u), data_of<float>(tensors->sigma),
        data_of<float>(y));
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_spectral_norm_backward(const DeviceTensor *dy,
                                                     const SpectralNormTensors *tensors,
                                                     const DeviceTensor *dweight, void *scratch,
                                                     cudaStream_t stream)
{
    const int64_t count = device_tensor_count(dy);
    const int columns = (int)(count / dy->shape[0]);
    const unsigned blocks = sum_blocks(count);
    double *partial = static_cast<double *>(scratch);
    product_sums_kernel<false><<<blocks, block_threads, 0, stream>>>(
        data_of<float>(dy), data_of<float>(tensors->weight), nullptr, count, partial);
    spectral_norm_backward_kernel<<<grid_blocks(count), block_threads, 0, stream>>>(
        data_of<float>(dy), partial, (int)blocks, data_of<float>(tensors->u), data_of<float>(tensors->v),
        data_of<float>(tensors->sigma), columns, count, data_of<float>(dweight));
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_mixing_scale(const DeviceTensor *mixing, const DeviceTensor *gamma,
                                           const DeviceTensor *result, cudaStream_t stream)
{
    const int64_t count = device_tensor_count(mixing);
    return with_storage(result, [&](auto zero) {
        using T = decltype(zero);
        mixing_scale_kernel<<<grid_blocks(count / vector_width<float>), block_threads, 0, stream>>>(
            data_of<float>(mixing), data_of<float>(gamma), count, data_of<T>(result));
    });
}

extern "C" uint64_t kernel_mixing_scratch_bytes(const DeviceTensor *mixing)
{
    return sum_blocks(device_tensor_count(mixing)) * sizeof(double);
}

extern "C" cudaError_t kernel_mixing_backward(const DeviceTensor *dmixing, const DeviceTensor *mixing,
                                              const DeviceTensor *gamma, const DeviceTensor *dgamma,
                                              void *scratch, cudaStream_t stream)
{
    const int64_t count = device_tensor_count(mixing);
    const unsigned blocks = sum_blocks(count);
    double *partial = static_cast<double *>(scratch);
    product_sums_kernel<true><<<blocks, block_threads, 0, stream>>>(
        data_of<float>(dmixing), data_of<float>(mixing), data_of<float>(gamma), count, partial);
    if (dgamma)
        join_kernel<<<1, block_threads, 0, stream>>>(partial, (int)blocks, data_of<float>(dgamma));
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_add_transposed(const DeviceTensor *matrix, const DeviceTensor *result,
                                             cudaStream_t stream)
{
    const int64_t count = matrix->shape[0], most = 65535; /* in the grid's last direction */
    const int side = (int)matrix->shape[1];
    const unsigned tiles = (unsigned)((side + tile - 1) / tile);
    const dim3 grid(tiles, tiles, (unsigned)(count < most ? count : most));
    return with_storage(result, [&](auto zero) {
        using T = decltype(zero);
        add_transposed_kernel<<<grid, block_threads, 0, stream>>>(data_of<float>(matrix), count, side,
                                                                  data_of<T>(result));
    });
}
