/* direct_weight.cu - weight gradients of convolutions of few channels. Pixels are the long side of the
 * product: tiles of both images lie in shared memory (direct_tile.cuh), and are transposed on their way to
 * the registers. */
#include "trainer/backend/cuda/kernels/direct_tile.cuh"

using namespace fshard;
using namespace fshard::direct;

namespace
{

/* Pairs of chunks in a warp: enough for the taps of a window, or for 9 taps of 8 channels. */
constexpr int window_pairs = window_chunks / 2, tap_pairs = 5;

__host__ __device__ inline int pairs_of_warp(const Layout &layout)
{
    return layout.window.stride ? window_pairs : tap_pairs;
}

/* So many threads run on a processor at a time, by their registers. */
__host__ __device__ constexpr int threads_at_a_time(int instance)
{
    return instance == 1 ? 1024 : 512;
}

/* How taps and pixels are divided: `groups` runs of pairs_of_warp pairs of chunks, each for `splits`
 * warps. */
struct Division {
    int groups, splits;
};

__host__ __device__ inline Division division_of(const Layout &layout)
{
    const int pairs = (layout.kernel * layout.kernel * layout.there.chunks + 1) / 2;
    int groups = 1;
    while (groups * pairs_of_warp(layout) < pairs)
        groups *= 2;
    return {groups, layout.threads / 32 / groups};
}

/* Returns the sums in a part, [group][pair][N][4][lane]. */
__host__ __device__ inline int part_sums(const Layout &layout, int instance)
{
    return division_of(layout).groups * pairs_of_warp(layout) * instance * 4 * 32;
}

/* Brings a tile of here to planes, zeros where there is no pixel; those behind the tile, up to a multiple of
 * 16, are zeros, too. */
template <typename T>
__device__ void bring_tile(const T *here, unsigned planes, const Layout &layout, const Spot &spot)
{
    const Image &image = layout.here;
    const Share share = share_of(image.chunks);
    const int pixels = (layout.tile.count + 15) / 16 * 16;
    if (share.chunk >= image.chunks)
        return;
    planes += (unsigned)(share.chunk * layout.here_plane);
    here += share.chunk * chunk;
#pragma unroll 4
    for (int pixel = share.first; pixel < pixels; pixel += share.step) {
        const Place place = place_in(layout.tile, pixel);
        const int sample = spot.sample + place.image, h = spot.row + place.row,
                  w = spot.column + place.column;
        const bool inside =
            pixel < layout.tile.count && sample < layout.samples && h < image.height && w < image.width;
        copy_16_or_zeros(planes + (unsigned)(pixel * chunk_bytes),
                         here + (inside ? element_of(image, sample, h, w) : 0), inside);
    }
}

/* Loads 16 pixels of N chunks, transposed; of which those beyond `chunks` do not count. row: that of lane %
 * 16 in plane 0. */
template <int N> __device__ void load_gradients(unsigned row, int plane, int chunks, uint2 (&gradients)[N])
{
    const int lane = (int)threadIdx.x % 32;
    if constexpr (N == 1) {
        unsigned two[2];
        load_transposed(two, row);
        gradients[0] = make_uint2(two[0], two[1]);
    } else {
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            unsigned two[4];
            load_transposed(two, row + (unsigned)(min(n + lane / 16, chunks - 1) * plane));
            gradients[n] = make_uint2(two[0], two[1]);
            gradients[n + 1] = make_uint2(two[2], two[3]);
        }
    }
}

/* Sums over the pixels of tiles the products of x (there) and dy (here): 16 channels and taps by N chunks of
 * y, Pairs such products in a warp; partial[block][part_sums]. */
