/* rows_whole.cuh - sums over the rows of a matrix, and the map that needs them, in one launch, for matrices
 * so small that launches take as long as the bytes do. Step by step: docs/kernels.md.
 *
 * All blocks run at the same time, one on each multiprocessor, and wait for each other between the two
 * passes. It is a cooperative launch, which fails if the blocks do not fit; sums and map are then launched
 * one by one (rows.cuh). What the map reads is fetched once, by copies that are all under way at the same
 * time, and as much of it as fits stays in shared memory between the passes; each thread fetches, sums and
 * maps the same rows. Sums have one order, fixed by the shapes.
 *
 * Such a kernel takes 6 to 20 us, and its code comes from a cold instruction cache: loops are not unrolled,
 * and what belongs to a channel is computed once, in shared memory. Measured with pyramidnet at batch 64, 310
 * of these launches, in ms a step (H200, 2026-11-21): matrix read twice, 28 KB of code 12.2; matrix kept, 105
 * to 166 KB of code 12.3; 20 KB 11.2; 14 KB 11.1; partial sums joined by vectors 10.7. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ROWS_WHOLE_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ROWS_WHOLE_CUH

#include <cooperative_groups.h>

#include "trainer/backend/cuda/kernels/async_copy.cuh"
#include "trainer/backend/cuda/kernels/rows.cuh"

namespace fshard
{

constexpr int whole_threads = 256, whole_columns_most = 16; /* of a block */
/* The largest matrix: what the shared memory of all multiprocessors holds (resnet50 at batch 64: 4.90 ms a
 * step; with 16 MiB 4.94). */
constexpr int64_t whole_bytes_most = 28 << 20;
constexpr int joined_at_once = 8; /* vectors of partial sums that a thread reads at once */

/* Returns the cost of a division as a number of bytes: a block's pieces of rows, read twice and written once;
 * the partial sums that it joins; and for each batch of these what could be moved while it waits for them.
 * Whole rows cost their bytes. Pieces of rows also cost the rest of their memory sectors, more if they do not
 * begin with a sector. Fitted to clock stamps at 24 shapes (docs/measurements/2026-11-21-cuda.md). */
inline int64_t cost_of_whole(const Deal &d, int width, int columns)
{
    constexpr int vector_bytes = 16, passes = 3, of_a_wait = 20 << 10;
    const int across = (int)d.threads_x;
    const int besides = d.blocks_x == 1 ? 0 : columns % 2 || across % 2 ? 72 : 20;
    const int64_t rows = (d.lines + d.blocks_y - 1) / d.blocks_y * d.threads_y;
    const int64_t joined = (int64_t)d.blocks_y * across * 2 * width * (int64_t)sizeof(float);
    const int64_t at_once = (int64_t)joined_at_once * across * d.threads_y * vector_bytes;
    return passes * rows * (across * vector_bytes + besides) + joined +
           (joined + at_once - 1) / at_once * of_a_wait;
}

/* Returns the division whose block width costs least. */
inline Deal deal_whole(const DeviceTensor *x, int width)
{
    Deal d = deal(x, width), best = {};
    const int columns = (int)(x->pitch / width);
    int64_t least = INT64_MAX;
    for (int across = 1; across <= columns && across <= whole_columns_most; across++) {
        const int blocks_x = (columns + across - 1) / across;
        if (blocks_x > multiprocessors)
            continue;
        d.blocks_x = (unsigned)blocks_x;
        d.threads_x = (unsigned)across;
        d.threads_y = (unsigned)(whole_threads / across);
        d.lines = (d.rows + d.threads_y - 1) / d.threads_y;
        d.blocks_y = (unsigned)(multiprocessors / blocks_x < d.lines ? multiprocessors / blocks_x : d.lines);
        const int64_t cost = cost_of_whole(d, width, columns);
        if (cost < least) {
            least = cost;
            best = d;
        }
    }
    return best;
}

/* The room for one sum of half of a block's threads; the next sum begins eight banks further. */
constexpr int whole_lanes = whole_threads / 2 + whole_columns_most + 24;

/* Shared memory of block_sums. */
template <int Values> struct Lanes {
    float halves[Values][whole_lanes], strips[whole_threads];
};

/* Adds up a block's threads by channel, and writes the first `own` channels of each sum to partial [Sums,
 * pitch]. */
