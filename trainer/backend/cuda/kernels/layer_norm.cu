/* layer_norm.cu - layer norm over the channels of each pixel, forward and backward.
 *
 * A pixel belongs to a group of 4 to 32 lanes of a warp, each of which holds one to four of its 16-byte
 * vectors, three where fewer lanes idle by it (none with 96, 192, 384, 768 channels). So forward reads x once
 * and writes y once; backward reads dy and x once (and the other parts of dx) and writes dx once; sums over a
 * pixel are shuffles. A lane keeps its channels from pixel to pixel: in backward it adds up its part of
 * dweight and dbias in registers, blocks write partial sums, and a second launch joins them (channel_join).
 * What is read stays as it is in memory until it is used, and weight and bias lie in shared memory: registers
 * are for more pixels on their way. Pixels that do not fit (f32 with channels that are not whole vectors, or
 * more channels than the lanes hold) take another path: a warp for each pixel that reads it again for each
 * sum, and channel_tiles for the sums over pixels.
 */
#include "trainer/backend/cuda/kernels/channel_tiles.cuh"
#include "trainer/backend/cuda/kernels/kernels_channel.h"
#include "trainer/backend/cuda/kernels/rows.cuh"

#include <initializer_list>

using namespace fshard;

namespace
{

/* Returns how many blocks of backward a multiprocessor has at once, by their registers. */
constexpr int backward_resident(int vectors)
{
    return vectors == 1 ? 3 : vectors < 4 ? 2 : 1;
}

template <int Lanes> __device__ float group_sum(float value)
{
#pragma unroll
    for (int offset = Lanes / 2; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xFFFFFFFFU, value, offset);
    return value;
}

template <typename T> struct Forward {
    const T *x;
    const float *weight, *bias;
    T *y;
    float *mean, *inverse_deviation;
    int64_t rows, pitch;
    int channels;
    float epsilon;
};

template <typename T> struct Backward {
    const T *dy, *x, *addend; /* addend may be NULL */
    const float *weight, *mean, *inverse_deviation;
    T *dx;          /* may be NULL */
    float *partial; /* [2, channels, strips] */
    int64_t rows, pitch;
    int channels;
};

/* How a group walks over pixels: `Rows` at a time, a grid apart. The groups of a warp loop together, since
 * they shuffle together: a group without a pixel works on zeros. */
template <int Lanes> struct GroupPlace {
    int64_t row, rows_apart; /* the first pixel; the distance between two pixels in flight */
    int64_t warp_row;        /* the pixel of the warp's first group */
    int lane;

    __device__ GroupPlace()
    {
        int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
        row = thread / Lanes;
        rows_apart = (int64_t)gridDim.x * blockDim.x / Lanes;
        warp_row = thread / 32 * (32 / Lanes);
        lane = (int)threadIdx.x % Lanes;
    }
};

/* Keeps the compiler from holding what was unpacked before until it is unpacked again: in bf16, where that
 * takes little, it would spill registers for it. */
template <typename T, int Width> __device__ void stay_packed(Raw<T, Width> &raw)
{
#pragma unroll
    for (unsigned &word : raw.words)
        asm volatile("" : "+r"(word));
}

/* Returns the first channel of a lane's vector v: lanes side by side, then their next vectors. */
template <int Width, int Lanes> __device__ int first_channel(int lane, int v)
{
    return (v * Lanes + lane) * Width;
}

/* Brings a vector of all channels to shared memory, zeros behind the last; a barrier follows. */
template <int Count> __device__ void bring_vector(const float *from, int64_t pitch, float (&to)[Count])
{
    for (int c = (int)threadIdx.x; c < Count; c += block_threads)
        to[c] = c < pitch ? from[c] : 0;
}

template <int Width, int Lanes, int Vectors, int Rows, typename T>
__global__ void __launch_bounds__(block_threads) layer_norm_kernel(const __grid_constant__ Forward<T> norm)
{
    alignas(16) __shared__ float weights[Vectors * Lanes * Width], biases[Vectors * Lanes * Width];
    GroupPlace<Lanes> place;
    bring_vector(norm.weight, norm.pitch, weights);
    bring_vector(norm.bias, norm.pitch, biases);
    __syncthreads();
    for (int64_t done = 0; place.warp_row + done < norm.rows; done += Rows * place.rows_apart) {
        Raw<T, Width> raw[Rows][Vectors] = {};
#pragma unroll
        for (int r = 0; r < Rows; r++) {
            int64_t row = place.row + done + r * place.rows_apart;
#pragma unroll
            for (int v = 0; v < Vectors; v++) {
                int c = first_channel<Width, Lanes>(place.lane, v);
                if (row < norm.rows && c < norm.pitch)
                    raw[r][v] = fetch<T, Width>(norm.x + row * norm.pitch + c);
            }
        }
#pragma unroll
        for (int r = 0; r < Rows; r++) {
            int64_t row = place.row + done + r * place.rows_apart;
            float values[Vectors][Width], sum = 0, squares = 0;
#pragma unroll
            for (int v = 0; v < Vectors; v++) {
                unpack(raw[r][v], values[v]);
#pragma unroll
                for (int k = 0; k < Width; k++)
                    sum += values[v][k];
            }
            float mean = group_sum<Lanes>(sum) / (float)norm.channels;
#pragma unroll
            for (int v = 0; v < Vectors; v++) {
                int c = first_channel<Width, Lanes>(place.lane, v);
#pragma unroll
                for (int k = 0; k < Width; k++) {
                    float x = values[v][k] - mean;
                    squares += c + k < norm.channels ? x * x : 0;
                }
            }
            float variance = group_sum<Lanes>(squares) / (float)norm.channels;
            float inverse = 1 / sqrtf(variance + norm.epsilon);
            if (row >= norm.rows)
                continue;
            if (place.lane == 0) {
                norm.mean[row] = mean;
                norm.inverse_deviation[row] = inverse;
            }
#pragma unroll
            for (int v = 0; v < Vectors; v++) {
                int c = first_channel<Width, Lanes>(place.lane, v);
                float weight[Width], bias[Width], y[Width];
                if (c >= norm.pitch)
                    continue;
                load(weights + c, weight);
                load(biases + c, bias);
                /* weight and bias are 0 in the padding, and so is y */
#pragma unroll
                for (int k = 0; k < Width; k++)
                    y[k] = fmaf((values[v][k] - mean) * inverse, weight[k], bias[k]);
                put(norm.y + row * norm.pitch + c, y);
            }
        }
    }
}

/* Writes a block's sums over its pixels: one vector of each lane, joined over the groups of a warp, then over
 * the warps. partial: at the sum's first channel, [channels, strips]. */
template <int Width, int Lanes>
__device__ void leave_sums(const float (&values)[Width], int first, int channels, float *partial)
{
    constexpr int warps = block_threads / 32;
    __shared__ float of_warps[warps][Lanes * Width];
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < Width; k++) {
        float value = values[k];
#pragma unroll
        for (int offset = 16; offset >= Lanes; offset /= 2)
            value += __shfl_xor_sync(0xFFFFFFFFU, value, offset);
        if (lane < Lanes)
            of_warps[warp][lane * Width + k] = value;
    }
    __syncthreads();
    int c = (int)threadIdx.x;
    if (c < Lanes * Width && first + c < channels) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < warps; w++)
            sum += of_warps[w][c];
        partial[(int64_t)(first + c) * gridDim.x + blockIdx.x] = sum;
    }
    __syncthreads();
}

