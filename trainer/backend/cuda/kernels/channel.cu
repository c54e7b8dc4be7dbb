/* channel.cu - gates, and images times one factor for each channel, forward and backward.
 *
 * Memory is the bound. A gate reads its input and writes its output once, and so does a channel scale, with
 * its addend. Backward reads dy and x once and writes dx once; the sums over pixels are taken in the same
 * pass (channel_tiles.cuh), and a second launch joins the partial sums, some hundred for each channel. */
#include "trainer/backend/cuda/kernels/channel_tiles.cuh"
#include "trainer/backend/cuda/kernels/kernels_channel.h"

using namespace fshard;

namespace
{

/* ---- gate ---- */

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

/* ---- channel scale ---- */

/* factors: for all rows, or for each sample. */
template <typename T> struct ChannelScale {
    const T *x, *addend; /* addend may be NULL */
    const float *factors;
    const float *shift; /* of all rows; NULL: none */
    T *y;
    int64_t pitch;
    int channels;
};

/* Loads a thread's factors. Rows of f32 are not padded: after the last channel comes the next sample's
 * first. */
template <int Width>
__device__ void load_factors(const float *factors, const ChannelPlace &p, int channels,
                             float (&values)[Width])
{
    const float *of_sample = factors + (int64_t)p.sample * channels;
#pragma unroll
    for (int k = 0; k < Width; k++) {
        int64_t c = (int64_t)p.column * Width + k;
        values[k] = c < channels ? of_sample[c] : 0;
    }
}

/* Shifts: adds shift in place of addend. */
template <int Width, bool Shifts, typename T>
__global__ void __launch_bounds__(block_threads, 4)
    channel_scale_kernel(const __grid_constant__ ChannelTiles t,
                         const __grid_constant__ ChannelScale<T> scale)
{
    ChannelPlace p = channel_place(t);
    if (p.first >= p.end)
        return;
    float factors[Width], shift[Width] = {};
    load_factors(scale.factors, p, scale.channels, factors);
    int64_t column = (int64_t)p.column * Width;
#pragma unroll
    for (int k = 0; k < Width; k++)
        if (Shifts && column + k < scale.channels)
            shift[k] = scale.shift[column + k];
    for (int64_t first = p.first; first < p.end; first += rows_in_flight * t.lanes) {
        float values[rows_in_flight][Width], addends[rows_in_flight][Width] = {};
#pragma unroll
        for (int u = 0; u < rows_in_flight; u++) {
            int64_t row = first + u * t.lanes;
            if (row < p.end) {
                load(scale.x + row * scale.pitch + column, values[u]);
                if (!Shifts && scale.addend)
                    load(scale.addend + row * scale.pitch + column, addends[u]);
            }
        }
#pragma unroll
        for (int u = 0; u < rows_in_flight; u++) {
            int64_t row = first + u * t.lanes;
            if (row < p.end) {
#pragma unroll
                for (int k = 0; k < Width; k++)
                    values[u][k] = fmaf(values[u][k], factors[k], Shifts ? shift[k] : addends[u][k]);
                store(scale.y + row * scale.pitch + column, values[u]);
            }
        }
    }
}

template <typename T> struct ChannelScaleBackward {
    const T *dy, *x;
    const float *factors;
    T *dx;          /* may be NULL */
    float *partial; /* [samples, channels, strips] */
    int64_t pitch;
    int channels;
};

template <int Width, typename T>
__global__ void __launch_bounds__(block_threads, 4)
    channel_scale_backward_kernel(const __grid_constant__ ChannelTiles t,
                                  const __grid_constant__ ChannelScaleBackward<T> scale)
{
    ChannelPlace p = channel_place(t);
    float factors[Width] = {}, sums[1][Width] = {};
    if (p.first < p.end)
        load_factors(scale.factors, p, scale.channels, factors);
    int64_t column = (int64_t)p.column * Width;
    for (int64_t first = p.first; first < p.end; first += rows_in_flight * t.lanes) {
        float gradients[rows_in_flight][Width], values[rows_in_flight][Width];
#pragma unroll
        for (int u = 0; u < rows_in_flight; u++) {
            int64_t row = first + u * t.lanes;
            if (row < p.end) {
                load(scale.dy + row * scale.pitch + column, gradients[u]);
                load(scale.x + row * scale.pitch + column, values[u]);
            }
        }
#pragma unroll
        for (int u = 0; u < rows_in_flight; u++) {
            int64_t row = first + u * t.lanes;
            if (row < p.end) {
#pragma unroll
                for (int k = 0; k < Width; k++) {
                    sums[0][k] = fmaf(gradients[u][k], values[u][k], sums[0][k]);
                    gradients[u][k] *= factors[k];
                }
                if (scale.dx)
                    store(scale.dx + row * scale.pitch + column, gradients[u]);
            }
        }
    }
    channel_leave_partial(t, p, scale.channels, sums, scale.partial);
}

/* Returns how many samples the factors distinguish; 1 for factors [C] or [1, C, 1, 1]. */
int64_t factor_samples(const DeviceTensor *x, const DeviceTensor *factors)
{
    return device_tensor_count(factors) == device_tensor_channels(x) ? 1 : x->shape[0];
}

bool f32_fits(const DeviceTensor *x)
{
    return device_tensor_channels(x) % 4 == 0;
}

ChannelTiles scale_tiles(const DeviceTensor *x, const DeviceTensor *factors, int width)
{
    int64_t samples = factor_samples(x, factors);
    return channel_tiles(samples, device_tensor_rows(x) / samples, x->pitch / width);
}

int width_of(const DeviceTensor *x)
{
    return element_is_narrow(x->element) ? 8 : f32_fits(x) ? 4 : 1;
}

} // namespace

