/* patches.cu - turns a convolution of patches into a product of matrices: see kernels_convolution.h.
 *
 * For the 16 x 16 patches of a vision transformer cuDNN took 0.78 ms of 512 images at 160 px (H200,
 * 2026-11-28), 4 % of the roof: it multiplies the zeros that pad three channels to eight, 256 times. */
#include "trainer/backend/cuda/kernels/kernels_common.cuh"
#include "trainer/backend/cuda/kernels/kernels_convolution.h"

using namespace fshard;

namespace
{

constexpr int width = 8; /* elements that a thread writes */

/* A thread writes 16 bytes. Elements are copied as bits: the narrow type does not matter. */
__global__ void __launch_bounds__(block_threads)
    cut_patches_kernel(const uint16_t *x, uint16_t *patches, int64_t vectors, int height, int image_width,
                       int rows, int columns, int kernel, int channels, int pitch)
{
    const int of_patch = kernel * kernel * channels, of_row = kernel * channels;
    for (int64_t v = (int64_t)blockIdx.x * block_threads + threadIdx.x; v < vectors;
         v += (int64_t)gridDim.x * block_threads) {
        const int64_t patch = v * width / of_patch;
        const int first = (int)(v * width - patch * of_patch);
        const int64_t row = patch / columns, sample = row / rows;
        const int column = (int)(patch - row * columns), y = (int)(row - sample * rows) * kernel;
        const uint16_t *from = x + ((sample * height + y) * image_width + (int64_t)column * kernel) * pitch;
        Pack<uint16_t, width> pack;
#pragma unroll
        for (int i = 0; i < width; i++) {
            const int down = (first + i) / of_row, across = (first + i) % of_row;
            pack.values[i] =
                from[((int64_t)down * image_width + across / channels) * pitch + across % channels];
        }
        *reinterpret_cast<Pack<uint16_t, width> *>(patches + v * width) = pack;
    }
}

/* Copies `rows` rows of `channels` elements between pitches; what is written behind them is 0. */
__global__ void change_pitch_kernel(const uint16_t *from, int from_pitch, uint16_t *to, int to_pitch,
                                    int64_t count, int channels)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    const int64_t row = i / to_pitch;
    const int channel = (int)(i - row * to_pitch);
    to[i] = channel < channels ? from[row * from_pitch + channel] : (uint16_t)0;
}

bool are_alike(const DeviceTensor *a, const DeviceTensor *b)
{
    return element_is_narrow(a->element) && a->element == b->element;
}

/* Copies a filter of `rows` taps between pitches. */
cudaError_t change_pitch(const DeviceTensor *from, int64_t from_pitch, const DeviceTensor *to,
                         int64_t to_pitch, int64_t rows, int64_t channels, cudaStream_t stream)
{
    const int64_t count = rows * to_pitch;
    change_pitch_kernel<<<(unsigned)((count + block_threads - 1) / block_threads), block_threads, 0,
                          stream>>>(data_of<const uint16_t>(from), (int)from_pitch, data_of<uint16_t>(to),
                                    (int)to_pitch, count, (int)channels);
    return cudaGetLastError();
}

} // namespace

extern "C" cudaError_t kernel_cut_patches(const DeviceTensor *x, int64_t kernel, const DeviceTensor *patches,
                                          cudaStream_t stream)
{
    if (!are_alike(x, patches) || patches->pitch % width != 0)
        return cudaErrorNotSupported;
    const int64_t vectors = patches->rows * patches->pitch / width;
    cut_patches_kernel<<<grid_blocks(vectors), block_threads, 0, stream>>>(
        data_of<const uint16_t>(x), data_of<uint16_t>(patches), vectors, (int)x->shape[1], (int)x->shape[2],
        (int)patches->shape[1], (int)patches->shape[2], (int)kernel, (int)x->shape[3], (int)x->pitch);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_flatten_filter(const DeviceTensor *weight, const DeviceTensor *flat,
                                             cudaStream_t stream)
{
    const int64_t channels = weight->shape[3];
    return are_alike(weight, flat) ? change_pitch(weight, weight->pitch, flat, channels,
                                                  device_tensor_stored(flat) / channels, channels, stream)
                                   : cudaErrorNotSupported;
}

extern "C" cudaError_t kernel_unflatten_filter(const DeviceTensor *flat, const DeviceTensor *weight,
                                               cudaStream_t stream)
{
    const int64_t channels = weight->shape[3];
    return are_alike(weight, flat)
               ? change_pitch(flat, channels, weight, weight->pitch,
                              device_tensor_stored(weight) / weight->pitch, channels, stream)
               : cudaErrorNotSupported;
}
