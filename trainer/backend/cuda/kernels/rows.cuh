/* rows.cuh - passes over [rows, channels] matrices at the speed of memory: how a matrix is divided among
 * threads.
 *
 * A thread owns `Width` neighbouring channels (16 bytes of them) and walks over rows; what it knows of its
 * channels stays in registers. A block is threads_x such columns of channels wide and threads_y rows high: a
 * `line` of the matrix. Neighbouring threads are neighbours in memory, then in the next row. Narrow rows are
 * processed up to their pitch, so the padding is written as the image of 0.
 *
 * A pass may run from the last line to the first, so that it begins with what the pass before left in the L2
 * cache. Shapes alone decide the division, so results do not depend on the card. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ROWS_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ROWS_CUH

#include <type_traits>

#include "trainer/backend/cuda/kernels/kernels_common.cuh"

namespace fshard
{

/* ---- 16 bytes at a time ---- */

/* Elements as they are in memory, in 32-bit words: loaded and not used yet. */
template <typename T, int Width> struct alignas(sizeof(T) * Width) Raw {
    unsigned words[sizeof(T) * Width / sizeof(unsigned)];
};

template <typename T, int Width> __device__ Raw<T, Width> fetch(const T *from)
{
    return *reinterpret_cast<const Raw<T, Width> *>(from);
}

/* Fetches what is not read again soon: it leaves the cache first. */
template <typename T, int Width> __device__ Raw<T, Width> fetch_last(const T *from)
{
    Raw<T, Width> raw;
    if constexpr (sizeof raw == 16) {
        const uint4 read = __ldcs(reinterpret_cast<const uint4 *>(from));
        raw.words[0] = read.x;
        raw.words[1] = read.y;
        raw.words[2] = read.z;
        raw.words[3] = read.w;
    } else {
        raw = fetch<T, Width>(from);
    }
    return raw;
}

/* Fetches elements of a row with its own number of channels, from c on, with 0 after the last. Of narrow rows
 * the padding may be read, up to the pitch. */
template <typename T, int Width>
__device__ Raw<T, Width> fetch_part(const T *row, int pitch, int channels, int c)
{
    Raw<T, Width> raw = {};
    if constexpr (sizeof(T) == 2) {
        if (c < pitch)
            raw = fetch_last<T, Width>(row + c);
    } else { /* rows need not be whole vectors */
#pragma unroll
        for (int k = 0; k < Width; k++)
            if (c + k < channels)
                raw.words[k] = __float_as_uint(row[c + k]);
    }
    return raw;
}

template <typename T, int Width> __device__ void unpack(const Raw<T, Width> &raw, float (&values)[Width])
{
    if constexpr (std::is_same_v<T, float>) {
#pragma unroll
        for (int k = 0; k < Width; k++)
            values[k] = __uint_as_float(raw.words[k]);
    } else {
#pragma unroll
        for (int k = 0; k < Width; k += 2) {
            const unsigned word = raw.words[k / 2];
            if constexpr (std::is_same_v<T, __half>) {
                const float2 pair = __half22float2(*reinterpret_cast<const __half2 *>(&word));
                values[k] = pair.x;
                values[k + 1] = pair.y;
            } else { /* bf16 is the upper half of a float */
                values[k] = __uint_as_float(word << 16);
                values[k + 1] = __uint_as_float(word & 0xFFFF0000U);
            }
        }
    }
}

template <typename T, int Width> __device__ Raw<T, Width> pack(const float (&values)[Width])
{
    Raw<T, Width> raw;
    if constexpr (std::is_same_v<T, float>) {
#pragma unroll
        for (int k = 0; k < Width; k++)
            raw.words[k] = __float_as_uint(values[k]);
    } else {
#pragma unroll
        for (int k = 0; k < Width; k += 2) {
            if constexpr (std::is_same_v<T, __half>) {
                const __half2 pair = __floats2half2_rn(values[k], values[k + 1]);
                raw.words[k / 2] = *reinterpret_cast<const unsigned *>(&pair);
            } else {
                const __nv_bfloat162 pair = __floats2bfloat162_rn(values[k], values[k + 1]);
                raw.words[k / 2] = *reinterpret_cast<const unsigned *>(&pair);
            }
        }
    }
    return raw;
}

