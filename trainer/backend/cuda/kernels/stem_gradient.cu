/* stem_gradient.cu - the weight gradient of a stem of 7 x 7 and stride 2, straight from the gradient of the
 * pool behind its norm: see kernels_stem_gradient.h.
 *
 * It is a product over all pixels of x: dx [pixels, 64], transposed, times what the kernel covers of the
 * images. Apart, dx would be written and read, and so would the images, folded (stem.cu), each as large as x.
 * Here a block walks over tiles of 16 x 16 pixels. Its producers make dx of a tile (norm_pool.cuh), and
 * numbers of the bytes below it, in shared memory; its consumers multiply the tile before. The tile of the
 * image needs no copies of what windows share: a row of a window is 8 pixels of 4 channels, 32 numbers, of
 * which 7 and 3 count, and the next window begins 2 pixels, 16 bytes, further, as a row of a matrix may that
 * ldmatrix loads. A consumer warp has one row of the kernel: the sums of 64 channels and 32 numbers.
 *
 * For 512 images of 160 px: x, g, the index and the bytes are 0.62 GB, 0.15 ms; 94 GFLOP on the matrix units,
 * a third of them for numbers that do not count.
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
using fshard::window::with_storage_checked;

namespace
{

constexpr int kernel = 7, padding = 3, channels = 64, row_numbers = 32;
constexpr int tile = 16; /* rows and columns of x */
constexpr int consumer_threads = 32 * kernel, producer_threads = 256,
              threads = consumer_threads + producer_threads;
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

/* Makes numbers of the bytes below a tile, zeros outside the image. */
template <typename T> __device__ void stage_image(const Job<T> &job, const Tile &at, int thread, Stage *to)
{
    const int top = 2 * at.row - padding, left = 2 * at.column - padding;
    for (int i = thread; i < image_rows * image_columns; i += producer_threads) {
        const int row = i / image_columns, column = i - row * image_columns;
        float numbers[pixel_channels] = {};
        if (job.image.has(top + row, left + column))
            numbers_of(job.pixels + job.image.pixel(at.n, top + row, left + column) * job.image.channels,
                       job.image.channels, job.constants, numbers);
        const Raw<T, pixel_channels> raw = pack<T, pixel_channels>(numbers);
        to->image[row * image_pitch + column] = make_uint2(raw.words[0], raw.words[1]);
    }
}

/* Makes dx of a tile, zeros outside x. */
template <typename T>
__device__ void stage_gradient(const Job<T> &job, const Tile &at, int thread,
                               const GradientColumns<T> &columns, Stage *to)
{
    const PoolGradient<T> &gradient = job.gradient;
    const int eight = thread % eights;
    for (int i = thread / eights; i < tile * tile / 4; i += producer_threads / eights) {
        const int down = i / (tile / 2), across = i % (tile / 2);
        const int q = at.row / 2 + down, w = at.column / 2 + across;
        Windows<T, 2> line, below;
        Square<T> square;
        line.read(gradient, at.n, q, w, 8 * eight);
        below.read(gradient, at.n, q + 1, w, 8 * eight);
        square.read(gradient, at.n, q, w, 8 * eight);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int pixel = (2 * down + k / 2) * tile + 2 * across + k % 2;
            Raw<T, 8> dx = {};
            if (gradient.in.has(2 * q + k / 2, 2 * w + k % 2))
                dx = square.template gradient_of_pixel<3, 1>(k, line, below, columns);
            to->dx[pixel * eights + (eight ^ pixel % 8)] =
                make_uint4(dx.words[0], dx.words[1], dx.words[2], dx.words[3]);
        }
    }
}

template <typename T> __device__ void produce(const Job<T> &job, int thread, Stage *memory)
{
    const GradientColumns<T> columns(job.gradient, thread % eights * 8);
    int stage = 0;
    for (int index = (int)blockIdx.x; index < job.tiles; index += (int)gridDim.x) {
        const Tile at = tile_of(job, index);
        if (index >= stages * (int)gridDim.x)
            wait_for(free_of(stage));
        stage_image(job, at, thread, &memory[stage]);
        stage_gradient(job, at, thread, columns, &memory[stage]);
        arrive_at(full(stage));
        stage = (stage + 1) % stages;
    }
}

/* ---- consumers ---- */

