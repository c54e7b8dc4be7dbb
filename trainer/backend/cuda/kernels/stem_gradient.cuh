/* stem_gradient.cuh - the weight gradient of a stem of 7 x 7 and stride 2, straight from the gradient of the
 * pool behind its norm: see kernels_stem_gradient.h. For stem_gradient.cu and stem_gradient_warpgroup.cu,
 * which differ in the matrix units' instructions.
 *
 * It is a product over all pixels of x: dx [pixels, 64], transposed, times what the kernel covers of the
 * images. Apart, dx would be written and read, and so would the images, folded (stem.cu), each as large as x.
 * Here a block walks over tiles of 16 x 16 pixels, and its warps have three roles:
 * - makers bring the windows over a tile to shared memory, and make dx of it (norm_pool.cuh), squares of 2 x
 *   2 pixels at a time;
 * - imagers bring the bytes below the tile, and make numbers of them;
 * - multipliers multiply both, while the others make the next tile.
 *
 * The least for 512 images of 160 px: x, g, the index and the bytes are 0.62 GB, 0.15 ms; 94 GFLOP on the
 * matrix units, a third of them for numbers that do not count. It takes 0.30 ms on an H200
 * (docs/measurements/2026-11-29-stem.md): the makers' instructions set the time, 1,070 of each warp a tile.
 *
 * Blocks leave their sums, which join_kernel adds up. The number of blocks is that of the cards that sizes
 * are chosen for, so the order of the sums does not depend on how many processors a card has. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_STEM_GRADIENT_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_STEM_GRADIENT_CUH

#include "trainer/backend/cuda/kernels/kernels_stem_gradient.h"
#include "trainer/backend/cuda/kernels/matrix_units.cuh"
#include "trainer/backend/cuda/kernels/norm_pool.cuh"
#include "trainer/backend/cuda/kernels/stem_image.cuh"

namespace fshard
{
namespace stem_gradient
{

using namespace norm_pool;
using namespace stem;

constexpr int eights = channels / 8; /* vectors of a pixel */

/* What is multiplied. Eight channels k of pixel p of dx are at p * eights + (k ^ p % 8), so that the
 * matrices' rows are in different banks. */
struct Stage {
    uint4 dx[tile * tile * eights];
    Numbers image;
};

/* The windows over a tile's squares. */
constexpr int windows_across = tile / 2 + 1, windows = windows_across * windows_across;
struct WindowSlot {
    uint4 g[windows * eights];
    uint2 index[windows * eights];
};

/* What a block has in shared memory, behind its stages. */
struct Slots {
    WindowSlot of_windows[byte_slots];
    ByteSlot bytes[byte_slots];
};

/* stages: 1 where a block has too little memory for two. */
constexpr int shared_bytes(int stages)
{
    return (int)(stages * sizeof(Stage) + sizeof(Slots));
}

template <typename T> struct Job {
    PoolGradient<T> gradient;
    Pixels pixels;
    float *partial; /* [blocks, kernel, channels, row_numbers] */
    Tiles tiles;
    int stages;
};

/* ---- roles, and the barriers between them ---- */

constexpr int threads = 512, imager_threads = 128;

/* How many threads have the other roles where so many multiply, and the rows of squares that makers make at
 * once. */
template <int MultiplierThreads> struct Roles {
    static constexpr int makers = threads - imager_threads - MultiplierThreads;
    static constexpr int square_rows = makers / (tile / 2 * eights), turns = tile / 2 / square_rows;
};

/* Barriers of a stage: there is a tile in it, and it has been multiplied; and of roles alone. */
enum Barrier {
    STAGE_FULL = 1,
    STAGE_FREE = STAGE_FULL + stages_most,
    MAKERS_MEET = STAGE_FREE + stages_most,
    IMAGERS_MEET
};

/* ---- makers ---- */

/* The windows of each tile that one of so many makers brings, 8 channels of each. */
template <int Makers> struct Share {
    static constexpr int at_once = Makers / eights, count = (windows + at_once - 1) / at_once;
    int offsets[count]; /* elements, from the tile's first window */
    __device__ Share(const Image &out, int thread)
    {
#pragma unroll
        for (int i = 0; i < count; i++)
            offsets[i] = (row(thread, i) * out.width + column(thread, i)) * channels + thread % eights * 8;
    }
    __device__ static int row(int thread, int i)
    {
        return (thread / eights + i * at_once) / windows_across;
    }
    __device__ static int column(int thread, int i)
    {
        return (thread / eights + i * at_once) % windows_across;
    }
};

