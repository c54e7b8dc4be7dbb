/* batch_norm.cu - sums over the rows of a [rows, channels] matrix, and batch norm, which is built of them.
 *
 * A sum takes two launches. In the first, blocks take tiles of (some rows) x (some channels), threads add up
 * every lanes-th row of their channels, a tree in shared memory joins the lanes, and each block leaves one
 * partial sum for each channel. In the second, one warp for each channel joins the partial sums in float64
 * and does what is to be done with the result. Tile sizes follow from the shape alone and no atomics are
 * used: the same input gives the same bits, on any card.
 *
 * Bytes: statistics read x once; backward reads dy and x twice (sums, then dx) and writes dx once. */
#include "trainer/backend/cuda/kernels_common.cuh"
#include "trainer/backend/cuda/kernels_norm.h"

#include <initializer_list>

using namespace fshard;

namespace
{

/* How a [rows, channels] matrix is cut into tiles. */
struct Tiling {
    bool wide;         /* four channels a thread */
    int threads_x;     /* of a block, along channels: a power of two */
    unsigned blocks_x; /* along channels */
    unsigned blocks_y; /* along rows: partial sums for each channel */
    int64_t rows_per_block;
};

/* Shapes decide, not the card, so that results do not depend on it. 528 blocks are four for each
 * multiprocessor of an H200. */
Tiling tile(int64_t rows, int64_t channels)
{
    constexpr int64_t blocks_wanted = 528, rows_least = 32;
    Tiling t = {};
    t.wide = channels % 4 == 0;
    int64_t columns = t.wide ? channels / 4 : channels;
    t.threads_x = 1;
    while (t.threads_x < 32 && t.threads_x < columns)
        t.threads_x *= 2;
    t.blocks_x = (unsigned)((columns + t.threads_x - 1) / t.threads_x);
    int64_t blocks_y = blocks_wanted / t.blocks_x;
    if (blocks_y > (rows + rows_least - 1) / rows_least)
        blocks_y = (rows + rows_least - 1) / rows_least;
    if (blocks_y < 1)
        blocks_y = 1;
    t.rows_per_block = (rows + blocks_y - 1) / blocks_y;
    t.blocks_y = (unsigned)((rows + t.rows_per_block - 1) / t.rows_per_block);
    return t;
}

/* What is summed: a Term adds the Sums terms of Width neighbouring channels at element i (channel c) to sums.
 */
template <typename T> struct SumTerm {
    static constexpr int sums = 1;
    const T *x;
    template <int Width> __device__ void add(int64_t i, int, float (&sum)[sums][Width]) const
    {
        float values[Width];
        load(x + i, values);
#pragma unroll
        for (int k = 0; k < Width; k++)
            sum[0][k] += values[k];
    }
};

/* x - x[0, c] and its square: the shift by a value of the channel's own keeps the variance of values far from
 * 0 exact. */
template <typename T> struct MomentsTerm {
    static constexpr int sums = 2;
    const T *x;
    template <int Width> __device__ void add(int64_t i, int c, float (&sum)[sums][Width]) const
    {
        float values[Width], shift[Width];
        load(x + i, values);
        load(x + c, shift);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            float value = values[k] - shift[k];
            sum[0][k] += value;
            sum[1][k] += value * value;
        }
    }
};

/* The norm of a value and the gradient that comes back through the activation, as forward and backward both
 * need them. */