template <int Width, int Lanes, int Vectors, int Rows, typename T>
__global__ void __launch_bounds__(block_threads, backward_resident(Vectors))
    layer_norm_backward_kernel(const __grid_constant__ Backward<T> norm)
{
    alignas(16) __shared__ float weights[Vectors * Lanes * Width];
    GroupPlace<Lanes> place;
    float dweight[Vectors][Width] = {}, dbias[Vectors][Width] = {};
    bring_vector(norm.weight, norm.pitch, weights);
    __syncthreads();
    for (int64_t done = 0; place.warp_row + done < norm.rows; done += Rows * place.rows_apart) {
        Raw<T, Width> gradients[Rows][Vectors] = {}, values[Rows][Vectors] = {}, addends[Rows][Vectors] = {};
        float means[Rows] = {}, inverses[Rows] = {};
#pragma unroll
        for (int r = 0; r < Rows; r++) {
            int64_t row = place.row + done + r * place.rows_apart;
            if (row >= norm.rows)
                continue;
            means[r] = norm.mean[row];
            inverses[r] = norm.inverse_deviation[row];
#pragma unroll
            for (int v = 0; v < Vectors; v++) {
                int c = first_channel<Width, Lanes>(place.lane, v);
                int64_t at = row * norm.pitch + c;
                if (c < norm.pitch) {
                    gradients[r][v] = fetch<T, Width>(norm.dy + at);
                    values[r][v] = fetch<T, Width>(norm.x + at);
                    if (norm.addend)
                        addends[r][v] = fetch<T, Width>(norm.addend + at);
                }
            }
        }
#pragma unroll
        for (int r = 0; r < Rows; r++) {
            int64_t row = place.row + done + r * place.rows_apart;
            float sum_g = 0, sum_gx = 0;
            /* In the padding dy is 0, and so is its share of the sums. */
#pragma unroll
            for (int v = 0; v < Vectors; v++) {
                float weight[Width], of_dy[Width], of_x[Width];
                load(weights + first_channel<Width, Lanes>(place.lane, v), weight);
                unpack(gradients[r][v], of_dy);
                unpack(values[r][v], of_x);
#pragma unroll
                for (int k = 0; k < Width; k++) {
                    float dy = of_dy[k], g = dy * weight[k], x = (of_x[k] - means[r]) * inverses[r];
                    dweight[v][k] = fmaf(dy, x, dweight[v][k]);
                    dbias[v][k] += dy;
                    sum_g += g;
                    sum_gx = fmaf(g, x, sum_gx);
                }
            }
            if (!norm.dx)
                continue;
            float mean_g = group_sum<Lanes>(sum_g) / (float)norm.channels;
            float mean_gx = group_sum<Lanes>(sum_gx) / (float)norm.channels;
#pragma unroll
            for (int v = 0; v < Vectors; v++) {
                int c = first_channel<Width, Lanes>(place.lane, v);
                float weight[Width], of_dy[Width], of_x[Width], dx[Width];
                if (row >= norm.rows || c >= norm.pitch)
                    continue;
                load(weights + c, weight);
                stay_packed(gradients[r][v]);
                stay_packed(values[r][v]);
                unpack(gradients[r][v], of_dy);
                unpack(values[r][v], of_x);
                unpack(addends[r][v], dx);
#pragma unroll
                for (int k = 0; k < Width; k++) {
                    float g = of_dy[k] * weight[k], x = (of_x[k] - means[r]) * inverses[r];
                    float value = inverses[r] * (g - mean_g - x * mean_gx);
                    dx[k] = c + k < norm.channels ? value + dx[k] : 0;
                }
                put(norm.dx + row * norm.pitch + c, dx);
            }
        }
    }
#pragma unroll
    for (int v = 0; v < Vectors; v++) {
        int first = v * Lanes * Width;
        leave_sums<Width, Lanes>(dweight[v], first, norm.channels, norm.partial);
        leave_sums<Width, Lanes>(dbias[v], first, norm.channels,
                                 norm.partial + (int64_t)norm.channels * gridDim.x);
    }
}

