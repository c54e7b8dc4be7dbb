/* response_norm.cu - global response normalisation: channel.cu sums over pixels and multiplies, and here is
 * what is made of the sums. See kernels_channel.h. */
#include "trainer/backend/cuda/kernels/kernels_common.cuh"
#include "trainer/backend/cuda/kernels/kernels_channel.h"
#include "trainer/backend/cuda/kernels/kernels_reduce.cuh"

using namespace fshard;

namespace
{

/* What a launch keeps in scratch memory, each at a multiple of 256 bytes. */
struct ResponseScratch {
    void *sums;                       /* of the kernel that sums */
    float *factors, *slopes;          /* [N, C]: of dy, or of x forward; of x */
    float *products, *totals, *means; /* [N, C] of dy * x, [N, C] of dy, [N] */
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

/* Lays scratch memory out. */
ResponseScratch scratch_of(const DeviceTensor *x, void *memory)
{
    const uint64_t matrix_bytes = room((uint64_t)(x->shape[0] * x->shape[3]) * sizeof(float));
    ResponseScratch scratch = {};
    float **const matrices[] = {&scratch.factors, &scratch.slopes, &scratch.products, &scratch.totals};
    char *at = static_cast<char *>(memory);
    scratch.sums = at;
    at += room(kernel_product_sums_scratch_bytes(x));
    for (float **matrix : matrices) {
        *matrix = reinterpret_cast<float *>(at);
        at += matrix_bytes;
    }
    scratch.means = reinterpret_cast<float *>(at);
    at += room((uint64_t)x->shape[0] * sizeof(float));
    scratch.bytes = (uint64_t)(at - static_cast<char *>(memory));
    return scratch;
}

/* Makes norms of sums of squares, then factors 1 + weight * norms / mean, the mean with epsilon. A block has
 * a sample. */
__global__ void __launch_bounds__(block_threads)
    factors_kernel(float *norms, const float *weight, float epsilon, int channels, float *factors)
{
    float *of_sample = norms + (int64_t)blockIdx.x * channels;
    double sum = 0;
    for (int c = (int)threadIdx.x; c < channels; c += block_threads) {
        const float norm = sqrtf(of_sample[c]);
        of_sample[c] = norm;
        sum += (double)norm;
    }
    const float mean = (float)(block_sum(sum) / channels + (double)epsilon);
    for (int c = (int)threadIdx.x; c < channels; c += block_threads) /* each thread's own norms */
        factors[(int64_t)blockIdx.x * channels + c] = 1.0F + weight[c] * of_sample[c] / mean;
}

/* Makes of products, the sums of dy * x, the factors by which dy, and the slopes by which x goes into dx; and
 * the means. A block has a sample. */
__global__ void __launch_bounds__(block_threads)
    slopes_kernel(const float *products, const float *norms, const float *weight, float epsilon, int channels,
                  float *factors, float *slopes, float *means)
{
    const int64_t first = (int64_t)blockIdx.x * channels;
    double of_norms = 0, sum = 0;
    for (int c = (int)threadIdx.x; c < channels; c += block_threads) {
        of_norms += (double)norms[first + c];
        sum += (double)products[first + c] * (double)weight[c] * (double)norms[first + c];
    }
    const float mean = (float)(block_sum(of_norms) / channels + (double)epsilon);
    const float of_mean = (float)(block_sum(sum) / ((double)channels * (double)mean * (double)mean));
    for (int c = (int)threadIdx.x; c < channels; c += block_threads) {
        const float norm = norms[first + c];
        factors[first + c] = 1.0F + weight[c] * norm / mean;
        slopes[first + c] = norm > 0 ? (weight[c] * products[first + c] / mean - of_mean) / norm : 0.0F;
    }
    if (threadIdx.x == 0)
        means[blockIdx.x] = mean;
}

constexpr int join_columns = 32, join_rows = 16;

/* Adds the samples up to dweight and dbias, which may be NULL, zeros up to the pitch. A column of threads has
 * a channel. */
__global__ void __launch_bounds__(join_columns *join_rows)
    join_samples_kernel(const float *products, const float *totals, const float *norms, const float *means,
                        int64_t samples, int channels, int pitch, float *dweight, float *dbias)
{
    __shared__ double joined[2][join_rows][join_columns];
    const int c = (int)(blockIdx.x * join_columns + threadIdx.x);
    double of_weight = 0, of_bias = 0;
    for (int64_t n = threadIdx.y; n < samples && c < channels; n += join_rows) {
        const int64_t at = n * channels + c;
        of_weight += (double)products[at] * (double)norms[at] / (double)means[n];
        if (dbias)
            of_bias += (double)totals[at];
    }
    joined[0][threadIdx.y][threadIdx.x] = of_weight;
    joined[1][threadIdx.y][threadIdx.x] = of_bias;
    __syncthreads();
    float *const to = threadIdx.y == 0 ? dweight : threadIdx.y == 1 ? dbias : nullptr;
    if (!to || c >= pitch)
        return;
    double sum = 0;
    for (int i = 0; i < join_rows; i++)
        sum += joined[threadIdx.y][i][threadIdx.x];
    to[c] = (float)sum;
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
    cudaError_t code = kernel_product_sums(nullptr, x, norms, nullptr, scratch.sums, stream);
    if (code != cudaSuccess)
        return code;
    factors_kernel<<<(unsigned)x->shape[0], block_threads, 0, stream>>>(
        data_of<float>(norms), data_of<float>(weight), epsilon, (int)x->shape[3], scratch.factors);
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
    const DeviceTensor factors = matrix_at(x, scratch.factors), slopes = matrix_at(x, scratch.slopes),
                       products = matrix_at(x, scratch.products), totals = matrix_at(x, scratch.totals);
    const float *weight = data_of<float>(tensors->weight), *norms = data_of<float>(tensors->norms);
    const int channels = (int)x->shape[3];
    cudaError_t code = kernel_product_sums(dy, x, &products, dbias ? &totals : nullptr, scratch.sums, stream);
    if (code != cudaSuccess)
        return code;
    slopes_kernel<<<(unsigned)x->shape[0], block_threads, 0, stream>>>(
        scratch.products, norms, weight, epsilon, channels, scratch.factors, scratch.slopes, scratch.means);
    if (dweight || dbias)
        join_samples_kernel<<<(unsigned)((x->pitch + join_columns - 1) / join_columns),
                              dim3(join_columns, join_rows), 0, stream>>>(
            scratch.products, scratch.totals, norms, scratch.means, x->shape[0], channels, (int)x->pitch,
            dweight ? data_of<float>(dweight) : nullptr, dbias ? data_of<float>(dbias) : nullptr);
    code = cudaGetLastError();
    return code == cudaSuccess && dx ? kernel_channel_scale_both(dy, &factors, x, &slopes, dx, stream) : code;
}
