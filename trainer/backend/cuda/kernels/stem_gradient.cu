/* stem_gradient.cu - the weight gradient of a stem of 7 x 7 and stride 2, straight from the gradient of the
 * pool behind its norm: see kernels_stem_gradient.h.
 *
 * It is a product over all pixels of x: dx [pixels, 64], transposed, times what the kernel covers of the
 * images. Apart, dx would be written and read, and so would the images, folded (stem.cu), each as large as x.
 * Here a block walks over tiles of 16 x 16 pixels. Its producers make dx of a tile (norm_pool.cuh), and
 * numbers of the bytes below it, in shared memory; its consumers multiply the tile before. The tile of the
 * image needs no copies of what windows share: a row of a window is 8 pixels of 4 channels, 32 numbers, of
 * which 7 and 3 count, and the next window begins 2 pixels, 16 bytes, further, as a row of a matrix may that
 * ldmatrix loads. A consumer warp has 16 channels, and the even rows of the kernel or the odd ones: rows r of
 * one line of dx and r - 2 of the next meet the same row of the image, so it loads one for each line.
 *
 * The least for 512 images of 160 px: x, g, the index and the bytes are 0.62 GB, 0.15 ms; 94 GFLOP on the
 * matrix units, a third of them for numbers that do not count, take as long at 62 % of their rate.
 *
 * Blocks leave their sums, which are added in the order of blocks. The number of blocks is that of the cards
 * that sizes are chosen for, so the bits do not depend on the card. */
#include "trainer/backend/cuda/kernels/channel_constants.cuh"
#include "trainer/backend/cuda/kernels/kernels_stem_gradient.h"
#include "trainer/backend/cuda/kernels/matrix_units.cuh"
#include "trainer/backend/cuda/kernels/norm_pool.cuh"

using namespace fshard;
using namespace fshard::norm_pool;
using fshard::window::image_of;

namespace
{

constexpr int kernel = 7, padding = 3, channels = 64, row_numbers = 32;
constexpr int tile = 16; /* rows and columns of x */
constexpr int consumer_threads = 256, producer_threads = 256, threads = consumer_threads + producer_threads;
constexpr int eights = channels / 8; /* vectors of a pixel */
/* of the image below a tile: its last window ends with a column that does not count */
constexpr int image_rows = 2 * tile + kernel - 2, image_columns = 2 * tile + kernel - 1, image_pitch = 40;

/* Eight channels k of pixel p of dx are at p * eights + (k ^ p % 8), so that the matrices' rows are in
 * different banks. */
struct Stage {
    uint4 dx[tile * tile * eights];
    uint2 image[image_rows * image_pitch];
};
constexpr int stages = 2;

template <typename T> struct Job {
    PoolGradient<T> gradient;
    const uint8_t *pixels;
    Image image; /* of the pixels */
    ChannelConstants constants;
    float *partial;           /* [blocks, kernel, channels, row_numbers] */
    int tiles, rows, columns; /* rows and columns of an image's tiles */
};

/* ---- barriers between producers and consumers ---- */

/* The barriers of a stage: full: there is a tile in it; free: it has been multiplied. */
__device__ inline int full(int stage)
{
    return 1 + stage;
}

__device__ inline int free_of(int stage)
{
    return 1 + stages + stage;
}

__device__ inline void wait_for(int barrier)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(threads) : "memory");
}

/* Tells those who wait there, and goes on. */
__device__ inline void arrive_at(int barrier)
{
    __threadfence_block();
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(threads) : "memory");
}

/* ---- producers ---- */

/* A tile: of image n, from pixel (row, column) of x on. */
struct Tile {
    int n, row, column;
};

template <typename T> __device__ Tile tile_of(const Job<T> &job, int index)
{
    const int in_image = job.rows * job.columns, n = index / in_image, rest = index - n * in_image;
    return {n, rest / job.columns * tile, rest % job.columns * tile};
}

/* Makes numbers of the bytes below a tile, zeros outside the image. Those of some pixels are under way before
 * any is waited for. */
