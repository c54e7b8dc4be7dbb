/* channel.cu - images times one factor for each channel, forward and backward.
 *
 * Memory is the bound. A channel scale reads its input and its addend and writes its output once. Backward
 * reads dy and x once and writes dx once; the sums over pixels are taken in the same pass
 * (channel_tiles.cuh), and a second launch joins the partial sums, some hundred for each channel. */
#include "trainer/backend/cuda/kernels/channel_tiles.cuh"
#include "trainer/backend/cuda/kernels/kernels_channel.h"
#include "trainer/backend/cuda/kernels/rows.cuh"

using namespace fshard;

namespace
{

/* ---- channel scale ---- */

/* Rows of a thread whose loads are under way at once. */
constexpr int scaled_in_flight = 4;

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
    for (int64_t first = p.first; first < p.end; first += scaled_in_flight * t.lanes) {
        Raw<T, Width> raw[scaled_in_flight], raw_addend[scaled_in_flight] = {};
#pragma unroll
        for (int u = 0; u < scaled_in_flight; u++) {
            int64_t row = first + u * t.lanes;
            if (row < p.end) {
                raw[u] = fetch<T, Width>(scale.x + row * scale.pitch + column);
                if (!Shifts && scale.addend)
                    raw_addend[u] = fetch<T, Width>(scale.addend + row * scale.pitch + column);
            }
        }
#pragma unroll
        for (int u = 0; u < scaled_in_flight; u++) {
            int64_t row = first + u * t.lanes;
            if (row < p.end) {
                float values[Width], addends[Width];
                unpack(raw[u], values);
                unpack(raw_addend[u], addends);
#pragma unroll
                for (int k = 0; k < Width; k++)
                    values[k] = fmaf(values[k], factors[k], Shifts ? shift[k] : addends[k]);
                put(scale.y + row * scale.pitch + column, values);
            }
        }
    }
}

template <typename T> struct ChannelScaleBackward {
    const T *dy, *x;
    const float *factors;
    T *dx;          /* may be NULL */
    float *partial; /* [samples, Sums, channels, strips] */
    int64_t pitch;
    int channels;
};

/* Sums: 1, of dy * x; 2, of dx, too. */
template <int Width, int Sums, typename T>
__global__ void __launch_bounds__(block_threads, summing_blocks)
    channel_scale_backward_kernel(const __grid_constant__ ChannelTiles t,
                                  const __grid_constant__ ChannelScaleBackward<T> scale)
{
    ChannelPlace p = channel_place(t);
    float factors[Width] = {}, sums[Sums][Width] = {};
    if (p.first < p.end)
        load_factors(scale.factors, p, scale.channels, factors);
    int64_t column = (int64_t)p.column * Width;
    constexpr int in_flight = Sums > 1 ? 3 : 4;
    for (int64_t first = p.first; first < p.end; first += in_flight * t.lanes) {
        Raw<T, Width> raw_dy[in_flight], raw_x[in_flight];
#pragma unroll
        for (int u = 0; u < in_flight; u++) {
            int64_t row = first + u * t.lanes;
            if (row < p.end) {
                raw_dy[u] = fetch<T, Width>(scale.dy + row * scale.pitch + column);
                raw_x[u] = fetch<T, Width>(scale.x + row * scale.pitch + column);
            }
        }
#pragma unroll
        for (int u = 0; u < in_flight; u++) {
            int64_t row = first + u * t.lanes;
            if (row < p.end) {
                float gradients[Width], values[Width];
                unpack(raw_dy[u], gradients);
                unpack(raw_x[u], values);
#pragma unroll
                for (int k = 0; k < Width; k++) {
                    sums[0][k] = fmaf(gradients[k], values[k], sums[0][k]);
                    gradients[k] *= factors[k];
                    if constexpr (Sums > 1)
                        sums[1][k] += gradients[k];
                }
                if (scale.dx)
                    put(scale.dx + row * scale.pitch + column, gradients);
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

ChannelTiles scale_tiles(const DeviceTensor *x, const DeviceTensor *factors, int width, int blocks)
{
    int64_t samples = factor_samples(x, factors);
    return channel_tiles(samples, device_tensor_rows(x) / samples, x->pitch / width, blocks);
}

} // namespace

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
        ChannelTiles tiles = scale_tiles(x, factors, Width, mapping_blocks);
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

extern "C" uint64_t kernel_channel_scale_scratch_bytes(const DeviceTensor *x, const DeviceTensor *factors,
                                                       bool bias)
{
    const ChannelTiles tiles = scale_tiles(x, factors, vector_width_of(x, f32_fits(x)), summing_blocks);
    return (uint64_t)channel_partial_count(tiles, bias ? 2 : 1, device_tensor_channels(x)) * sizeof(float);
}

namespace
{

template <int Width, int Sums, typename T>
void scale_backward(const ChannelTiles &tiles, const ChannelScaleBackward<T> &scale,
                    const DeviceTensor *const (&results)[Sums], cudaStream_t stream)
{
    channel_scale_backward_kernel<Width, Sums>
        <<<channel_tiles_grid(tiles), block_threads, 0, stream>>>(tiles, scale);
    ChannelSums<Sums> sums = {};
    bool wanted = false;
    for (int s = 0; s < Sums; s++) {
        sums.to[s] = results[s] ? data_of<float>(results[s]) : nullptr;
        wanted |= results[s] != nullptr;
    }
    sums.samples = tiles.samples;
    sums.channels = scale.channels;
    sums.written = tiles.samples == 1 ? (int)scale.pitch : scale.channels;
    sums.strips = (int)tiles.strips;
    if (wanted)
        channel_join(scale.partial, sums, stream);
}

} // namespace

extern "C" cudaError_t kernel_channel_scale_backward(const DeviceTensor *dy, const DeviceTensor *x,
                                                     const DeviceTensor *factors, const DeviceTensor *dx,
                                                     const DeviceTensor *dfactors, const DeviceTensor *dbias,
                                                     void *scratch, cudaStream_t stream)
{
    if (!is_f32(factors) || !is_f32(dfactors) || !is_f32(dbias) || dy->element != x->element ||
        (dbias && (!element_is_narrow(x->element) || factor_samples(x, factors) != 1)))
        return cudaErrorNotSupported;
    return with_vectors(x, f32_fits(x), [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int Width = decltype(width)::value;
        ChannelTiles tiles = scale_tiles(x, factors, Width, summing_blocks);
        ChannelScaleBackward<T> scale = {};
        scale.dy = data_of<T>(dy);
        scale.x = data_of<T>(x);
        scale.factors = data_of<float>(factors);
        scale.dx = dx ? data_of<T>(dx) : nullptr;
        scale.partial = static_cast<float *>(scratch);
        scale.pitch = x->pitch;
        scale.channels = (int)device_tensor_channels(x);
        if constexpr (sizeof(T) == 2)
            if (dbias)
                return scale_backward<Width, 2, T>(tiles, scale, {dfactors, dbias}, stream);
        scale_backward<Width, 1, T>(tiles, scale, {dfactors}, stream);
    });
}
