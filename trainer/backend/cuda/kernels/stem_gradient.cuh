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
 * The tile of the image needs no copies of what windows share: a row of a window is 8 pixels of 4 channels,
 * 32 numbers, of which 7 and 3 count, and the next window begins 2 pixels, 16 bytes, further, as a row of a
 * matrix may.
 *
 * The least for 512 images of 160 px: x, g, the index and the bytes are 0.62 GB, 0.15 ms; 94 GFLOP on the
 * matrix units, a third of them for numbers that do not count. The makers' instructions set the time,
 * 1,070 of each warp a tile.
 *
 * Blocks leave their sums, which are added in the order of blocks. The number of blocks is that of the cards
 * that sizes are chosen for, so the bits do not depend on how many processors a card has. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_STEM_GRADIENT_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_STEM_GRADIENT_CUH

#include "trainer/backend/cuda/kernels/async_copy.cuh"
#include "trainer/backend/cuda/kernels/channel_constants.cuh"
#include "trainer/backend/cuda/kernels/kernels_stem_gradient.h"
#include "trainer/backend/cuda/kernels/matrix_units.cuh"
#include "trainer/backend/cuda/kernels/norm_pool.cuh"

namespace fshard
{
namespace stem_gradient
{

using namespace norm_pool;

constexpr int kernel = 7, padding = 3, channels = 64, row_numbers = 32;
constexpr int tile = 16;             /* rows and columns of x */
constexpr int eights = channels / 8; /* vectors of a pixel */
/* of the image below a tile: its last window ends with a column that does not count */
constexpr int image_rows = 2 * tile + kernel - 2, image_columns = 2 * tile + kernel - 1, image_pitch = 40;

/* What is multiplied. Eight channels k of pixel p of dx are at p * eights + (k ^ p % 8), so that the
 * matrices' rows are in different banks. */
struct Stage {
    uint4 dx[tile * tile * eights];
    uint2 image[image_rows * image_pitch];
};
constexpr int stages_most = 2; /* 1 where a block has too little memory */

/* What is brought for a tile: the windows over its squares; and the bytes below it, in rows of words, of
 * which the first pixel begins at any byte. */
constexpr int windows_across = tile / 2 + 1, windows = windows_across * windows_across;
struct WindowSlot {
    uint4 g[windows * eights];
    uint2 index[windows * eights];
};

constexpr int row_words_most = (image_columns * pixel_channels + 3 + 3) / 4;
struct ByteSlot {
    alignas(16) unsigned words[image_rows * row_words_most];
};

/* What a block has in shared memory, behind its stages. */
constexpr int slots = 2;
struct Slots {
    WindowSlot windows[slots];
    ByteSlot bytes[slots];
};

constexpr int shared_bytes(int stages)
{
    return (int)(stages * sizeof(Stage) + sizeof(Slots));
}

template <typename T> struct Job {
    PoolGradient<T> gradient;
    const uint8_t *pixels;
    int64_t byte_count; /* of the pixels */
    Image image;        /* of them */
    int row_bytes;      /* of a row of an image */
    ChannelConstants constants;
    float *partial;           /* [blocks, kernel, channels, row_numbers] */
    int tiles, rows, columns; /* rows and columns of an image's tiles */
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
enum Barrier { STAGE_FULL = 1, STAGE_FREE = 3, MAKERS_MEET = 5, IMAGERS_MEET };

/* Waits until so many threads have arrived; what they wrote to shared memory before is there. */
template <int Threads> __device__ void wait_for(int barrier)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(Threads) : "memory");
}

/* Tells those who wait there, and goes on. */
template <int Threads> __device__ void arrive_at(int barrier)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(Threads) : "memory");
}

/* A tile: of image n, from pixel (row, column) of x on. */
struct Tile {
    int n, row, column;
};

template <typename T> __device__ Tile tile_of(const Job<T> &job, int index)
{
    const int in_image = job.rows * job.columns, n = index / in_image, rest = index - n * in_image;
    return {n, rest / job.columns * tile, rest % job.columns * tile};
}

