/* tokens.cu - see kernels_tokens.h. */
#include "trainer/backend/cuda/kernels/kernels_common.cuh"
#include "trainer/backend/cuda/kernels/kernels_norm.h"
#include "trainer/backend/cuda/kernels/kernels_tokens.h"

using namespace fshard;

namespace
{

struct TokenShape {
    int samples, tokens, first, width, channels; /* first: 1 with a class token; width: of the image */
};

/* Returns the sine or cosine that is added to channel c of the pixel: tokens_sine of graph_ops.h. */
__device__ float sine(const TokenShape &shape, int pixel, int c)
{
    const int quarter = shape.channels / 4, part = c / quarter, i = c % quarter;
    const double place = part < 2 ? pixel % shape.width : pixel / shape.width;
    const double turn = place / pow(1e4, quarter > 1 ? (double)i / (quarter - 1) : 0.0);
    return (float)(part % 2 ? cos(turn) : sin(turn));
}

/* A thread has Width channels of a token, and takes samples blockIdx.y, blockIdx.y + gridDim.y, …: what is
 * added stays in registers. */
template <typename T, int Width>
__global__ void make_tokens(const T *__restrict__ x, const float *__restrict__ class_token,
                            const float *__restrict__ positions, T *__restrict__ y, TokenShape shape)
{
    const int vectors = shape.channels / Width;
    const int place = (int)(blockIdx.x * blockDim.x + threadIdx.x), token = place / vectors,
              c = place % vectors * Width, pixels = shape.tokens - shape.first;
    float added[Width];
    if (token >= shape.tokens)
        return;
#pragma unroll
    for (int k = 0; k < Width; k++) {
        added[k] = positions              ? positions[(int64_t)token * shape.channels + c + k]
                   : token >= shape.first ? sine(shape, token - shape.first, c + k)
                                          : 0.0F;
        if (token < shape.first)
            added[k] += class_token[c + k];
    }
    for (int n = (int)blockIdx.y; n < shape.samples; n += (int)gridDim.y) {
        float values[Width] = {};
        if (token >= shape.first)
            load(x + ((int64_t)n * pixels + token - shape.first) * shape.channels + c, values);
#pragma unroll
        for (int k = 0; k < Width; k++)
            values[k] += added[k];
        store(y + ((int64_t)n * shape.tokens + token) * shape.channels + c, values);
    }
}

/* Describes dy as [N, T * C], so that its sums over rows are those over samples. */
DeviceTensor by_samples(const DeviceTensor *dy)
{
    DeviceTensor matrix = *dy;
    matrix.rank = 2;
    matrix.shape[1] = matrix.pitch = dy->shape[1] * dy->pitch;
    matrix.rows = dy->shape[0];
    return matrix;
}

size_t element_bytes(const DeviceTensor *tensor)
{
    return tensor->element == ELEMENT_F32 ? sizeof(float) : sizeof(__half);
}

uint64_t sums_bytes(const DeviceTensor *dy)
{
    return ((uint64_t)(dy->shape[1] * dy->pitch) * sizeof(float) + 255) / 256 * 256;
}

} // namespace

extern "C" cudaError_t kernel_tokens(const DeviceTensor *x, const DeviceTensor *class_token,
                                     const DeviceTensor *positions, const DeviceTensor *y,
                                     cudaStream_t stream)
{
    const int64_t channels = y->shape[3];
    const int64_t blocks_most = 1024; /* enough for any card; each sample more reads the same registers */
    if (channels % PADDED_CHANNELS || !is_f32(class_token) || !is_f32(positions))
        return cudaErrorNotSupported;
    const TokenShape shape = {(int)y->shape[0], (int)y->shape[1], class_token ? 1 : 0, (int)x->shape[2],
                              (int)channels};
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        constexpr int width = vector_width<T>;
        const int64_t columns = (y->shape[1] * (channels / width) + block_threads - 1) / block_threads;
        const int64_t strides = columns < blocks_most ? blocks_most / columns : 1;
        const dim3 grid((unsigned)columns, (unsigned)(strides < y->shape[0] ? strides : y->shape[0]));
        make_tokens<T, width><<<grid, block_threads, 0, stream>>>(
            data_of<T>(x), class_token ? data_of<float>(class_token) : nullptr,
            positions ? data_of<float>(positions) : nullptr, data_of<T>(y), shape);
    });
}

extern "C" uint64_t kernel_tokens_scratch_bytes(const DeviceTensor *dy)
{
    const DeviceTensor matrix = by_samples(dy);
    return sums_bytes(dy) + kernel_column_scratch_bytes(&matrix);
}

extern "C" cudaError_t kernel_tokens_backward(const DeviceTensor *dy, int64_t first, const DeviceTensor *dx,
                                              const DeviceTensor *dclass, const DeviceTensor *dpositions,
                                              void *scratch, cudaStream_t stream)
{
    const size_t row = (size_t)dy->pitch * element_bytes(dy), sample = (size_t)dy->shape[1] * row;
    cudaError_t status = cudaSuccess;
    if (dx)
        status = cudaMemcpy2DAsync(
            dx->data, sample - (size_t)first * row, static_cast<char *>(dy->data) + (size_t)first * row,
            sample, sample - (size_t)first * row, (size_t)dy->shape[0], cudaMemcpyDeviceToDevice, stream);
    if (status != cudaSuccess || (!dclass && !dpositions))
        return status;
    const DeviceTensor matrix = by_samples(dy);
    DeviceTensor sums = matrix;
    sums.element = ELEMENT_F32;
    sums.rank = 1;
    sums.shape[0] = sums.pitch;
    sums.rows = 1;
    sums.data = dpositions ? dpositions->data : scratch;
    status = kernel_column_sum(&matrix, &sums, static_cast<char *>(scratch) + sums_bytes(dy), stream);
    if (status == cudaSuccess && dclass)
        status = cudaMemcpyAsync(dclass->data, sums.data, (size_t)dy->pitch * sizeof(float),
                                 cudaMemcpyDeviceToDevice, stream);
    return status;
}
