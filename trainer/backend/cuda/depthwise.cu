/* depthwise.cu - convolutions with one channel a group. Bound by memory: a pixel is read once from device memory by each block that
 * touches it, so a block covers 8 rows, and each thread a strip of pixels of one 16-byte vector of channels, whose rows it reads from
 * the cache. Products and sums are float32. */
#include <type_traits>

#include "trainer/backend/cuda/kernels_common.cuh"
#include "trainer/backend/cuda/kernels_convolution.h"
#include "trainer/backend/cuda/rows.cuh"

using namespace fshard;

namespace
{

/* A block's threads: `lanes` vectors beside each other, for each of `tasks` strips. */
constexpr int lanes_max = 16, tile_rows = 8, strip_columns = 4, strip_columns_of_3x3 = 8;
constexpr int64_t blocks_wanted = 4224;       /* of a card with 132 processors, 32 each */
constexpr int64_t partial_sums_wanted = 1056; /* blocks of a weight gradient */
constexpr int64_t rows_of_a_partial_sum = 4;  /* at least */

/* Images and how they are divided; the same for all samples. */
struct Layout {
    int64_t samples;
    int in_height, in_width, out_height, out_width; /* read, written */
    int stride, padding;
    int channels, pitch, vectors, lanes, tasks;
    int strips, strips_of_tile, tiles_high, tiles_wide; /* tiles of 8 rows and some strips */
    bool flipped;                                       /* weights are taken from the last to the first */
};

template <int Width> __device__ void clear(float (&values)[Width])
{
#pragma unroll
    for (int i = 0; i < Width; i++)
        values[i] = 0;
}

/* The block's channels' weights to shared memory: [tap][lane * Width + i]. */
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

/* Where a thread works in a tile. */
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

/* y = x * weight + bias at stride S; bias may be NULL; a data gradient at stride 1, too, with flipped weights. Each pixel read serves the up to K outputs of the
 * strip that it is a neighbour of. */
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

/* dx at stride 2: a strip begins where column + padding is even, so which taps meet which column of dy is known to the compiler. */
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

/* The sum of the strips' values, in their order, from the threads of the first strip. joined: of the block. */
template <int Width>
__device__ void join_strips(float *joined, const float (&values)[Width], const Layout &layout,
                            int threads_of_a_strip, bool wanted, float *to)
{
    const int of_a_task = layout.lanes * threads_of_a_strip;
    __syncthreads();
#pragma unroll
    for (int c = 0; c < Width; c++)
        joined[threadIdx.x * Width + c] = values[c];
    __syncthreads();
    if ((int)threadIdx.x >= of_a_task || !wanted)
        return;
    float total[Width];
    clear(total);
    for (int t = 0; t < layout.tasks; t++)
#pragma unroll
        for (int c = 0; c < Width; c++)
            total[c] += joined[(threadIdx.x + t * of_a_task) * Width + c];
    store(to, total);
}

/* Sums of dy * x over a run of rows of dy, one run for each block, and behind the taps of dy alone: partial[block][K * K + 1][pitch]. Threads: lanes, for each of K rows of
 * taps, for each of `tasks` strips. in: x; out: dy. */
template <typename T, int Width, int K, int S, int R>
__global__ void __launch_bounds__(256)
    depthwise_weight_kernel(const T *dy, const T *x, float *partial, const __grid_constant__ Layout layout)
{
    __shared__ float joined[256 * Width];
    const int lane = (int)threadIdx.x % layout.lanes, i = (int)threadIdx.x / layout.lanes % K;
    const int task = (int)threadIdx.x / (layout.lanes * K), vector = (int)blockIdx.y * layout.lanes + lane;
    const int64_t rows = layout.samples * layout.out_height;
    const int64_t first_row = rows * blockIdx.x / gridDim.x, end_row = rows * (blockIdx.x + 1) / gridDim.x;
    const int64_t channel = (int64_t)vector * Width;
    float sums[K][Width], of_bias[Width];
    clear(of_bias);
#pragma unroll
    for (int j = 0; j < K; j++)
        clear(sums[j]);
    for (int64_t row = first_row; row < end_row && vector < layout.vectors; row++) {
        const int64_t sample = row / layout.out_height;
        const int in_row = (int)(row % layout.out_height) * S - layout.padding + i;
        const bool inside = in_row >= 0 && in_row < layout.in_height;
        if (!inside && i > 0)
            continue;
        const T *of_y = dy + row * layout.out_width * layout.pitch + channel;
        const T *of_x = x + (sample * layout.in_height + in_row) * layout.in_width * layout.pitch + channel;
        for (int strip = task; strip < layout.strips; strip += layout.tasks) {
            const int first = strip * R, column0 = first * S - layout.padding;
            float gradient[R][Width];
#pragma unroll
            for (int r = 0; r < R; r++) {
                clear(gradient[r]);
                if (first + r < layout.out_width)
                    load(of_y + (int64_t)(first + r) * layout.pitch, gradient[r]);
                if (i == 0)
#pragma unroll
                    for (int c = 0; c < Width; c++)
                        of_bias[c] += gradient[r][c];
            }
            if (!inside)
                continue;
#pragma unroll
            for (int k = 0; k < (R - 1) * S + K; k++) {
                const int column = column0 + k;
                float pixel[Width];
                clear(pixel);
                if (column >= 0 && column < layout.in_width)
                    load(of_x + (int64_t)column * layout.pitch, pixel);
#pragma unroll
                for (int j = 0; j < K; j++) {
                    if (k - j < 0 || (k - j) % S != 0 || (k - j) / S >= R)
                        continue;
#pragma unroll
                    for (int c = 0; c < Width; c++)
                        sums[j][c] += pixel[c] * gradient[(k - j) / S][c];
                }
            }
        }
    }
    const int64_t at = (int64_t)blockIdx.x * (K * K + 1);
#pragma unroll
    for (int j = 0; j < K; j++)
        join_strips<Width>(joined, sums[j], layout, K, vector < layout.vectors,
                           partial + (at + i * K + j) * layout.pitch + channel);
    join_strips<Width>(joined, of_bias, layout, K, vector < layout.vectors && i == 0,
                       partial + (at + K * K) * layout.pitch + channel);
}

/* ---- weight gradient of 3 x 3 at stride 1 ---- */

constexpr int weight_lanes = 16, weight_strip = 4, weight_sums = 10; /* 9 taps, and dy alone */

/* A thread walks down `segment_rows` rows of dy in a strip of columns. */
struct WeightWalk {
    int64_t walks;                                            /* samples * segments * strips */
    int height, width, out_height, out_width, padding, pitch; /* of x, of dy */
    int vectors, lanes, tasks, strips, segments, segment_rows;
};

/* The same sums as depthwise_weight_kernel's. Each row of x meets the last three rows of dy, which stay in registers, so that both are
 * read once but for the two columns beside a strip and the two rows behind a segment. */
template <typename T, int Width>
__global__ void __launch_bounds__(block_threads, 2)
    depthwise_weight_3x3_kernel(const T *dy, const T *x, float *partial,
                                const __grid_constant__ WeightWalk walk)
{
    constexpr int R = weight_strip;
    __shared__ float joined[weight_sums][Width][block_threads];
    const int lane = (int)threadIdx.x % walk.lanes, task = (int)threadIdx.x / walk.lanes;
    const int vector = (int)blockIdx.y * walk.lanes + lane;
    const int64_t index = (int64_t)blockIdx.x * walk.tasks + task;
    float sums[weight_sums][Width];
#pragma unroll
    for (int s = 0; s < weight_sums; s++)
        clear(sums[s]);
    if (index < walk.walks && vector < walk.vectors) {
        const int first = (int)(index % walk.strips) * R, column0 = first - walk.padding;
        const int64_t rest = index / walk.strips, sample = rest / walk.segments;
        const int begin = (int)(rest % walk.segments) * walk.segment_rows;
        const int end = min(begin + walk.segment_rows, walk.out_height);
        const T *of_y =
            dy + (sample * walk.out_height * walk.out_width + first) * walk.pitch + vector * Width;
        const T *of_x = x + (sample * walk.height * walk.width + column0) * walk.pitch + vector * Width;
        Raw<T, Width> gradients[3][R] = {}; /* of rows row, row - 1, row - 2 */
        for (int row = begin; row < end + 2; row++) {
            const int in_row = row - walk.padding;
            const bool inside = in_row >= 0 && in_row < walk.height;
            Raw<T, Width> pixels[R + 2] = {};
#pragma unroll
            for (int r = 0; r < R; r++) {
                gradients[2][r] = gradients[1][r];
                gradients[1][r] = gradients[0][r];
                gradients[0][r] = {};
                if (row < end && first + r < walk.out_width)
                    gradients[0][r] =
                        fetch<T, Width>(of_y + ((int64_t)row * walk.out_width + r) * walk.pitch);
            }
#pragma unroll
            for (int k = 0; k < R + 2; k++)
                if (inside && column0 + k >= 0 && column0 + k < walk.width)
                    pixels[k] = fetch<T, Width>(of_x + ((int64_t)in_row * walk.width + k) * walk.pitch);
            float values[R + 2][Width];
#pragma unroll
            for (int k = 0; k < R + 2; k++)
                unpack(pixels[k], values[k]);
#pragma unroll
            for (int i = 0; i < 3; i++)
#pragma unroll
                for (int r = 0; r < R; r++) {
                    float gradient[Width];
                    unpack(gradients[i][r], gradient);
#pragma unroll
                    for (int c = 0; c < Width; c++) {
#pragma unroll
                        for (int j = 0; j < 3; j++)
                            sums[i * 3 + j][c] = fmaf(values[r + j][c], gradient[c], sums[i * 3 + j][c]);
                        if (i == 0)
                            sums[9][c] += gradient[c];
                    }
                }
        }
    }
#pragma unroll
    for (int s = 0; s < weight_sums; s++)
#pragma unroll
        for (int c = 0; c < Width; c++)
            joined[s][c][threadIdx.x] = sums[s][c];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < weight_sums * Width * walk.lanes; i += (int)blockDim.x) {
        const int of = i % walk.lanes, c = i / walk.lanes % Width, s = i / (walk.lanes * Width);
        const int to = (int)blockIdx.y * walk.lanes + of;
        float total = 0;
        for (int t = 0; t < walk.tasks; t++)
            total += joined[s][c][t * walk.lanes + of];
        if (to < walk.vectors)
            partial[((int64_t)blockIdx.x * weight_sums + s) * walk.pitch + to * Width + c] = total;
    }
}

