/* direct.cu - convolutions of few channels on the matrix units, straight from device memory: what a layer reads fits in the caches,
 * and a tap's pixels lie one behind the other, so nothing is staged in shared memory but the weights.
 *
 * In units of 8 channels ("chunks"), a product of matrices 16 wide takes two chunks of neighbouring pixels. A lane finds its pixels'
 * place and which taps lie inside of the image (a bit each) once for all taps. Sums are float32 in the order of the chunks; those of
 * a weight gradient are joined in the order of the blocks. */
#include "trainer/backend/cuda/kernels_direct.h"
#include "trainer/backend/cuda/matrix_units.cuh"

#include <type_traits>

using namespace fshard;

namespace
{

constexpr int tile_pixels = 16, warps = block_threads / 32;
constexpr int chunk = 8, chunks_max = DIRECT_KERNEL_MAX * DIRECT_KERNEL_MAX * DIRECT_CHANNELS_MAX / chunk;
constexpr int unrolled_steps = 3; /* of two chunks; 9 taps of 8, 16, 32 channels are 5, 9, 18 */
constexpr int table_max = chunks_max + 2 * unrolled_steps;
constexpr int warp_tiles = 5; /* of a weight gradient: two chunks each, all that 9 taps of 8 channels need */
constexpr int64_t processors = 132, blocks_wanted = 4 * processors;
/* Blocks of a weight gradient on a processor at a time, for N chunks of y: what their registers leave room for. */
template <int N> constexpr int weight_blocks = N == 1 ? 4 : 2;
/* Beside the table and the sums of warps. */
constexpr int weight_bytes_max = (48 << 10) - table_max * (int)(sizeof(int2) + sizeof(int)) -
                                 warps * 2 * DIRECT_CHANNELS_MAX * (int)sizeof(float);
constexpr unsigned never = 31; /* a bit that is set in no mask: there are 25 taps */

/* x / divisor for x < 2^31, without a division: Granlund and Montgomery, 1994. */
struct Divider {
    unsigned divisor, multiplier, shift;
};

Divider divider_of(int64_t divisor)
{
    unsigned log = 0;
    while ((int64_t{1} << log) < divisor)
        log++;
    return {(unsigned)divisor, (unsigned)((uint64_t{1} << (31 + log)) / (uint64_t)divisor + 1), 31 + log};
}

__device__ unsigned divide(unsigned x, const Divider &by)
{
    return (unsigned)(((uint64_t)x * by.multiplier) >> by.shift);
}

/* Taps along one side, as seen from the pixels that are written: pixel a * out_step + first_out reads in_step * a + first_in + u *
 * direction for each u < count, through tap first_tap + u * tap_step. */
struct Side {
    int first_out, first_in, first_tap, count;
    unsigned first_bits; /* where rows of `count` bits begin */
};

Side side_of(int first_out, int first_in, int first_tap, int count)
{
    Side side = {first_out, first_in, first_tap, count, 0};
    for (int u = 0; u < DIRECT_KERNEL_MAX; u++)
        side.first_bits |= 1U << (u * count);
    return side;
}

/* One of two images is gone through pixel by pixel ("here"), of the other one each tap reads a pixel ("there"). */
struct Layout {
    int here_height, here_width, here_pitch;
    int there_height, there_width, there_pitch;
    int kernel, in_step, out_step, tap_step, direction;
    int weight_pitch;
    Side sides[2]; /* by what is left of the row or column divided by out_step */
    /* For each pair of sides, first that of rows: pixels of that class. */
    Divider rows[2], columns[2];
    unsigned pixels[4];
    int samples;
};

/* What a lane needs of a pixel. here < 0: there is no such pixel. */
struct Place {
    int here, there; /* elements before them */
    unsigned mask;   /* of the taps that lie inside */
};

/* Bits first..end - 1. */
__device__ unsigned bits_between(int first, int end)
{
    return first < end ? (1U << end) - (1U << first) : 0;
}

/* The range of u for which 0 <= first + u * direction < size. */
__device__ void range_inside(int first, int direction, int size, int count, int *from, int *end)
{
    *from = max(0, direction > 0 ? -first : first - size + 1);
    *end = min(count, direction > 0 ? size - first : first + 1);
}

__device__ Place place_of(unsigned pixel, const Layout &layout, int row_class, int column_class)
{
    const Side &rows = layout.sides[row_class], &columns = layout.sides[column_class];
    const unsigned line = divide(pixel, layout.columns[column_class]);
    const unsigned sample = divide(line, layout.rows[row_class]);
    const int b = (int)(pixel - line * layout.columns[column_class].divisor);
    const int a = (int)(line - sample * layout.rows[row_class].divisor);
    const int row = a * layout.in_step + rows.first_in, column = b * layout.in_step + columns.first_in;
    int from, end;
    range_inside(column, layout.direction, layout.there_width, columns.count, &from, &end);
    const unsigned of_columns = bits_between(from, end);
    range_inside(row, layout.direction, layout.there_height, rows.count, &from, &end);
    const unsigned of_rows = columns.first_bits & bits_between(from * columns.count, end * columns.count);
    Place place;
    place.mask = of_rows * of_columns;
    place.there =
        (((int)sample * layout.there_height + row) * layout.there_width + column) * layout.there_pitch;
    place.here =
        (((int)sample * layout.here_height + a * layout.out_step + rows.first_out) * layout.here_width +
         b * layout.out_step + columns.first_out) *
        layout.here_pitch;
    if (pixel >= layout.pixels[row_class * 2 + column_class]) {
        place.here = -1;
        place.mask = 0;
    }
    return place;
}

__device__ Place place_from(const Place &place, int lane)
{
    Place other;
    other.here = __shfl_sync(0xFFFFFFFFU, place.here, lane);
    other.there = __shfl_sync(0xFFFFFFFFU, place.there, lane);
    other.mask = __shfl_sync(0xFFFFFFFFU, place.mask, lane);
    return other;
}

/* Chunk s of the taps: where it lies from a pixel's first tap, and the tap's bit. */
__device__ int2 table_entry(int s, int chunks, const Layout &layout, int columns)
{
    const int each = layout.there_pitch / chunk, tap = s / each;
    if (s >= chunks)
        return make_int2(0, never);
    const int moved = (tap / columns * layout.there_width + tap % columns) * layout.direction;
    return make_int2(moved * layout.there_pitch + s % each * chunk, tap);
}

/* Two elements of the chunk; zeros outside of the image, where there may be an outside. */
template <bool Inside, typename T>
__device__ unsigned two_of(const T *there, const Place &place, int2 entry, int quarter)
{
    const bool inside = Inside || place.mask >> entry.y & 1;
    return inside ? *reinterpret_cast<const unsigned *>(there + place.there + entry.x + 2 * quarter) : 0;
}

/* Whether all taps of all pixels of the warp lie inside of the image. */
__device__ bool all_inside(const Place &mine, const Layout &layout, int row_class, int column_class)
{
    const int taps = layout.sides[row_class].count * layout.sides[column_class].count;
    return __all_sync(0xFFFFFFFFU, taps > 0 && mine.mask == (1U << taps) - 1);
}

template <typename T> __device__ unsigned pair_of(T first, T second)
{
    Pack<T, 2> pack = {{first, second}};
    return *reinterpret_cast<unsigned *>(&pack);
}

/* ---- y from x, dx from dy ---- */

/* Two channels of a pixel that is there; and what was written counted in moments: sums, then sums of squares. */
template <typename T>
__device__ void write_two(T *here, const Place &place, int channel, float first, float second,
                          float (&moments)[4])
{
    if (place.here < 0)
        return;
    const T a = (T)first, b = (T)second;
    *reinterpret_cast<unsigned *>(here + place.here + channel) = pair_of(a, b);
    moments[0] += (float)a;
    moments[1] += (float)b;
    moments[2] += (float)a * (float)a;
    moments[3] += (float)b * (float)b;
}

/* The element of the weights where chunk s begins, for channel 0 of what is written; -1: there is no such chunk. */
__device__ int weight_begin(int s, int chunks, const Layout &layout, const Side &rows, const Side &columns)
{
    const int each = layout.there_pitch / chunk, tap = s / each, first_channel = s % each * chunk;
    if (s >= chunks)
        return -1;
    const int i = rows.first_tap + tap / columns.count * layout.tap_step,
              j = columns.first_tap + tap % columns.count * layout.tap_step;
    const int at = i * layout.kernel + j, taps = layout.kernel * layout.kernel;
    return layout.direction > 0 ? at * layout.weight_pitch + first_channel
                                : (first_channel * taps + at) * layout.weight_pitch;
}

/* Two channels of a chunk for channel n of what is written; row: elements of all taps of one channel of y. */
template <typename T>
__device__ unsigned two_weights(const T *weight, int begin, int quarter, int n, int row, const Layout &layout)
{
    if (begin < 0 || n >= layout.here_pitch)
        return 0;
    if (layout.direction > 0)
        return *reinterpret_cast<const unsigned *>(weight + begin + n * row + 2 * quarter);
    const T *of_two = weight + begin + 2 * quarter * row + n;
    return pair_of(of_two[0], of_two[row]);
}

/* Sums of what is written, and of its squares, by channel, over a block: to[2][here_pitch]. */
template <int N> __device__ void write_moments(const float (&moments)[N][4], float *to, int pitch)
{
    __shared__ float of_warps[warps][2 * N * chunk];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float sum = moments[n][k];
#pragma unroll
            for (int offset = 4; offset < 32; offset *= 2)
                sum += __shfl_xor_sync(0xFFFFFFFFU, sum, offset);
            if (lane < 4)
                of_warps[warp][k / 2 * N * chunk + n * chunk + 2 * lane + k % 2] = sum;
        }
    __syncthreads();
    const int i = (int)threadIdx.x, channel = i % (N * chunk), squares = i / (N * chunk);
    if (squares >= 2 || channel >= pitch)
        return;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < warps; w++)
        sum += of_warps[w][i];
    to[squares * pitch + channel] = sum;
}