/* ---- pixels of any size: a warp for each, which reads it again for each sum ---- */

/* Returns the sum of function(c) over the vectors of a pixel, on all lanes. */
template <int Width, typename Function> __device__ float warp_sum(int64_t pitch, Function function)
{
    float sum = 0;
    for (int64_t c = (int64_t)(threadIdx.x % 32) * Width; c < pitch; c += 32 * Width)
        sum += function(c);
    return group_sum<32>(sum);
}

template <int Width, typename T>
__global__ void __launch_bounds__(block_threads)
    layer_norm_long_kernel(const __grid_constant__ Forward<T> norm)
{
    int64_t warps = (int64_t)gridDim.x * blockDim.x / 32;
    for (int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; row < norm.rows; row += warps) {
        const T *x = norm.x + row * norm.pitch;
        float mean = warp_sum<Width>(norm.pitch, [&](int64_t c) {
            float values[Width], sum = 0;
            load(x + c, values);
            for (int k = 0; k < Width; k++)
                sum += values[k];
            return sum;
        });
        mean /= (float)norm.channels;
        float variance = warp_sum<Width>(norm.pitch, [&](int64_t c) {
            float values[Width], sum = 0;
            load(x + c, values);
            for (int k = 0; k < Width; k++)
                sum += c + k < norm.channels ? (values[k] - mean) * (values[k] - mean) : 0;
            return sum;
        });
        variance /= (float)norm.channels;
        float inverse = 1 / sqrtf(variance + norm.epsilon);
        if (threadIdx.x % 32 == 0) {
            norm.mean[row] = mean;
            norm.inverse_deviation[row] = inverse;
        }
        for (int64_t c = (int64_t)(threadIdx.x % 32) * Width; c < norm.pitch; c += 32 * Width) {
            float values[Width], weight[Width], bias[Width];
            load(x + c, values);
            load(norm.weight + c, weight);
            load(norm.bias + c, bias);
            for (int k = 0; k < Width; k++)
                values[k] = fmaf((values[k] - mean) * inverse, weight[k], bias[k]);
            store(norm.y + row * norm.pitch + c, values);
        }
    }
}

