/* direct.cu - convolutions of few channels and their data gradients on the matrix units, directly from device
 * memory. What a layer reads fits in the caches, and the pixels of a row of taps are contiguous, so only the
 * weights are staged in shared memory. Step by step: docs/kernels.md. */
#include "trainer/backend/cuda/kernels/direct_layout.cuh"

using namespace fshard;
using namespace fshard::direct;

namespace
{

/* Writes two channels of a pixel, if it exists, and adds the written values to moments: sums, then sums of
 * squares. */
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

/* Returns the index of the weights' element where chunk s begins, for channel 0 of the output; -1: there is
 * no such chunk. */
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

/* Returns two channels of a chunk for output channel n. row: elements of all taps of one channel of y. */
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

/* Sums the moments over a block, by channel, to to[2][here_pitch]. */
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

/* Adds up the taps of 16 pixels. Entries after the last chunk of the table may point to any pixel: their
 * weights are 0. */
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

/* Computes all channels, N chunks, of 16 pixels in each warp. In a data gradient at stride 2 a block has
 * pixels of one of four classes, by the remainders of row and column: each class has taps of its own. */
template <typename T, int N>
__global__ void __launch_bounds__(block_threads)
    direct_kernel(const T *there, const T *weight, const float *bias, float slope, T *here,
                  float *partial_moments, const __grid_constant__ Layout layout)
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
#pragma unroll
            for (int k = 0; k < 4; k++)
                sums[n][k] = sums[n][k] > 0 ? sums[n][k] : slope * sums[n][k];
            write_two(here, low, n * chunk + 2 * quarter, sums[n][0], sums[n][1], moments[n]);
            write_two(here, high, n * chunk + 2 * quarter, sums[n][2], sums[n][3], moments[n]);
        }
    }
    if (partial_moments)
        write_moments(moments, partial_moments + (int64_t)blockIdx.x * 2 * layout.here_pitch,
                      layout.here_pitch);
}

/* ---- launches ---- */

/* Returns the layout that walks over dx and reads dy. */
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

/* Returns the shared memory for the weights of a convolution that reads `from` channels, for any class of
 * pixels. */
int64_t weight_bytes(int64_t from, int64_t to, int64_t kernel)
{
    const int64_t chunks = kernel * kernel * from / chunk, steps = (chunks + 1) / 2;
    return (steps + unrolled_steps - 1) / unrolled_steps * unrolled_steps * instance_chunks(to) * 32 *
           (int64_t)sizeof(uint2);
}

/* Returns the blocks of direct_kernel. Class 0 has the most pixels. */
int64_t direct_blocks(int64_t pixels, int64_t classes)
{
    const int64_t tiles = (pixels + tile_pixels - 1) / tile_pixels;
    const int64_t wanted = (tiles + warps - 1) / warps, most = blocks_wanted / classes;
    return (wanted < most ? wanted : most) * classes;
}

/* Launches direct_kernel. moments: [2, pitch] of what is written, joined from partial; or NULL. */
cudaError_t launch_direct(const DeviceTensor *there, const DeviceTensor *weight, const DeviceTensor *bias,
                          float slope, const DeviceTensor *here, const DeviceTensor *moments, float *partial,
                          const Layout &layout, cudaStream_t stream)
{
    const unsigned grid = (unsigned)direct_blocks(layout.pixels[0], layout.out_step * layout.out_step);
    const size_t bytes = (size_t)weight_bytes(there->pitch, here->pitch, layout.kernel);
    return with_narrow(there, [&](auto zero) {
        with_chunks(here->pitch, [&](auto chunks) {
            using T = decltype(zero);
            direct_kernel<T, decltype(chunks)::value><<<grid, block_threads, bytes, stream>>>(
                data_of<const T>(there), data_of<const T>(weight),
                bias ? data_of<const float>(bias) : nullptr, slope, data_of<T>(here),
                moments ? partial : nullptr, layout);
        });
        const int count = 2 * (int)here->pitch;
        if (moments)
            join_moments(partial, data_of<float>(moments), (int)grid, count, stream);
    });
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
                                     const DeviceTensor *bias, float slope, const Direct *direct,
                                     const DeviceTensor *y, const DeviceTensor *sums, void *scratch,
                                     cudaStream_t stream)
{
    if (!kernel_direct_fits(x, weight, y, direct) || !is_f32(bias) || !is_f32(sums) ||
        (sums && sums->pitch != y->pitch))
        return cudaErrorNotSupported;
    return launch_direct(x, weight, bias, slope, y, sums, static_cast<float *>(scratch),
                         forward_layout(x, y, direct), stream);
}

extern "C" cudaError_t kernel_direct_backward_data(const DeviceTensor *dy, const DeviceTensor *weight,
                                                   const Direct *direct, const DeviceTensor *dx,
                                                   cudaStream_t stream)
{
    if (!kernel_direct_fits(dx, weight, dy, direct))
        return cudaErrorNotSupported;
    return launch_direct(dy, weight, nullptr, 1, dx, nullptr, nullptr, backward_layout(dy, dx, direct),
                         stream);
}

extern "C" uint64_t kernel_direct_sums_scratch_bytes(const DeviceTensor *y)
{
    return (uint64_t)(direct_blocks(y->shape[0] * y->shape[1] * y->shape[2], 1) * 2 * y->pitch) *
           sizeof(float);
}
