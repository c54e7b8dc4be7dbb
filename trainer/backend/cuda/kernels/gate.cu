/* gate.cu - the first half of an image's channels times the second, forward and backward, with what NAFNet
 * has around it: means of the results, factors for their gradient, and sums for the bias in front.
 *
 * Memory is the bound. Forward reads x and writes y once; means are taken on the way (channel_means.cuh).
 * Backward reads dy and x once and writes dx once; with factors or sums a thread keeps its channels
 * (channel_tiles.cuh). */
#include "trainer/backend/cuda/kernels/channel_means.cuh"
#include "trainer/backend/cuda/kernels/kernels_channel.h"

using namespace fshard;

namespace
{

/* Rows of 2 C and of C channels, and the distance between rows of each. */
struct GateShape {
    int64_t rows;
    unsigned channels, x_pitch, y_pitch;
};

/* Computes a vector of y in each thread. Halves: C is whole vectors, so both halves of x can be read as
 * vectors. */
template <int Width, bool Halves, typename T>
__global__ void __launch_bounds__(block_threads)
    gate_kernel(const T *x, T *y, const __grid_constant__ GateShape shape)
{
    unsigned columns = shape.y_pitch / Width;
    int64_t vectors = shape.rows * columns, threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += threads) {
        int64_t row = i / columns;
        unsigned c = (unsigned)(i - row * columns) * Width;
        const T *pixel = x + row * shape.x_pitch;
        float left[Width], right[Width];
        if constexpr (Halves) {
            load(pixel + c, left);
            load(pixel + shape.channels + c, right);
        } else {
#pragma unroll
            for (unsigned k = 0; k < Width; k++) {
                bool inside = c + k < shape.channels;
                left[k] = inside ? (float)pixel[c + k] : 0;
                right[k] = inside ? (float)pixel[shape.channels + c + k] : 0;
            }
        }
#pragma unroll
        for (int k = 0; k < Width; k++)
            left[k] *= right[k];
        store(y + row * shape.y_pitch + c, left);
    }
}

/* Computes the two vectors of dx for a vector of dy in each thread. Each element of x is read by the thread
 * that writes there. */
template <int Width, bool Halves, typename T>
__global__ void __launch_bounds__(block_threads)
    gate_backward_kernel(const T *dy, const T *x, T *dx, const __grid_constant__ GateShape shape)
{
    unsigned columns = shape.y_pitch / Width;
    int64_t vectors = shape.rows * columns, threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += threads) {
        int64_t row = i / columns;
        unsigned c = (unsigned)(i - row * columns) * Width;
        int64_t left_at = row * shape.x_pitch + c, right_at = left_at + shape.channels;
        float gradients[Width];
        load(dy + row * shape.y_pitch + c, gradients);
        if constexpr (Halves) {
            float left[Width], right[Width];
            load(x + left_at, left);
            load(x + right_at, right);
#pragma unroll
            for (int k = 0; k < Width; k++) {
                left[k] *= gradients[k];
                right[k] *= gradients[k];
            }
            store(dx + left_at, right);
            store(dx + right_at, left);
        } else {
#pragma unroll
            for (unsigned k = 0; k < Width; k++) {
                if (c + k < shape.channels) {
                    float left = (float)x[left_at + k], right = (float)x[right_at + k];
                    dx[left_at + k] = (T)(gradients[k] * right);
                    dx[right_at + k] = (T)(gradients[k] * left);
                }
                /* dy's row has at least as many elements as dx's row has padding */
                unsigned pad = 2 * shape.channels + c + k;
                if (pad < shape.x_pitch)
                    dx[row * shape.x_pitch + pad] = (T)0.0F;
            }
        }
    }
}

GateShape gate_shape(const DeviceTensor *x, const DeviceTensor *y)
{
    return {device_tensor_rows(y), (unsigned)device_tensor_channels(y), (unsigned)x->pitch,
            (unsigned)y->pitch};
}

bool gate_fits(const DeviceTensor *x, const DeviceTensor *y)
{
    return x->element == y->element && device_tensor_channels(x) == 2 * device_tensor_channels(y);
}

/* Returns the number of blocks for a gate. It needs more threads than grid_blocks gives, since each has only
 * one access under way at a time. */
unsigned gate_blocks(int64_t vectors)
{
    constexpr int64_t blocks_max = 1 << 24;
    int64_t blocks = (vectors + block_threads - 1) / block_threads;
    return (unsigned)(blocks < blocks_max ? (blocks > 0 ? blocks : 1) : blocks_max);
}

/* ---- with means, factors and sums: C is whole vectors ---- */