template <int Width, typename T>
__global__ void __launch_bounds__(block_threads)
    layer_norm_backward_long_kernel(const __grid_constant__ Backward<T> norm)
{
    int64_t warps = (int64_t)gridDim.x * blockDim.x / 32;
    for (int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; row < norm.rows; row += warps) {
        const T *x = norm.x + row * norm.pitch, *dy = norm.dy + row * norm.pitch;
        float mean = norm.mean[row], inverse = norm.inverse_deviation[row];
        auto read = [&](int64_t c, float(&g)[Width], float(&normalized)[Width]) {
            float weight[Width];
            load(dy + c, g);
            load(x + c, normalized);
            load(norm.weight + c, weight);
            for (int k = 0; k < Width; k++) {
                g[k] *= weight[k];
                normalized[k] = (normalized[k] - mean) * inverse;
            }
        };
        float mean_g = warp_sum<Width>(norm.pitch, [&](int64_t c) {
            float g[Width], normalized[Width], sum = 0;
            read(c, g, normalized);
            for (int k = 0; k < Width; k++)
                sum += g[k];
            return sum;
        });
        float mean_gx = warp_sum<Width>(norm.pitch, [&](int64_t c) {
            float g[Width], normalized[Width], sum = 0;
            read(c, g, normalized);
            for (int k = 0; k < Width; k++)
                sum += g[k] * normalized[k];
            return sum;
        });
        mean_g /= (float)norm.channels;
        mean_gx /= (float)norm.channels;
        for (int64_t c = (int64_t)(threadIdx.x % 32) * Width; c < norm.pitch; c += 32 * Width) {
            float g[Width], normalized[Width];
            float addends[Width] = {};
            read(c, g, normalized);
            if (norm.addend)
                load(norm.addend + row * norm.pitch + c, addends);
            for (int k = 0; k < Width; k++)
                g[k] = c + k < norm.channels
                           ? inverse * (g[k] - mean_g - normalized[k] * mean_gx) + addends[k]
                           : 0;
            store(norm.dx + row * norm.pitch + c, g);
        }
    }
}

/* Computes the partial sums of dweight and dbias over all rows. */
template <int Width, typename T>
__global__ void __launch_bounds__(block_threads)
    layer_norm_sums_kernel(const __grid_constant__ ChannelTiles t, const __grid_constant__ Backward<T> norm)
{
    ChannelPlace p = channel_place(t);
    float sums[2][Width] = {};
    int64_t column = (int64_t)p.column * Width;
    for (int64_t row = p.first; row < p.end; row += t.lanes) {
        float gradients[Width], values[Width], mean = norm.mean[row], inverse = norm.inverse_deviation[row];
        load(norm.dy + row * norm.pitch + column, gradients);
        load(norm.x + row * norm.pitch + column, values);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            sums[0][k] = fmaf(gradients[k], (values[k] - mean) * inverse, sums[0][k]);
            sums[1][k] += gradients[k];
        }
    }
    channel_leave_partial(t, p, norm.channels, sums, norm.partial);
}