template <typename T> struct Norm {
    const T *x, *y; /* y: NULL unless an addend went in; it tells then where the activation was on */
    const float *weight, *bias, *mean, *inverse_deviation;
    bool relu;
    float slope;

    /* x^ = (x - mean) * inverse_deviation, in place */
    template <int Width> __device__ void normalize(int c, float (&values)[Width]) const
    {
        float means[Width], inverse[Width];
        load(mean + c, means);
        load(inverse_deviation + c, inverse);
#pragma unroll
        for (int k = 0; k < Width; k++)
            values[k] = (values[k] - means[k]) * inverse[k];
    }

    /* x^ * weight + bias, in place */
    template <int Width> __device__ void scale(int c, float (&values)[Width]) const
    {
        float weights[Width], biases[Width];
        load(weight + c, weights);
        load(bias + c, biases);
#pragma unroll
        for (int k = 0; k < Width; k++)
            values[k] = fmaf(values[k], weights[k], biases[k]);
    }

    /* dy at element i, times the slope where the activation was off; normalized: x^ there. */
    template <int Width>
    __device__ void gradient(const T *dy, int64_t i, int c, const float (&normalized)[Width],
                             float (&gradients)[Width]) const
    {
        load(dy + i, gradients);
        if (!relu)
            return;
        float sign[Width];
        if (y) {
            load(y + i, sign);
        } else {
#pragma unroll
            for (int k = 0; k < Width; k++)
                sign[k] = normalized[k];
            scale(c, sign);
        }
#pragma unroll
        for (int k = 0; k < Width; k++)
            gradients[k] *= sign[k] > 0 ? 1 : slope;
    }
};

/* dy and dy * x^ */
template <typename T> struct BackwardTerm {
    static constexpr int sums = 2;
    Norm<T> norm;
    const T *dy;
    template <int Width> __device__ void add(int64_t i, int c, float (&sum)[sums][Width]) const
    {
        float normalized[Width], gradients[Width];
        load(norm.x + i, normalized);
        norm.normalize(c, normalized);
        norm.gradient(dy, i, c, normalized, gradients);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            sum[0][k] += gradients[k];
            sum[1][k] += gradients[k] * normalized[k];
        }
    }
};

/* First launch. partial: [Term::sums, channels, gridDim.y]. */
template <int Width, typename Term>
__global__ void partial_sums_kernel(Term term, int64_t rows, int channels, int64_t rows_per_block,
                                    float *partial)
{
    constexpr int sums = Term::sums;
    __shared__ float lanes[sums][Width][block_threads];
    int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    int c = (int)(blockIdx.x * blockDim.x + threadIdx.x) * Width;
    int64_t end = min((int64_t)(blockIdx.y + 1) * rows_per_block, rows);
    float sum[sums][Width] = {};
    if (c < channels) {
#pragma unroll 4
        for (int64_t row = (int64_t)blockIdx.y * rows_per_block + threadIdx.y; row < end; row += blockDim.y)
            term.add(row * channels + c, c, sum);
    }
#pragma unroll
    for (int s = 0; s < sums; s++)
#pragma unroll
        for (int k = 0; k < Width; k++)
            lanes[s][k][thread] = sum[s][k];
    __syncthreads();
    for (int half = (int)blockDim.y / 2; half > 0; half /= 2) {
        if ((int)threadIdx.y < half)
            for (int s = 0; s < sums; s++)
                for (int k = 0; k < Width; k++)
                    lanes[s][k][thread] += lanes[s][k][thread + half * (int)blockDim.x];
        __syncthreads();
    }
    if (threadIdx.y == 0 && c < channels)
        for (int s = 0; s < sums; s++)
            for (int k = 0; k < Width; k++)
                partial[((int64_t)s * channels + c + k) * gridDim.y + blockIdx.y] = lanes[s][k][thread];
}

/* Second launch: a warp for each channel. finish(c, sums) runs on one thread. */
template <int Sums, typename Finish>
__global__ void finish_sums_kernel(const float *partial, int channels, int partial_count, Finish finish)
{
    int c = (int)(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32), lane = (int)threadIdx.x % 32;
    if (c >= channels)
        return;
    double sum[Sums] = {};
    for (int s = 0; s < Sums; s++) {
        const float *of_channel = partial + ((int64_t)s * channels + c) * partial_count;
        for (int i = lane; i < partial_count; i += 32)
            sum[s] += (double)of_channel[i];
        for (int offset = 16; offset > 0; offset /= 2)
            sum[s] += __shfl_down_sync(0xFFFFFFFFU, sum[s], offset);
    }
    if (lane == 0)
        finish(c, sum);
}