/* What lies behind the last chunk of the table is any pixel's, times weights of 0. */
template <bool Inside, typename T, int N>
__device__ void add_taps(const T *there, const Place &low, const Place &high, const int2 *table,
                         const uint2 *weights, int steps, float (&sums)[N][4])
{
    const int lane = (int)threadIdx.x % 32, quarter = lane % 4;
    for (int step = 0; step < steps; step += unrolled_steps) {
        unsigned pairs[unrolled_steps][4];
#pragma unroll
        for (int u = 0; u < unrolled_steps; u++) {
            const int2 even = table[2 * (step + u)], odd = table[2 * (step + u) + 1];
            pairs[u][0] = two_of<Inside>(there, low, even, quarter);
            pairs[u][1] = two_of<Inside>(there, high, even, quarter);
            pairs[u][2] = two_of<Inside>(there, low, odd, quarter);
            pairs[u][3] = two_of<Inside>(there, high, odd, quarter);
        }
#pragma unroll
        for (int u = 0; u < unrolled_steps; u++)
#pragma unroll
            for (int n = 0; n < N; n++)
                multiply_add(T{}, sums[n], pairs[u], weights[((step + u) * N + n) * 32 + lane]);
    }
}

/* A warp makes 16 pixels of all channels, N chunks. Of a data gradient at stride 2 a block has pixels of one of four classes, by what
 * is left of row and column: each class has taps of its own. */