WeightWalk weight_walk(const DeviceTensor *x, const DeviceTensor *dy, const Depthwise *depthwise, int width)
{
    constexpr int64_t threads_wanted = 2 * 264 * block_threads; /* two rounds of a card with 132 processors */
    constexpr int rows_least = 8;
    WeightWalk walk = {};
    walk.height = (int)x->shape[1];
    walk.width = (int)x->shape[2];
    walk.out_height = (int)dy->shape[1];
    walk.out_width = (int)dy->shape[2];
    walk.padding = (int)depthwise->padding;
    walk.pitch = (int)dy->pitch;
    walk.vectors = walk.pitch / width;
    const int slabs = (walk.vectors + weight_lanes - 1) / weight_lanes;
    walk.lanes = (walk.vectors + slabs - 1) / slabs;
    walk.tasks = block_threads / walk.lanes;
    walk.strips = (walk.out_width + weight_strip - 1) / weight_strip;
    const int64_t columns = dy->shape[0] * walk.strips * walk.vectors;
    int64_t segments = (threads_wanted + columns - 1) / columns,
            most = (walk.out_height + rows_least - 1) / rows_least;
    segments = segments < most ? segments : most;
    walk.segment_rows = (int)((walk.out_height + segments - 1) / segments);
    walk.segments = (walk.out_height + walk.segment_rows - 1) / walk.segment_rows;
    walk.walks = dy->shape[0] * walk.segments * walk.strips;
    return walk;
}

