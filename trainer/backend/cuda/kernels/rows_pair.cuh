/* rows_pair.cuh - what rows_whole.cuh does, twice: sums over the rows of a matrix, a map that needs them and
 * whose result has sums of its own, and the map that needs those, in one launch. For norm_pair.cu. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ROWS_PAIR_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ROWS_PAIR_CUH

#include "trainer/backend/cuda/kernels/rows_whole.cuh"

namespace fshard
{

/* The passes of a pair over the rows: sums, map with sums, map. */
enum { PAIR_FIRST, PAIR_SECOND, PAIR_MAP };

/* Runs a Pair. partial: [2, blocks_y, sums, pitch]. A Pair is a Pass of whole_kernel with first_term and
 * second_term in place of its term, each with its finish and columns, and:
 *
 * - begin(phase), end(phase): the pieces of a row that a pass reads. The map's are among the second's.
 * - bring(slot, v, spot, phase) starts the copy of piece v; for PAIR_MAP as the second has left it.
 * - keep_row(row, slot, stride) stores what the second has made of a row.
 *
 * A block's chunks are taken one after the other from pass to pass, as if they were a ring: k-th is chunk k %
 * chunks, in place k % stages. A pass begins with the ones that the one before it has left in place. */
template <int Width, typename Pair>
__global__ void __launch_bounds__(whole_threads, 1)
    pair_kernel(const Pair pair, const Deal d, const Stages staged, float *partial, int channels)
{
    using Piece = typename Pair::Piece;
    constexpr int sums = 2, channels_most = whole_columns_most * Width;
    static_assert(Pair::first_sums == sums && Pair::second_sums == sums, "a norm has two sums");
    static_assert(whole_threads / whole_columns_most >= sums * Width && Width % 4 == 0 &&
                      whole_threads - whole_columns_most >= channels_most,
                  "a block has a thread for each sum, and for each channel");
    extern __shared__ __align__(16) unsigned char room[];
    __shared__ typename Pair::template Kept<channels_most> kept;
    __shared__ union {
        Lanes<sums * Width> lanes;
        double strips[4 * whole_threads];
    } shared;
    const int threads = (int)(d.threads_x * d.threads_y);
    const int thread = (int)(threadIdx.y * d.threads_x + threadIdx.x);
    const int block = (int)blockIdx.y, first_channel = (int)(blockIdx.x * d.threads_x) * Width;
    const int k_of_thread = (int)threadIdx.x * Width, c = first_channel + k_of_thread;
    const int own = min((int)d.threads_x * Width, d.pitch - first_channel); /* channels of the block */
    const int rows = c < d.pitch ? (int)d.rows : 0;
    const int row_step = (int)(d.blocks_y * d.threads_y), slot_step = Pair::vectors * threads;
    const int first_row = block * (int)d.threads_y + (int)threadIdx.y;
    const int absent = staged.chunks - stages; /* chunks that do not stay from pass to pass */
    const bool is_channel = first_channel + thread < channels, is_first = block == 0;
    Piece *const slots = reinterpret_cast<Piece *>(room) + thread;
    typename Pair::Early early = {};
    if (thread < own)
        early = pair.fetch(first_channel + thread, is_channel, is_first);
    /* Calls body(slot, spot) for this thread's rows of the k-th chunk. */
    const auto rows_of = [&](int k, auto body) {
        int row = first_row + k % staged.chunks * staged.lines * row_step;
        Piece *slot = slots + k % stages * staged.lines * slot_step;
#pragma unroll 1
        for (int line = 0; line < staged.lines && row < rows; line++, row += row_step, slot += slot_step)
            body(slot, spot(d, row, c));
    };
    /* Fetches the k-th chunk: of the first pass with all that the second reads, if it stays. */
    const auto bring = [&](int k, int phase) {
        const int range = phase == PAIR_FIRST && k >= absent ? (int)PAIR_SECOND : phase;
        rows_of(k, [&](Piece *slot, const Spot &at) {
#pragma unroll
            for (int v = 0; v < Pair::vectors; v++)
                if (v >= Pair::begin(range) && v < Pair::end(range))
                    pair.bring(slot + v * threads, v, at, phase);
        });
    };
    const auto each_row = [&](int phase, auto body) {
#pragma unroll 1
        for (int step = 0; step < staged.chunks; step++) {
            const int k = phase * absent + step;
            copies_wait<stages - 1>();
            rows_of(k, body);
            if (step < absent)
                bring(k + stages, phase);
            copies_close(); /* one group for each chunk, even an empty one */
        }
    };
#pragma unroll 1
    for (int k = 0; k < stages; k++) {
        bring(k, PAIR_FIRST);
        copies_close();
    }
    if (thread < own)
        pair.keep(kept, early, thread);
    const int64_t sums_of_block = (int64_t)sums * d.pitch;
    /* A loop, since both go through one code, which is in no cache at first. */
#pragma unroll 1
    for (int phase = PAIR_FIRST; phase < PAIR_MAP; phase++) {
        float sum[sums][Width] = {}, *from = partial;
        __syncthreads();
        if (phase == PAIR_FIRST) {
            const auto columns = pair.first_columns(kept, k_of_thread, c);
            each_row(PAIR_FIRST, [&](const Piece *slot, const Spot &at) {
                auto row = pair.first_row(slot, threads);
                pair.first_term.add(columns, row, at.element, sum);
            });
        } else {
            from += d.blocks_y * sums_of_block; /* others may not have read the first's yet */
            const auto columns = pair.second_columns(kept, k_of_thread, c);
            each_row(PAIR_SECOND, [&](Piece *slot, const Spot &at) {
                auto row = pair.second_row(slot, threads);
                pair.second_term.add(columns, row, at.element, sum);
                pair.keep_row(row, slot, threads);
            });
        }
        block_sums<Width, sums>(sum, shared.lanes, d, from + block * sums_of_block + first_channel, own);
        cooperative_groups::this_grid().sync();
        join_blocks<Width, sums>(from, d, c, shared.strips);
        __syncthreads();
        if (thread >= own)
            continue;
        double joined[sums] = {};
        join_strips_of<Width, sums>(shared.strips, d, thread, joined);
        if (phase == PAIR_FIRST)
            pair.finish_first(kept, early, thread, first_channel + thread, joined, is_channel, is_first);
        else
            pair.finish_second(kept, early, thread, first_channel + thread, joined, is_channel, is_first);
    }
    __syncthreads();
    if (c >= d.pitch)
        return;
    const auto columns = pair.map_columns(kept, k_of_thread);
    each_row(PAIR_MAP, [&](const Piece *slot, const Spot &at) {
        pair.map.write(columns, pair.map_row(slot, threads), at.element);
    });
}

/* Launches the pair. Returns false, and does nothing, if it cannot be launched. */
template <typename T, typename Pair>
bool run_pair(const Pair &pair, const DeviceTensor *x, void *scratch, cudaStream_t stream)
{
    Deal d = {};
    if (!is_whole<T>(x, &d))
        return false;
    if (launch_whole(pair_kernel<vector_width<T>, Pair>, pair, d, x, scratch, stream))
        return true;
    (void)cudaGetLastError();
    return false;
}

} // namespace fshard

#endif