extern "C" cudaError_t kernel_gate(const DeviceTensor *x, const DeviceTensor *y, cudaStream_t stream)
{
    if (!gate_fits(x, y))
        return cudaErrorNotSupported;
    return with_vectors(y, f32_fits(y), [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int Width = decltype(width)::value;
        GateShape shape = gate_shape(x, y);
        auto kernel =
            shape.channels % Width == 0 ? gate_kernel<Width, true, T> : gate_kernel<Width, false, T>;
        kernel<<<gate_blocks(shape.rows * (shape.y_pitch / Width)), block_threads, 0, stream>>>(
            data_of<T>(x), data_of<T>(y), shape);
    });
}

extern "C" cudaError_t kernel_gate_backward(const DeviceTensor *dy, const DeviceTensor *x,
                                            const DeviceTensor *dx, cudaStream_t stream)
{
    if (!gate_fits(x, dy) || dx->element != x->element)
        return cudaErrorNotSupported;
    return with_vectors(dy, f32_fits(dy), [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int Width = decltype(width)::value;
        GateShape shape = gate_shape(x, dy);
        auto kernel = shape.channels % Width == 0 ? gate_backward_kernel<Width, true, T>
                                                  : gate_backward_kernel<Width, false, T>;
        kernel<<<gate_blocks(shape.rows * (shape.y_pitch / Width)), block_threads, 0, stream>>>(
            data_of<T>(dy), data_of<T>(x), data_of<T>(dx), shape);
    });
}

namespace
{

cudaError_t scale_and_add(const DeviceTensor *x, const DeviceTensor *factors, const DeviceTensor *addend,
                          const DeviceTensor *shift, const DeviceTensor *y, cudaStream_t stream)
{
    if (factors->element != ELEMENT_F32 || y->element != x->element)
        return cudaErrorNotSupported;
    return with_vectors(x, f32_fits(x), [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int Width = decltype(width)::value;
        ChannelTiles tiles = scale_tiles(x, factors, Width);
        ChannelScale<T> scale = {};
        scale.x = data_of<T>(x);
        scale.addend = addend ? data_of<T>(addend) : nullptr;
        scale.factors = data_of<float>(factors);
        scale.shift = shift ? data_of<float>(shift) : nullptr;
        scale.y = data_of<T>(y);
        scale.pitch = x->pitch;
        scale.channels = (int)device_tensor_channels(x);
        auto kernel = shift ? channel_scale_kernel<Width, true, T> : channel_scale_kernel<Width, false, T>;
        kernel<<<channel_tiles_grid(tiles), block_threads, 0, stream>>>(tiles, scale);
    });
}

} // namespace

extern "C" cudaError_t kernel_channel_scale(const DeviceTensor *x, const DeviceTensor *factors,
                                            const DeviceTensor *addend, const DeviceTensor *y,
                                            cudaStream_t stream)
{
    return scale_and_add(x, factors, addend, nullptr, y, stream);
}

extern "C" cudaError_t kernel_channel_scale_shift(const DeviceTensor *x, const DeviceTensor *factors,
                                                  const DeviceTensor *shift, const DeviceTensor *y,
                                                  cudaStream_t stream)
{
    return scale_and_add(x, factors, nullptr, shift, y, stream);
}

extern "C" uint64_t kernel_channel_scale_scratch_bytes(const DeviceTensor *x, const DeviceTensor *factors)
{
    return (uint64_t)channel_partial_count(scale_tiles(x, factors, width_of(x)), 1,
                                           device_tensor_channels(x)) *
           sizeof(float);
}

extern "C" cudaError_t kernel_channel_scale_backward(const DeviceTensor *dy, const DeviceTensor *x,
                                                     const DeviceTensor *factors, const DeviceTensor *dx,
                                                     const DeviceTensor *dfactors, void *scratch,
                                                     cudaStream_t stream)
{
    if (factors->element != ELEMENT_F32 || (dfactors && dfactors->element != ELEMENT_F32) ||
        dy->element != x->element)
        return cudaErrorNotSupported;
    return with_vectors(x, f32_fits(x), [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int Width = decltype(width)::value;
        ChannelTiles tiles = scale_tiles(x, factors, Width);
        ChannelScaleBackward<T> scale = {};
        scale.dy = data_of<T>(dy);
        scale.x = data_of<T>(x);
        scale.factors = data_of<float>(factors);
        scale.dx = dx ? data_of<T>(dx) : nullptr;
        scale.partial = static_cast<float *>(scratch);
        scale.pitch = x->pitch;
        scale.channels = (int)device_tensor_channels(x);
        channel_scale_backward_kernel<Width>
            <<<channel_tiles_grid(tiles), block_threads, 0, stream>>>(tiles, scale);
        if (!dfactors)
            return;
        ChannelSums<1> sums = {};
        sums.to[0] = data_of<float>(dfactors);
        sums.samples = tiles.samples;
        sums.channels = scale.channels;
        sums.written = tiles.samples == 1 ? (int)x->pitch : scale.channels;
        sums.strips = (int)tiles.strips;
        channel_join(scale.partial, sums, stream);
    });
}
