/* depthwise_weight.cu - weight gradients of convolutions with one channel a group: each block sums over a run
 * of rows, and the sums are joined in the order of the blocks. */
#include "trainer/backend/cuda/kernels/depthwise_strips.cuh"

using namespace fshard;
using namespace fshard::depthwise;

namespace
{

constexpr int64_t partial_sums_wanted = 1056; /* blocks of a weight gradient */
constexpr int64_t rows_of_a_partial_sum = 4;  /* at least */

/* Writes the sum of the strips' values, in their order, from the threads of the first strip. joined: shared
 * memory of the block. */
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

/* Computes sums of dy * x over a run of rows of dy, one run for each block, and after the taps the sums of dy
 * alone: partial[block][K * K + 1][pitch]. A block's threads are lanes, for each of K rows of taps, for each
 * of `tasks` strips. in: x; out: dy. */
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

/* How threads walk: down `segment_rows` rows of dy in a strip of columns. */
struct WeightWalk {
    int64_t walks;                                            /* samples * segments * strips */
    int height, width, out_height, out_width, padding, pitch; /* sizes of x, then of dy */
    int vectors, lanes, tasks, strips, segments, segment_rows;
};

/* Computes the same sums as depthwise_weight_kernel. Each row of x is multiplied with the last three rows of
 * dy, which stay in registers, so that both are read once, except for the two columns beside a strip and the
 * two rows after a segment. */
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
        Raw<T, Width> gradients[3][R] = {}; /* rows row, row - 1, row - 2 */
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
    constexpr int64_t threads_wanted = 2 * 264 * block_threads; /* two rounds on a card with 132
                                                                 * multiprocessors */
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

/* Returns the channels of a thread of that kernel: four, so that its sums stay in registers. */
int walk_width(const DeviceTensor *tensor)
{
    return tensor->pitch % 4 == 0 ? 4 : 1;
}

constexpr int join_columns = 32, join_rows = 32;

/* Joins the partial sums: dweight[c][tap] = sum of partial[..][tap][c], and dbias[c] from what follows the
 * taps; both up to the pitch. */
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

int64_t partial_sums_of(const Layout &layout)
{
    const int64_t rows = layout.samples * layout.out_height, slabs = slabs_of(layout);
    const int64_t most = (rows + rows_of_a_partial_sum - 1) / rows_of_a_partial_sum;
    const int64_t wanted = partial_sums_wanted / slabs > 0 ? partial_sums_wanted / slabs : 1;
    return most < wanted ? most : wanted;
}

/* Launches the walk. Returns the number of partial sums. */
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

/* Launches the sums of strips. Returns the number of partial sums. */
template <typename T>
int64_t strips_weight(const DeviceTensor *dy, const DeviceTensor *x, const Depthwise *depthwise,
                      float *partial, cudaStream_t stream)
{
    int64_t count = 0;
    with_strip(dy->shape[2], [&](auto width) {
        constexpr int R = decltype(width)::value;
        const Strips strips = strips_of(x, dy, depthwise->padding, R, true);
        count = strips_grid(strips).x;
        launch_strips<R, T, const T *, const T *, float *, Strips>(strips_weight_kernel<T, R>, strips, true,
                                                                   stream, data_of<const T>(dy),
                                                                   data_of<const T>(x), partial, strips);
    });
    return count;
}

/* Launches the kernel of any size. Returns the number of partial sums. */
template <typename T, int Width, int K>
int64_t rows_weight(const DeviceTensor *dy, const DeviceTensor *x, const Depthwise *depthwise, float *partial,
                    cudaStream_t stream)
{
    constexpr int R = strip_columns;
    Layout layout = layout_of(x, dy, depthwise, Width, K);
    layout.strips = (layout.out_width + R - 1) / R;
    const int64_t count = partial_sums_of(layout);
    const dim3 grid((unsigned)count, slabs_of(layout));
    const unsigned threads = (unsigned)(layout.lanes * K * layout.tasks);
    if (depthwise->stride == 1)
        depthwise_weight_kernel<T, Width, K, 1, R>
            <<<grid, threads, 0, stream>>>(data_of<const T>(dy), data_of<const T>(x), partial, layout);
    else
        depthwise_weight_kernel<T, Width, K, 2, R>
            <<<grid, threads, 0, stream>>>(data_of<const T>(dy), data_of<const T>(x), partial, layout);
    return count;
}

/* Launches what suits the convolution. Returns the number of partial sums. */
template <typename T, int Width, int K>
int64_t partial_weight(const DeviceTensor *dy, const DeviceTensor *x, const Depthwise *depthwise,
                       float *partial, cudaStream_t stream)
{
    if constexpr (K == 3)
        if (is_walked(depthwise))
            return walk_weight < T, Width == 1 ? 1 : 4 > (dy, x, depthwise, partial, stream);
    if constexpr (K == strips_kernel)
        if (is_for_strips(depthwise, dy))
            return strips_weight<T>(dy, x, depthwise, partial, stream);
    return rows_weight<T, Width, K>(dy, x, depthwise, partial, stream);
}

} // namespace

extern "C" uint64_t kernel_depthwise_scratch_bytes(const DeviceTensor *dy, const Depthwise *depthwise)
{
    if (is_for_strips(depthwise, dy))
        return (uint64_t)strips_grid(strips_of(dy, dy, depthwise->padding, strip_width(dy->shape[2]), true))
                   .x *
               (strips_taps + 1) * (uint64_t)dy->pitch * sizeof(float);
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
            constexpr int K = decltype(kernel)::value;
            float *partial = static_cast<float *>(scratch);
            const int64_t count =
                partial_weight<decltype(zero), decltype(width)::value, K>(dy, x, depthwise, partial, stream);
            const int columns = ((int)dy->pitch + join_columns - 1) / join_columns;
            join_kernel<<<dim3((unsigned)columns, K * K + (dbias ? 1 : 0)), dim3(join_columns, join_rows), 0,
                          stream>>>(partial, data_of<float>(dweight), dbias ? data_of<float>(dbias) : nullptr,
                                    count, K * K, (int)dy->shape[3], (int)dy->pitch);
        });
    });
}
