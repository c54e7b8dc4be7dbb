/* direct_weight.cu - weight gradients of convolutions of few channels. Pixels are the long side of the
 * product, so both matrices are transposed in registers on their way from memory to the matrix units. */
#include "trainer/backend/cuda/kernels/direct_layout.cuh"

using namespace fshard;
using namespace fshard::direct;

namespace
{

constexpr int warp_tiles = 5; /* products in a warp, of two chunks each: enough for 9 taps of 8 channels */
/* Blocks of a weight gradient that run on a multiprocessor at a time, for N chunks of y: as many as registers
 * allow. */
template <int N> constexpr int weight_blocks = N == 1 ? 4 : 2;

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

/* Sums over pixels the products of x (there) and dy (here): 16 channels and taps by N chunks of y, warp_tiles
 * such products in a warp. Blocks are `parts` of the pixels for each of `groups` runs of taps;
 * partial[part][group][tile][n][sum][lane]. */
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

/* Computes dweight from the sum of the parts. count: elements of a part. */
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

/* How pixels and taps of a weight gradient are divided among blocks. */
struct Division {
    int64_t parts, groups, count; /* count: sums in a part */
};

Division division_of(const DeviceTensor *dy, const DeviceTensor *x, const Direct *direct)
{
    Division division;
    const int64_t tiles = (dy->shape[0] * dy->shape[1] * dy->shape[2] + tile_pixels - 1) / tile_pixels;
    const int64_t chunks = direct->kernel * direct->kernel * x->pitch / chunk;
    division.groups = (chunks + 2 * warp_tiles - 1) / (2 * warp_tiles);
    /* at least two tiles for each warp */
    const int64_t wanted = (tiles + 2 * warps - 1) / (2 * warps);
    const int64_t most =
        processors * (dy->pitch == chunk ? weight_blocks<1> : weight_blocks<2>) / division.groups;
    division.parts = wanted < most ? wanted : most;
    division.count = division.groups * warp_tiles * instance_chunks(dy->pitch) * 4 * 32;
    return division;
}

} // namespace

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
