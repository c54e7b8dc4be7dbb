/* pixels.cu - compiled with --fmad=false: pixel_math.h gives the CPU's bytes only if no product and sum are
 * fused. */
#include "trainer/backend/cuda/kernels/kernels_pixels.h"

#include "trainer/backend/cuda/kernels/kernels_common.cuh"
#include "trainer/backend/pixel_tiles.h"

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
    const uint32_t columns = pixel_columns(&recipe, job.width, job.height),
                   rows = pixel_rows(&recipe, job.width, job.height);
    if (i < columns) {
        const PixelAxis axis = axis_of(job, blockIdx.x, 0);
        pixel_axis_fill(&axis, recipe.part_width, recipe.resized_width, recipe.window_left, recipe.filter, i);
    } else if (i - columns < rows) {
        const PixelAxis axis = axis_of(job, blockIdx.x, 1);
        pixel_axis_fill(&axis, recipe.part_height, recipe.resized_height, recipe.window_top, recipe.filter,
                        i - columns);
    }
}

/* Returns by how many tiles size is covered. */
__host__ __device__ static uint32_t tiles_of(uint32_t size, uint32_t edge)
{
    return (size + edge - 1) / edge;
}

/* A part of an image of the batch: pixel_columns and pixel_rows. */
struct Region {
    uint32_t column, columns, row, rows;
};

__device__ Region region_of(uint32_t tile, uint32_t across, uint32_t columns, uint32_t rows)
{
    const uint32_t column = tile % across * PIXEL_TILE_WIDTH, row = tile / across * PIXEL_TILE_HEIGHT;
    return {column, min((uint32_t)PIXEL_TILE_WIDTH, columns - column), row,
            min((uint32_t)PIXEL_TILE_HEIGHT, rows - row)};
}

/* Renders each pixel for itself, or gives it the fill where there is no image. */
__device__ void render_each(const PixelJob &job, const PixelImage &image, bool there, const Region &region,
                            uint8_t *target)
{
    for (uint32_t i = threadIdx.x; i < region.columns * region.rows; i += blockDim.x) {
        const uint32_t column = region.column + i % region.columns, row = region.row + i / region.columns;
        uint8_t pixel[PIXEL_CHANNELS_MAX] = {job.fill[0], job.fill[1], job.fill[2]};
        if (there)
            pixel_render(&image, column, row, pixel);
        uint8_t *to = target + (uint64_t)pixel_index(&image, column, row) * job.channels;
        for (uint32_t c = 0; c < job.channels; c++)
            to[c] = pixel[c];
    }
}

/* Renders a region by strips (pixel_tiles.h). */
__device__ void render_tile(const PixelImage &image, const Region &region, uint32_t strip, uint8_t *target)
{
    __shared__ uint32_t staged[PIXEL_TILE_STAGED_WORDS], across[PIXEL_TILE_ACROSS_WORDS];
    __shared__ __align__(16) PixelTaps rows[PIXEL_TILE_HEIGHT];
    for (uint32_t done = 0; done < region.rows; done += strip) {
        PixelTile tile;
        pixel_tile_place(&image, region.column, region.columns, region.row + done,
                         min(strip, region.rows - done), &tile);
        __syncthreads(); /* what lies there has been read */
        pixel_tile_find_rows(&image, &tile, rows, threadIdx.x, blockDim.x);
        for (uint32_t first = 0; first < tile.height; first += tile.band) {
            const uint32_t count = min(tile.band, tile.height - first);
            __syncthreads();
            pixel_tile_stage(&image, &tile, first, count, staged, threadIdx.x, blockDim.x);
            __syncthreads();
            pixel_tile_across(&image, &tile, first, count, staged, across, threadIdx.x, blockDim.x);
        }
        __syncthreads();
        pixel_tile_down(&image, &tile, rows, across, target, threadIdx.x, blockDim.x);
    }
}

/* Renders the pixels of image blockIdx.x. A block takes a tile of them, and further ones if there are fewer
 * blocks than tiles. */
__global__ void __launch_bounds__(block_threads, 4) render(PixelJob job)
{
    const PixelRecipe &recipe = job.recipes[blockIdx.x];
    const uint64_t offset = recipe.offset_bytes[job.side];
    const bool there = offset != PIXELS_NONE;
    PixelImage image;
    image.recipe = &recipe;
    image.stored = job.store + (there ? offset : 0);
    asm("" : "+l"(image.stored)); /* one address: else its sum is added up for each load */
    __builtin_assume(__isGlobal(image.stored));
    image.stored_channels = recipe.channels[job.side];
    image.planes = recipe.planes[job.side];
    image.width = job.width;
    image.height = job.height;
    image.channels = job.channels;
    image.columns = axis_of(job, blockIdx.x, 0);
    image.rows = axis_of(job, blockIdx.x, 1);
    uint8_t *target = job.target + (uint64_t)blockIdx.x * job.width * job.height * job.channels;
    const uint32_t columns = pixel_columns(&recipe, job.width, job.height),
                   rows = pixel_rows(&recipe, job.width, job.height),
                   across = tiles_of(columns, PIXEL_TILE_WIDTH),
                   tiles = across * tiles_of(rows, PIXEL_TILE_HEIGHT),
                   strip = there ? pixel_tile_rows(&image) : 0;
    for (uint32_t tile = blockIdx.y; tile < tiles; tile += gridDim.y) {
        const Region region = region_of(tile, across, columns, rows);
        if (strip)
            render_tile(image, region, strip, target);
        else
            render_each(job, image, there, region, target);
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
    /* of images that are turned, too: a tile is wider than high */
    const uint64_t upright = (uint64_t)tiles_of(job->width, PIXEL_TILE_WIDTH) *
                             tiles_of(job->height, PIXEL_TILE_HEIGHT),
                   turned = (uint64_t)tiles_of(job->height, PIXEL_TILE_WIDTH) *
                            tiles_of(job->width, PIXEL_TILE_HEIGHT);
    render<<<grid_of(job->count, (upright > turned ? upright : turned) * block_threads), block_threads, 0,
             stream>>>(*job);
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