template <typename T, int N>
__global__ void __launch_bounds__(block_threads)
    direct_kernel(const T *there, const T *weight, const float *bias, T *here, float *partial_moments,
                  const __grid_constant__ Layout layout)
{
    extern __shared__ __align__(16) uint2 weights[]; /* [step][N][lane] */
    __shared__ __align__(16) int2 table[table_max];
    __shared__ int begins[table_max];
    const int sides = layout.out_step, row_class = (int)blockIdx.x % (sides * sides) / sides,
              column_class = (int)blockIdx.x % sides;
    const Side &rows = layout.sides[row_class], &columns = layout.sides[column_class];
    const int lane = (int)threadIdx.x % 32, group = lane / 4, quarter = lane % 4;
    const int chunks = rows.count * columns.count * (layout.there_pitch / chunk);
    const int steps = (chunks + 2 * unrolled_steps - 1) / (2 * unrolled_steps) * unrolled_steps;
    for (int i = (int)threadIdx.x; i < 2 * steps; i += block_threads) {
        table[i] = table_entry(i, chunks, layout, columns.count);
        begins[i] = weight_begin(i, chunks, layout, rows, columns);
    }
    __syncthreads();
    const int row = layout.kernel * layout.kernel * layout.weight_pitch;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < steps * N * 32; i += block_threads) {
        const int step = i / (N * 32), n = i / 32 % N * chunk + group;
        weights[i] = make_uint2(two_weights(weight, begins[2 * step], quarter, n, row, layout),
                                two_weights(weight, begins[2 * step + 1], quarter, n, row, layout));
    }
    __syncthreads();
    const unsigned pixels = layout.pixels[row_class * 2 + column_class];
    float moments[N][4];
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            moments[n][k] = 0;
    const unsigned blocks = gridDim.x / (unsigned)(sides * sides),
                   block = blockIdx.x / (unsigned)(sides * sides);
    for (unsigned first = (block * warps + threadIdx.x / 32) * tile_pixels; first < pixels;
         first += blocks * warps * tile_pixels) {
        const Place mine = place_of(first + (unsigned)(lane % tile_pixels), layout, row_class, column_class);
        const Place low = place_from(mine, group), high = place_from(mine, group + 8);
        float sums[N][4];
#pragma unroll
        for (int n = 0; n < N; n++) {
            const bool some = bias && n * chunk < layout.here_pitch;
            sums[n][0] = sums[n][2] = some ? bias[n * chunk + 2 * quarter] : 0;
            sums[n][1] = sums[n][3] = some ? bias[n * chunk + 2 * quarter + 1] : 0;
        }
        if (all_inside(mine, layout, row_class, column_class))
            add_taps<true, T, N>(there, low, high, table, weights, steps, sums);
        else
            add_taps<false, T, N>(there, low, high, table, weights, steps, sums);
#pragma unroll
        for (int n = 0; n < N; n++) {
            if (n * chunk >= layout.here_pitch)
                continue;
            write_two(here, low, n * chunk + 2 * quarter, sums[n][0], sums[n][1], moments[n]);
            write_two(here, high, n * chunk + 2 * quarter, sums[n][2], sums[n][3], moments[n]);
        }
    }
    if (partial_moments)
        write_moments(moments, partial_moments + (int64_t)blockIdx.x * 2 * layout.here_pitch,
                      layout.here_pitch);
}