template <typename Term, typename Finish>
void sum_columns(Term term, Finish finish, const DeviceTensor *x, void *scratch, cudaStream_t stream)
{
    int64_t rows = device_tensor_rows(x);
    int channels = (int)device_tensor_channels(x);
    Tiling t = tile(rows, channels);
    float *partial = static_cast<float *>(scratch);
    dim3 grid(t.blocks_x, t.blocks_y), block((unsigned)t.threads_x, (unsigned)(block_threads / t.threads_x));
    if (t.wide)
        partial_sums_kernel<4><<<grid, block, 0, stream>>>(term, rows, channels, t.rows_per_block, partial);
    else
        partial_sums_kernel<1><<<grid, block, 0, stream>>>(term, rows, channels, t.rows_per_block, partial);
    constexpr int channels_per_block = block_threads / 32;
    finish_sums_kernel<Term::sums>
        <<<(unsigned)((channels + channels_per_block - 1) / channels_per_block), block_threads, 0, stream>>>(
            partial, channels, (int)t.blocks_y, finish);
}

template <typename T> struct FinishSum {
    T *sum;
    __device__ void operator()(int c, const double *sums) const
    {
        sum[c] = (T)sums[0];
    }
};

template <typename T> struct FinishMoments {
    const T *x;
    double rows, epsilon, momentum;
    float *mean, *inverse_deviation, *running_mean, *running_var;
    __device__ void operator()(int c, const double *sums) const
    {
        double shifted_mean = sums[0] / rows, batch_mean = (double)(float)x[c] + shifted_mean;
        double variance = fmax(sums[1] / rows - shifted_mean * shifted_mean, 0.0);
        double unbiased = rows > 1 ? variance * (rows / (rows - 1)) : variance;
        mean[c] = (float)batch_mean;
        inverse_deviation[c] = (float)(1.0 / sqrt(variance + epsilon));
        running_mean[c] = (float)((1 - momentum) * (double)running_mean[c] + momentum * batch_mean);
        running_var[c] = (float)((1 - momentum) * (double)running_var[c] + momentum * unbiased);
    }
};

struct FinishBackward {
    float *dweight, *dbias;
    __device__ void operator()(int c, const double *sums) const
    {
        dbias[c] = (float)sums[0];
        dweight[c] = (float)sums[1];
    }
};

/* Calls function.at<Width>(i, c) for every Width-th element i, c its channel, which moves on by step = the
 * grid's stride modulo the channels: only a thread's first one costs a division. What the function writes it
 * has read before in the same call, so results may lie in the bytes of operands. */
template <int Width, typename Function>
__global__ void channel_map_kernel(int64_t count, int channels, int step, Function function)
{
    int64_t threads = (int64_t)gridDim.x * blockDim.x,
            thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int c = (int)(thread * Width % channels);
    for (int64_t i = thread * Width; i < count; i += threads * Width) {
        function.template at<Width>(i, c);
        c += step;
        c -= c >= channels ? channels : 0;
    }
}

template <typename Function>
void channel_map(const DeviceTensor *shape, Function function, cudaStream_t stream)
{
    int64_t count = device_tensor_count(shape), channels = device_tensor_channels(shape);
    int width = channels % 4 == 0 ? 4 : 1;
    unsigned blocks = grid_blocks(count / width);
    int step = (int)((int64_t)blocks * block_threads * width % channels);
    auto kernel = width == 4 ? channel_map_kernel<4, Function> : channel_map_kernel<1, Function>;
    kernel<<<blocks, block_threads, 0, stream>>>(count, (int)channels, step, function);
}

template <typename T> struct AddBias {
    T *y;
    const float *bias;
    template <int Width> __device__ void at(int64_t i, int c) const
    {
        float values[Width], biases[Width];
        load(y + i, values);
        load(bias + c, biases);
#pragma unroll
        for (int k = 0; k < Width; k++)
            values[k] += biases[k];
        store(y + i, values);
    }
};