/* Begins to bring the windows over a tile, and zeros for those outside the image. */
template <typename T, int Makers>
__device__ void bring_windows(const PoolGradient<T> &from, const Tile &at, int thread,
                              const Share<Makers> &share, WindowSlot *to)
{
    const int64_t first = from.out.element(at.n, at.row / 2, at.column / 2, 0);
    const T *g = from.g + first;
    const uint8_t *index = from.index + first;
    const int rows = from.out.height - at.row / 2, columns = from.out.width - at.column / 2;
#pragma unroll
    for (int i = 0; i < Share<Makers>::count; i++) {
        const int place = thread + i * Makers;
        if (place >= windows * eights)
            break;
        const bool there = Share<Makers>::row(thread, i) < rows && Share<Makers>::column(thread, i) < columns;
        const int offset = there ? share.offsets[i] : 0;
        copy_16_or_zeros(shared_address(&to->g[place]), g + offset, there);
        copy_8_or_zeros(shared_address(&to->index[place]), index + offset, there);
    }
}

/* The square of a turn that a maker has, and 8 channels of it. */
struct Own {
    int row, column, eight;
    __device__ explicit Own(int thread)
        : row(thread / (tile / 2 * eights)), column(thread / eights % (tile / 2)), eight(thread % eights)
    {
    }
};

/* Returns two windows next to each other, of 8 channels. */
template <typename T>
__device__ Windows<T, 2> windows_at(const WindowSlot &from, int row, int column, int eight)
{
    Windows<T, 2> two;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int at = (row * windows_across + column + i) * eights + eight;
        two.g[i] = *reinterpret_cast<const Raw<T, 8> *>(&from.g[at]);
        two.index[i] = *reinterpret_cast<const Raw<uint8_t, 8> *>(&from.index[at]);
    }
    return two;
}

/* x of a maker's squares: what it has of one, and where it reads that of the next. */
template <typename T> struct Ahead {
    Square<T> square;
    const T *x; /* of the next square; it may be outside x where has says so */
    int row, column;
    __device__ void aim(const PoolGradient<T> &of, const Tile &at, int square_row, const Own &own)
    {
        row = at.row + 2 * square_row;
        column = at.column + 2 * own.column;
        x = of.x + of.in.pixel(at.n, row, column) * channels + own.eight * 8;
    }
    __device__ void go_down(const PoolGradient<T> &of, int squares)
    {
        row += 2 * squares;
        x += 2 * squares * of.in.width * channels;
    }
    /* Reads pixel k of the next square. */
    __device__ void read(const PoolGradient<T> &of, int k)
    {
        if (of.in.has(row + k / 2, column + k % 2))
            square.x[k] = fetch_last<T, 8>(x + (k / 2 * of.in.width + k % 2) * channels);
    }
};

/* Makes dx of a maker's square, zeros outside x. What has been used of x makes room for that of the next
 * square, so that it is under way during a turn. */
template <typename T>
__device__ void make_square(const PoolGradient<T> &of, const Tile &at, int square_row, const Own &own,
                            const WindowSlot &from, const GradientColumns<T> &columns, Ahead<T> *ahead,
                            Stage *to)
{
    const Windows<T, 2> line = windows_at<T>(from, square_row, own.column, own.eight),
                        below = windows_at<T>(from, square_row + 1, own.column, own.eight);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int row = 2 * square_row + k / 2, column = 2 * own.column + k % 2, pixel = row * tile + column;
        const bool there = of.in.has(at.row + row, at.column + column);
        const Raw<T, 8> dx = ahead->square.template gradient_of_pixel<3, 1>(k, line, below, columns);
        ahead->read(of, k);
        to->dx[pixel * eights + (own.eight ^ pixel % 8)] =
            make_uint4(there ? dx.words[0] : 0, there ? dx.words[1] : 0, there ? dx.words[2] : 0,
                       there ? dx.words[3] : 0);
    }
}

/* Copies are a tile ahead, in the slot that all have left before they met. */
template <typename T, typename Multiplier>
__device__ void make_gradients(const Job<T> &job, int thread, Stage *stages, WindowSlot *memory)
{
    using R = Roles<Multiplier::multipliers>;
    const PoolGradient<T> &of = job.gradient;
    const Own own(thread);
    const Share<R::makers> share(of.out, thread);
    const GradientColumns<T> columns(of, own.eight * 8);
    Walk walk(job.tiles.count, job.stages);
    Tile at = job.tiles.at(walk.index);
    Ahead<T> ahead = {};
    ahead.aim(of, at, own.row, own);
    for (int k = 0; k < 4; k++)
        ahead.read(of, k);
    bring_windows(of, at, thread, share, &memory[0]);
    for (; walk.has(0); walk.go_on()) {
        const Tile then = job.tiles.at(walk.has(1) ? walk.index + walk.step : walk.index);
        copies_close();
        copies_wait<0>();
        wait_for<R::makers>(MAKERS_MEET);
        if (walk.has(1))
            bring_windows(of, then, thread, share, &memory[walk.slot() ^ 1]);
        if (walk.count >= walk.stages)
            wait_for<threads>(STAGE_FREE + walk.stage());
#pragma unroll 1
        for (int turn = 0; turn < R::turns; turn++) {
            if (turn + 1 < R::turns)
                ahead.go_down(of, R::square_rows);
            else
                ahead.aim(of, then, own.row, own);
            make_square(of, at, turn * R::square_rows + own.row, own, memory[walk.slot()], columns, &ahead,
                        &stages[walk.stage()]);
        }
        arrive_at<threads>(STAGE_FULL + walk.stage());
        at = then;
    }
}