/* The rows of y, written on the way (channel_means.cuh). */
template <typename T, int Width> struct GatedRows {
    static constexpr int in_flight = 2;
    struct Row {
        Raw<T, Width> left, right;
    };
    const T *x;
    T *y;
    int channels;
    __device__ Row read(int64_t row, int64_t c) const
    {
        const T *pixel = x + row * 2 * channels + c;
        return {fetch<T, Width>(pixel), fetch<T, Width>(pixel + channels)};
    }
    __device__ void take(const Row &loaded, int64_t row, int64_t c, float (&values)[Width]) const
    {
        float right[Width];
        unpack(loaded.left, values);
        unpack(loaded.right, right);
#pragma unroll
        for (int k = 0; k < Width; k++)
            values[k] *= right[k];
        put(y + row * channels + c, values);
    }
};

template <typename T> struct GateBackward {
    const T *dy, *x;
    const float *factors; /* [samples, channels]; NULL: 1 */
    const T *dmeans;      /* [samples, channels]; NULL: 0 */
    T *dx;
    float *partial; /* [2, channels, samples * strips] */
    int channels;
    float pixels;
};

/* Computes the factors of a thread's channels, and what is added to their gradients. */
template <int Width, typename T>
__device__ void load_terms(const GateBackward<T> &gate, int64_t at, float (&factors)[Width],
                           float (&shift)[Width])
{
    if (gate.dmeans)
        load(gate.dmeans + at, shift);
#pragma unroll
    for (int k = 0; k < Width; k++) {
        factors[k] = gate.factors ? gate.factors[at + k] : 1;
        shift[k] = gate.dmeans ? shift[k] / gate.pixels : 0;
    }
}

/* Terms: there are factors, or gradients of means. */
template <int Width, bool Terms, bool Sums, typename T>
__global__ void __launch_bounds__(block_threads, Sums ? summing_blocks : mapping_blocks)
    gate_backward_tiles_kernel(const __grid_constant__ ChannelTiles t,
                               const __grid_constant__ GateBackward<T> gate)
{
    ChannelPlace p = channel_place(t);
    const int64_t c = (int64_t)p.column * Width;
    float factors[Width], shift[Width], sums[2][Width] = {};
    if (Terms && p.first < p.end)
        load_terms(gate, (int64_t)p.sample * gate.channels + c, factors, shift);
    for (int64_t first = p.first; first < p.end; first += rows_in_flight * t.lanes) {
        Raw<T, Width> raw_dy[rows_in_flight], raw_left[rows_in_flight], raw_right[rows_in_flight];
#pragma unroll
        for (int u = 0; u < rows_in_flight; u++) {
            const int64_t row = first + u * t.lanes;
            if (row < p.end) {
                const T *pixel = gate.x + row * 2 * gate.channels + c;
                raw_dy[u] = fetch<T, Width>(gate.dy + row * gate.channels + c);
                raw_left[u] = fetch<T, Width>(pixel);
                raw_right[u] = fetch<T, Width>(pixel + gate.channels);
            }
        }
#pragma unroll
        for (int u = 0; u < rows_in_flight; u++) {
            const int64_t row = first + u * t.lanes;
            if (row >= p.end)
                continue;
            float dy[Width], left[Width], right[Width];
            unpack(raw_dy[u], dy);
            unpack(raw_left[u], left);
            unpack(raw_right[u], right);
#pragma unroll
            for (int k = 0; k < Width; k++) {
                const float gradient = Terms ? fmaf(dy[k], factors[k], shift[k]) : dy[k],
                            of_left = gradient * right[k];
                right[k] = gradient * left[k];
                left[k] = of_left;
                if constexpr (Sums) {
                    sums[0][k] += left[k];
                    sums[1][k] += right[k];
                }
            }
            T *pixel = gate.dx + row * 2 * gate.channels + c;
            put(pixel, left);
            put(pixel + gate.channels, right);
        }
    }
    if constexpr (Sums) { /* of all samples: each strip of each is one more */
        ChannelTiles joined = t;
        joined.strips = t.strips * t.samples;
        p.strip += p.sample * t.strips;
        p.sample = 0;
        channel_leave_partial(joined, p, gate.channels, sums, gate.partial);
    }
}

ChannelTiles gate_tiles(const GateGradient *of, int width)
{
    const DeviceTensor *dy = of->dy;
    const int64_t samples = of->factors || of->dmeans ? dy->shape[0] : 1;
    return channel_tiles(samples, device_tensor_rows(dy) / samples, dy->pitch / width,
                         of->sums ? summing_blocks : mapping_blocks);
}

