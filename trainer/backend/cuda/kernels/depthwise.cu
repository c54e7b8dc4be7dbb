/* depthwise.cu - convolutions with one channel a group. Those of 3 x 3 and 7 x 7 at stride 1 go by strips
 * (depthwise_strips.cuh), but in float32 where channels are no whole vectors. Of the others a block covers 8
 * rows; a thread computes a strip of pixels for one 16-byte vector of channels and reads its rows from the
 * cache. Products and sums are float32. */
#include "trainer/backend/cuda/kernels/depthwise_strips.cuh"

using namespace fshard;
using namespace fshard::depthwise;

namespace
{

constexpr int tile_rows = 8, strip_columns_of_3x3 = 8;
constexpr int64_t blocks_wanted = 4224; /* for a card with 132 multiprocessors, 32 each */

/* Loads the weights of the block's channels to shared memory: [tap][lane * Width + i]. */
template <int Width>
__device__ void load_weights(const float *weight, float *shared, int taps, const Layout &layout)
{
    const int columns = layout.lanes * Width, first = (int)blockIdx.y * columns;
    for (int i = (int)threadIdx.x; i < taps * columns; i += (int)blockDim.x) {
        const int tap = i / columns, channel = first + i % columns;
        const int from = layout.flipped ? taps - 1 - tap : tap;
        shared[i] = channel < layout.channels ? weight[(int64_t)channel * taps + from] : 0.0F;
    }
    __syncthreads();
}

/* A thread's place in a tile. */
struct Place {
    int64_t sample;
    int row, strip;
};

__device__ Place place_in(int64_t tile, int task, const Layout &layout)
{
    const int64_t band = tile / layout.tiles_wide;
    Place place;
    place.sample = band / layout.tiles_high;
    place.row = (int)(band % layout.tiles_high) * tile_rows + task % tile_rows;
    place.strip = (int)(tile % layout.tiles_wide) * layout.strips_of_tile + task / tile_rows;
    return place;
}

/* Computes y = x * weight + bias at stride S; bias may be NULL. With flipped weights it is the data gradient
 * at stride 1. Each pixel that is read serves the up to K outputs of the strip that it contributes to. */
template <typename T, int Width, int K, int S, int R>
__global__ void __launch_bounds__(256) depthwise_kernel(const T *x, const float *weight, const float *bias,
                                                        T *y, const __grid_constant__ Layout layout)
{
    extern __shared__ __align__(32) float weights[];
    load_weights<Width>(weight, weights, K * K, layout);
    const int lane = (int)threadIdx.x % layout.lanes, task = (int)threadIdx.x / layout.lanes;
    const int vector = (int)blockIdx.y * layout.lanes + lane, columns = layout.lanes * Width;
    const int64_t tiles = layout.samples * layout.tiles_high * layout.tiles_wide;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const Place place = place_in(tile, task, layout);
        const int first = place.strip * R;
        if (vector >= layout.vectors || place.row >= layout.out_height || first >= layout.out_width)
            continue;
        float sums[R][Width], first_sum[Width];
        clear(first_sum);
        if (bias)
            load(bias + (int64_t)vector * Width, first_sum);
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int c = 0; c < Width; c++)
                sums[r][c] = first_sum[c];
#pragma unroll 1
        for (int i = 0; i < K; i++) {
            const int row = place.row * S - layout.padding + i, column0 = first * S - layout.padding;
            if (row < 0 || row >= layout.in_height)
                continue;
            const T *from = x + (place.sample * layout.in_height + row) * layout.in_width * layout.pitch +
                            (int64_t)vector * Width;
            float of_row[K][Width];
#pragma unroll
            for (int j = 0; j < K; j++)
                load(weights + (i * K + j) * columns + lane * Width, of_row[j]);
#pragma unroll
            for (int k = 0; k < (R - 1) * S + K; k++) {
                const int column = column0 + k;
                float pixel[Width];
                clear(pixel);
                if (column >= 0 && column < layout.in_width)
                    load(from + (int64_t)column * layout.pitch, pixel);
#pragma unroll
                for (int j = 0; j < K; j++) {
                    if (k - j < 0 || (k - j) % S != 0 || (k - j) / S >= R)
                        continue;
#pragma unroll
                    for (int c = 0; c < Width; c++)
                        sums[(k - j) / S][c] += pixel[c] * of_row[j][c];
                }
            }
        }
        T *to = y +
                ((place.sample * layout.out_height + place.row) * layout.out_width + first) * layout.pitch +
                (int64_t)vector * Width;
#pragma unroll
        for (int r = 0; r < R; r++)
            if (first + r < layout.out_width)
                store(to + (int64_t)r * layout.pitch, sums[r]);
    }
}

