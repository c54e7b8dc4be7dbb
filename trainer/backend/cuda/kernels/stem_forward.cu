/* stem_forward.cu - see kernels_stem.h: a product, over the pixels of y, of what the kernel covers of the
 * images and the weight.
 *
 * Apart, numbers would be written and read, folded (stem.cu), as large as y. Here a block walks over tiles of
 * 16 x 16 pixels. Its imagers make numbers of the bytes below a tile (stem_image.cuh); its multipliers, two
 * groups of four warps, take four rows of a tile each in turn, a row a warp: a row of the matrix is a row of
 * a window, where it lies, and the weight stays in shared memory. Columns of the product are channels in such
 * an order that a thread has eight neighbouring ones of a pixel, 16 bytes of y:
 *
 *     columns 8 n + 2 q and the next one, n below 4, are channels 8 q + 2 n and the next one;
 *     those of n + 4 are 32 channels further
 *
 * The least for 512 images of 160 px: y is 0.42 GB, 0.10 ms; 94 GFLOP, a third of them for zeros, 0.12 ms. It
 * takes 0.29 ms on an H200 (docs/measurements/2026-11-29-stem.md). */
#include "trainer/backend/cuda/kernels/kernels_stem.h"
#include "trainer/backend/cuda/kernels/matrix_units.cuh"
#include "trainer/backend/cuda/kernels/partial_sums.cuh"
#include "trainer/backend/cuda/kernels/stem_image.cuh"
#include "trainer/backend/cuda/kernels/warpgroup.cuh"

using namespace fshard;
using namespace fshard::stem;

namespace
{

constexpr int groups = 2, multipliers = groups * group_threads, imagers = 256,
              threads = multipliers + imagers;
constexpr int multiplier_registers = 168, imager_registers = 88;
static_assert(multipliers * multiplier_registers + imagers * imager_registers <= registers_of_block(threads),
              "what the launch gives a block");
constexpr int warps = multipliers / 32, quads = tile / 4; /* quads: four rows of a tile */
constexpr int steps = kernel * row_numbers / 16;          /* of the matrix units, 16 numbers each */

/* Barriers of a stage: there are numbers in it, and they have been multiplied; and of roles alone. */
enum Barrier { STAGE_FULL = 1, STAGE_FREE = 3, IMAGERS_MEET = 5, MULTIPLIERS_MEET };

struct Memory {
    uint4 weight[kernel * row_numbers / 8][channels]; /* eight numbers of a column of the product */
    Numbers numbers[stages_most];
    ByteSlot bytes[byte_slots];
    float sums[warps][2][channels];
};

template <typename T> struct Job {
    Pixels pixels;
    const T *weight;
    int pitch; /* of a tap of the weight */
    T *y;
    Image image;    /* y's */
    float *partial; /* [blocks, 2, channels], or NULL */
    Tiles tiles;
};

/* Returns the channel that a column of the product is. */
__device__ inline int channel_of(int column)
{
    const int n = column / 8, q = column % 8 / 2;
    return n / 4 * 32 + 8 * q + 2 * (n % 4) + column % 2;
}

/* Brings the weight to shared memory, zeros where there is no tap or channel; a barrier follows. */
template <typename T> __device__ void bring_weight(const Job<T> &job, Memory *memory)
{
    const int width = job.pixels.image.channels;
    for (int i = (int)threadIdx.x; i < kernel * row_numbers / 8 * channels; i += threads) {
        const int eight = i / channels, column = i % channels, row = eight / (row_numbers / 8);
        alignas(sizeof(uint4)) T numbers[8];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int number = eight % (row_numbers / 8) * 8 + k, tap = number / pixel_channels,
                      c = number % pixel_channels;
            numbers[k] =
                tap < kernel && c < width
                    ? job.weight[((channel_of(column) * kernel + row) * kernel + tap) * job.pitch + c]
                    : (T)0.0F;
        }
        memory->weight[eight][column] = *reinterpret_cast<const uint4 *>(numbers);
    }
    shared_memory_written();
}

/* Loads what the matrix units take of a row of 16 pixels, a row for each warp: windows begin at `row` of the
 * image. */
__device__ inline void load_windows(const uint2 *row, unsigned (&numbers)[steps][4])
{
    const int lane = (int)threadIdx.x % 32, matrix = lane / 8;
    /* matrices 0 to 3: pixels 0 and 8, 0 and 8, numbers 0 and 0, 8 and 8 */
    const uint2 *own = row + 2 * (matrix % 2 * 8 + lane % 8) + 2 * (matrix / 2);
#pragma unroll
    for (int step = 0; step < steps; step++)
        load_matrices(numbers[step], own + step / 2 * image_pitch + step % 2 * 4);
}

/* Computes their sums. */
template <typename T>
__device__ void multiply_windows(const unsigned (&numbers)[steps][4], uint64_t weight, float (&sums)[8][4])
{
    products_begin();
#pragma unroll
    for (int step = 0; step < steps; step++)
        multiply_own<0>(T{}, sums, numbers[step],
                        descriptor_at(weight, step * 2 * (int)(channels * sizeof(uint4) / descriptor_bytes)),
                        step > 0);
    products_end();
    products_wait<0>();
    products_of(sums);
}

/* Writes a pixel's 8 channels of half h of the columns, of its row `low` of the matrix, and adds them to the
 * moments. */