/* A block's walk over tiles. */
struct Walk {
    int index, step, tiles, stages;
    int count = 0; /* of tiles before this one */
    template <typename T>
    __device__ explicit Walk(const Job<T> &job)
        : index((int)blockIdx.x), step((int)gridDim.x), tiles(job.tiles), stages(job.stages)
    {
    }
    __device__ bool has(int ahead) const
    {
        return index + (int64_t)ahead * step < tiles;
    }
    __device__ int stage() const
    {
        return stages == 1 ? 0 : count % stages_most;
    }
    __device__ int slot() const
    {
        return count % slots;
    }
    __device__ void go_on()
    {
        index += step;
        count++;
    }
};

/* ---- imagers ---- */

/* Returns where the bytes below a tile begin, outside the image as well as in it. */
template <typename T> __device__ int64_t first_byte(const Job<T> &job, const Tile &at)
{
    return job.image.pixel(at.n, 2 * at.row - padding, 2 * at.column - padding) * job.image.channels;
}

/* Brings a word of bytes of which some may be before the first of all or after the last. */
__device__ __noinline__ inline void bring_edge(const uint8_t *pixels, int64_t byte_count, int64_t byte,
                                               unsigned *to)
{
    const int64_t rest = byte_count - byte;
    if (byte >= 0 && rest >= 4)
        copy_4(to, pixels + byte);
    else if (byte >= 0)
#pragma unroll 1
        for (int i = 0; i < rest; i++)
            reinterpret_cast<uint8_t *>(to)[i] = pixels[byte + i];
}

/* Begins to bring the bytes below a tile, those that there are; a warp has a row at a time. */
template <typename T> __device__ void bring_bytes(const Job<T> &job, const Tile &at, int thread, ByteSlot *to)
{
    constexpr int rows_at_once = imager_threads / 32;
    const int words = (image_columns * job.image.channels + 3 + 3) / 4, top = 2 * at.row - padding;
    const int64_t first = first_byte(job, at), most = first + (int64_t)image_rows * job.row_bytes;
    const bool inside = first >= 0 && most + 4 * row_words_most <= job.byte_count;
#pragma unroll 1
    for (int word = thread % 32; word < words; word += 32) {
        int row = thread / 32;
        unsigned *line = to->words + row * row_words_most + word;
        int64_t byte = first + row * job.row_bytes;
#pragma unroll 2
        for (; row < image_rows; row += rows_at_once) {
            const int64_t begin = (byte & ~INT64_C(3)) + 4 * word;
            const bool there = (unsigned)(top + row) < (unsigned)job.image.height;
            if (there && inside)
                copy_4(line, job.pixels + begin);
            else if (there)
                bring_edge(job.pixels, job.byte_count, begin, line);
            byte += rows_at_once * job.row_bytes;
            line += rows_at_once * row_words_most;
        }
    }
}

/* Makes numbers of the bytes below a tile, zeros outside the image. A thread stays in its column, if it has
 * one: 3 rows are made at a time. Channels that there are not become 0, for so are their constants. */
template <typename T>
__device__ void make_numbers(const Job<T> &job, const Tile &at, int thread, const ByteSlot &from, Stage *to)
{
    constexpr int rows_at_once = imager_threads / image_columns;
    const int first = thread / image_columns, column = thread % image_columns;
    const int top = 2 * at.row - padding, left = 2 * at.column - padding;
    const uint8_t *bytes = reinterpret_cast<const uint8_t *>(from.words) + column * job.image.channels;
    const bool is_column = (unsigned)(left + column) < (unsigned)job.image.width;
    if (first >= rows_at_once)
        return;
    unsigned begin = (unsigned)first_byte(job, at) + (unsigned)(first * job.row_bytes);
#pragma unroll 4
    for (int row = first; row < image_rows; row += rows_at_once) {
        const bool there = is_column && (unsigned)(top + row) < (unsigned)job.image.height;
        const uint8_t *pixel = bytes + row * row_words_most * 4 + begin % 4;
        float numbers[pixel_channels];
#pragma unroll
        for (int c = 0; c < pixel_channels; c++)
            numbers[c] = number_of(pixel[c], job.constants, c);
        const Raw<T, pixel_channels> raw = pack<T, pixel_channels>(numbers);
        to->image[row * image_pitch + column] =
            make_uint2(there ? raw.words[0] : 0, there ? raw.words[1] : 0);
        begin += (unsigned)(rows_at_once * job.row_bytes);
    }
}