dim3 weight_grid(const WeightWalk &walk)
{
    return dim3((unsigned)((walk.walks + walk.tasks - 1) / walk.tasks),
                (unsigned)((walk.vectors + walk.lanes - 1) / walk.lanes));
}

bool is_walked(const Depthwise *depthwise)
{
    return depthwise->kernel == 3 && depthwise->stride == 1;
}

/* Of a thread of that kernel: four channels, so that its sums stay in registers. */
int walk_width(const DeviceTensor *tensor)
{
    return tensor->pitch % 4 == 0 ? 4 : 1;
}

constexpr int join_columns = 32, join_rows = 32;

/* dweight[c][tap] = sum of partial[..][tap][c]; dbias[c] the same of what lies behind the taps, up to the pitch. */
__global__ void join_kernel(const float *partial, float *dweight, float *dbias, int64_t count, int taps,
                            int channels, int pitch)
{
    __shared__ double joined[join_rows][join_columns];
    const int channel = (int)blockIdx.x * join_columns + (int)threadIdx.x, tap = (int)blockIdx.y;
    double sum = 0;
    if (channel < pitch)
#pragma unroll 4
        for (int64_t i = threadIdx.y; i < count; i += join_rows)
            sum += (double)partial[(i * (taps + 1) + tap) * pitch + channel];
    joined[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || channel >= pitch)
        return;
    for (int i = 1; i < join_rows; i++)
        sum += joined[i][threadIdx.x];
    if (tap == taps)
        dbias[channel] = (float)sum;
    else if (channel < channels)
        dweight[(int64_t)channel * taps + tap] = (float)sum;
}

