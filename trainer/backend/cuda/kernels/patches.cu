/* patches.cu - turns a convolution over few channels into a product of matrices: see kernels_convolution.h.
 *
 * For the 16 x 16 patches of a vision transformer cuDNN took 0.78 ms of 512 images at 160 px (H200,
 * 2026-11-28), 4 % of the roof: it multiplies the zeros that pad three channels to eight, 256 times. */
#include "trainer/backend/cuda/kernels/kernels_common.cuh"
#include "trainer/backend/cuda/kernels/kernels_convolution.h"

using namespace fshard;

namespace
{

constexpr int width = 8; /* elements that a thread writes */

/* 32 bits: 2^31 vectors are 32 GB, and divisions of 64 bits would take longer than memory does. */
struct Cut {
    unsigned vectors;        /* of all patches */
    int height, image_width; /* of x */
    unsigned rows, columns;  /* of patches */
    unsigned kernel, channels, vectors_of_patch;
    int stride, padding, x_pitch;
};

/* A thread writes 16 bytes of one patch. Elements are copied as bits: the narrow type does not matter. */
__global__ void __launch_bounds__(block_threads)
    cut_patches_kernel(const uint16_t *x, uint16_t *patches, const __grid_constant__ Cut cut)
{
    for (unsigned v = blockIdx.x * block_threads + threadIdx.x; v < cut.vectors;
         v += gridDim.x * block_threads) {
        const unsigned patch = v / cut.vectors_of_patch, line = patch / cut.columns, sample = line / cut.rows;
        const unsigned first = (v - patch * cut.vectors_of_patch) * width, tap = first / cut.channels;
        const int left = (int)(patch - line * cut.columns) * cut.stride - cut.padding;
        unsigned channel = first - tap * cut.channels, down = tap / cut.kernel,
                 across = tap - down * cut.kernel;
        int row = (int)(line - sample * cut.rows) * cut.stride - cut.padding + (int)down;
        const uint16_t *const image =
            x + (int64_t)sample * cut.height * ((int64_t)cut.image_width * cut.x_pitch);
        Pack<uint16_t, width> pack = {};
#pragma unroll
        for (int i = 0; i < width; i++) {
            const int column = left + (int)across;
            if (down < cut.kernel && row >= 0 && row < cut.height && column >= 0 && column < cut.image_width)
                pack.values[i] = image[(row * cut.image_width + column) * cut.x_pitch + (int)channel];
            if (++channel < cut.channels)
                continue;
            channel = 0;
            if (++across < cut.kernel)
                continue;
            across = 0;
            down++;
            row++;
        }
        *reinterpret_cast<Pack<uint16_t, width> *>(patches + (size_t)v * width) = pack;
    }
}

/* A filter of `taps` taps of `channels` channels, `pitch` apart, and the same as rows of row_pitch elements
 * without padding between the taps. */
struct Filter {
    int64_t count; /* elements to write */
    int taps, channels, pitch, row_pitch;
};

__global__ void flatten_filter_kernel(const uint16_t *weight, uint16_t *flat, const Filter f)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= f.count)
        return;
    const int64_t o = i / f.row_pitch;
    const int element = (int)(i - o * f.row_pitch), tap = element / f.channels;
    flat[i] = tap < f.taps ? weight[(o * f.taps + tap) * f.pitch + element % f.channels] : (uint16_t)0;
}

/* Walks over plain elements, so that the padding is written too. */
__global__ void unflatten_filter_kernel(const uint16_t *flat, uint16_t *weight, const Filter f)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= f.count)
        return;
    const int64_t tap = i / f.pitch, o = tap / f.taps;
    const int channel = (int)(i - tap * f.pitch);
    weight[i] = channel < f.channels ? flat[o * f.row_pitch + (tap - o * f.taps) * f.channels + channel]
                                     : (uint16_t)0;
}

bool are_alike(const DeviceTensor *a, const DeviceTensor *b)
{
    return element_is_narrow(a->element) && a->element == b->element;
}

/* Launches a kernel between a filter and its flat form, with a thread for each element of `to`, one of the
 * two. */
cudaError_t run_filter(void (*kernel)(const uint16_t *, uint16_t *, Filter), const DeviceTensor *weight,
                       const DeviceTensor *flat, const DeviceTensor *from, const DeviceTensor *to,
                       cudaStream_t stream)
{
    if (!are_alike(weight, flat))
        return cudaErrorNotSupported;
    const Filter f = {device_tensor_stored(to), (int)(weight->shape[1] * weight->shape[2]),
                      (int)weight->shape[3], (int)weight->pitch, (int)flat->pitch};
    kernel<<<blocks_for(f.count), block_threads, 0, stream>>>(data_of<const uint16_t>(from),
                                                              data_of<uint16_t>(to), f);
    return cudaGetLastError();
}

} // namespace

extern "C" cudaError_t kernel_cut_patches(const DeviceTensor *x, const Patches *of,
                                          const DeviceTensor *patches, cudaStream_t stream)
{
    const int64_t vectors = patches->rows * patches->pitch / width;
    if (!are_alike(x, patches) || patches->pitch % width != 0 || vectors > INT32_MAX ||
        x->shape[1] * x->shape[2] * x->pitch > INT32_MAX)
        return cudaErrorNotSupported;
    Cut cut = {};
    cut.vectors = (unsigned)vectors;
    cut.height = (int)x->shape[1];
    cut.image_width = (int)x->shape[2];
    cut.rows = (unsigned)patches->shape[1];
    cut.columns = (unsigned)patches->shape[2];
    cut.kernel = (unsigned)of->kernel;
    cut.stride = (int)of->stride;
    cut.padding = (int)of->padding;
    cut.channels = (unsigned)x->shape[3];
    cut.x_pitch = (int)x->pitch;
    cut.vectors_of_patch = (unsigned)(patches->pitch / width);
    cut_patches_kernel<<<grid_blocks(vectors), block_threads, 0, stream>>>(data_of<const uint16_t>(x),
                                                                           data_of<uint16_t>(patches), cut);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_flatten_filter(const DeviceTensor *weight, const DeviceTensor *flat,
                                             cudaStream_t stream)
{
    return run_filter(flatten_filter_kernel, weight, flat, weight, flat, stream);
}

extern "C" cudaError_t kernel_unflatten_filter(const DeviceTensor *flat, const DeviceTensor *weight,
                                               cudaStream_t stream)
{
    return run_filter(unflatten_filter_kernel, weight, flat, flat, weight, stream);
}