template <int Width, int Sums>
__device__ void block_sums(float (&sum)[Sums][Width], Lanes<Sums * Width> &lanes, const Deal &d,
                           float *partial, int own)
{
    constexpr int values = Sums * Width;
    const int across = (int)d.threads_x, down = (int)d.threads_y, half = (down + 1) / 2;
    const int x = (int)threadIdx.x, y = (int)threadIdx.y, thread = y * across + x;
    if (y >= half)
#pragma unroll
        for (int i = 0; i < values; i++)
            lanes.halves[i][thread - half * across] = sum[i / Width][i % Width];
    __syncthreads();
    if (y + half < down)
#pragma unroll
        for (int i = 0; i < values; i++)
            sum[i / Width][i % Width] += lanes.halves[i][thread];
    if (y < half)
#pragma unroll
        for (int i = 0; i < values; i++)
            lanes.halves[i][thread] = sum[i / Width][i % Width];
    __syncthreads();
    const int value = y % values, strip = y / values, strips = down / values;
    float result = 0;
    if (strip < strips)
#pragma unroll 1
        for (int row = strip; row < half; row += strips)
            result += lanes.halves[value][row * across + x];
    lanes.strips[thread] = result;
    __syncthreads();
    const int channel = x * Width + value % Width;
    if (strip > 0 || channel >= own)
        return;
#pragma unroll 1
    for (int other = 1; other < strips; other++)
        result += lanes.strips[thread + other * values * across];
    partial[value / Width * d.pitch + channel] = result;
}

/* Adds up the partial sums [blocks_y, Sums, pitch] of a column's channels, c the first of them: each thread
 * takes four channels at a time of a strip of blocks, adds eight of these pairwise and the rest in float64,
 * and leaves them in `strips` [4 * whole_threads]. Another thread may read them after a __syncthreads. */
template <int Width, int Sums>
__device__ __forceinline__ void join_blocks(const float *partial, const Deal &d, int c, double *strips)
{
    constexpr int quads = Sums * Width / 4, quads_of_sum = Width / 4;
    const int quad = (int)threadIdx.y % quads, strip = (int)threadIdx.y / quads,
              count = (int)d.threads_y / quads;
    if (strip >= count || c >= d.pitch)
        return;
    const float *from = partial + quad / quads_of_sum * d.pitch + c + quad % quads_of_sum * 4;
    double joined[4] = {};
#pragma unroll 1
    for (int p = strip; p < (int)d.blocks_y; p += count * joined_at_once) {
        float4 values[joined_at_once];
#pragma unroll
        for (int u = 0; u < joined_at_once; u++)
            values[u] =
                p + u * count < (int)d.blocks_y
                    ? __ldcg(reinterpret_cast<const float4 *>(from + (p + u * count) * Sums * d.pitch))
                    : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int half = joined_at_once / 2; half > 0; half /= 2)
#pragma unroll
            for (int u = 0; u < half; u++) {
                values[u].x += values[u + half].x;
                values[u].y += values[u + half].y;
                values[u].z += values[u + half].z;
                values[u].w += values[u + half].w;
            }
        joined[0] += (double)values[0].x;
        joined[1] += (double)values[0].y;
        joined[2] += (double)values[0].z;
        joined[3] += (double)values[0].w;
    }
    double *to = strips + ((strip * (int)d.threads_x + (int)threadIdx.x) * quads + quad) * 4;
#pragma unroll
    for (int i = 0; i < 4; i++)
        to[i] = joined[i];
}

/* Adds up the strips of the block's k-th channel. */
template <int Width, int Sums>
__device__ __forceinline__ void join_strips_of(const double *strips, const Deal &d, int k,
                                               double (&joined)[Sums])
{
    constexpr int quads = Sums * Width / 4;
    const double *from = strips + k / Width * quads * 4 + k % Width;
    const int count = (int)d.threads_y / quads;
#pragma unroll 2
    for (int i = 0; i < count; i++, from += (int)d.threads_x * quads * 4)
#pragma unroll
        for (int s = 0; s < Sums; s++)
            joined[s] += from[s * Width];
}

/* How rows lie in shared memory: in `stages` chunks of `lines` lines; piece v of a thread's row in line l of
 * a stage is at [stage][l][v][thread]. */
struct Stages {
    int lines;  /* lines of a chunk */
    int chunks; /* chunks of a block; at least `stages`, the last ones may be empty */
};
constexpr int stages = 4;

