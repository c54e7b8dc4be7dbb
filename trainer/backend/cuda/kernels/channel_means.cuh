/* channel_means.cuh - means of values over the pixels of each image, for every channel: of an image as it
 * lies there, or of what is made of it on the way (channel_tiles.cuh). */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_CHANNEL_MEANS_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_CHANNEL_MEANS_CUH

#include "trainer/backend/cuda/kernels/channel_tiles.cuh"
#include "trainer/backend/cuda/kernels/kernels_reduce.cuh"
#include "trainer/backend/cuda/kernels/rows.cuh"

namespace fshard
{

/* Sums what `rows` gives, [N, pixels, pitch], to y [N, pitch] if a sample is one strip of pixels, else to
 * partial [N, pitch, strips].
 *
 * Rows has in_flight, rows of a thread whose loads are under way at once; Row, what is loaded of one;
 * read(row, c), which loads it from channel c on; and take(loaded, row, c, values), which gives its
 * values. */
template <int Width, typename T, typename Rows>
__global__ void __launch_bounds__(block_threads, 4)
    mean_kernel(const __grid_constant__ Rows rows, T *y, float *partial, int pitch,
                const __grid_constant__ ChannelTiles t)
{
    const ChannelPlace p = channel_place(t);
    const int64_t c = (int64_t)p.column * Width;
    float sums[1][Width] = {};
    for (int64_t first = p.first; first < p.end; first += Rows::in_flight * t.lanes) {
        typename Rows::Row loaded[Rows::in_flight];
#pragma unroll
        for (int u = 0; u < Rows::in_flight; u++)
            if (first + u * t.lanes < p.end)
                loaded[u] = rows.read(first + u * t.lanes, c);
#pragma unroll
        for (int u = 0; u < Rows::in_flight; u++)
            if (first + u * t.lanes < p.end) {
                float values[Width];
                rows.take(loaded[u], first + u * t.lanes, c, values);
#pragma unroll
                for (int k = 0; k < Width; k++)
                    sums[0][k] += values[k];
            }
    }
    if (t.strips > 1) {
        channel_leave_partial(t, p, pitch, sums, partial);
        return;
    }
    if (!channel_sum_lanes(t, p, sums))
        return;
#pragma unroll
    for (int k = 0; k < Width; k++)
        sums[0][k] /= (float)t.rows;
    put(y + (int64_t)p.sample * pitch + c, sums[0]);
}

/* Joins partial [rows, strips] to y [rows]: sums over strips, divided; a warp for each row. */
template <typename T>
__global__ void __launch_bounds__(block_threads)
    mean_join_kernel(const float *partial, T *y, int64_t rows, int strips, int64_t pixels)
{
    const int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int lane = (int)threadIdx.x % 32;
    if (row >= rows)
        return;
    double sum = 0;
    for (int i = lane; i < strips; i += 32)
        sum += (double)partial[row * strips + i];
    sum = warp_sum(sum);
    if (lane == 0)
        y[row] = (T)(float)(sum / (double)pixels);
}

/* Returns tiles of whole rows of an image, padding included. */
inline ChannelTiles mean_tiles(const DeviceTensor *image, int width)
{
    return channel_tiles(image->shape[0], image->shape[1] * image->shape[2], image->pitch / width);
}

/* Returns the scratch bytes of means_of for an image of values as `image` has. */
inline uint64_t mean_scratch_bytes(const DeviceTensor *image)
{
    const ChannelTiles tiles = mean_tiles(image, vector_width_of(image, image->pitch % 4 == 0));
    return (uint64_t)channel_partial_count(tiles, 1, image->pitch) * sizeof(float);
}

/* Computes y [N, C] of what `rows` gives, an image of values as `image` has. */
template <int Width, typename T, typename Rows>
void means_of(const Rows &rows, const DeviceTensor *image, const DeviceTensor *y, void *scratch,
              cudaStream_t stream)
{
    const ChannelTiles tiles = mean_tiles(image, Width);
    float *partial = static_cast<float *>(scratch);
    mean_kernel<Width><<<channel_tiles_grid(tiles), block_threads, 0, stream>>>(rows, data_of<T>(y), partial,
                                                                                (int)image->pitch, tiles);
    if (tiles.strips == 1)
        return;
    const int64_t sums = image->shape[0] * image->pitch;
    mean_join_kernel<<<(unsigned)((sums + block_warps - 1) / block_warps), block_threads, 0, stream>>>(
        partial, data_of<T>(y), sums, (int)tiles.strips, tiles.rows);
}

} // namespace fshard

#endif
