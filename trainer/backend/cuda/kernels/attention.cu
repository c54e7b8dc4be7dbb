/* attention.cu - attention of any shape and type, where the matrix units have no kernel for it: float32, and
 * heads of other sizes than 32 and 64. A warp has a query (forward, and for its gradient) or a key (for the
 * gradients of key and value); what it knows of all others, a number or two for each, lies in shared memory.
 * See kernels_tokens.h. */
#include "trainer/backend/cuda/kernels/kernels_common.cuh"
#include "trainer/backend/cuda/kernels/kernels_reduce.cuh"
#include "trainer/backend/cuda/kernels/kernels_tokens.h"

using namespace fshard;

namespace
{

constexpr int warps_most = 4;
constexpr size_t shared_most = 48 << 10;

struct Shape {
    int64_t samples, tokens;
    int heads, channels;      /* channels: of a head */
    int64_t x_pitch, y_pitch; /* of a token */
    float factor;             /* of the products of queries and keys */
};

/* Which row of which head a warp has. */
struct Place {
    int64_t row, x, y, log_sum; /* x, y: of the head's first token, without its third */
    bool is_there;
};

__device__ Place place_of_warp(const Shape &shape)
{
    const int64_t warp = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int64_t head = warp / shape.tokens, sample = head / shape.heads;
    const int64_t channel = head % shape.heads * shape.channels;
    return {warp % shape.tokens, sample * shape.tokens * shape.x_pitch + channel,
            sample * shape.tokens * shape.y_pitch + channel, head * shape.tokens, sample < shape.samples};
}

template <typename T> __device__ float product(const T *a, const T *b, int channels)
{
    float sum = 0;
    for (int c = 0; c < channels; c++)
        sum = fmaf((float)a[c], (float)b[c], sum);
    return sum;
}

/* Computes result[c] = factor * the sum over rows of weights[row] * rows[row][c], each lane some channels. */
template <typename T>
__device__ void weigh(const float *weights, const T *rows, int64_t pitch, const Shape &shape, float factor,
                      T *result)
{
    for (int c = (int)threadIdx.x % 32; c < shape.channels; c += 32) {
        float sum = 0;
        for (int64_t t = 0; t < shape.tokens; t++)
            sum = fmaf(weights[t], (float)rows[t * pitch + c], sum);
        result[c] = (T)(factor * sum);
    }
}

template <typename T>
__global__ void attend(const T *__restrict__ x, T *__restrict__ y, float *__restrict__ log_sums, Shape shape)
{
    extern __shared__ float shared[];
    const Place at = place_of_warp(shape);
    const int lane = (int)threadIdx.x % 32, third = shape.heads * shape.channels;
    float *shares = shared + threadIdx.x / 32 * shape.tokens;
    if (!at.is_there)
        return;
    const T *query = x + at.x + at.row * shape.x_pitch, *keys = x + at.x + third, *values = keys + third;
    float greatest = -INFINITY, sum = 0;
    for (int64_t t = lane; t < shape.tokens; t += 32) {
        shares[t] = shape.factor * product(query, keys + t * shape.x_pitch, shape.channels);
        greatest = fmaxf(greatest, shares[t]);
    }
    greatest = warp_max(greatest);
    for (int64_t t = lane; t < shape.tokens; t += 32) {
        shares[t] = expf(shares[t] - greatest);
        sum += shares[t];
    }
    sum = warp_sum(sum);
    __syncwarp();
    weigh(shares, values, shape.x_pitch, shape, 1 / sum, y + at.y + at.row * shape.y_pitch);
    if (lane == 0)
        log_sums[at.log_sum + at.row] = greatest + logf(sum);
}

/* Computes the gradient of a query, and leaves in means the mean of what its shares' gradients are. */
template <typename T>
__global__ void query_gradients(const T *__restrict__ dy, const T *__restrict__ x,
                                const float *__restrict__ log_sums, T *__restrict__ dx,
                                float *__restrict__ means, Shape shape)
{
    extern __shared__ float shared[];
    const Place at = place_of_warp(shape);
    const int lane = (int)threadIdx.x % 32, third = shape.heads * shape.channels;
    float *shares = shared + threadIdx.x / 32 * 2 * shape.tokens, *slopes = shares + shape.tokens;
    if (!at.is_there)
        return;
    const T *query = x + at.x + at.row * shape.x_pitch, *keys = x + at.x + third, *values = keys + third;
    const T *gradient = dy + at.y + at.row * shape.y_pitch;
    const float log_sum = log_sums[at.log_sum + at.row];
    float mean = 0;
    for (int64_t t = lane; t < shape.tokens; t += 32) {
        const float score = shape.factor * product(query, keys + t * shape.x_pitch, shape.channels);
        shares[t] = expf(score - log_sum);
        slopes[t] = product(gradient, values + t * shape.x_pitch, shape.channels);
        mean = fmaf(shares[t], slopes[t], mean);
    }
    mean = warp_sum(mean);
    for (int64_t t = lane; t < shape.tokens; t += 32)
        slopes[t] = shares[t] * (slopes[t] - mean);
    __syncwarp();
    weigh(slopes, keys, shape.x_pitch, shape, shape.factor, dx + at.x + at.row * shape.x_pitch);
    if (lane == 0)
        means[at.log_sum + at.row] = mean;
}

/* Computes the gradients of a key and its value. */
template <typename T>
__global__ void key_gradients(const T *__restrict__ dy, const T *__restrict__ x,
                              const float *__restrict__ log_sums, T *__restrict__ dx,
                              const float *__restrict__ means, Shape shape)
{
    extern __shared__ float shared[];
    const Place at = place_of_warp(shape);
    const int lane = (int)threadIdx.x % 32, third = shape.heads * shape.channels;
    float *shares = shared + threadIdx.x / 32 * 2 * shape.tokens, *slopes = shares + shape.tokens;
    if (!at.is_there)
        return;
    const int64_t own = at.row * shape.x_pitch;
    const T *queries = x + at.x, *key = queries + third + own, *value = key + third, *gradients = dy + at.y;
    for (int64_t t = lane; t < shape.tokens; t += 32) {
        const float score = shape.factor * product(queries + t * shape.x_pitch, key, shape.channels);
        shares[t] = expf(score - log_sums[at.log_sum + t]);
        slopes[t] = shares[t] *
                    (product(gradients + t * shape.y_pitch, value, shape.channels) - means[at.log_sum + t]);
    }
    __syncwarp();
    weigh(slopes, queries, shape.x_pitch, shape, shape.factor, dx + at.x + third + own);
    weigh(shares, gradients, shape.y_pitch, shape, 1.0F, dx + at.x + 2 * third + own);
}

/* How a launch is dealt out, with `numbers` floats of shared memory for each token and warp. */
struct Launch {
    unsigned blocks, threads;
    size_t shared_bytes;
};

bool deal(const Shape &shape, int numbers, Launch *launch)
{
    const size_t warp_bytes = (size_t)numbers * (size_t)shape.tokens * sizeof(float);
    const size_t fit = shared_most / warp_bytes;
    const size_t warps = fit < (size_t)warps_most ? fit : (size_t)warps_most;
    if (warps == 0)
        return false;
    const int64_t rows = shape.samples * shape.heads * shape.tokens;
    *launch = {(unsigned)((rows + (int64_t)warps - 1) / (int64_t)warps), (unsigned)warps * 32,
               warps * warp_bytes};
    return true;
}

/* channels: of all heads, in y. */
Shape shape_of(const DeviceTensor *x, int64_t heads, int64_t y_pitch)
{
    const int channels = (int)(x->shape[3] / 3 / heads);
    return {x->shape[0], x->shape[1], (int)heads, channels, x->pitch, y_pitch, 1 / sqrtf((float)channels)};
}

/* Writes zeros to what pads the channels of a narrow tensor. */
cudaError_t clear_padding(const DeviceTensor *tensor, cudaStream_t stream)
{
    const int64_t channels = tensor->shape[3];
    if (tensor->pitch == channels)
        return cudaSuccess;
    return cudaMemset2DAsync(
        static_cast<__half *>(tensor->data) + channels, (size_t)tensor->pitch * sizeof(__half), 0,
        (size_t)(tensor->pitch - channels) * sizeof(__half), (size_t)tensor->rows, stream);
}

bool always_fits(const DeviceTensor *, int64_t)
{
    return true;
}

cudaError_t forward(const DeviceTensor *x, int64_t heads, const DeviceTensor *y, const DeviceTensor *log_sums,
                    cudaStream_t stream)
{
    const Shape shape = shape_of(x, heads, y->pitch);
    Launch launch;
    if (!deal(shape, 1, &launch))
        return cudaErrorNotSupported;
    const cudaError_t status = clear_padding(y, stream);
    if (status != cudaSuccess)
        return status;
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        attend<T><<<launch.blocks, launch.threads, launch.shared_bytes, stream>>>(
            data_of<T>(x), data_of<T>(y), data_of<float>(log_sums), shape);
    });
}