template <typename T, int Width> __device__ void put(T *to, const Raw<T, Width> &raw)
{
    if constexpr (sizeof raw == 16)
        *reinterpret_cast<uint4 *>(to) = make_uint4(raw.words[0], raw.words[1], raw.words[2], raw.words[3]);
    else
        *reinterpret_cast<Raw<T, Width> *>(to) = raw;
}

template <typename T, int Width> __device__ void put(T *to, const float (&values)[Width])
{
    put(to, pack<T, Width>(values));
}

/* ---- division among threads ---- */

struct Deal {
    int64_t rows, lines; /* lines have threads_y rows each */
    int pitch;
    unsigned threads_x, threads_y;
    unsigned blocks_x; /* along channels */
    unsigned blocks_y; /* along rows */
    int lines_per_block;
};

constexpr int multiprocessors =
    132; /* of the cards that sizes are chosen for; only the speed depends on it */
constexpr int columns_per_block = 32; /* 512 bytes of a row */

/* Returns how many channels a thread has: 16 bytes of them, or one if rows of floats are not whole vectors;
 * narrow rows always are. */
template <typename T> int width_for(const DeviceTensor *x)
{
    return sizeof(T) == 2 || x->pitch % vector_width<T> == 0 ? vector_width<T> : 1;
}

inline Deal deal(const DeviceTensor *x, int width)
{
    const int64_t columns = x->pitch / width;
    Deal d = {};
    d.rows = device_tensor_rows(x);
    d.pitch = (int)x->pitch;
    d.blocks_x = (unsigned)((columns + columns_per_block - 1) / columns_per_block);
    d.threads_x = (unsigned)((columns + d.blocks_x - 1) / d.blocks_x);
    d.threads_y = block_threads / d.threads_x;
    d.lines = (d.rows + d.threads_y - 1) / d.threads_y;
    d.blocks_y = 1;
    return d;
}

/* Returns a division for sums: `resident` blocks that run at the same time, each with every blocks_y-th line,
 * at least `least` lines each. */
inline Deal deal_sums(const DeviceTensor *x, int width, int resident, int least)
{
    Deal d = deal(x, width);
    int64_t blocks = resident / (int64_t)d.blocks_x, most = (d.lines + least - 1) / least;
    blocks = blocks < most ? blocks : most;
    d.blocks_y = (unsigned)(blocks > 1 ? blocks : 1);
    return d;
}

/* Returns a division for maps: neighbouring lines, as many for each block as leave several blocks for every
 * multiprocessor. */
inline Deal deal_map(const DeviceTensor *x, int width)
{
    constexpr int64_t lines_most = 16, blocks_wanted = 4 * multiprocessors;
    Deal d = deal(x, width);
    int64_t lines = d.lines * d.blocks_x / blocks_wanted;
    lines = lines < lines_most ? lines : lines_most;
    d.lines_per_block = (int)(lines > 4 ? lines / 4 * 4 : lines > 1 ? lines : 1);
    d.blocks_y = (unsigned)((d.lines + d.lines_per_block - 1) / d.lines_per_block);
    return d;
}

/* ---- maps ---- */

/* A place to read: the row, the first channel c, and the index of its element in the matrix that is
 * divided. */
struct Spot {
    int64_t row, element;
    int c;
};

__device__ inline Spot spot(const Deal &d, int64_t row, int c)
{
    return {row, row * d.pitch + c, c};
}

/* Runs a Map over a matrix. For each Width a Map has: Columns, what it knows of channels c..c + Width
 * (constructed from (map, c, first); first is true in one thread for each channel of the matrix); Row, what
 * it reads of one row, with read(map, spot); and write(columns, row, i) for element i. It reads an element
 * before it writes there, in the same call, so results may share the bytes of operands. */