/* Copies are a tile ahead, in the slot that all have left before they met. */
template <typename T, typename Multiplier>
__device__ void make_images(const Job<T> &job, int thread, Stage *stages, ByteSlot *memory)
{
    Walk walk(job);
    Tile at = tile_of(job, walk.index);
    bring_bytes(job, at, thread, &memory[0]);
    for (; walk.has(0); walk.go_on()) {
        const Tile then = tile_of(job, walk.has(1) ? walk.index + walk.step : walk.index);
        copies_close();
        copies_wait<0>();
        wait_for<imager_threads>(IMAGERS_MEET);
        if (walk.has(1))
            bring_bytes(job, then, thread, &memory[walk.slot() ^ 1]);
        if (walk.count >= walk.stages)
            wait_for<threads>(STAGE_FREE + walk.stage());
        make_numbers(job, at, thread, memory[walk.slot()], &stages[walk.stage()]);
        Multiplier::show();
        arrive_at<threads>(STAGE_FULL + walk.stage());
        at = then;
    }
}

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
    using R = Roles<Multiplier::threads>;
    const PoolGradient<T> &of = job.gradient;
    const Own own(thread);
    const Share<R::makers> share(of.out, thread);
    const GradientColumns<T> columns(of, own.eight * 8);
    Walk walk(job);
    Tile at = tile_of(job, walk.index);
    Ahead<T> ahead = {};
    ahead.aim(of, at, own.row, own);
    for (int k = 0; k < 4; k++)
        ahead.read(of, k);
    bring_windows(of, at, thread, share, &memory[0]);
    for (; walk.has(0); walk.go_on()) {
        const Tile then = tile_of(job, walk.has(1) ? walk.index + walk.step : walk.index);
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
    for (Walk walk(job); walk.has(0); walk.go_on()) {
        wait_for<threads>(STAGE_FULL + walk.stage());
        multiply(stages[walk.stage()]);
        if (walk.has(walk.stages))
            arrive_at<threads>(STAGE_FREE + walk.stage());
    }
}

/* Multiplier: how tiles are multiplied, with
 * - threads: how many do it, the first of the block;
 * - multiply(job, stages): does it, and leaves the sums;
 * - show(): lets the matrix units see what this thread has written to a stage's image;
 * - in_role(role): is called by all threads of a role at its beginning. */
enum Role { MULTIPLIERS, MAKERS, IMAGERS };

template <typename T, typename Multiplier>
__global__ void __launch_bounds__(threads, 1) stem_gradient_kernel(const __grid_constant__ Job<T> job)
{
    constexpr int makers = Roles<Multiplier::threads>::makers;
    extern __shared__ __align__(128) unsigned char memory[];
    Stage *stages = reinterpret_cast<Stage *>(memory);
    Slots *brought = reinterpret_cast<Slots *>(stages + job.stages);
    const int thread = (int)threadIdx.x;
    if (thread < Multiplier::threads) {
        Multiplier::template in_role<MULTIPLIERS>();
        Multiplier::multiply(job, stages);
    } else if (thread < Multiplier::threads + makers) {
        Multiplier::template in_role<MAKERS>();
        make_gradients<T, Multiplier>(job, thread - Multiplier::threads, stages, brought->windows);
    } else {
        Multiplier::template in_role<IMAGERS>();
        make_images<T, Multiplier>(job, thread - Multiplier::threads - makers, stages, brought->bytes);
    }
}

/* Launches the blocks of a job, whose stages are not known yet. */
template <typename T, typename Multiplier> cudaError_t launch(Job<T> job, int blocks, cudaStream_t stream)
{
    const auto kernel = stem_gradient_kernel<T, Multiplier>;
    job.stages = shared_bytes_most() >= shared_bytes(stages_most) ? stages_most : 1;
    const cudaError_t code =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes(job.stages));
    if (code != cudaSuccess)
        return code;
    kernel<<<blocks, threads, (size_t)shared_bytes(job.stages), stream>>>(job);
    return cudaGetLastError();
}

/* Launches them with products of warp groups, on Hopper (stem_gradient_warpgroup.cu). */
cudaError_t launch_warpgroup(const Job<__half> &job, int blocks, cudaStream_t stream);
cudaError_t launch_warpgroup(const Job<__nv_bfloat16> &job, int blocks, cudaStream_t stream);

} // namespace stem_gradient
} // namespace fshard

#endif