cudaError_t backward(const AttentionGradient *gradient, const DeviceTensor *dx, void *scratch,
                     cudaStream_t stream)
{
    const DeviceTensor *x = gradient->x, *dy = gradient->dy, *log_sums = gradient->log_sums;
    const Shape shape = shape_of(x, gradient->heads, dy->pitch);
    Launch launch;
    if (!deal(shape, 2, &launch))
        return cudaErrorNotSupported;
    const cudaError_t status = clear_padding(dx, stream);
    if (status != cudaSuccess)
        return status;
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        float *means = static_cast<float *>(scratch);
        query_gradients<T><<<launch.blocks, launch.threads, launch.shared_bytes, stream>>>(
            data_of<T>(dy), data_of<T>(x), data_of<float>(log_sums), data_of<T>(dx), means, shape);
        key_gradients<T><<<launch.blocks, launch.threads, launch.shared_bytes, stream>>>(
            data_of<T>(dy), data_of<T>(x), data_of<float>(log_sums), data_of<T>(dx), means, shape);
    });
}

} // namespace

extern "C" const AttentionWay attention_plain = {"kernel", always_fits, forward, backward};

extern "C" const AttentionWay *kernel_attention_way(const DeviceTensor *x, int64_t heads)
{
    for (const AttentionWay *way : {&attention_warpgroup, &attention_tiles})
        if (way->fits(x, heads))
            return way;
    return &attention_plain;
}

extern "C" uint64_t kernel_attention_scratch_bytes(const DeviceTensor *log_sums)
{
    return (uint64_t)device_tensor_stored(log_sums) * sizeof(float);
}