/* ---- choice of the path and of the number of blocks ---- */

/* Calls call(lanes, vectors, forward's rows in flight) for a row of `columns` vectors. Returns false if the
 * row does not fit a group. */
template <typename Call> bool with_group(int64_t columns, Call call)
{
#define FSHARD_GROUP(lanes, vectors, rows)                                                                   \
    if (columns <= (lanes) * (vectors)) {                                                                    \
        call(std::integral_constant<int, lanes>{}, std::integral_constant<int, vectors>{},                   \
             std::integral_constant<int, rows>{});                                                           \
        return true;                                                                                         \
    }
    FSHARD_GROUP(4, 1, 4)
    FSHARD_GROUP(8, 1, 4)
    FSHARD_GROUP(4, 3, 1)
    FSHARD_GROUP(16, 1, 4)
    FSHARD_GROUP(8, 3, 1)
    FSHARD_GROUP(32, 1, 4)
    FSHARD_GROUP(16, 3, 1)
    FSHARD_GROUP(32, 2, 2)
    FSHARD_GROUP(32, 3, 1)
    FSHARD_GROUP(32, 4, 1)
#undef FSHARD_GROUP
    return false;
}

bool f32_fits(const DeviceTensor *x)
{
    return x->pitch % 4 == 0;
}

/* Returns as many blocks as give each group `rows` pixels; at most `most`. */
unsigned group_blocks(int64_t pixels, int lanes, int rows, int64_t most)
{
    int64_t of_block = (int64_t)(block_threads / lanes) * rows;
    int64_t blocks = (pixels + of_block - 1) / of_block;
    return (unsigned)(blocks < most ? blocks : most);
}

/* Blocks of forward, which bring weight and bias to shared memory first. */
constexpr int64_t forward_blocks = 8 * multiprocessors;
/* Blocks of backward stay resident. Only shapes change the division. */
constexpr int64_t backward_blocks_most = backward_resident(1) * multiprocessors;

bool all_f32(std::initializer_list<const DeviceTensor *> tensors)
{
    for (const DeviceTensor *tensor : tensors)
        if (tensor && tensor->element != ELEMENT_F32)
            return false;
    return true;
}

template <int Width, typename T> void forward(const Forward<T> &norm, cudaStream_t stream)
{
    bool fits =
        Width > 1 && with_group(norm.pitch / Width, [&](auto lanes, auto vectors, auto rows) {
            if constexpr (Width > 1) {
                constexpr int Lanes = decltype(lanes)::value, Vectors = decltype(vectors)::value,
                              Rows = decltype(rows)::value;
                layer_norm_kernel<Width, Lanes, Vectors, Rows>
                    <<<group_blocks(norm.rows, Lanes, Rows, forward_blocks), block_threads, 0, stream>>>(
                        norm);
            }
        });
    if (!fits)
        layer_norm_long_kernel<Width>
            <<<group_blocks(norm.rows, 32, 1, grid_blocks_max), block_threads, 0, stream>>>(norm);
}