/* Runs a Pass. partial: [blocks_y, sums, pitch]. A Pass has a term, a map (rows.cuh), and Kept, what a block
 * keeps of its channels in shared memory:
 *
 * - alike_on_ranks: it exchanges sums with other ranks, which are to make the same launch.
 * - fetch(c, c < channels, first) reads everything that is needed of channel c, before anything is written
 *   (first: in one block for each channel).
 * - keep(kept, early, k) stores what the sums need of channel c, the block's k-th.
 * - finish(kept, early, k, c, sums, c < channels, first) stores what the map needs.
 * - term_columns(kept, k, c) and map_columns(kept, k) return the Columns of term and map for that channel and
 *   the next ones.
 * - bring(slot, v, spot, again) starts the copy of piece v (async_copy.cuh). Each row has `vectors` pieces
 *   for the sums; the first `mapped` are what the map needs, fetched again if they did not stay.
 * - term_row(slot, stride) returns the term's row, piece v being slot[v * stride]; keep_row(row, slot) stores
 *   what the sums changed; map_row(slot, stride) returns the map's row. */
template <int Width, typename Pass>
__global__ void __launch_bounds__(whole_threads, 1)
    whole_kernel(const Pass pass, const Deal d, const Stages staged, float *partial, int channels)
{
    using Term = decltype(pass.term);
    using Piece = typename Pass::Piece;
    constexpr int sums = Term::sums, channels_most = whole_columns_most * Width;
    static_assert(whole_threads / whole_columns_most >= sums * Width && Width % 4 == 0 &&
                      whole_threads - whole_columns_most >= channels_most,
                  "a block has a thread for each sum, and for each channel");
    extern __shared__ __align__(16) unsigned char room[];
    __shared__ typename Pass::template Kept<channels_most> kept;
    __shared__ union {
        Lanes<sums * Width> lanes;
        double strips[4 * whole_threads];
    } shared;
    const int threads = (int)(d.threads_x * d.threads_y);
    const int thread = (int)(threadIdx.y * d.threads_x + threadIdx.x);
    const int block = (int)blockIdx.y, first_channel = (int)(blockIdx.x * d.threads_x) * Width;
    const int c = first_channel + (int)threadIdx.x * Width;
    const int own = min((int)d.threads_x * Width, d.pitch - first_channel); /* channels of the block */
    const int rows = c < d.pitch ? (int)d.rows : 0;
    const int row_step = (int)(d.blocks_y * d.threads_y), slot_step = Pass::vectors * threads;
    const int first_row = block * (int)d.threads_y + (int)threadIdx.y;
    Piece *const slots = reinterpret_cast<Piece *>(room) + thread;
    typename Pass::Early early = {};
    if (thread < own)
        early = pass.fetch(first_channel + thread, first_channel + thread < channels, block == 0);
    /* Fetches a chunk into a place that only this thread reads and writes. */
    const auto bring = [&](int chunk, int place, int vectors, bool again) {
        int row = first_row + chunk * staged.lines * row_step;
        Piece *slot = slots + place * staged.lines * slot_step;
#pragma unroll 1
        for (int line = 0; line < staged.lines && row < rows; line++, row += row_step, slot += slot_step)
#pragma unroll
            for (int v = 0; v < Pass::vectors; v++)
                if (v < vectors)
                    pass.bring(slot + v * threads, v, spot(d, row, c), again);
    };
#pragma unroll 1
    for (int chunk = 0; chunk < stages; chunk++) {
        bring(chunk, chunk, Pass::vectors, false);
        copies_close();
    }
    if (thread < own)
        pass.keep(kept, early, thread);
    float sum[sums][Width] = {};
    __syncthreads();
    const auto of_term = pass.term_columns(kept, (int)threadIdx.x * Width, c);
#pragma unroll 1
    for (int chunk = 0; chunk < staged.chunks; chunk++) {
        int row = first_row + chunk * staged.lines * row_step;
        Piece *slot = slots + chunk % stages * staged.lines * slot_step;
        copies_wait<stages - 1>();
#pragma unroll 1
        for (int line = 0; line < staged.lines && row < rows; line++, row += row_step, slot += slot_step) {
            auto read = pass.term_row(slot, threads);
            pass.term.add(of_term, read, spot(d, row, c).element, sum);
            pass.keep_row(read, slot);
        }
        if (chunk + stages < staged.chunks)
            bring(chunk + stages, chunk % stages, Pass::vectors, false);
        copies_close(); /* one group for each chunk, even an empty one */
    }
    block_sums<Width, sums>(sum, shared.lanes, d, partial + (int64_t)block * sums * d.pitch + first_channel,
                            own);
    cooperative_groups::this_grid().sync();
    join_blocks<Width, sums>(partial, d, c, shared.strips);
    __syncthreads();
    if (thread < own) {
        double joined[sums] = {};
        join_strips_of<Width, sums>(shared.strips, d, thread, joined);
        pass.finish(kept, early, thread, first_channel + thread, joined, first_channel + thread < channels,
                    block == 0);
    }
    __syncthreads();
    if (c >= d.pitch)
        return;
    const auto of_map = pass.map_columns(kept, (int)threadIdx.x * Width);
    /* First the chunks that are still there, the last ones of the sums; the place of each is then filled with
     * one that is not. */
#pragma unroll 1
    for (int step = 0; step < staged.chunks; step++) {
        const int absent = staged.chunks - stages;
        const int chunk = step < stages ? absent + step : step - stages;
        const int place = (absent + step) % stages;
        int row = first_row + chunk * staged.lines * row_step;
        const Piece *slot = slots + place * staged.lines * slot_step;
        copies_wait<stages - 1>();
#pragma unroll 1
        for (int line = 0; line < staged.lines && row < rows; line++, row += row_step, slot += slot_step)
            pass.map.write(of_map, pass.map_row(slot, threads), spot(d, row, c).element);
        if (step < absent)
            bring(step, place, Pass::mapped, true);
        copies_close();
    }
}