template <typename T> __device__ void stage_image(const Job<T> &job, const Tile &at, int thread, Stage *to)
{
    constexpr int count = image_rows * image_columns, together = 3;
    const int top = 2 * at.row - padding, left = 2 * at.column - padding, width = job.image.channels;
    for (int first = thread; first < count; first += together * producer_threads) {
        uint8_t bytes[together][pixel_channels];
        bool there[together];
#pragma unroll
        for (int r = 0; r < together; r++) {
            const int i = first + r * producer_threads, row = i / image_columns,
                      column = i - row * image_columns;
            there[r] = i < count && job.image.has(top + row, left + column);
            const uint8_t *from = job.pixels + job.image.pixel(at.n, top + row, left + column) * width;
#pragma unroll
            for (int c = 0; c < pixel_channels; c++)
                bytes[r][c] = there[r] && c < width ? from[c] : 0;
        }
#pragma unroll
        for (int r = 0; r < together; r++) {
            const int i = first + r * producer_threads, row = i / image_columns,
                      column = i - row * image_columns;
            float numbers[pixel_channels];
#pragma unroll
            for (int c = 0; c < pixel_channels; c++)
                numbers[c] = there[r] && c < width ? number_of(bytes[r][c], job.constants, c) : 0;
            const Raw<T, pixel_channels> raw = pack<T, pixel_channels>(numbers);
            if (i < count)
                to->image[row * image_pitch + column] = make_uint2(raw.words[0], raw.words[1]);
        }
    }
}

/* The squares of a tile are dealt out in turns: turn t of a thread is square t * squares_at_once + thread /
 * eights, of its 8 channels. */
constexpr int squares_at_once = producer_threads / eights, turns = tile * tile / 4 / squares_at_once;

/* What a thread reads of a square. */
template <typename T> struct Reading {
    Windows<T, 2> line, below;
    Square<T> square;
    int down, across;
    __device__ Reading(const Job<T> &job, const Tile &at, int thread, int turn)
    {
        const int i = turn * squares_at_once + thread / eights, c = thread % eights * 8;
        down = i / (tile / 2);
        across = i % (tile / 2);
        const int q = at.row / 2 + down, w = at.column / 2 + across;
        line.read(job.gradient, at.n, q, w, c);
        below.read(job.gradient, at.n, q + 1, w, c);
        square.read(job.gradient, at.n, q, w, c);
    }
};

/* Makes dx of a square, zeros outside x. */
template <typename T>
__device__ void stage_square(const Job<T> &job, const Tile &at, int thread, const Reading<T> &reading,
                             const GradientColumns<T> &columns, Stage *to)
{
    const int eight = thread % eights;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int row = 2 * reading.down + k / 2, column = 2 * reading.across + k % 2,
                  pixel = row * tile + column;
        Raw<T, 8> dx = {};
        if (job.gradient.in.has(at.row + row, at.column + column))
            dx = reading.square.template gradient_of_pixel<3, 1>(k, reading.line, reading.below, columns);
        to->dx[pixel * eights + (eight ^ pixel % 8)] =
            make_uint4(dx.words[0], dx.words[1], dx.words[2], dx.words[3]);
    }
}

template <typename T> __device__ void produce(const Job<T> &job, int thread, Stage *memory)
{
    const GradientColumns<T> columns(job.gradient, thread % eights * 8);
    int stage = 0;
    for (int index = (int)blockIdx.x; index < job.tiles; index += (int)gridDim.x) {
        const Tile at = tile_of(job, index);
        Stage *to = &memory[stage];
        const Reading<T> first(job, at, thread, 0); /* under way while the stage is waited for */
        if (index >= stages * (int)gridDim.x)
            wait_for(free_of(stage));
        stage_image(job, at, thread, to);
        stage_square(job, at, thread, first, columns, to);
        for (int turn = 1; turn < turns; turn++)
            stage_square(job, at, thread, Reading<T>(job, at, thread, turn), columns, to);
        arrive_at(full(stage));
        stage = (stage + 1) % stages;
    }
}

/* ---- consumers ---- */

/* The kernel's rows Parity, Parity + 2, …, of which a warp has the sums. */
template <int Parity> constexpr int rows_of = (kernel + 1 - Parity) / 2;

/* Adds a tile's products for a warp: sums[k][n] of channels from 16 m on, kernel row 2 k + Parity, numbers
 * from 8 n on. */