template <typename T> struct Apply {
    Norm<T> norm;
    const T *addend; /* may be NULL */
    T *y;
    template <int Width> __device__ void at(int64_t i, int c) const
    {
        float values[Width];
        load(norm.x + i, values);
        norm.normalize(c, values);
        norm.scale(c, values);
        if (addend) {
            float addends[Width];
            load(addend + i, addends);
#pragma unroll
            for (int k = 0; k < Width; k++)
                values[k] += addends[k];
        }
        if (norm.relu) {
#pragma unroll
            for (int k = 0; k < Width; k++)
                values[k] = values[k] > 0 ? values[k] : norm.slope * values[k];
        }
        store(y + i, values);
    }
};

template <typename T> struct Backward {
    Norm<T> norm;
    const T *dy;
    const float *dweight, *dbias;
    float inverse_rows; /* 0 where the statistics are not the batch's */
    T *dx, *daddend;    /* each may be NULL */
    template <int Width> __device__ void at(int64_t i, int c) const
    {
        float normalized[Width], gradients[Width], weights[Width], inverse[Width], dweights[Width],
            dbiases[Width];
        load(norm.x + i, normalized);
        norm.normalize(c, normalized);
        norm.gradient(dy, i, c, normalized, gradients);
        load(norm.weight + c, weights);
        load(norm.inverse_deviation + c, inverse);
        load(dweight + c, dweights);
        load(dbias + c, dbiases);
        if (daddend)
            store(daddend + i, gradients);
#pragma unroll
        for (int k = 0; k < Width; k++)
            gradients[k] = weights[k] * inverse[k] *
                           (gradients[k] - (dbiases[k] + normalized[k] * dweights[k]) * inverse_rows);
        if (dx)
            store(dx + i, gradients);
    }
};

__global__ void running_statistics_kernel(const float *running_mean, const float *running_var, float epsilon,
                                          int channels, float *mean, float *inverse_deviation)
{
    int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (c >= channels)
        return;
    mean[c] = running_mean[c];
    inverse_deviation[c] = 1 / sqrtf(running_var[c] + epsilon);
}

template <typename T> Norm<T> norm_of(const NormTensors *tensors, const NormActivation *activation)
{
    Norm<T> norm = {};
    norm.x = data_of<T>(tensors->x);
    norm.weight = data_of<float>(tensors->weight);
    norm.bias = data_of<float>(tensors->bias);
    norm.mean = data_of<float>(tensors->mean);
    norm.inverse_deviation = data_of<float>(tensors->inverse_deviation);
    norm.relu = activation->relu;
    norm.slope = activation->slope;
    return norm;
}

/* Parameters and statistics of norms are float32 in every mode. */
bool all_f32(std::initializer_list<const DeviceTensor *> tensors)
{
    for (const DeviceTensor *tensor : tensors)
        if (tensor->element != ELEMENT_F32)
            return false;
    return true;
}

} // namespace

extern "C" uint64_t kernel_column_scratch_bytes(const DeviceTensor *x)
{
    int64_t channels = device_tensor_channels(x);
    return 2 * (uint64_t)channels * tile(device_tensor_rows(x), channels).blocks_y * sizeof(float);
}

extern "C" cudaError_t kernel_column_sum(const DeviceTensor *x, const DeviceTensor *sum, void *scratch,
                                         cudaStream_t stream)
{
    if (!all_f32({sum}))
        return cudaErrorNotSupported;
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        sum_columns(SumTerm<T>{data_of<T>(x)}, FinishSum<float>{data_of<float>(sum)}, x, scratch, stream);
    });
}

extern "C" cudaError_t kernel_add_bias(const DeviceTensor *y, const DeviceTensor *bias, cudaStream_t stream)
{
    if (!all_f32({bias}))
        return cudaErrorNotSupported;
    return with_storage(y, [&](auto zero) {
        using T = decltype(zero);
        channel_map(y, AddBias<T>{data_of<T>(y), data_of<float>(bias)}, stream);
    });
}