/* ---- multipliers ---- */

/* Leaves a warp's sums of a kernel row: of channels from 16 m on. Fragments: matrix_units.cuh. */
template <typename T>
__device__ void leave_sums(const Job<T> &job, int m, int kernel_row, const float (&sums)[4][4])
{
    const int group = (int)threadIdx.x % 32 / 4, quarter = (int)threadIdx.x % 4;
    float *partial =
        job.partial + (((int64_t)blockIdx.x * kernel + kernel_row) * channels + 16 * m) * row_numbers;
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            *reinterpret_cast<float2 *>(partial + (8 * half + group) * row_numbers + 8 * n + 2 * quarter) =
                make_float2(sums[n][2 * half], sums[n][2 * half + 1]);
}

/* Calls multiply(stage) for each tile. */
template <typename T, typename Multiply>
__device__ void for_tiles(const Job<T> &job, const Stage *stages, Multiply multiply)
{
    for (Walk walk(job.tiles.count, job.stages); walk.has(0); walk.go_on()) {
        wait_for<threads>(STAGE_FULL + walk.stage());
        multiply(stages[walk.stage()]);
        if (walk.has(walk.stages))
            arrive_at<threads>(STAGE_FREE + walk.stage());
    }
}

/* Multiplier: how tiles are multiplied, with
 * - multipliers: how many threads do it, the first of the block;
 * - multiply(job, stages): does it, and leaves the sums;
 * - show(): lets the matrix units see what this thread has written to a stage's image;
 * - in_role(role): is called by all threads of a role at its beginning. */
enum Role { MULTIPLIERS, MAKERS, IMAGERS };

template <typename T, typename Multiplier>
__global__ void __launch_bounds__(threads, 1) stem_gradient_kernel(const __grid_constant__ Job<T> job)
{
    constexpr int makers = Roles<Multiplier::multipliers>::makers;
    extern __shared__ __align__(128) unsigned char memory[];
    Stage *stages = reinterpret_cast<Stage *>(memory);
    Slots *brought = reinterpret_cast<Slots *>(stages + job.stages);
    const int thread = (int)threadIdx.x;
    if (thread < Multiplier::multipliers) {
        Multiplier::template in_role<MULTIPLIERS>();
        Multiplier::multiply(job, stages);
    } else if (thread < Multiplier::multipliers + makers) {
        Multiplier::template in_role<MAKERS>();
        make_gradients<T, Multiplier>(job, thread - Multiplier::multipliers, stages, brought->of_windows);
    } else {
        Multiplier::template in_role<IMAGERS>();
        make_images<T, imager_threads, threads>(
            job.pixels, job.tiles, job.stages, thread - Multiplier::multipliers - makers, brought->bytes,
            STAGE_FULL, STAGE_FREE, IMAGERS_MEET, [&](int stage) { return &stages[stage].image; },
            [] { Multiplier::show(); });
    }
}

/* Returns how many stages a block of the card in use has room for. */
inline int stages_that_fit()
{
    return shared_bytes_most() >= shared_bytes(stages_most) ? stages_most : 1;
}

/* Launches the blocks of a job with so many stages. */
template <typename T, typename Multiplier>
cudaError_t launch(Job<T> job, int stages, int blocks, cudaStream_t stream)
{
    const auto launched = stem_gradient_kernel<T, Multiplier>;
    job.stages = stages;
    const cudaError_t code =
        cudaFuncSetAttribute(launched, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes(stages));
    if (code != cudaSuccess)
        return code;
    launched<<<blocks, threads, (size_t)shared_bytes(stages), stream>>>(job);
    return cudaGetLastError();
}

/* Returns whether the card in use has products of warp groups. In stem_gradient_warpgroup.cu, as what
 * launches blocks with them. */
bool has_warpgroups();
cudaError_t launch_warpgroup(const Job<__half> &job, int blocks, cudaStream_t stream);
cudaError_t launch_warpgroup(const Job<__nv_bfloat16> &job, int blocks, cudaStream_t stream);

} // namespace stem_gradient
} // namespace fshard

#endif
