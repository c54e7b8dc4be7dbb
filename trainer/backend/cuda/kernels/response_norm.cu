/* response_norm.cu - global response normalisation: channel.cu sums over pixels and multiplies, and here is
 * what is made of the sums. See kernels_channel.h. */
#include "trainer/backend/cuda/kernels/kernels_common.cuh"
#include "trainer/backend/cuda/kernels/kernels_channel.h"
#include "trainer/backend/cuda/kernels/kernels_norm.h"
#include "trainer/backend/cuda/kernels/kernels_reduce.cuh"

using namespace fshard;

namespace
{

/* What a launch keeps in scratch memory, each at a multiple of 256 bytes. */
struct ResponseScratch {
    void *sums;             /* of the kernels that sum */
    float *factors, *means; /* [N, C], [N] */
    float *slopes;          /* [N, C] */
    uint64_t bytes;
};

uint64_t room(uint64_t bytes)
{
    return (bytes + 255) & ~(uint64_t)255;
}

/* Describes [N, C] f32 at data. */
DeviceTensor matrix_at(const DeviceTensor *x, float *data)
{
    DeviceTensor matrix = {};
    matrix.data = data;
    matrix.element = ELEMENT_F32;
    matrix.rank = 2;
    matrix.shape[0] = x->shape[0];
    matrix.shape[1] = matrix.pitch = x->shape[3];
    matrix.rows = x->shape[0];
    return matrix;
}

/* Lays scratch memory out; sums of a vector are written up to the pitch of x. */
ResponseScratch scratch_of(const DeviceTensor *x, void *memory)
{
    const DeviceTensor matrix = matrix_at(x, nullptr);
    const uint64_t of_scale = kernel_channel_scale_scratch_bytes(x, &matrix, false),
                   of_columns = kernel_column_scratch_bytes(x),
                   matrix_bytes = room((uint64_t)(x->shape[0] * x->pitch) * sizeof(float));
    char *at = static_cast<char *>(memory);
    ResponseScratch scratch = {};
    scratch.sums = at;
    at += room(of_scale > of_columns ? of_scale : of_columns);
    scratch.factors = reinterpret_cast<float *>(at);
    at += matrix_bytes;
    scratch.slopes = reinterpret_cast<float *>(at);
    at += matrix_bytes;
    scratch.means = reinterpret_cast<float *>(at);
    at += room((uint64_t)x->shape[0] * sizeof(float));
    scratch.bytes = (uint64_t)(at - static_cast<char *>(memory));
    return scratch;
}

/* Makes norms of sums of squares where they are not norms yet, then factors 1 + weight * norms / mean, and
 * the mean, with epsilon. A block has a sample. */
__global__ void __launch_bounds__(block_threads)
    factors_kernel(float *norms, bool are_squares, const float *weight, float epsilon, int channels,
                   float *factors, float *means)
{
    float *of_sample = norms + (int64_t)blockIdx.x * channels;
    double sum = 0;
    for (int c = (int)threadIdx.x; c < channels; c += block_threads) {
        const float norm = are_squares ? sqrtf(of_sample[c]) : of_sample[c];
        if (are_squares)
            of_sample[c] = norm;
        sum += (double)norm;
    }
    const float mean = (float)(block_sum(sum) / channels + (double)epsilon);
    for (int c = (int)threadIdx.x; c < channels; c += block_threads) /* each thread's own norms */
        factors[(int64_t)blockIdx.x * channels + c] = 1.0F + weight[c] * of_sample[c] / mean;
    if (threadIdx.x == 0)
        means[blockIdx.x] = mean;
}

/* Makes slopes, by which x goes into dx, of products, the sums of dy * x. A block has a sample. */
__global__ void __launch_bounds__(block_threads)
    slopes_kernel(const float *products, const float *norms, const float *weight, const float *means,
                  int channels, float *slopes)
{
    const int64_t first = (int64_t)blockIdx.x * channels;
    const float mean = means[blockIdx.x];
    double sum = 0;
    for (int c = (int)threadIdx.x; c < channels; c += block_threads)
        sum += (double)products[first + c] * (double)weight[c] * (double)norms[first + c];
    const float of_mean = (float)(block_sum(sum) / ((double)channels * (double)mean * (double)mean));
    for (int c = (int)threadIdx.x; c < channels; c += block_threads) {
        const float norm = norms[first + c];
        slopes[first + c] = norm > 0 ? (weight[c] * products[first + c] / mean - of_mean) / norm : 0.0F;
    }
}

/* Adds the samples up to dweight, zeros up to the pitch. A thread has a channel. */
__global__ void __launch_bounds__(block_threads)
    dweight_kernel(const float *products, const float *norms, const float *means, int64_t samples,
                   int channels, int pitch, float *dweight)
{
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    double sum = 0;
    if (c >= pitch)
        return;
    for (int64_t n = 0; n < samples && c < channels; n++)
        sum += (double)products[n * channels + c] * (double)norms[n * channels + c] / (double)means[n];
    dweight[c] = (float)sum;
}

} // namespace

