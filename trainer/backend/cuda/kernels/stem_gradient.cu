/* stem_gradient.cu - see stem_gradient.cuh: its multipliers for any card, the sums of all blocks, and the
 * choice between them and those of stem_gradient_warpgroup.cu. */
#include "trainer/backend/cuda/kernels/stem_gradient.cuh"

using namespace fshard;
using namespace fshard::stem_gradient;

namespace
{

/* ---- products of warps ---- */

/* A warp has 16 channels, and the even rows of the kernel or the odd ones: rows r of one line of dx and r - 2
 * of the next meet the same row of the image, so it loads one for each line. */

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
    const uint2 *image =
        from.image.pixels + Parity * image_pitch + 2 * (matrix % 2 * 8 + row) + 2 * (matrix / 2);
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

template <typename T> struct WarpMultiplier {
    static constexpr int multipliers = 256;
    template <int Parity> __device__ static void multiply_rows(const Job<T> &job, int m, const Stage *stages)
    {
        float sums[rows_of<Parity>][4][4] = {};
        for_tiles(job, stages, [&](const Stage &stage) { multiply_tile<T, Parity>(stage, m, sums); });
#pragma unroll
        for (int k = 0; k < rows_of<Parity>; k++)
            leave_sums(job, m, 2 * k + Parity, sums[k]);
    }
    __device__ static void multiply(const Job<T> &job, const Stage *stages)
    {
        const int warp = (int)threadIdx.x / 32;
        if (warp < 4)
            multiply_rows<0>(job, warp, stages);
        else
            multiply_rows<1>(job, warp - 4, stages);
    }
    __device__ static void show()
    {
    }
    template <Role role> __device__ static void in_role()
    {
    }
};

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

bool fits(const StemGradient *stem)
{
    const DeviceTensor *x = stem->norm.x, *g = stem->g, *index = stem->index;
    for (int axis = 1; axis < 3; axis++)
        if (g->shape[axis] != (x->shape[axis] - 1) / 2 + 1 || index->shape[axis] != g->shape[axis])
            return false;
    return is_stem(stem->pixels, stem->filter, x) && g->element == x->element && g->pitch == channels &&
           index->element == ELEMENT_U8 && index->pitch == channels &&
           stem->filter->pitch * kernel <= block_threads && g->shape[0] == x->shape[0] &&
           index->shape[0] == x->shape[0] && shared_bytes_most() >= shared_bytes(1) &&
           all_f32({stem->norm.weight, stem->norm.mean, stem->norm.inverse_deviation, stem->dweight,
                    stem->dbias});
}

/* stages: of products of warps; 0: products of warp groups. */
template <typename T>
cudaError_t run_as(const StemGradient *stem, int stages, void *scratch, cudaStream_t stream)
{
    const DeviceTensor *x = stem->norm.x;
    const Tiles tiles = tiles_of(x);
    if (tiles.count == 0)
        return cudaErrorNotSupported;
    const int blocks = blocks_of(tiles);
    const Job<T> job = {pool_gradient<T>(stem->g, stem->index, &stem->norm, stem->dweight, stem->dbias),
                        pixels_of(stem->pixels, stem->mean, stem->deviation), static_cast<float *>(scratch),
                        tiles, 0};
    const cudaError_t code = stages == 0 ? launch_warpgroup(job, blocks, stream)
                                         : launch<T, WarpMultiplier<T>>(job, stages, blocks, stream);
    if (code != cudaSuccess)
        return code;
    join_kernel<T><<<channels * kernel, block_threads, 0, stream>>>(
        job.partial, blocks, job.pixels.image.channels, (int)stem->filter->pitch, data_of<T>(stem->filter));
    return cudaGetLastError();
}

cudaError_t run(const StemGradient *stem, int stages, void *scratch, cudaStream_t stream)
{
    if (!fits(stem))
        return cudaErrorNotSupported;
    return stem->norm.x->element == ELEMENT_F16 ? run_as<__half>(stem, stages, scratch, stream)
                                                : run_as<__nv_bfloat16>(stem, stages, scratch, stream);
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
    return run(stem, has_warpgroups() ? 0 : stages_that_fit(), scratch, stream);
}

extern "C" cudaError_t kernel_stem_gradient_by_warps(const StemGradient *stem, int stages, void *scratch,
                                                     cudaStream_t stream)
{
    return run(stem, stages, scratch, stream);
}
