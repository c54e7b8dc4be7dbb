/* stem.cu - turns a convolution of stride 2 over few channels into one of stride 1 over four times as many:
 * see kernels_convolution.h.
 *
 * For resnet's stem, 7x7 over 3 channels, cuDNN reaches 15 % of the roof in the plain form, since 3 channels
 * padded to 8 in 49 taps are five eighths zeros; as 4 x 4 taps of 16 channels only a quarter is. With 16
 * channels the forward step took 0.75 ms (H200, 160 px, batch 512, 2026-11-21), of which the pass over the
 * image takes about 0.1 by its bytes. So the taps of a row become channels too: 4 x 1 taps of 64, for four
 * times the memory. The image is folded again for the weight gradient: that costs one pass, and keeping it
 * would cost its memory throughout the step. */
#include "trainer/backend/cuda/kernels/kernels_common.cuh"
#include "trainer/backend/cuda/kernels/kernels_convolution.h"

using namespace fshard;

namespace
{

/* Size of a block: 64 vectors wide and 4 rows high. A thread writes 16 bytes: two neighbouring pixels of four
 * channels each. Neighbouring threads take the two rows of one square, then the next square, so that a warp
 * writes 512 contiguous bytes. Pixels are copied as 8 bytes: the narrow type does not matter. */
constexpr int fold_columns = 64, fold_rows = 4;

__global__ void fold_image_kernel(const uint2 *x, uint4 *folded, int64_t rows, int height, int width,
                                  int folded_height, int folded_width, int front, int taps)
{
    const int vectors = folded_width * taps * 2;
    for (int64_t row = (int64_t)blockIdx.x * fold_rows + threadIdx.y; row < rows;
         row += (int64_t)gridDim.x * fold_rows) {
        const int64_t sample = row / folded_height;
        const int i = (int)(row - sample * folded_height);
        for (int vector = (int)threadIdx.x; vector < vectors; vector += fold_columns) {
            const int square = vector / 2, column = square / taps + square % taps;
            const int from_row = 2 * i + vector % 2 - front, from_column = 2 * column - front;
            const uint2 nothing = make_uint2(0, 0);
            uint2 left = nothing, right = nothing;
            if (from_row >= 0 && from_row < height) {
                /* a pixel is 16 bytes, of which the first 8 are needed */
                const uint2 *from = x + 2 * ((sample * height + from_row) * width + from_column);
                if (from_column >= 0 && from_column < width)
                    left = from[0];
                if (from_column + 1 >= 0 && from_column + 1 < width)
                    right = from[2];
            }
            folded[row * vectors + vector] = make_uint4(left.x, left.y, right.x, right.y);
        }
    }
}

/* Returns the index in the plain weights of element i of the folded ones; -1: it is 0. The plain ones have
 * `kernel` taps and `pitch` channels. */
__device__ int64_t plain_index(int64_t i, int taps, int lead, int kernel, int pitch)
{
    const int channel = (int)(i % FOLD_CHANNELS_MAX), square = (int)(i / FOLD_CHANNELS_MAX % 4);
    const int64_t tap = i / FOLDED_CHANNELS;
    const int column = (int)(tap % taps) * 2 + square % 2 - lead,
              row = (int)(tap / taps % taps) * 2 + square / 2 - lead;
    if (row < 0 || row >= kernel || column < 0 || column >= kernel)
        return -1;
    return ((tap / (taps * taps) * kernel + row) * kernel + column) * pitch + channel;
}

__global__ void fold_weight_kernel(const uint16_t *weight, uint16_t *folded, int64_t count, int taps,
                                   int lead, int kernel, int pitch)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    const int64_t from = plain_index(i, taps, lead, kernel, pitch);
    folded[i] = from < 0 ? (uint16_t)0 : weight[from];
}

/* Walks over plain elements, so that the padding is written too. */
__global__ void unfold_weight_kernel(const uint16_t *folded, uint16_t *weight, int64_t count, int taps,
                                     int lead, int kernel, int pitch)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    const int channel = (int)(i % pitch);
    const int64_t tap = i / pitch;
    const int column = (int)(tap % kernel) + lead, row = (int)(tap / kernel % kernel) + lead;
    const int64_t o = tap / (kernel * kernel);
    const int64_t from = ((o * taps + row / 2) * taps + column / 2) * FOLDED_CHANNELS +
                         (row % 2 * 2 + column % 2) * FOLD_CHANNELS_MAX + channel;
    weight[i] = channel < FOLD_CHANNELS_MAX ? folded[from] : (uint16_t)0;
}

} // namespace

extern "C" cudaError_t kernel_fold_image(const DeviceTensor *x, const Fold *fold, const DeviceTensor *folded,
                                         cudaStream_t stream)
{
    if (!element_is_narrow(x->element) || x->element != folded->element || x->shape[3] > FOLD_CHANNELS_MAX ||
        x->pitch != PADDED_CHANNELS)
        return cudaErrorNotSupported;
    const int64_t rows = folded->shape[0] * folded->shape[1], blocks = (rows + fold_rows - 1) / fold_rows;
    fold_image_kernel<<<(unsigned)(blocks < 65536 ? blocks : 65536), dim3(fold_columns, fold_rows), 0,
                        stream>>>(data_of<const uint2>(x), data_of<uint4>(folded), rows, (int)x->shape[1],
                                  (int)x->shape[2], (int)folded->shape[1], (int)folded->shape[2],
                                  (int)fold->front, (int)fold->taps);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_fold_weight(const DeviceTensor *weight, const Fold *fold,
                                          const DeviceTensor *folded, cudaStream_t stream)
{
    if (!element_is_narrow(weight->element) || weight->element != folded->element)
        return cudaErrorNotSupported;
    const int64_t count = device_tensor_stored(folded);
    fold_weight_kernel<<<blocks_for(count), block_threads, 0, stream>>>(
        data_of<const uint16_t>(weight), data_of<uint16_t>(folded), count, (int)fold->taps, (int)fold->lead,
        (int)weight->shape[1], (int)weight->pitch);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_unfold_weight(const DeviceTensor *folded, const Fold *fold,
                                            const DeviceTensor *weight, cudaStream_t stream)
{
    if (!element_is_narrow(weight->element) || weight->element != folded->element)
        return cudaErrorNotSupported;
    const int64_t count = device_tensor_stored(weight);
    unfold_weight_kernel<<<blocks_for(count), block_threads, 0, stream>>>(
        data_of<const uint16_t>(folded), data_of<uint16_t>(weight), count, (int)fold->taps, (int)fold->lead,
        (int)weight->shape[1], (int)weight->pitch);
    return cudaGetLastError();
}