/* ---- dweight ---- */

template <bool Inside, typename T>
__device__ void load_taps(const T *there, const Place &low, const Place &high, const int2 *table,
                          unsigned (&pairs)[warp_tiles][4])
{
    const int quarter = (int)threadIdx.x % 4;
#pragma unroll
    for (int t = 0; t < warp_tiles; t++) {
        const int2 even = table[2 * t], odd = table[2 * t + 1];
        pairs[t][0] = two_of<Inside>(there, low, even, quarter);
        pairs[t][1] = two_of<Inside>(there, low, odd, quarter);
        pairs[t][2] = two_of<Inside>(there, high, even, quarter);
        pairs[t][3] = two_of<Inside>(there, high, odd, quarter);
    }
}

/* Sums over pixels of x (there) by dy (here): 16 channels and taps by N chunks of y, warp_tiles such products in a warp. Blocks are
 * `parts` of the pixels for each of `groups` runs of taps; partial[part][group][tile][n][sum][lane]. */
template <typename T, int N>
__global__ void __launch_bounds__(block_threads, weight_blocks<N>)
    direct_weight_kernel(const T *here, const T *there, float *partial, unsigned groups,
                         const __grid_constant__ Layout layout)
{
    __shared__ __align__(16) int2 table[2 * warp_tiles];
    __shared__ float joined[warps][N * 4 * 32];
    const int lane = (int)threadIdx.x % 32, group = lane / 4, quarter = lane % 4,
              warp = (int)threadIdx.x / 32;
    const int run = (int)(blockIdx.x % groups);
    const unsigned part = blockIdx.x / groups, parts = gridDim.x / groups, pixels = layout.pixels[0];
    const int chunks = layout.kernel * layout.kernel * (layout.there_pitch / chunk);
    if (threadIdx.x < 2 * warp_tiles)
        table[threadIdx.x] =
            table_entry(run * 2 * warp_tiles + (int)threadIdx.x, chunks, layout, layout.kernel);
    __syncthreads();
    float sums[warp_tiles][N][4];
#pragma unroll
    for (int t = 0; t < warp_tiles; t++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                sums[t][n][k] = 0;
    for (unsigned first = (part * warps + (unsigned)warp) * tile_pixels; first < pixels;
         first += parts * warps * tile_pixels) {
        const Place mine = place_of(first + (unsigned)(lane % tile_pixels), layout, 0, 0);
        const Place low = place_from(mine, group), high = place_from(mine, group + 8);
        unsigned pairs[warp_tiles][4];
        uint2 gradients[N];
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int channel = n * chunk + 2 * quarter;
            const bool some = n * chunk < layout.here_pitch;
            gradients[n].x =
                some && low.here >= 0 ? *reinterpret_cast<const unsigned *>(here + low.here + channel) : 0;
            gradients[n].y =
                some && high.here >= 0 ? *reinterpret_cast<const unsigned *>(here + high.here + channel) : 0;
        }
        if (all_inside(mine, layout, 0, 0))
            load_taps<true>(there, low, high, table, pairs);
        else
            load_taps<false>(there, low, high, table, pairs);
#pragma unroll
        for (int n = 0; n < N; n++)
            gradients[n] = make_uint2(transpose(gradients[n].x), transpose(gradients[n].y));
#pragma unroll
        for (int t = 0; t < warp_tiles; t++) {
#pragma unroll
            for (int k = 0; k < 4; k++)
                pairs[t][k] = transpose(pairs[t][k]);
#pragma unroll
            for (int n = 0; n < N; n++)
                multiply_add(T{}, sums[t][n], pairs[t], gradients[n]);
        }
    }
#pragma unroll
    for (int t = 0; t < warp_tiles; t++) {
        __syncthreads();
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                joined[warp][(n * 4 + k) * 32 + lane] = sums[t][n][k];
        __syncthreads();
        for (int i = (int)threadIdx.x; i < N * 4 * 32; i += block_threads) {
            float sum = 0;
#pragma unroll
            for (int w = 0; w < warps; w++)
                sum += joined[w][i];
            partial[((int64_t)blockIdx.x * warp_tiles + t) * N * 4 * 32 + i] = sum;
        }
    }
}