template <typename T, int Parity>
__device__ void multiply_tile(const Stage &from, int m, float (&sums)[rows_of<Parity>][4][4])
{
    constexpr int rows = rows_of<Parity>, ring = 4; /* rows of the image that are held, and one to come */
    const int lane = (int)threadIdx.x % 32, matrix = lane / 8, row = lane % 8;
    /* matrices 0 to 3 of dx: pixels 0 and 0, 8 and 8, channels 0 and 8, 0 and 8; of the image: pixels 0 and
     * 8, 0 and 8, numbers 0 and 0, 8 and 8 */
    const uint4 *gradients = from.dx + (matrix / 2 * 8 + row) * eights + ((2 * m + matrix % 2) ^ row);
    const uint2 *image = from.image + Parity * image_pitch + 2 * (matrix % 2 * 8 + row) + 2 * (matrix / 2);
    unsigned numbers[ring][2][4];
#pragma unroll
    for (int k = 0; k < rows - 1; k++, image += 2 * image_pitch) {
        load_transposed(numbers[k][0], image);
        load_transposed(numbers[k][1], image + 4);
    }
    for (int line = 0; line < tile; line += ring)
#pragma unroll
        for (int step = 0; step < ring; step++, image += 2 * image_pitch, gradients += tile * eights) {
            unsigned dx[4];
            load_transposed(numbers[(step + rows - 1) % ring][0], image);
            load_transposed(numbers[(step + rows - 1) % ring][1], image + 4);
            load_transposed(dx, gradients);
#pragma unroll
            for (int k = 0; k < rows; k++)
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const unsigned(&two)[4] = numbers[(step + k) % ring][n / 2];
                    multiply_add(T{}, sums[k][n], dx, make_uint2(two[n % 2 * 2], two[n % 2 * 2 + 1]));
                }
        }
}

template <typename T, int Parity> __device__ void consume(const Job<T> &job, int m, const Stage *memory)
{
    const int group = (int)threadIdx.x % 32 / 4, quarter = (int)threadIdx.x % 4;
    float sums[rows_of<Parity>][4][4] = {};
    int stage = 0;
    for (int index = (int)blockIdx.x; index < job.tiles; index += (int)gridDim.x) {
        wait_for(full(stage));
        multiply_tile<T, Parity>(memory[stage], m, sums);
        if (index + stages * (int64_t)gridDim.x < job.tiles)
            arrive_at(free_of(stage));
        stage = (stage + 1) % stages;
    }
#pragma unroll
    for (int k = 0; k < rows_of<Parity>; k++) {
        float *partial =
            job.partial + (((int64_t)blockIdx.x * kernel + 2 * k + Parity) * channels + 16 * m) * row_numbers;
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *reinterpret_cast<float2 *>(partial + (8 * half + group) * row_numbers + 8 * n +
                                            2 * quarter) =
                    make_float2(sums[k][n][2 * half], sums[k][n][2 * half + 1]);
    }
}

template <typename T>
__global__ void __launch_bounds__(threads, 1) stem_gradient_kernel(const __grid_constant__ Job<T> job)
{
    extern __shared__ __align__(128) unsigned char memory[];
    Stage *stage = reinterpret_cast<Stage *>(memory);
    const int warp = (int)threadIdx.x / 32;
    if (warp < 4)
        consume<T, 0>(job, warp, stage);
    else if (warp < consumer_threads / 32)
        consume<T, 1>(job, warp - 4, stage);
    else
        produce(job, (int)threadIdx.x - consumer_threads, stage);
}

/* ---- the sums of all blocks ---- */

constexpr int parts = block_threads / row_numbers;

/* Makes a row of a filter of what blocks have left: block o * kernel + row for channel o. */
template <typename T>
__global__ void __launch_bounds__(block_threads)
    join_kernel(const float *partial, int blocks, int image_channels, int pitch, T *filter)
{
    __shared__ float sums[parts][row_numbers];
    const int o = (int)blockIdx.x / kernel, row = (int)blockIdx.x % kernel;
    const int number = (int)threadIdx.x % row_numbers, part = (int)threadIdx.x / row_numbers;
    float sum = 0;
    for (int b = part; b < blocks; b += parts)
        sum += partial[(((int64_t)b * kernel + row) * channels + o) * row_numbers + number];
    sums[part][number] = sum;
    __syncthreads();
    const int tap = (int)threadIdx.x / pitch, channel = (int)threadIdx.x % pitch;
    if (tap >= kernel)
        return;
    float total = 0;
    if (channel < image_channels)
#pragma unroll
        for (int p = 0; p < parts; p++)
            total += sums[p][tap * pixel_channels + channel];
    filter[((int64_t)blockIdx.x * kernel + tap) * pitch + channel] = (T)total;
}

