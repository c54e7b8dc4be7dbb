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

/* Launches the sums of strips. Returns the number of partial sums. */
template <typename T>
int64_t strips_weight(const DeviceTensor *dy, const DeviceTensor *x, const Depthwise *depthwise,
                      float *partial, cudaStream_t stream)
{
    int64_t count = 0;
    with_form(depthwise, dy, [&](auto form) {
        using Form = decltype(form);
        with_strip(Form::kernel, dy->shape[2], [&](auto width) {
            constexpr int R = decltype(width)::value;
            const Strips strips = strips_of<Form>(x, dy, depthwise->padding, R, true);
            count = strips_grid<Form>(strips).x;
            launch_strips<Form, const T *, const T *, float *, Strips>(strips_weight_kernel<Form, T, R>,
                                                                       strips, stream, data_of<const T>(dy),
                                                                       data_of<const T>(x), partial, strips);
        });
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
    if constexpr (!always_strips<Width, K>)
        if (depthwise->stride == 1) {
            depthwise_weight_kernel<T, Width, K, 1, R>
                <<<grid, threads, 0, stream>>>(data_of<const T>(dy), data_of<const T>(x), partial, layout);
            return count;
        }
    depthwise_weight_kernel<T, Width, K, 2, R>
        <<<grid, threads, 0, stream>>>(data_of<const T>(dy), data_of<const T>(x), partial, layout);
    return count;
}

/* Launches what suits the convolution. Returns the number of partial sums. */
template <typename T, int Width, int K>
int64_t partial_weight(const DeviceTensor *dy, const DeviceTensor *x, const Depthwise *depthwise,
                       float *partial, cudaStream_t stream)
{
    if (is_for_strips(depthwise, dy))
        return strips_weight<T>(dy, x, depthwise, partial, stream);
    return rows_weight<T, Width, K>(dy, x, depthwise, partial, stream);
}

} // namespace

extern "C" uint64_t kernel_depthwise_scratch_bytes(const DeviceTensor *dy, const Depthwise *depthwise)
{
    if (is_for_strips(depthwise, dy)) {
        uint64_t blocks = 0;
        with_form(depthwise, dy, [&](auto form) {
            using Form = decltype(form);
            const int width = strip_width(Form::kernel, dy->shape[2]);
            blocks = strips_grid<Form>(strips_of<Form>(dy, dy, depthwise->padding, width, true)).x;
        });
        return blocks * (uint64_t)(depthwise->kernel * depthwise->kernel + 1) * (uint64_t)dy->pitch *
               sizeof(float);
    }
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