constexpr int join_columns = 32, join_rows = 16;

/* The sum of element i of the parts, in the first row's threads. */
__device__ double join_parts(const float *partial, int i, int parts, int count)
{
    __shared__ double joined[join_rows][join_columns];
    const int column = (int)threadIdx.x % join_columns, row = (int)threadIdx.x / join_columns;
    double sum = 0;
#pragma unroll 8
    for (int part = i < count ? row : parts; part < parts; part += join_rows)
        sum += (double)partial[(int64_t)part * count + i];
    joined[row][column] = sum;
    __syncthreads();
    for (int k = 1; k < join_rows && row == 0; k++)
        sum += joined[k][column];
    return sum;
}

/* sums[i], i < count: the sum of the blocks' ones. */
__global__ void __launch_bounds__(join_columns *join_rows)
    join_moments_kernel(const float *partial, float *sums, int parts, int count)
{
    const int i = (int)(blockIdx.x * join_columns + threadIdx.x % join_columns);
    const double sum = join_parts(partial, i, parts, count);
    if (threadIdx.x < join_columns && i < count)
        sums[i] = (float)sum;
}

/* dweight from the sum of the parts; count: elements of a part. */
template <typename T, int N>
__global__ void __launch_bounds__(join_columns *join_rows)
    direct_join_kernel(const float *partial, T *dweight, int parts, int count, int chunks, int taps, int rows,
                       int pitch)
{
    const int i = (int)(blockIdx.x * join_columns + threadIdx.x % join_columns);
    const double sum = join_parts(partial, i, parts, count);
    if (threadIdx.x >= join_columns)
        return;
    const int lane = i % 32, k = i / 32 % 4, n = i / 128 % N, tile = i / (128 * N);
    const int s = 2 * tile + k / 2, o = n * chunk + lane % 4 * 2 + k % 2, each = pitch / chunk;
    if (s < chunks && o < rows)
        dweight[((int64_t)o * taps + s / each) * pitch + s % each * chunk + lane / 4] = (T)(float)sum;
}