/* Adds a tile's products for one row of the kernel: sums[m][n] of channels 16 m.. and numbers 8 n... */
template <typename T> __device__ void multiply_tile(const Stage &from, int kernel_row, float (&sums)[4][4][4])
{
    const int lane = (int)threadIdx.x % 32, matrix = lane / 8, row = lane % 8;
    /* matrices 0 to 3 of dx: pixels 0 and 0, 8 and 8, channels 0 and 8, 0 and 8; of the image: pixels 0 and
     * 8, 0 and 8, numbers 0 and 0, 8 and 8 */
    const uint4 *gradients = from.dx + (matrix / 2 * 8 + row) * eights;
    const uint2 *image =
        from.image + kernel_row * image_pitch + 2 * (matrix % 2 * 8 + row) + 2 * (matrix / 2);
#pragma unroll 2
    for (int line = 0; line < tile; line++) {
        unsigned numbers[2][4];
#pragma unroll
        for (int half = 0; half < 2; half++)
            load_transposed(numbers[half], image + 4 * half);
#pragma unroll
        for (int m = 0; m < 4; m++) {
            unsigned dx[4];
            load_transposed(dx, gradients + ((2 * m + matrix % 2) ^ row));
#pragma unroll
            for (int n = 0; n < 4; n++)
                multiply_add(T{}, sums[m][n], dx,
                             make_uint2(numbers[n / 2][n % 2 * 2], numbers[n / 2][n % 2 * 2 + 1]));
        }
        gradients += tile * eights;
        image += 2 * image_pitch;
    }
}

template <typename T> __device__ void consume(const Job<T> &job, int thread, const Stage *memory)
{
    const int kernel_row = thread / 32, group = thread % 32 / 4, quarter = thread % 4;
    float sums[4][4][4] = {};
    int stage = 0;
    for (int index = (int)blockIdx.x; index < job.tiles; index += (int)gridDim.x) {
        wait_for(full(stage));
        multiply_tile<T>(memory[stage], kernel_row, sums);
        if (index + stages * (int64_t)gridDim.x < job.tiles)
            arrive_at(free_of(stage));
        stage = (stage + 1) % stages;
    }
    float *partial = job.partial + ((int64_t)blockIdx.x * kernel + kernel_row) * (channels * row_numbers);
#pragma unroll
    for (int m = 0; m < 4; m++)
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *reinterpret_cast<float2 *>(partial + (16 * m + 8 * half + group) * row_numbers + 8 * n +
                                            2 * quarter) =
                    make_float2(sums[m][n][2 * half], sums[m][n][2 * half + 1]);
}

template <typename T>
__global__ void __launch_bounds__(threads, 1) stem_gradient_kernel(const __grid_constant__ Job<T> job)
{
    extern __shared__ __align__(128) unsigned char memory[];
    Stage *stage = reinterpret_cast<Stage *>(memory);
    if (threadIdx.x < consumer_threads)
        consume(job, (int)threadIdx.x, stage);
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
    const DeviceTensor *pixels = stem->pixels, *x = stem->norm.x, *g = stem->g, *filter = stem->filter;
    for (int axis = 1; axis < 3; axis++)
        if (x->shape[axis] != windows_of(pixels->shape[axis], kernel, padding) ||
            g->shape[axis] != windows_of(x->shape[axis], 3, 1) || filter->shape[axis] != kernel)
            return false;
    return pixels->element == ELEMENT_U8 && pixels->shape[3] <= pixel_channels &&
           element_is_narrow(x->element) && x->shape[3] == channels && x->pitch == channels &&
           g->element == x->element && g->pitch == channels && stem->index->element == ELEMENT_U8 &&
           stem->index->pitch == channels && filter->element == x->element && filter->shape[0] == channels &&
           filter->pitch * kernel <= block_threads && x->shape[0] == pixels->shape[0] &&
           g->shape[0] == x->shape[0];
}

} // namespace

extern "C" uint64_t kernel_stem_gradient_scratch_bytes(void)
{
    return (uint64_t)multiprocessors * kernel * channels * row_numbers * sizeof(float);
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

extern "C" cudaError_t kernel_stem_gradient(const StemGradient *stem, void *scratch, cudaStream_t stream)
{
    const NormTensors *norm = &stem->norm;
    if (!fits(stem) ||
        !all_f32({norm->weight, norm->mean, norm->inverse_deviation, stem->dweight, stem->dbias}))
        return cudaErrorNotSupported;
    return norm->x->element == ELEMENT_F16 ? launch<__half>(stem, scratch, stream)
                                           : launch<__nv_bfloat16>(stem, scratch, stream);
}