template <typename T, int N, int Pairs>
__global__ void __launch_bounds__(threads_most, threads_at_a_time(N) / threads_most)
    direct_weight_kernel(const T *here, const void *there, float *partial,
                         const __grid_constant__ Layout layout)
{
    extern __shared__ __align__(128) char shared[];
    const Division division = division_of(layout);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int group = warp % division.groups, split = warp / division.groups;
    const unsigned patch = (unsigned)__cvta_generic_to_shared(shared),
                   tile = patch + (unsigned)(layout.there_plane * layout.there.chunks);
    const Side &side = layout.sides[0];
    const int last = 2 * layout.steps[0][0] - 1; /* of the chunks; sums of those beyond are not used */
    unsigned offsets[Pairs];
#pragma unroll
    for (int u = 0; u < Pairs; u++)
        offsets[u] = (unsigned)layout.offsets[min(2 * (group * Pairs + u) + lane / 8 % 2, last)];
    float sums[Pairs][N][4];
#pragma unroll
    for (int u = 0; u < Pairs; u++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                sums[u][n][k] = 0;
    for (int t = (int)blockIdx.x; t < layout.tiles; t += (int)gridDim.x) {
        const Spot spot = spot_of(t, layout);
        bring_patch<T>(there, shared, layout, spot);
        bring_tile(here, tile, layout, spot);
        copies_close();
        copies_wait<0>();
        __syncthreads();
        for (int first = split * 16; first < layout.tile.count; first += division.splits * 16) {
            const int pixel = first + lane % 8 + lane / 16 * 8;
            const Place place = place_in(layout.tile, pixel < layout.tile.count ? pixel : 0);
            const unsigned row = patch + (unsigned)patch_bytes(place, layout, side, side);
            uint2 gradients[N];
            load_gradients<N>(tile + (unsigned)((first + lane % 16) * chunk_bytes), layout.here_plane,
                              layout.here.chunks, gradients);
#pragma unroll
            for (int u = 0; u < Pairs; u++) {
                unsigned pairs[4];
                load_transposed(pairs, row + offsets[u]);
#pragma unroll
                for (int n = 0; n < N; n++)
                    multiply_add(T{}, sums[u][n], pairs, gradients[n]);
            }
        }
        __syncthreads();
    }
    float *joined = reinterpret_cast<float *>(shared); /* [warp][N][4][lane] */
    partial += (int64_t)blockIdx.x * part_sums(layout, N);
#pragma unroll
    for (int u = 0; u < Pairs; u++) {
        __syncthreads();
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                joined[(warp * N * 4 + n * 4 + k) * 32 + lane] = sums[u][n][k];
        __syncthreads();
        for (int i = (int)threadIdx.x; i < division.groups * N * 4 * 32; i += (int)blockDim.x) {
            const int of_group = i / (N * 4 * 32), at = i % (N * 4 * 32);
            float sum = 0;
            for (int s = 0; s < division.splits; s++)
                sum += joined[(s * division.groups + of_group) * N * 4 * 32 + at];
            partial[(of_group * Pairs + u) * N * 4 * 32 + at] = sum;
        }
    }
}

/* Computes dweight from the sum of the parts. count: elements of a part. Windows: the chunks are
 * taps, each of which goes to the first of eight channels; the others are zeros. */
template <typename T, int N, bool Windows>
__global__ void __launch_bounds__(join_columns *join_rows)
    direct_join_kernel(const float *partial, T *dweight, int parts, int count, int chunks, int taps, int rows,
                       int pitch)
{
    const int i = (int)(blockIdx.x * join_columns + threadIdx.x % join_columns);
    const double sum = join_parts(partial, i, parts, count);
    if (threadIdx.x >= join_columns)
        return;
    const int lane = i % 32, k = i / 32 % 4, n = i / 128 % N, pair = i / (128 * N);
    const int s = 2 * pair + k / 2, o = n * chunk + lane % 4 * 2 + k % 2, each = pitch / chunk;
    if constexpr (Windows) {
        const int tap = s * chunk + lane / 4;
        const float channels[chunk] = {(float)sum};
        if (tap < window_taps && o < rows)
            store(dweight + (o * window_taps + tap) * chunk, channels);
    } else if (s < chunks && o < rows)
        dweight[((int64_t)o * taps + s / each) * pitch + s % each * chunk + lane / 4] = (T)(float)sum;
}

/* Returns the shared memory that joining the warps' sums takes. */
int join_bytes(const Layout &layout)
{
    return layout.threads / 32 * instance_chunks(layout.here.chunks) * 4 * 32 * (int)sizeof(float);
}

/* Sets *layout to that of a weight gradient; returns whether there are tiles that fit. */
bool weight_layout(const DeviceTensor *dy, const DeviceTensor *x, const Direct *direct, Layout *layout)
{
    *layout = forward_layout(x, dy, direct);
    return choose_tiles(layout, 0, threads_at_a_time(instance_chunks(layout->here.chunks))) &&
           division_of(*layout).splits > 0;
}

int blocks_of(const Layout &layout)
{
    return layout.tiles < layout.blocks ? layout.tiles : layout.blocks;
}

} // namespace

extern "C" uint64_t kernel_direct_scratch_bytes(const DeviceTensor *dy, const DeviceTensor *x,
                                                const Direct *direct)
{
    Layout layout;
    if (!weight_layout(dy, x, direct, &layout))
        return 0;
    return (uint64_t)blocks_of(layout) * (uint64_t)part_sums(layout, instance_chunks(layout.here.chunks)) *
           sizeof(float);
}

extern "C" cudaError_t kernel_direct_backward_weight(const DeviceTensor *dy, const DeviceTensor *x,
                                                     const Direct *direct, const DeviceTensor *dweight,
                                                     void *scratch, cudaStream_t stream)
{
    Layout layout;
    if (!kernel_direct_fits(x, dweight, dy, direct) || !weight_layout(dy, x, direct, &layout))
        return cudaErrorNotSupported;
    float *partial = static_cast<float *>(scratch);
    const int blocks = blocks_of(layout), taps = layout.kernel * layout.kernel;
    const int bytes = tile_bytes(layout) > join_bytes(layout) ? tile_bytes(layout) : join_bytes(layout);
    return with_narrow(dy, [&](auto zero) {
        using T = decltype(zero);
        return with_chunks(layout.here.chunks, [&](auto chunks) {
            constexpr int N = decltype(chunks)::value;
            const bool windows = layout.window.stride != 0;
            const int count = part_sums(layout, N);
            const cudaError_t code = launch_blocks(
                windows ? direct_weight_kernel<T, N, window_pairs> : direct_weight_kernel<T, N, tap_pairs>,
                blocks, layout.threads, bytes, stream, data_of<const T>(dy), data_of<const void>(x), partial,
                layout);
            if (code != cudaSuccess)
                return code;
            const auto join = windows ? direct_join_kernel<T, N, true> : direct_join_kernel<T, N, false>;
            join<<<(unsigned)(count / join_columns), join_columns * join_rows, 0, stream>>>(
                partial, data_of<T>(dweight), blocks, count, taps * layout.there.chunks, taps, (int)dy->pitch,
                layout.weight_pitch);
            return cudaGetLastError();
        });
    });
}