/* ---- launches ---- */

void set_here(Layout *layout, const DeviceTensor *here, const DeviceTensor *there)
{
    layout->samples = (int)here->shape[0];
    layout->here_height = (int)here->shape[1];
    layout->here_width = (int)here->shape[2];
    layout->here_pitch = (int)here->pitch;
    layout->there_height = (int)there->shape[1];
    layout->there_width = (int)there->shape[2];
    layout->there_pitch = (int)there->pitch;
}

void count_pixels(Layout *layout)
{
    int64_t lines[2], across[2];
    for (int side = 0; side < layout->out_step; side++) {
        lines[side] = (layout->here_height - side + layout->out_step - 1) / layout->out_step;
        across[side] = (layout->here_width - side + layout->out_step - 1) / layout->out_step;
        layout->rows[side] = divider_of(lines[side] > 0 ? lines[side] : 1);
        layout->columns[side] = divider_of(across[side] > 0 ? across[side] : 1);
    }
    for (int i = 0; i < layout->out_step; i++)
        for (int j = 0; j < layout->out_step; j++)
            layout->pixels[i * 2 + j] = (unsigned)(layout->samples * lines[i] * across[j]);
}

/* From the pixels of y, to those of x. */
Layout forward_layout(const DeviceTensor *x, const DeviceTensor *y, const Direct *direct)
{
    Layout layout = {};
    set_here(&layout, y, x);
    layout.kernel = (int)direct->kernel;
    layout.in_step = (int)direct->stride;
    layout.out_step = layout.tap_step = layout.direction = 1;
    layout.weight_pitch = (int)x->pitch;
    layout.sides[0] = side_of(0, -(int)direct->padding, 0, (int)direct->kernel);
    count_pixels(&layout);
    return layout;
}

/* From the pixels of dx, to those of dy. */
Layout backward_layout(const DeviceTensor *dy, const DeviceTensor *dx, const Direct *direct)
{
    const int kernel = (int)direct->kernel, stride = (int)direct->stride, padding = (int)direct->padding;
    Layout layout = {};
    set_here(&layout, dx, dy);
    layout.kernel = kernel;
    layout.in_step = 1;
    layout.out_step = layout.tap_step = stride;
    layout.direction = -1;
    layout.weight_pitch = (int)dx->pitch;
    for (int side = 0; side < stride; side++) {
        const int first_tap = (side + padding) % stride;
        layout.sides[side] = side_of(side, (side + padding - first_tap) / stride, first_tap,
                                     first_tap < kernel ? (kernel - first_tap + stride - 1) / stride : 0);
    }
    count_pixels(&layout);
    return layout;
}