extern "C" cudaError_t kernel_batch_norm_statistics(const NormTensors *tensors, double epsilon,
                                                    double momentum, const DeviceTensor *running_mean,
                                                    const DeviceTensor *running_var, void *scratch,
                                                    cudaStream_t stream)
{
    const DeviceTensor *x = tensors->x;
    if (!all_f32({tensors->mean, tensors->inverse_deviation, running_mean, running_var}))
        return cudaErrorNotSupported;
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        FinishMoments<T> finish = {};
        finish.x = data_of<T>(x);
        finish.rows = (double)device_tensor_rows(x);
        finish.epsilon = epsilon;
        finish.momentum = momentum;
        finish.mean = data_of<float>(tensors->mean);
        finish.inverse_deviation = data_of<float>(tensors->inverse_deviation);
        finish.running_mean = data_of<float>(running_mean);
        finish.running_var = data_of<float>(running_var);
        sum_columns(MomentsTerm<T>{data_of<T>(x)}, finish, x, scratch, stream);
    });
}

extern "C" cudaError_t kernel_batch_norm_running(const DeviceTensor *running_mean,
                                                 const DeviceTensor *running_var, double epsilon,
                                                 const NormTensors *tensors, cudaStream_t stream)
{
    int channels = (int)device_tensor_channels(running_mean);
    if (!all_f32({tensors->mean, tensors->inverse_deviation, running_mean, running_var}))
        return cudaErrorNotSupported;
    running_statistics_kernel<<<(unsigned)((channels + block_threads - 1) / block_threads), block_threads, 0,
                                stream>>>(data_of<float>(running_mean), data_of<float>(running_var),
                                          (float)epsilon, channels, data_of<float>(tensors->mean),
                                          data_of<float>(tensors->inverse_deviation));
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_batch_norm_apply(const NormTensors *tensors, const NormActivation *activation,
                                               const DeviceTensor *addend, const DeviceTensor *y,
                                               cudaStream_t stream)
{
    if (!all_f32({tensors->weight, tensors->bias, tensors->mean, tensors->inverse_deviation}))
        return cudaErrorNotSupported;
    return with_storage(y, [&](auto zero) {
        using T = decltype(zero);
        channel_map(
            y,
            Apply<T>{norm_of<T>(tensors, activation), addend ? data_of<T>(addend) : nullptr, data_of<T>(y)},
            stream);
    });
}

extern "C" cudaError_t kernel_batch_norm_backward(const DeviceTensor *dy, const NormTensors *tensors,
                                                  const NormActivation *activation, const DeviceTensor *y,
                                                  bool batch_statistics, const DeviceTensor *dx,
                                                  const DeviceTensor *dweight, const DeviceTensor *dbias,
                                                  const DeviceTensor *daddend, void *scratch,
                                                  cudaStream_t stream)
{
    if (!all_f32({tensors->weight, tensors->bias, tensors->mean, tensors->inverse_deviation, dweight, dbias}))
        return cudaErrorNotSupported;
    return with_storage(dy, [&](auto zero) {
        using T = decltype(zero);
        Norm<T> norm = norm_of<T>(tensors, activation);
        norm.y = y ? data_of<T>(y) : nullptr;
        sum_columns(BackwardTerm<T>{norm, data_of<T>(dy)},
                    FinishBackward{data_of<float>(dweight), data_of<float>(dbias)}, dy, scratch, stream);
        if (!dx && !daddend)
            return;
        Backward<T> backward = {};
        backward.norm = norm;
        backward.dy = data_of<T>(dy);
        backward.dweight = data_of<float>(dweight);
        backward.dbias = data_of<float>(dbias);
        backward.inverse_rows = batch_statistics ? (float)(1.0 / (double)device_tensor_rows(dy)) : 0;
        backward.dx = dx ? data_of<T>(dx) : nullptr;
        backward.daddend = daddend ? data_of<T>(daddend) : nullptr;
        channel_map(dy, backward, stream);
    });
}