template <int Width, typename T>
void backward(const Backward<T> &norm, const DeviceTensor *dweight, const DeviceTensor *dbias,
              cudaStream_t stream)
{
    ChannelSums<2> sums = {};
    sums.to[0] = dweight ? data_of<float>(dweight) : nullptr;
    sums.to[1] = dbias ? data_of<float>(dbias) : nullptr;
    sums.samples = 1;
    sums.channels = norm.channels;
    sums.written = (int)norm.pitch;
    bool fits = Width > 1 && with_group(norm.pitch / Width, [&](auto lanes, auto vectors, auto) {
                    if constexpr (Width > 1) {
                        constexpr int Lanes = decltype(lanes)::value, Vectors = decltype(vectors)::value,
                                      Rows = Vectors == 1 ? 2 : 1; /* as many as registers allow */
                        unsigned blocks = group_blocks(norm.rows, Lanes, Rows,
                                                       backward_resident(Vectors) * multiprocessors);
                        layer_norm_backward_kernel<Width, Lanes, Vectors, Rows>
                            <<<blocks, block_threads, 0, stream>>>(norm);
                        sums.strips = (int)blocks;
                    }
                });
    if (!fits) {
        /* sums first: dx may share the bytes of dy or x */
        ChannelTiles tiles = channel_tiles(1, norm.rows, norm.pitch / Width);
        layer_norm_sums_kernel<Width><<<channel_tiles_grid(tiles), block_threads, 0, stream>>>(tiles, norm);
        sums.strips = (int)tiles.strips;
        if (norm.dx)
            layer_norm_backward_long_kernel<Width>
                <<<group_blocks(norm.rows, 32, 1, grid_blocks_max), block_threads, 0, stream>>>(norm);
    }
    if (dweight || dbias)
        channel_join(norm.partial, sums, stream);
}

} // namespace

extern "C" cudaError_t kernel_layer_norm(const LayerNormTensors *tensors, const DeviceTensor *bias,
                                         float epsilon, const DeviceTensor *y, cudaStream_t stream)
{
    const DeviceTensor *x = tensors->x;
    if (!all_f32({tensors->weight, bias, tensors->mean, tensors->inverse_deviation}) ||
        y->element != x->element)
        return cudaErrorNotSupported;
    return with_vectors(x, f32_fits(x), [&](auto zero, auto width) {
        using T = decltype(zero);
        Forward<T> norm = {};
        norm.x = data_of<T>(x);
        norm.weight = data_of<float>(tensors->weight);
        norm.bias = data_of<float>(bias);
        norm.y = data_of<T>(y);
        norm.mean = data_of<float>(tensors->mean);
        norm.inverse_deviation = data_of<float>(tensors->inverse_deviation);
        norm.rows = device_tensor_rows(x);
        norm.pitch = x->pitch;
        norm.channels = (int)device_tensor_channels(x);
        norm.epsilon = epsilon;
        forward<decltype(width)::value>(norm, stream);
    });
}

extern "C" uint64_t kernel_layer_norm_scratch_bytes(const DeviceTensor *x)
{
    int64_t columns = x->pitch / vector_width_of(x, f32_fits(x)), channels = device_tensor_channels(x);
    int64_t strips = channel_tiles(1, device_tensor_rows(x), columns).strips;
    return (uint64_t)(2 * channels * (strips > backward_blocks_most ? strips : backward_blocks_most)) *
           sizeof(float);
}

extern "C" cudaError_t kernel_layer_norm_backward(const DeviceTensor *dy, const LayerNormTensors *tensors,
                                                  const DeviceTensor *addend, const DeviceTensor *dx,
                                                  const DeviceTensor *dweight, const DeviceTensor *dbias,
                                                  void *scratch, cudaStream_t stream)
{
    const DeviceTensor *x = tensors->x;
    if (!all_f32({tensors->weight, tensors->mean, tensors->inverse_deviation, dweight, dbias}) ||
        dy->element != x->element)
        return cudaErrorNotSupported;
    return with_vectors(x, f32_fits(x), [&](auto zero, auto width) {
        using T = decltype(zero);
        Backward<T> norm = {};
        norm.dy = data_of<T>(dy);
        norm.x = data_of<T>(x);
        norm.weight = data_of<float>(tensors->weight);
        norm.mean = data_of<float>(tensors->mean);
        norm.inverse_deviation = data_of<float>(tensors->inverse_deviation);
        norm.addend = addend ? data_of<T>(addend) : nullptr;
        norm.dx = dx ? data_of<T>(dx) : nullptr;
        norm.partial = static_cast<float *>(scratch);
        norm.rows = device_tensor_rows(x);
        norm.pitch = x->pitch;
        norm.channels = (int)device_tensor_channels(x);
        backward<decltype(width)::value>(norm, dweight, dbias, stream);
    });
}