/* Calls launch with the number of chunks of which a kernel has an instance. */
template <typename Launch> void with_chunks(int64_t pitch, Launch launch)
{
    if (pitch <= chunk)
        return launch(std::integral_constant<int, 1>{});
    if (pitch <= 2 * chunk)
        return launch(std::integral_constant<int, 2>{});
    return launch(std::integral_constant<int, 4>{});
}

template <typename Launch> cudaError_t with_narrow(const DeviceTensor *tensor, Launch launch)
{
    if (tensor->element == ELEMENT_F16)
        launch(__half{});
    else
        launch(__nv_bfloat16{});
    return cudaGetLastError();
}

int64_t instance_chunks(int64_t pitch)
{
    return pitch <= 2 * chunk ? pitch / chunk : 4;
}

/* Of a convolution that reads `from` channels, for any class of pixels. */
int64_t weight_bytes(int64_t from, int64_t to, int64_t kernel)
{
    const int64_t chunks = kernel * kernel * from / chunk, steps = (chunks + 1) / 2;
    return (steps + unrolled_steps - 1) / unrolled_steps * unrolled_steps * instance_chunks(to) * 32 *
           (int64_t)sizeof(uint2);
}

/* Of direct_kernel. Class 0 has the most pixels. */
int64_t direct_blocks(int64_t pixels, int64_t classes)
{
    const int64_t tiles = (pixels + tile_pixels - 1) / tile_pixels;
    const int64_t wanted = (tiles + warps - 1) / warps, most = blocks_wanted / classes;
    return (wanted < most ? wanted : most) * classes;
}

/* moments: [2, pitch] of what is written, made by way of partial; or NULL. */
cudaError_t launch_direct(const DeviceTensor *there, const DeviceTensor *weight, const DeviceTensor *bias,
                          const DeviceTensor *here, const DeviceTensor *moments, float *partial,
                          const Layout &layout, cudaStream_t stream)
{
    const unsigned grid = (unsigned)direct_blocks(layout.pixels[0], layout.out_step * layout.out_step);
    const size_t bytes = (size_t)weight_bytes(there->pitch, here->pitch, layout.kernel);
    return with_narrow(there, [&](auto zero) {
        with_chunks(here->pitch, [&](auto chunks) {
            using T = decltype(zero);
            direct_kernel<T, decltype(chunks)::value><<<grid, block_threads, bytes, stream>>>(
                data_of<const T>(there), data_of<const T>(weight),
                bias ? data_of<const float>(bias) : nullptr, data_of<T>(here), moments ? partial : nullptr,
                layout);
        });
        const int count = 2 * (int)here->pitch;
        if (moments)
            join_moments_kernel<<<(unsigned)((count + join_columns - 1) / join_columns),
                                  join_columns * join_rows, 0, stream>>>(partial, data_of<float>(moments),
                                                                         (int)grid, count);
    });
}

/* How the pixels and taps of a weight gradient are divided among blocks. */
struct Division {
    int64_t parts, groups, count; /* count: sums of a part */
};

Division division_of(const DeviceTensor *dy, const DeviceTensor *x, const Direct *direct)
{
    Division division;
    const int64_t tiles = (dy->shape[0] * dy->shape[1] * dy->shape[2] + tile_pixels - 1) / tile_pixels;
    const int64_t chunks = direct->kernel * direct->kernel * x->pitch / chunk;
    division.groups = (chunks + 2 * warp_tiles - 1) / (2 * warp_tiles);
    /* two tiles for each warp, at least */
    const int64_t wanted = (tiles + 2 * warps - 1) / (2 * warps);
    const int64_t most =
        processors * (dy->pitch == chunk ? weight_blocks<1> : weight_blocks<2>) / division.groups;
    division.parts = wanted < most ? wanted : most;
    division.count = division.groups * warp_tiles * instance_chunks(dy->pitch) * 4 * 32;
    return division;
}