/* in: what is read; out: what is written, or dy. threads_of_a_strip: for each lane. */
Layout layout_of(const DeviceTensor *in, const DeviceTensor *out, const Depthwise *depthwise, int width,
                 int threads_of_a_strip)
{
    Layout layout = {};
    layout.samples = in->shape[0];
    layout.in_height = (int)in->shape[1];
    layout.in_width = (int)in->shape[2];
    layout.out_height = (int)out->shape[1];
    layout.out_width = (int)out->shape[2];
    layout.stride = (int)depthwise->stride;
    layout.padding = (int)depthwise->padding;
    layout.channels = (int)in->shape[3];
    layout.pitch = (int)in->pitch;
    layout.vectors = layout.pitch / width;
    /* slabs of channels as equal as can be */
    const int slabs = (layout.vectors + lanes_max - 1) / lanes_max;
    layout.lanes = (layout.vectors + slabs - 1) / slabs;
    layout.tasks = block_threads / (layout.lanes * threads_of_a_strip);
    return layout;
}

void divide_into_tiles(Layout *layout, int columns, int strip)
{
    layout->strips = (columns + strip - 1) / strip;
    layout->strips_of_tile = layout->tasks / tile_rows;
    layout->tasks = layout->strips_of_tile * tile_rows;
    layout->tiles_high = (layout->out_height + tile_rows - 1) / tile_rows;
    layout->tiles_wide = (layout->strips + layout->strips_of_tile - 1) / layout->strips_of_tile;
}

unsigned slabs_of(const Layout &layout)
{
    return (unsigned)((layout.vectors + layout.lanes - 1) / layout.lanes);
}

dim3 grid_of(const Layout &layout)
{
    const int64_t tiles = layout.samples * layout.tiles_high * layout.tiles_wide, slabs = slabs_of(layout);
    const int64_t wanted = blocks_wanted / slabs > 0 ? blocks_wanted / slabs : 1;
    return dim3((unsigned)(tiles < wanted ? tiles : wanted), (unsigned)slabs);
}

int64_t partial_sums_of(const Layout &layout)
{
    const int64_t rows = layout.samples * layout.out_height, slabs = slabs_of(layout);
    const int64_t most = (rows + rows_of_a_partial_sum - 1) / rows_of_a_partial_sum;
    const int64_t wanted = partial_sums_wanted / slabs > 0 ? partial_sums_wanted / slabs : 1;
    return most < wanted ? most : wanted;
}

/* Calls launch with the kernel size as a constant. */
template <typename Launch> void with_kernel(int64_t kernel, Launch launch)
{
    switch (kernel) {
    case 3:
        return launch(std::integral_constant<int, 3>{});
    case 5:
        return launch(std::integral_constant<int, 5>{});
    default:
        return launch(std::integral_constant<int, 7>{});
    }
}

/* Calls launch(T{}, width) with the storage type and the elements of one access: one where rows of channels are no whole vectors. */
template <typename Launch> cudaError_t with_vectors(const DeviceTensor *tensor, Launch launch)
{
    if (tensor->element == ELEMENT_F32 && tensor->pitch % vector_width<float> != 0) {
        launch(float{}, std::integral_constant<int, 1>{});
        return cudaGetLastError();
    }
    return with_storage(tensor, [&](auto zero) {
        launch(zero, std::integral_constant<int, vector_width<decltype(zero)>>{});
    });
}