/* Computes dx at stride 2. A strip begins where column + padding is even, so the compiler knows which taps
 * meet which column of dy. */
template <typename T, int Width, int K, int R>
__global__ void __launch_bounds__(256)
    depthwise_data_kernel(const T *dy, const float *weight, T *dx, const __grid_constant__ Layout layout)
{
    extern __shared__ __align__(32) float weights[];
    load_weights<Width>(weight, weights, K * K, layout);
    const int lane = (int)threadIdx.x % layout.lanes, task = (int)threadIdx.x / layout.lanes;
    const int vector = (int)blockIdx.y * layout.lanes + lane, columns = layout.lanes * Width;
    const int64_t tiles = layout.samples * layout.tiles_high * layout.tiles_wide;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const Place place = place_in(tile, task, layout);
        const int first = place.strip * R - layout.padding % 2, base = (first + layout.padding) / 2;
        if (vector >= layout.vectors || place.row >= layout.out_height || first >= layout.out_width)
            continue;
        float sums[R][Width];
#pragma unroll
        for (int r = 0; r < R; r++)
            clear(sums[r]);
#pragma unroll 1
        for (int i = (place.row + layout.padding) % 2; i < K; i += 2) {
            const int twice = place.row + layout.padding - i;
            if (twice < 0 || twice / 2 >= layout.in_height)
                continue;
            const T *from = dy +
                            (place.sample * layout.in_height + twice / 2) * layout.in_width * layout.pitch +
                            (int64_t)vector * Width;
            float of_row[K][Width];
#pragma unroll
            for (int j = 0; j < K; j++)
                load(weights + (i * K + j) * columns + lane * Width, of_row[j]);
#pragma unroll
            for (int d = -(K - 1) / 2; d <= (R - 1) / 2; d++) {
                const int column = base + d;
                float pixel[Width];
                clear(pixel);
                if (column >= 0 && column < layout.in_width)
                    load(from + (int64_t)column * layout.pitch, pixel);
#pragma unroll
                for (int r = 0; r < R; r++) {
                    if (r - 2 * d < 0 || r - 2 * d >= K)
                        continue;
#pragma unroll
                    for (int c = 0; c < Width; c++)
                        sums[r][c] += pixel[c] * of_row[r - 2 * d < 0 || r - 2 * d >= K ? 0 : r - 2 * d][c];
                }
            }
        }
        T *to = dx + (place.sample * layout.out_height + place.row) * layout.out_width * layout.pitch +
                (int64_t)vector * Width;
#pragma unroll
        for (int r = 0; r < R; r++)
            if (first + r >= 0 && first + r < layout.out_width)
                store(to + (int64_t)(first + r) * layout.pitch, sums[r]);
    }
}

void divide_into_tiles(Layout *layout, int columns, int strip)
{
    layout->strips = (columns + strip - 1) / strip;
    layout->strips_of_tile = layout->tasks / tile_rows;
    layout->tasks = layout->strips_of_tile * tile_rows;
    layout->tiles_high = (layout->out_height + tile_rows - 1) / tile_rows;
    layout->tiles_wide = (layout->strips + layout->strips_of_tile - 1) / layout->strips_of_tile;
}

dim3 grid_of(const Layout &layout)
{
    const int64_t tiles = layout.samples * layout.tiles_high * layout.tiles_wide, slabs = slabs_of(layout);
    const int64_t wanted = blocks_wanted / slabs > 0 ? blocks_wanted / slabs : 1;
    return dim3((unsigned)(tiles < wanted ? tiles : wanted), (unsigned)slabs);
}

template <typename T, int Width, int K, int S, int R>
void launch_depthwise(const DeviceTensor *x, const DeviceTensor *weight, const DeviceTensor *bias,
                      const Depthwise *depthwise, bool flipped, const DeviceTensor *y, cudaStream_t stream)
{
    Layout layout = layout_of(x, y, depthwise, Width, 1);
    divide_into_tiles(&layout, layout.out_width, R);
    layout.flipped = flipped;
    depthwise_kernel<T, Width, K, S, R><<<grid_of(layout), (unsigned)(layout.lanes * layout.tasks),
                                          sizeof(float) * K * K * layout.lanes * Width, stream>>>(
        data_of<const T>(x), data_of<const float>(weight), bias ? data_of<const float>(bias) : nullptr,
        data_of<T>(y), layout);
}