/* Returns whether matrix and card suit it; *d is then the division. */
template <typename T> bool is_whole(const DeviceTensor *x, Deal *d)
{
    constexpr int width = vector_width<T>;
    int device = 0, there = 0, cooperates = 0;
    if (width_for<T>(x) != width || device_tensor_stored(x) * (int64_t)sizeof(T) > whole_bytes_most)
        return false;
    *d = deal_whole(x, width);
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&cooperates, cudaDevAttrCooperativeLaunch, device) == cudaSuccess &&
           cudaDeviceGetAttribute(&there, cudaDevAttrMultiProcessorCount, device) == cudaSuccess &&
           cooperates && d->blocks_y > 0 && (int64_t)there >= (int64_t)d->blocks_x * d->blocks_y;
}

/* Chooses how many lines fit into shared memory, of which it allows the kernel all there is (the limit
 * belongs to the kernel, for all its launches). Returns false if the card has too little. */
inline bool stage(const void *kernel, const Deal &d, int vectors, Stages *staged, size_t *bytes)
{
    const int most = shared_bytes_most(kernel);
    const int64_t chunk_line = (int64_t)stages * vectors * d.threads_x * d.threads_y * 16;
    const int64_t lines = (d.lines + d.blocks_y - 1) / d.blocks_y, wanted = (lines + stages - 1) / stages;
    const int64_t room = most / chunk_line;
    if (room < 1)
        return false;
    staged->lines = (int)(room < wanted ? room : wanted);
    staged->chunks = (int)((lines + staged->lines - 1) / staged->lines);
    staged->chunks = staged->chunks > stages ? staged->chunks : stages;
    *bytes = (size_t)(staged->lines * chunk_line);
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most) == cudaSuccess;
}

/* Launches a kernel of such a pass, its blocks all at once, with as many lines in shared memory as fit.
 * Returns false, with the error left for cudaGetLastError, if it cannot be launched. */
template <typename Pass, typename Kernel>
bool launch_whole(Kernel kernel, const Pass &pass, const Deal &d, const DeviceTensor *x, void *scratch,
                  cudaStream_t stream)
{
    Stages staged = {};
    size_t bytes = 0;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(d.blocks_x, d.blocks_y);
    config.blockDim = dim3(d.threads_x, d.threads_y);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (!stage(reinterpret_cast<const void *>(kernel), d, Pass::vectors, &staged, &bytes))
        return false;
    config.dynamicSmemBytes = bytes;
    return cudaLaunchKernelEx(&config, kernel, pass, d, staged, static_cast<float *>(scratch),
                              (int)device_tensor_channels(x)) == cudaSuccess;
}

/* Launches the pass. Returns false, and does nothing, if it cannot be launched. Returns true with the error
 * left for cudaGetLastError if a pass that all ranks must make alike (alike_on_ranks) fails for a reason that
 * the other ranks need not have, such as no memory for the kernel: another launch in its place would exchange
 * other numbers than theirs. scratch: as in sum_rows. */
template <typename T, typename Pass>
bool run_whole(const Pass &pass, const DeviceTensor *x, void *scratch, cudaStream_t stream)
{
    if constexpr (Pass::fits) {
        Deal d = {};
        if (!is_whole<T>(x, &d))
            return false;
        if (launch_whole(whole_kernel<vector_width<T>, Pass>, pass, d, x, scratch, stream))
            return true;
        const cudaError_t failed = cudaPeekAtLastError();
        if (Pass::alike_on_ranks && failed != cudaSuccess && failed != cudaErrorCooperativeLaunchTooLarge)
            return true;
        (void)cudaGetLastError();
    }
    return false;
}

} // namespace fshard

#endif