template <int Width, int Unroll, typename Map>
__global__ void __launch_bounds__(block_threads, 2) map_kernel(const Map map, const Deal d)
{
    const unsigned block = blockIdx.x / d.blocks_x;
    const int c = (int)((blockIdx.x % d.blocks_x) * d.threads_x + threadIdx.x) * Width;
    if (c >= d.pitch)
        return;
    const typename Map::template Columns<Width> columns(map, c, block == 0 && threadIdx.y == 0);
    const int64_t first = (int64_t)block * d.lines_per_block * d.threads_y + threadIdx.y;
    const int64_t last = first + (int64_t)d.lines_per_block * d.threads_y;
    const int64_t end = last < d.rows ? last : d.rows;
    for (int64_t row = first; row < end; row += (int64_t)Unroll * d.threads_y) {
        typename Map::template Row<Width> rows[Unroll];
#pragma unroll
        for (int u = 0; u < Unroll; u++)
            if (row + (int64_t)u * d.threads_y < end)
                rows[u].read(map, spot(d, row + (int64_t)u * d.threads_y, c));
#pragma unroll
        for (int u = 0; u < Unroll; u++)
            if (row + (int64_t)u * d.threads_y < end)
                map.write(columns, rows[u], (row + (int64_t)u * d.threads_y) * d.pitch + c);
    }
}

template <typename T, int Unroll, typename Map>
void run_map(const Map &map, const DeviceTensor *x, cudaStream_t stream)
{
    const int width = width_for<T>(x);
    const Deal d = deal_map(x, width);
    const dim3 block(d.threads_x, d.threads_y);
    if constexpr (sizeof(T) != 2)
        if (width == 1) {
            map_kernel<1, Unroll, Map><<<d.blocks_x * d.blocks_y, block, 0, stream>>>(map, d);
            return;
        }
    map_kernel<vector_width<T>, Unroll, Map><<<d.blocks_x * d.blocks_y, block, 0, stream>>>(map, d);
}

/* ---- sums over rows ---- */

/* Joins the sums of a block's rows, and writes one of each channel: partial [Sums, pitch]. All threads of the
 * block must call it; c: a thread's first channel. */
template <int Sums, int Width>
__device__ void leave_partial(const float (&sum)[Sums][Width], unsigned threads_x, unsigned threads_y, int c,
                              int pitch, float *partial)
{
    __shared__ float lanes[Sums][Width][block_threads];
    const int thread = (int)(threadIdx.y * threads_x + threadIdx.x);
#pragma unroll
    for (int s = 0; s < Sums; s++)
#pragma unroll
        for (int k = 0; k < Width; k++)
            lanes[s][k][thread] = sum[s][k];
    __syncthreads();
    for (unsigned count = threads_y; count > 1; count = (count + 1) / 2) {
        const unsigned half = (count + 1) / 2;
        if (threadIdx.y + half < count)
#pragma unroll
            for (int s = 0; s < Sums; s++)
#pragma unroll
                for (int k = 0; k < Width; k++)
                    lanes[s][k][thread] += lanes[s][k][thread + (int)(half * threads_x)];
        __syncthreads();
    }
    if (threadIdx.y > 0 || c >= pitch)
        return;
#pragma unroll
    for (int s = 0; s < Sums; s++)
#pragma unroll
        for (int k = 0; k < Width; k++)
            partial[(int64_t)s * pitch + c + k] = lanes[s][k][thread];
}

/* Computes sums over rows, from the last line to the first. A Term is a Map that has add(columns, row, i,
 * sums) in place of write, which adds its `sums` terms of each channel; `unroll` rows are in flight in each
 * thread, `resident` blocks on each multiprocessor. Writes one partial sum for each block and channel:
 * partial [blocks_y, sums, pitch]. */
template <int Width, typename Term>
__global__ void __launch_bounds__(block_threads, Term::resident)
    partial_sums_kernel(const Term term, const Deal d, float *partial)
{
    constexpr int sums = Term::sums, unroll = Term::unroll;
    const unsigned block = blockIdx.x / d.blocks_x;
    const int c = (int)((blockIdx.x % d.blocks_x) * d.threads_x + threadIdx.x) * Width;
    float sum[sums][Width] = {};
    if (c < d.pitch) {
        const typename Term::template Columns<Width> columns(term, c);
        const int64_t step = (int64_t)d.blocks_y * d.threads_y;
        for (int64_t row = (d.lines - 1 - block) * d.threads_y + threadIdx.y; row >= 0;
             row -= unroll * step) {
            typename Term::template Row<Width> rows[unroll];
#pragma unroll
            for (int u = 0; u < unroll; u++)
                if (row - u * step >= 0 && row - u * step < d.rows)
                    rows[u].read(term, spot(d, row - u * step, c));
#pragma unroll
            for (int u = 0; u < unroll; u++)
                if (row - u * step >= 0 && row - u * step < d.rows)
                    term.add(columns, rows[u], (row - u * step) * d.pitch + c, sum);
        }
    }
    leave_partial(sum, d.threads_x, d.threads_y, c, d.pitch, partial + (int64_t)block * sums * d.pitch);
}