bool is_whole(const DeviceTensor *y)
{
    return device_tensor_channels(y) % 8 == 0 && y->pitch == device_tensor_channels(y);
}

cudaError_t backward_in_tiles(const GateGradient *of, void *scratch, cudaStream_t stream)
{
    const DeviceTensor *dy = of->dy;
    return with_vectors(dy, true, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int Width = decltype(width)::value;
        const ChannelTiles tiles = gate_tiles(of, Width);
        GateBackward<T> gate = {};
        gate.dy = data_of<T>(dy);
        gate.x = data_of<T>(of->x);
        gate.factors = of->factors ? data_of<float>(of->factors) : nullptr;
        gate.dmeans = of->dmeans ? data_of<T>(of->dmeans) : nullptr;
        gate.dx = data_of<T>(of->dx);
        gate.partial = static_cast<float *>(scratch);
        gate.channels = (int)device_tensor_channels(dy);
        gate.pixels = (float)tiles.rows;
        auto kernel = gate_backward_tiles_kernel<Width, true, false, T>;
        if constexpr (sizeof(T) == 2)
            if (of->sums)
                kernel = of->factors || of->dmeans ? gate_backward_tiles_kernel<Width, true, true, T>
                                                   : gate_backward_tiles_kernel<Width, false, true, T>;
        kernel<<<channel_tiles_grid(tiles), block_threads, 0, stream>>>(tiles, gate);
        if (!of->sums)
            return;
        ChannelSums<2> sums = {};
        sums.to[0] = data_of<float>(of->sums);
        sums.to[1] = sums.to[0] + gate.channels;
        sums.samples = 1;
        sums.channels = sums.written = gate.channels;
        sums.strips = (int)(tiles.strips * tiles.samples);
        channel_join(gate.partial, sums, stream);
    });
}

} // namespace

extern "C" uint64_t kernel_gate_scratch_bytes(const DeviceTensor *y)
{
    return mean_scratch_bytes(y);
}

extern "C" cudaError_t kernel_gate(const DeviceTensor *x, const DeviceTensor *y, const DeviceTensor *means,
                                   void *scratch, cudaStream_t stream)
{
    if (!gate_fits(x, y) || (means && (!is_whole(y) || means->element != y->element)))
        return cudaErrorNotSupported;
    return with_vectors(y, device_tensor_channels(y) % 4 == 0, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int Width = decltype(width)::value;
        GateShape shape = gate_shape(x, y);
        if (means) {
            means_of<Width, T>(GatedRows<T, Width>{data_of<T>(x), data_of<T>(y), (int)shape.channels}, y,
                               means, scratch, stream);
            return;
        }
        auto kernel =
            shape.channels % Width == 0 ? gate_kernel<Width, true, T> : gate_kernel<Width, false, T>;
        kernel<<<gate_blocks(shape.rows * (shape.y_pitch / Width)), block_threads, 0, stream>>>(
            data_of<T>(x), data_of<T>(y), shape);
    });
}

extern "C" uint64_t kernel_gate_backward_scratch_bytes(const GateGradient *of)
{
    if (!of->sums)
        return 0;
    const ChannelTiles tiles = gate_tiles(of, vector_width_of(of->dy, true));
    return (uint64_t)channel_partial_count(tiles, 2, device_tensor_channels(of->dy)) * sizeof(float);
}

extern "C" cudaError_t kernel_gate_backward(const GateGradient *of, void *scratch, cudaStream_t stream)
{
    const DeviceTensor *dy = of->dy, *x = of->x, *dx = of->dx;
    const bool wants_tiles = of->factors || of->dmeans || of->sums;
    if (!gate_fits(x, dy) || dx->element != x->element || (wants_tiles && !is_whole(dy)) ||
        !is_f32(of->factors) || !is_f32(of->sums) || (of->sums && !element_is_narrow(dy->element)) ||
        (of->dmeans && of->dmeans->element != dy->element))
        return cudaErrorNotSupported;
    if (wants_tiles)
        return backward_in_tiles(of, scratch, stream);
    return with_vectors(dy, device_tensor_channels(dy) % 4 == 0, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int Width = decltype(width)::value;
        GateShape shape = gate_shape(x, dy);
        auto kernel = shape.channels % Width == 0 ? gate_backward_kernel<Width, true, T>
                                                  : gate_backward_kernel<Width, false, T>;
        kernel<<<gate_blocks(shape.rows * (shape.y_pitch / Width)), block_threads, 0, stream>>>(
            data_of<T>(dy), data_of<T>(x), data_of<T>(dx), shape);
    });
}