bool is_image_of(const DeviceTensor *tensor, ElementType element)
{
    return tensor->element == element && tensor->pitch % chunk == 0 && tensor->pitch <= DIRECT_CHANNELS_MAX &&
           device_tensor_stored(tensor) < (int64_t{1} << 31) && tensor->shape[0] > 0 &&
           tensor->shape[1] > 0 && tensor->shape[2] > 0;
}

} // namespace

extern "C" bool kernel_direct_fits(const DeviceTensor *x, const DeviceTensor *weight, const DeviceTensor *y,
                                   const Direct *direct)
{
    const int64_t kernel = direct->kernel, stride = direct->stride;
    return element_is_narrow(x->element) && is_image_of(x, x->element) && is_image_of(y, x->element) &&
           weight->element == x->element && weight->pitch == x->pitch && weight->shape[3] == x->shape[3] &&
           kernel >= 1 && kernel <= DIRECT_KERNEL_MAX && stride >= 1 && stride <= 2 &&
           weight_bytes(x->pitch, y->pitch, kernel) <= weight_bytes_max &&
           weight_bytes(y->pitch, x->pitch, kernel) <= weight_bytes_max;
}

extern "C" cudaError_t kernel_direct(const DeviceTensor *x, const DeviceTensor *weight,
                                     const DeviceTensor *bias, const Direct *direct, const DeviceTensor *y,
                                     const DeviceTensor *sums, void *scratch, cudaStream_t stream)
{
    if (!kernel_direct_fits(x, weight, y, direct) || !is_f32(bias) || !is_f32(sums) ||
        (sums && sums->pitch != y->pitch))
        return cudaErrorNotSupported;
    return launch_direct(x, weight, bias, y, sums, static_cast<float *>(scratch),
                         forward_layout(x, y, direct), stream);
}

extern "C" cudaError_t kernel_direct_backward_data(const DeviceTensor *dy, const DeviceTensor *weight,
                                                   const Direct *direct, const DeviceTensor *dx,
                                                   cudaStream_t stream)
{
    if (!kernel_direct_fits(dx, weight, dy, direct))
        return cudaErrorNotSupported;
    return launch_direct(dy, weight, nullptr, dx, nullptr, nullptr, backward_layout(dy, dx, direct), stream);
}

extern "C" uint64_t kernel_direct_sums_scratch_bytes(const DeviceTensor *y)
{
    return (uint64_t)(direct_blocks(y->shape[0] * y->shape[1] * y->shape[2], 1) * 2 * y->pitch) *
           sizeof(float);
}

extern "C" uint64_t kernel_direct_scratch_bytes(const DeviceTensor *dy, const DeviceTensor *x,
                                                const Direct *direct)
{
    const Division division = division_of(dy, x, direct);
    return (uint64_t)(division.parts * division.count) * sizeof(float);
}

extern "C" cudaError_t kernel_direct_backward_weight(const DeviceTensor *dy, const DeviceTensor *x,
                                                     const Direct *direct, const DeviceTensor *dweight,
                                                     void *scratch, cudaStream_t stream)
{
    if (!kernel_direct_fits(x, dweight, dy, direct))
        return cudaErrorNotSupported;
    const Layout layout = forward_layout(x, dy, direct);
    const Division division = division_of(dy, x, direct);
    float *partial = static_cast<float *>(scratch);
    const int taps = layout.kernel * layout.kernel;
    return with_narrow(dy, [&](auto zero) {
        with_chunks(dy->pitch, [&](auto chunks) {
            using T = decltype(zero);
            constexpr int N = decltype(chunks)::value;
            direct_weight_kernel<T, N>
                <<<(unsigned)(division.parts * division.groups), block_threads, 0, stream>>>(
                    data_of<const T>(dy), data_of<const T>(x), partial, (unsigned)division.groups, layout);
            direct_join_kernel<T, N>
                <<<(unsigned)(division.count / join_columns), join_columns * join_rows, 0, stream>>>(
                    partial, data_of<T>(dweight), (int)division.parts, (int)division.count,
                    taps * layout.there_pitch / chunk, taps, (int)dy->pitch, layout.there_pitch);
        });
    });
}