extern "C" uint64_t kernel_response_norm_scratch_bytes(const DeviceTensor *x)
{
    return scratch_of(x, nullptr).bytes;
}

extern "C" cudaError_t kernel_response_norm(const DeviceTensor *x, const DeviceTensor *weight,
                                            const DeviceTensor *bias, float epsilon, const DeviceTensor *y,
                                            const DeviceTensor *norms, void *memory, cudaStream_t stream)
{
    const ResponseScratch scratch = scratch_of(x, memory);
    const DeviceTensor factors = matrix_at(x, scratch.factors);
    /* dx is left out, so that the factors do not matter */
    cudaError_t code =
        kernel_channel_scale_backward(x, x, norms, nullptr, norms, nullptr, scratch.sums, stream);
    if (code != cudaSuccess)
        return code;
    factors_kernel<<<(unsigned)x->shape[0], block_threads, 0, stream>>>(
        data_of<float>(norms), true, data_of<float>(weight), epsilon, (int)x->shape[3], scratch.factors,
        scratch.means);
    code = cudaGetLastError();
    return code == cudaSuccess ? kernel_channel_scale_shift(x, &factors, bias, y, stream) : code;
}

extern "C" cudaError_t kernel_response_norm_backward(const ResponseNormTensors *tensors, float epsilon,
                                                     const DeviceTensor *dx, const DeviceTensor *dweight,
                                                     const DeviceTensor *dbias, void *memory,
                                                     cudaStream_t stream)
{
    const DeviceTensor *x = tensors->x, *dy = tensors->dy;
    const ResponseScratch scratch = scratch_of(x, memory);
    /* The sums of dy * x take the place of the factors as soon as these are read. */
    const DeviceTensor factors = matrix_at(x, scratch.factors), slopes = matrix_at(x, scratch.slopes);
    const float *weight = data_of<float>(tensors->weight), *norms = data_of<float>(tensors->norms);
    const int channels = (int)x->shape[3];
    const unsigned samples = (unsigned)x->shape[0];
    cudaError_t code = dbias ? kernel_column_sum(dy, dbias, scratch.sums, stream) : cudaSuccess;
    if (code != cudaSuccess)
        return code;
    factors_kernel<<<samples, block_threads, 0, stream>>>(data_of<float>(tensors->norms), false, weight,
                                                          epsilon, channels, scratch.factors, scratch.means);
    code = kernel_channel_scale_backward(dy, x, &factors, dx, &factors, nullptr, scratch.sums, stream);
    if (code != cudaSuccess)
        return code;
    slopes_kernel<<<samples, block_threads, 0, stream>>>(scratch.factors, norms, weight, scratch.means,
                                                         channels, scratch.slopes);
    if (dweight)
        dweight_kernel<<<(unsigned)((x->pitch + block_threads - 1) / block_threads), block_threads, 0,
                         stream>>>(scratch.factors, norms, scratch.means, x->shape[0], channels,
                                   (int)x->pitch, data_of<float>(dweight));
    code = cudaGetLastError();
    return code == cudaSuccess && dx ? kernel_channel_scale(x, &slopes, dx, dx, stream) : code;
}