constexpr int finish_channels = 16, finish_strips = 32;

/* Adds up a block's sums of finish_strips strips of finish_channels channels. Returns true, with the sums, in
 * the first strip's threads. All threads of the block must call it. */
template <int Sums> __device__ bool join_strips(double (&sum)[Sums])
{
    __shared__ double strips[Sums][finish_strips][finish_channels];
    const int strip = (int)threadIdx.y;
#pragma unroll
    for (int s = 0; s < Sums; s++)
        strips[s][strip][threadIdx.x] = sum[s];
    __syncthreads();
    for (int half = finish_strips / 2; half > 0; half /= 2) {
        if (strip < half)
#pragma unroll
            for (int s = 0; s < Sums; s++)
                strips[s][strip][threadIdx.x] += strips[s][strip + half][threadIdx.x];
        __syncthreads();
    }
#pragma unroll
    for (int s = 0; s < Sums; s++)
        sum[s] = strips[s][0][threadIdx.x];
    return strip == 0;
}

/* Joins the partial sums in float64, and calls finish(c, sums, c < channels) for every channel up to the
 * pitch. */
template <int Sums, typename Finish>
__global__ void finish_sums_kernel(const float *partial, int partials, int pitch, int channels,
                                   const Finish finish)
{
    const int c = (int)(blockIdx.x * finish_channels + threadIdx.x), strip = (int)threadIdx.y;
    double sum[Sums] = {};
    if (c < pitch) {
#pragma unroll 4
        for (int p = strip; p < partials; p += finish_strips)
#pragma unroll
            for (int s = 0; s < Sums; s++)
                sum[s] += (double)partial[((int64_t)p * Sums + s) * pitch + c];
    }
    if (join_strips(sum) && c < pitch)
        finish(c, sum, c < channels);
}

/* Launches that for so many partial sums of the channels of x. */
template <int Sums, typename Finish>
void finish_sums(const float *partial, int partials, const DeviceTensor *x, const Finish &finish,
                 cudaStream_t stream)
{
    finish_sums_kernel<Sums><<<(unsigned)((x->pitch + finish_channels - 1) / finish_channels),
                               dim3(finish_channels, finish_strips), 0, stream>>>(
        partial, partials, (int)x->pitch, (int)device_tensor_channels(x), finish);
}

template <typename Term> Deal deal_term(const DeviceTensor *x, int width)
{
    return deal_sums(x, width, Term::resident * multiprocessors, Term::unroll);
}

/* Launches the sums of a term and their finish. scratch: sums * pitch floats for each of deal_term's
 * blocks. */
template <typename T, typename Term, typename Finish>
void sum_rows(const Term &term, const Finish &finish, const DeviceTensor *x, void *scratch,
              cudaStream_t stream)
{
    const int width = width_for<T>(x);
    const Deal d = deal_term<Term>(x, width);
    const dim3 block(d.threads_x, d.threads_y);
    float *partial = static_cast<float *>(scratch);
    if constexpr (sizeof(T) != 2)
        if (width == 1)
            partial_sums_kernel<1, Term><<<d.blocks_x * d.blocks_y, block, 0, stream>>>(term, d, partial);
    if (width != 1)
        partial_sums_kernel<vector_width<T>, Term>
            <<<d.blocks_x * d.blocks_y, block, 0, stream>>>(term, d, partial);
    finish_sums<Term::sums>(partial, (int)d.blocks_y, x, finish, stream);
}

/* Writes one sum of each channel. */
struct FinishSum {
    float *sum;
    __device__ void operator()(int c, const double *sums, bool) const
    {
        sum[c] = (float)sums[0];
    }
};

} // namespace fshard

#endif