bool fits(const DeviceTensor *a, const DeviceTensor *b, const DeviceTensor *weight,
          const Depthwise *depthwise)
{
    return kernel_depthwise_fits(depthwise) && a->element == b->element && a->pitch == b->pitch &&
           weight->element == ELEMENT_F32;
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

/* Returns how many partial sums there are. */
template <typename T, int Width>
int64_t walk_weight(const DeviceTensor *dy, const DeviceTensor *x, const Depthwise *depthwise, float *partial,
                    cudaStream_t stream)
{
    const WeightWalk walk = weight_walk(x, dy, depthwise, Width);
    const dim3 grid = weight_grid(walk);
    depthwise_weight_3x3_kernel<T, Width><<<grid, (unsigned)(walk.lanes * walk.tasks), 0, stream>>>(
        data_of<const T>(dy), data_of<const T>(x), partial, walk);
    return grid.x;
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
    return with_vectors(x, [&](auto zero, auto width) {
        with_kernel(depthwise->kernel, [&](auto kernel) {
            constexpr int K = decltype(kernel)::value, Width = decltype(width)::value;
            if (depthwise->stride == 1)
                launch_depthwise<decltype(zero), Width, K, 1, strip_of<K>>(x, weight, bias, depthwise, false,
                                                                           y, stream);
            else
                launch_depthwise<decltype(zero), Width, K, 2, strip_columns>(x, weight, bias, depthwise,
                                                                             false, y, stream);
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
    return with_vectors(dy, [&](auto zero, auto width) {
        with_kernel(depthwise->kernel, [&](auto kernel) {
            using T = decltype(zero);
            constexpr int K = decltype(kernel)::value, Width = decltype(width)::value;
            if (depthwise->stride == 1) {
                launch_depthwise<T, Width, K, 1, strip_of<K>>(dy, weight, nullptr, &turned, true, dx, stream);
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

extern "C" uint64_t kernel_depthwise_scratch_bytes(const DeviceTensor *dy, const Depthwise *depthwise)
{
    if (is_walked(depthwise))
        return (uint64_t)weight_grid(weight_walk(dy, dy, depthwise, walk_width(dy))).x * weight_sums *
               (uint64_t)dy->pitch * sizeof(float);
    const int width = dy->element != ELEMENT_F32 ? 8 : dy->pitch % 4 == 0 ? 4 : 1;
    const Layout layout = layout_of(dy, dy, depthwise, width, (int)depthwise->kernel);
    return (uint64_t)(partial_sums_of(layout) * (depthwise->kernel * depthwise->kernel + 1) * layout.pitch) *
           sizeof(float);
}

extern "C" cudaError_t kernel_depthwise_backward_weight(const DeviceTensor *dy, const DeviceTensor *x,
                                                        const Depthwise *depthwise,
                                                        const DeviceTensor *dweight,
                                                        const DeviceTensor *dbias, void *scratch,
                                                        cudaStream_t stream)
{
    if (!fits(dy, x, dweight, depthwise))
        return cudaErrorNotSupported;
    return with_vectors(dy, [&](auto zero, auto width) {
        with_kernel(depthwise->kernel, [&](auto kernel) {
            using T = decltype(zero);
            constexpr int K = decltype(kernel)::value, Width = decltype(width)::value, R = strip_columns;
            Layout layout = layout_of(x, dy, depthwise, Width, K);
            layout.strips = (layout.out_width + R - 1) / R;
            int64_t count = partial_sums_of(layout);
            const dim3 grid((unsigned)count, slabs_of(layout));
            const unsigned threads = (unsigned)(layout.lanes * K * layout.tasks);
            if (is_walked(depthwise))
                count = walk_weight < T,
                Width == 1 ? 1 : 4 > (dy, x, depthwise, static_cast<float *>(scratch), stream);
            else if (depthwise->stride == 1)
                depthwise_weight_kernel<T, Width, K, 1, R><<<grid, threads, 0, stream>>>(
                    data_of<const T>(dy), data_of<const T>(x), static_cast<float *>(scratch), layout);
            else
                depthwise_weight_kernel<T, Width, K, 2, R><<<grid, threads, 0, stream>>>(
                    data_of<const T>(dy), data_of<const T>(x), static_cast<float *>(scratch), layout);
            const int columns = (layout.pitch + join_columns - 1) / join_columns;
            join_kernel<<<dim3((unsigned)columns, K * K + (dbias ? 1 : 0)), dim3(join_columns, join_rows), 0,
                          stream>>>(static_cast<const float *>(scratch), data_of<float>(dweight),
                                    dbias ? data_of<float>(dbias) : nullptr, count, K * K, layout.channels,
                                    layout.pitch);
        });
    });
}