/* Enqueues the convolution by strips, or with flipped weights its data gradient. */
cudaError_t run_strips(const DeviceTensor *x, const DeviceTensor *weight, const DeviceTensor *bias,
                       const Depthwise *depthwise, bool flipped, const DeviceTensor *y, cudaStream_t stream)
{
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        with_form(depthwise, x, [&](auto form) {
            using Form = decltype(form);
            with_strip(Form::kernel, y->shape[2], [&](auto width) {
                constexpr int R = decltype(width)::value;
                Strips strips = strips_of<Form>(x, y, depthwise->padding, R, false);
                strips.flipped = flipped;
                launch_strips<Form, const T *, const float *, const float *, T *, Strips>(
                    strips_forward_kernel<Form, T, R>, strips, stream, data_of<const T>(x),
                    data_of<const float>(weight), bias ? data_of<const float>(bias) : nullptr, data_of<T>(y),
                    strips);
            });
        });
    });
}

template <int K> constexpr int strip_of = K == 3 ? strip_columns_of_3x3 : strip_columns;

} // namespace

extern "C" bool kernel_depthwise_fits(const Depthwise *depthwise)
{
    const int64_t kernel = depthwise->kernel, stride = depthwise->stride;
    return (kernel == 3 || kernel == 5 || kernel == 7) && (stride == 1 || stride == 2);
}

extern "C" cudaError_t kernel_depthwise(const DeviceTensor *x, const DeviceTensor *weight,
                                        const DeviceTensor *bias, const Depthwise *depthwise,
                                        const DeviceTensor *y, cudaStream_t stream)
{
    if (!fits(x, y, weight, depthwise))
        return cudaErrorNotSupported;
    if (is_for_strips(depthwise, x))
        return run_strips(x, weight, bias, depthwise, false, y, stream);
    return with_vectors(x, [&](auto zero, auto width) {
        with_kernel(depthwise->kernel, [&](auto kernel) {
            constexpr int K = decltype(kernel)::value, Width = decltype(width)::value;
            if constexpr (!always_strips<Width, K>)
                if (depthwise->stride == 1) {
                    launch_depthwise<decltype(zero), Width, K, 1, strip_columns>(x, weight, bias, depthwise,
                                                                                 false, y, stream);
                    return;
                }
            launch_depthwise<decltype(zero), Width, K, 2, strip_columns>(x, weight, bias, depthwise, false, y,
                                                                         stream);
        });
    });
}

extern "C" cudaError_t kernel_depthwise_backward_data(const DeviceTensor *dy, const DeviceTensor *weight,
                                                      const Depthwise *depthwise, const DeviceTensor *dx,
                                                      cudaStream_t stream)
{
    if (!fits(dy, dx, weight, depthwise))
        return cudaErrorNotSupported;
    const Depthwise turned = {depthwise->kernel, 1, depthwise->kernel - 1 - depthwise->padding};
    if (is_for_strips(depthwise, dy))
        return run_strips(dy, weight, nullptr, &turned, true, dx, stream);
    return with_vectors(dy, [&](auto zero, auto width) {
        with_kernel(depthwise->kernel, [&](auto kernel) {
            using T = decltype(zero);
            constexpr int K = decltype(kernel)::value, Width = decltype(width)::value;
            if constexpr (!always_strips<Width, K>)
                if (depthwise->stride == 1) {
                    launch_depthwise<T, Width, K, 1, strip_columns>(dy, weight, nullptr, &turned, true, dx,
                                                                    stream);
                    return;
                }
            Layout layout = layout_of(dy, dx, depthwise, Width, 1);
            divide_into_tiles(&layout, layout.out_width + layout.padding % 2, strip_of<K>);
            depthwise_data_kernel<T, Width, K, strip_of<K>>
                <<<grid_of(layout), (unsigned)(layout.lanes * layout.tasks),
                   sizeof(float) * K * K * layout.lanes * Width, stream>>>(
                    data_of<const T>(dy), data_of<const float>(weight), data_of<T>(dx), layout);
        });
    });
}
