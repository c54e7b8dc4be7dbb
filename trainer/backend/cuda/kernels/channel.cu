/* channel.cu - images times one factor for each channel, forward and backward, and sums over pixels.
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

/* What is added to an image times its factors. */
enum ScaleTerm { SCALE_ADDEND, SCALE_SHIFT, SCALE_SCALED_ADDEND };

/* factors: for all rows, or for each sample. */
template <typename T> struct ChannelScale {
    const T *x, *addend; /* SCALE_ADDEND: may be NULL */
    const float *factors;
    const float *shift;          /* SCALE_SHIFT: of all rows */
    const float *addend_factors; /* SCALE_SCALED_ADDEND: as factors */
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

template <int Width, ScaleTerm Term, typename T>
__global__ void __launch_bounds__(block_threads, 4)
    channel_scale_kernel(const __grid_constant__ ChannelTiles t,
                         const __grid_constant__ ChannelScale<T> scale)
{
    ChannelPlace p = channel_place(t);
    if (p.first >= p.end)
        return;
    /* term: the shift, or the factors of the addend */
    constexpr int in_flight = Term == SCALE_SCALED_ADDEND ? scaled_in_flight / 2 : scaled_in_flight;
    float factors[Width], term[Width] = {};
    load_factors(scale.factors, p, scale.channels, factors);
    if constexpr (Term == SCALE_SCALED_ADDEND)
        load_factors(scale.addend_factors, p, scale.channels, term);
    int64_t column = (int64_t)p.column * Width;
#pragma unroll
    for (int k = 0; k < Width; k++)
        if (Term == SCALE_SHIFT && column + k < scale.channels)
            term[k] = scale.shift[column + k];
    for (int64_t first = p.first; first < p.end; first += in_flight * t.lanes) {
        Raw<T, Width> raw[in_flight], raw_addend[in_flight] = {};
#pragma unroll
        for (int u = 0; u < in_flight; u++) {
            int64_t row = first + u * t.lanes;
            if (row < p.end) {
                raw[u] = fetch<T, Width>(scale.x + row * scale.pitch + column);
                if (Term == SCALE_SCALED_ADDEND || (Term == SCALE_ADDEND && scale.addend))
                    raw_addend[u] = fetch<T, Width>(scale.addend + row * scale.pitch + column);
            }
        }
#pragma unroll
        for (int u = 0; u < in_flight; u++) {
            int64_t row = first + u * t.lanes;
            if (row < p.end) {
                float values[Width], addends[Width];
                unpack(raw[u], values);
                unpack(raw_addend[u], addends);
#pragma unroll
                for (int k = 0; k < Width; k++)
                    values[k] = fmaf(values[k], factors[k],
                                     Term == SCALE_ADDEND  ? addends[k]
                                     : Term == SCALE_SHIFT ? term[k]
                                                           : addends[k] * term[k]);
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

template <typename T> struct ChannelSummed {
    const T *dy, *x; /* dy NULL: x is taken for it */
    float *partial;  /* [samples, Sums, channels, strips] */
    int64_t pitch;
    int channels;
};

/* Sums: 1, of dy * x; 2, of dy, too. */
template <int Width, int Sums, typename T>
__global__ void __launch_bounds__(block_threads, summing_blocks)
    channel_sums_kernel(const __grid_constant__ ChannelTiles t, const __grid_constant__ ChannelSummed<T> of)
{
    constexpr int in_flight = 4;
    ChannelPlace p = channel_place(t);
    float sums[Sums][Width] = {};
    const int64_t column = (int64_t)p.column * Width;
    for (int64_t first = p.first; first < p.end; first += in_flight * t.lanes) {
        Raw<T, Width> raw_dy[in_flight], raw_x[in_flight];
#pragma unroll
        for (int u = 0; u < in_flight; u++) {
            const int64_t at = (first + u * t.lanes) * of.pitch + column;
            if (first + u * t.lanes >= p.end)
                continue;
            raw_x[u] = fetch<T, Width>(of.x + at);
            raw_dy[u] = of.dy ? fetch<T, Width>(of.dy + at) : raw_x[u];
        }
#pragma unroll
        for (int u = 0; u < in_flight; u++) {
            if (first + u * t.lanes >= p.end)
                continue;
            float gradients[Width], values[Width];
            unpack(raw_dy[u], gradients);
            unpack(raw_x[u], values);
#pragma unroll
            for (int k = 0; k < Width; k++) {
                sums[0][k] = fmaf(gradients[k], values[k], sums[0][k]);
                if constexpr (Sums > 1)
                    sums[1][k] += gradients[k];
            }
        }
    }
    channel_leave_partial(t, p, of.channels, sums, of.partial);
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

/* At most one of shift and addend_factors is there. */
cudaError_t scale_and_add(const DeviceTensor *x, const DeviceTensor *factors, const DeviceTensor *addend,
                          const DeviceTensor *shift, const DeviceTensor *addend_factors,
                          const DeviceTensor *y, cudaStream_t stream)
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
        scale.addend_factors = addend_factors ? data_of<float>(addend_factors) : nullptr;
        scale.y = data_of<T>(y);
        scale.pitch = x->pitch;
        scale.channels = (int)device_tensor_channels(x);
        auto kernel = shift            ? channel_scale_kernel<Width, SCALE_SHIFT, T>
                      : addend_factors ? channel_scale_kernel<Width, SCALE_SCALED_ADDEND, T>
                                       : channel_scale_kernel<Width, SCALE_ADDEND, T>;
        kernel<<<channel_tiles_grid(tiles), block_threads, 0, stream>>>(tiles, scale);
    });
}

} // namespace

extern "C" cudaError_t kernel_channel_scale(const DeviceTensor *x, const DeviceTensor *factors,
                                            const DeviceTensor *addend, const DeviceTensor *y,
                                            cudaStream_t stream)
{
    return scale_and_add(x, factors, addend, nullptr, nullptr, y, stream);
}

extern "C" cudaError_t kernel_channel_scale_shift(const DeviceTensor *x, const DeviceTensor *factors,
                                                  const DeviceTensor *shift, const DeviceTensor *y,
                                                  cudaStream_t stream)
{
    return scale_and_add(x, factors, nullptr, shift, nullptr, y, stream);
}

extern "C" cudaError_t kernel_channel_scale_both(const DeviceTensor *x, const DeviceTensor *factors,
                                                 const DeviceTensor *addend,
                                                 const DeviceTensor *addend_factors, const DeviceTensor *y,
                                                 cudaStream_t stream)
{
    if (!is_f32(addend_factors) || factor_samples(x, factors) != factor_samples(x, addend_factors) ||
        addend->element != x->element)
        return cudaErrorNotSupported;
    return scale_and_add(x, factors, addend, nullptr, addend_factors, y, stream);
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

namespace
{

ChannelTiles sums_tiles(const DeviceTensor *x, int width)
{
    return channel_tiles(x->shape[0], device_tensor_rows(x) / x->shape[0], x->pitch / width, summing_blocks);
}

} // namespace

extern "C" uint64_t kernel_product_sums_scratch_bytes(const DeviceTensor *x)
{
    const ChannelTiles tiles = sums_tiles(x, vector_width_of(x, f32_fits(x)));
    return (uint64_t)channel_partial_count(tiles, 2, device_tensor_channels(x)) * sizeof(float);
}

extern "C" cudaError_t kernel_product_sums(const DeviceTensor *dy, const DeviceTensor *x,
                                           const DeviceTensor *products, const DeviceTensor *sums_of_dy,
                                           void *scratch, cudaStream_t stream)
{
    if (!is_f32(products) || !is_f32(sums_of_dy) || (dy && dy->element != x->element))
        return cudaErrorNotSupported;
    return with_vectors(x, f32_fits(x), [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int Width = decltype(width)::value;
        const ChannelTiles tiles = sums_tiles(x, Width);
        const int channels = (int)device_tensor_channels(x);
        ChannelSummed<T> of = {};
        of.dy = dy ? data_of<T>(dy) : nullptr;
        of.x = data_of<T>(x);
        of.partial = static_cast<float *>(scratch);
        of.pitch = x->pitch;
        of.channels = channels;
        const auto joined = [&](auto &sums) {
            sums.to[0] = data_of<float>(products);
            sums.samples = tiles.samples;
            sums.channels = sums.written = channels;
            sums.strips = (int)tiles.strips;
            channel_join(of.partial, sums, stream);
        };
        if (!sums_of_dy) {
            channel_sums_kernel<Width, 1><<<channel_tiles_grid(tiles), block_threads, 0, stream>>>(tiles, of);
            ChannelSums<1> sums = {};
            return joined(sums);
        }
        channel_sums_kernel<Width, 2><<<channel_tiles_grid(tiles), block_threads, 0, stream>>>(tiles, of);
        ChannelSums<2> sums = {};
        sums.to[1] = data_of<float>(sums_of_dy);
        joined(sums);
    });
}