template <typename T>
__device__ void leave_eight(T *to, const float (&sums)[8][4], int h, int low, float (&moments)[2][2][8])
{
    float values[8];
#pragma unroll
    for (int k = 0; k < 8; k++)
        values[k] = sums[4 * h + k / 2][2 * low + k % 2];
    const Raw<T, 8> raw = pack<T, 8>(values);
    put(to, raw);
    unpack(raw, values);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        moments[0][h][k] += values[k];
        moments[1][h][k] = fmaf(values[k], values[k], moments[1][h][k]);
    }
}

/* Leaves the block's moments, of which each thread has those of its pixels. */
__device__ inline void leave_moments(float (&moments)[2][2][8], Memory *memory, float *partial)
{
    const int thread = (int)threadIdx.x, warp = thread / 32, quarter = thread % 4;
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int k = 0; k < 8; k++) {
                float sum = moments[s][h][k];
#pragma unroll
                for (int offset = 4; offset < 32; offset *= 2)
                    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, offset);
                if (thread % 32 < 4)
                    memory->sums[warp][s][32 * h + 8 * quarter + k] = sum;
            }
    wait_for<multipliers>(MULTIPLIERS_MEET);
    if (thread >= 2 * channels)
        return;
    float sum = 0;
    for (int w = 0; w < warps; w++)
        sum += memory->sums[w][thread / channels][thread % channels];
    partial[(int64_t)blockIdx.x * 2 * channels + thread] = sum;
}

template <typename T> __device__ void multiply(const Job<T> &job, Memory *memory)
{
    const int group = group_of_warp(), lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    const uint64_t weight =
        blocks_descriptor(memory->weight, (int)sizeof memory->weight[0], 8 * (int)sizeof(uint4));
    float moments[2][2][8] = {};
    for (Walk walk(job.tiles.count, stages_most); walk.has(0); walk.go_on()) {
        const Tile at = job.tiles.at(walk.index);
        const Numbers &numbers = memory->numbers[walk.stage()];
        T *y = job.y + job.image.pixel(at.n, at.row, at.column) * channels + lane % 4 * 8;
        wait_for<threads>(STAGE_FULL + walk.stage());
        unsigned windows[steps][4];
        load_windows(numbers.pixels + 2 * (4 * group + warp) * image_pitch, windows);
#pragma unroll
        for (int quad = 0; quad < quads; quad += groups) {
            const int row = 4 * (quad + group) + warp;
            float sums[8][4];
            multiply_windows<T>(windows, weight, sums);
            if (quad + groups < quads) /* under way while these are written */
                load_windows(numbers.pixels + 2 * (row + 4 * groups) * image_pitch, windows);
            else if (walk.has(stages_most))
                arrive_at<threads>(STAGE_FREE + walk.stage());
#pragma unroll
            for (int low = 0; low < 2; low++) {
                const int column = 8 * low + lane / 4;
                if (job.image.has(at.row + row, at.column + column))
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        leave_eight(y + (row * job.image.width + column) * channels + 32 * h, sums, h, low,
                                    moments);
            }
        }
    }
    if (job.partial)
        leave_moments(moments, memory, job.partial);
}

template <typename T>
__global__ void __launch_bounds__(threads, 1) stem_kernel(const __grid_constant__ Job<T> job)
{
    extern __shared__ __align__(128) unsigned char bytes[];
    Memory *memory = reinterpret_cast<Memory *>(bytes);
    bring_weight(job, memory);
    __syncthreads();
    if (threadIdx.x < multipliers) {
        registers_take<multiplier_registers>();
        multiply(job, memory);
    } else {
        registers_give<imager_registers>();
        make_images<T, imagers, threads>(
            job.pixels, job.tiles, stages_most, (int)threadIdx.x - multipliers, memory->bytes, STAGE_FULL,
            STAGE_FREE, IMAGERS_MEET, [&](int stage) { return &memory->numbers[stage]; }, [] {});
    }
}

template <typename T> cudaError_t run(const Stem *stem, void *scratch, cudaStream_t stream)
{
    const DeviceTensor *y = stem->y;
    const Tiles tiles = tiles_of(y);
    const Job<T> job = {pixels_of(stem->pixels, stem->mean, stem->deviation),
                        data_of<const T>(stem->weight),
                        (int)stem->weight->pitch,
                        data_of<T>(y),
                        window::image_of(y),
                        stem->sums ? static_cast<float *>(scratch) : nullptr,
                        tiles};
    cudaError_t status = cudaFuncSetAttribute(stem_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)sizeof(Memory));
    if (status != cudaSuccess)
        return status;
    stem_kernel<T><<<blocks_of(tiles), threads, sizeof(Memory), stream>>>(job);
    if (stem->sums)
        join_moments(job.partial, data_of<float>(stem->sums), blocks_of(tiles), 2 * channels, stream);
    return cudaGetLastError();
}

} // namespace

extern "C" bool kernel_stem_fits(const Stem *stem)
{
    return is_stem(stem->pixels, stem->weight, stem->y) && tiles_of(stem->y).count > 0 &&
           is_f32(stem->sums) && (!stem->sums || stem->sums->pitch == channels) && runs_hopper_code();
}

extern "C" uint64_t kernel_stem_scratch_bytes(void)
{
    return (uint64_t)multiprocessors * 2 * channels * sizeof(float);
}

extern "C" cudaError_t kernel_stem(const Stem *stem, void *scratch, cudaStream_t stream)
{
    if (!kernel_stem_fits(stem))
        return cudaErrorNotSupported;
    return stem->y->element == ELEMENT_F16 ? run<__half>(stem, scratch, stream)
                                           : run<__nv_bfloat16>(stem, scratch, stream);
}