/* Returns how many windows of such a kernel an axis has. */
constexpr int64_t windows_of(int64_t size, int64_t width, int64_t around)
{
    return (size + 2 * around - width) / 2 + 1;
}

bool fits(const StemGradient *stem)
{
    const DeviceTensor *pixels = stem->pixels, *x = stem->norm.x, *g = stem->g, *index = stem->index,
                       *filter = stem->filter;
    for (int axis = 1; axis < 3; axis++)
        if (x->shape[axis] != windows_of(pixels->shape[axis], kernel, padding) ||
            g->shape[axis] != windows_of(x->shape[axis], 3, 1) || index->shape[axis] != g->shape[axis] ||
            filter->shape[axis] != kernel)
            return false;
    return pixels->element == ELEMENT_U8 && pixels->shape[3] <= pixel_channels &&
           pixels->pitch == pixels->shape[3] && element_is_narrow(x->element) && x->shape[3] == channels &&
           x->pitch == channels && g->element == x->element && g->pitch == channels &&
           index->element == ELEMENT_U8 && index->pitch == channels && filter->element == x->element &&
           filter->shape[0] == channels && filter->shape[3] == pixels->shape[3] &&
           filter->pitch * kernel <= block_threads && x->shape[0] == pixels->shape[0] &&
           g->shape[0] == x->shape[0] && index->shape[0] == x->shape[0] &&
           shared_bytes_most() >= (int)(stages * sizeof(Stage)) &&
           all_f32({stem->norm.weight, stem->norm.mean, stem->norm.inverse_deviation, stem->dweight,
                    stem->dbias});
}

template <typename T> cudaError_t launch(const StemGradient *stem, void *scratch, cudaStream_t stream)
{
    const DeviceTensor *x = stem->norm.x;
    const int64_t rows = (x->shape[1] + tile - 1) / tile, columns = (x->shape[2] + tile - 1) / tile;
    const int64_t tiles = x->shape[0] * rows * columns;
    if (tiles > INT32_MAX / 2)
        return cudaErrorNotSupported;
    const int blocks = (int)(tiles < multiprocessors ? tiles : multiprocessors);
    const Job<T> job = {pool_gradient<T>(stem->g, stem->index, &stem->norm, stem->dweight, stem->dbias),
                        data_of<const uint8_t>(stem->pixels),
                        image_of(stem->pixels),
                        channel_constants(stem->mean, stem->deviation, stem->pixels->shape[3]),
                        static_cast<float *>(scratch),
                        (int)tiles,
                        (int)rows,
                        (int)columns};
    const cudaError_t code = cudaFuncSetAttribute(
        stem_gradient_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(stages * sizeof(Stage)));
    if (code != cudaSuccess)
        return code;
    stem_gradient_kernel<T><<<blocks, threads, stages * sizeof(Stage), stream>>>(job);
    join_kernel<T><<<channels * kernel, block_threads, 0, stream>>>(
        job.partial, blocks, job.image.channels, (int)stem->filter->pitch, data_of<T>(stem->filter));
    return cudaGetLastError();
}

} // namespace

extern "C" uint64_t kernel_stem_gradient_scratch_bytes(void)
{
    return (uint64_t)multiprocessors * kernel * channels * row_numbers * sizeof(float);
}

extern "C" bool kernel_stem_gradient_fits(const StemGradient *stem)
{
    return fits(stem);
}

extern "C" cudaError_t kernel_stem_gradient(const StemGradient *stem, void *scratch, cudaStream_t stream)
{
    if (!fits(stem))
        return cudaErrorNotSupported;
    return stem->norm.x->element == ELEMENT_F16 ? launch<__half>(stem, scratch, stream)
                                                : launch<__nv_bfloat16>(stem, scratch, stream);
}
