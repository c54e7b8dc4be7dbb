/* pixels.cu - compiled with --fmad=false: pixel_math.h gives the CPU's bytes only if no product and sum are
 * fused. */
#include "trainer/backend/cuda/kernels/kernels_pixels.h"

#include "trainer/backend/cuda/kernels/kernels_common.cuh"
#include "trainer/backend/pixel_math.h"

namespace fshard
{

/* Threads of the kernels that sum an image's luma: one block works on an image. */
constexpr int colour_threads = 512;

__device__ PixelAxis axis_of(const PixelJob &job, uint64_t image, int axis)
{
    const size_t words = pixel_axis_words(job.outputs, job.taps);
    return pixel_axis_at(job.axes + (2 * image + axis) * words, job.outputs);
}

/* Computes the weights, a thread for each output of both axes; blockIdx.x: the image. */
__global__ void fill_axes(PixelJob job)
{
    const PixelRecipe &recipe = job.recipes[blockIdx.x];
    const uint32_t i = blockIdx.y * blockDim.x + threadIdx.x;
    if (recipe.offset_bytes[job.side] == PIXELS_NONE || !pixel_is_resampled(&recipe))
        return;
    const uint32_t columns = recipe.transpose ? job.height : job.width,
                   rows = recipe.transpose ? job.width : job.height;
    if (i < columns) {
        const PixelAxis axis = axis_of(job, blockIdx.x, 0);
        pixel_axis_fill(&axis, recipe.part_width, recipe.resized_width, recipe.window_left, i);
    } else if (i - columns < rows) {
        const PixelAxis axis = axis_of(job, blockIdx.x, 1);
        pixel_axis_fill(&axis, recipe.part_height, recipe.resized_height, recipe.window_top, i - columns);
    }
}

/* Renders the pixels of image blockIdx.x. A thread takes one of them, and further ones if there are fewer
 * threads than pixels (grid_of). */
__global__ void render(PixelJob job)
{
    const uint32_t pixel_count = job.width * job.height, threads = gridDim.y * blockDim.x;
    const PixelRecipe &recipe = job.recipes[blockIdx.x];
    const uint64_t offset = recipe.offset_bytes[job.side];
    for (uint32_t i = blockIdx.y * blockDim.x + threadIdx.x; i < pixel_count; i += threads) {
        uint8_t *target = job.target + ((uint64_t)blockIdx.x * pixel_count + i) * job.channels;
        uint8_t pixel[PIXEL_CHANNELS_MAX] = {job.fill[0], job.fill[1], job.fill[2]};
        if (offset != PIXELS_NONE) {
            const PixelAxis columns = axis_of(job, blockIdx.x, 0), rows = axis_of(job, blockIdx.x, 1);
            pixel_render(&recipe, job.store + offset, recipe.channels[job.side], job.width, job.height,
                         job.channels, &columns, &rows, i % job.width, i / job.width, pixel);
        }
        for (uint32_t c = 0; c < job.channels; c++)
            target[c] = pixel[c];
    }
}

/* Returns the sum over the block, in every thread. Integers: the order of addition does not matter. */
__device__ uint64_t sum_over_block(uint64_t value)
{
    __shared__ uint64_t sums[colour_threads];
    __syncthreads(); /* the last call's sums have been read */
    sums[threadIdx.x] = value;
    __syncthreads();
    for (int half = colour_threads / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    return sums[0];
}

/* Applies the colour steps, a block for each image; every pixel stays with one thread from step to step. */
__global__ void change_colours(PixelJob job)
{
    const PixelColours &colours = job.colours[blockIdx.x];
    const uint32_t pixel_count = job.width * job.height, channels = job.channels;
    uint8_t *image = job.target + (uint64_t)blockIdx.x * pixel_count * channels;
    if (job.recipes[blockIdx.x].offset_bytes[job.side] == PIXELS_NONE)
        return;
    for (uint32_t s = 0; s < colours.step_count; s++) {
        const ColourStep step = (ColourStep)colours.steps[s];
        int mean = 0;
        if (step == COLOUR_CONTRAST) {
            uint64_t sum = 0;
            for (uint32_t i = threadIdx.x; i < pixel_count; i += blockDim.x)
                sum += channels == 1 ? image[i] : colour_luma(image + (size_t)i * channels);
            mean = colour_mean(sum_over_block(sum), pixel_count);
        }
        for (uint32_t i = threadIdx.x; i < pixel_count; i += blockDim.x)
            colour_step_pixel(step, colours.factors[s], mean, image + (size_t)i * channels, channels);
    }
    if (!(colours.noise > 0) && colours.erased_width == 0)
        return;
    for (uint32_t i = threadIdx.x; i < pixel_count; i += blockDim.x)
        pixel_finish(&colours, job.seed, job.erased_deviation, job.width, channels, i % job.width,
                     i / job.width, image + (size_t)i * channels);
}

/* Mixes the pixels of a pair of images; blockIdx.x: the pair. */
__global__ void mix(PixelJob job)
{
    const uint32_t pixel_count = job.width * job.height, threads = gridDim.y * blockDim.x;
    const PixelColours &colours = job.colours[2 * (uint64_t)blockIdx.x];
    if (colours.share >= 1)
        return;
    for (uint32_t i = blockIdx.y * blockDim.x + threadIdx.x; i < pixel_count; i += threads) {
        uint8_t *first = job.target + (2 * (uint64_t)blockIdx.x * pixel_count + i) * job.channels,
                *second = first + (uint64_t)pixel_count * job.channels;
        for (uint32_t c = 0; c < job.channels; c++) {
            const uint8_t a = first[c], b = second[c];
            first[c] = pixel_mixed(&colours, i % job.width, i / job.width, a, b);
            second[c] = pixel_mixed(&colours, i % job.width, i / job.width, b, a);
        }
    }
}

constexpr uint64_t blocks_most =
    65535; /* limit of a grid's second dimension: with 256 threads each nearly 4096 x 4096 pixels */

/* Returns a grid of images by as many blocks as the items need, or fewer. */
static dim3 grid_of(uint64_t images, uint64_t items)
{
    const uint64_t blocks = (items + block_threads - 1) / block_threads;
    return dim3((unsigned)images, (unsigned)(blocks < blocks_most ? blocks : blocks_most));
}

} // namespace fshard

using namespace fshard;

cudaError_t pixels_fill_axes(const PixelJob *job, cudaStream_t stream)
{
    if (job->taps == 0)
        return cudaSuccess;
    fill_axes<<<grid_of(job->count, (uint64_t)job->width + job->height), block_threads, 0, stream>>>(*job);
    return cudaGetLastError();
}

cudaError_t pixels_render(const PixelJob *job, cudaStream_t stream)
{
    render<<<grid_of(job->count, (uint64_t)job->width * job->height), block_threads, 0, stream>>>(*job);
    return cudaGetLastError();
}

cudaError_t pixels_change_colours(const PixelJob *job, cudaStream_t stream)
{
    change_colours<<<(unsigned)job->count, colour_threads, 0, stream>>>(*job);
    return cudaGetLastError();
}

cudaError_t pixels_mix(const PixelJob *job, cudaStream_t stream)
{
    if (job->count < 2)
        return cudaSuccess;
    mix<<<grid_of(job->count / 2, (uint64_t)job->width * job->height), block_threads, 0, stream>>>(*job);
    return cudaGetLastError();
}
