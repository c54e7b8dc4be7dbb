/* stem.cu - turns a convolution of stride 2 over few channels into one of stride 1 over four times as many:
 * see kernels_convolution.h.
 *
 * For resnet's stem, 7x7 over 3 channels, cuDNN reaches 15 % of the roof in the plain form, since 3 channels
 * padded to 8 in 49 taps are five eighths zeros; as 4 x 4 taps of 16 channels only a quarter is. With 16
 * channels the forward step took 0.75 ms (H200, 160 px, batch 512, 2026-11-21), of which the pass over the
 * image takes about 0.1 by its bytes. So the taps of a row become channels too: 4 x 1 taps of 64, for four
 * times the memory. The image is folded again for the weight gradient: that costs one pass, and keeping it
 * would cost its memory throughout the step. Where nothing else reads the image, it is folded from its bytes,
 * twice, and its normalised copy, of 16 bytes a pixel, is not made. */
#include "trainer/backend/cuda/kernels/channel_constants.cuh"
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

/* From bytes: a block normalises the squares that its pixels need, each once, into shared memory. The two
 * rows of a square are two elements there, so 8 threads read 128 contiguous bytes. A block has as many pixels
 * of a row as these squares are enough for. */
constexpr int fold_squares = 128, fold_taps_most = fold_squares / 2;

struct FoldShape {
    int64_t rows; /* of folded, of all samples */
    int height, width, channels, folded_height, folded_width, front, taps;
};

/* Taps: 0, or what shape.taps is, so that divisions by it are shifts. */
template <typename T, int Taps>
__global__ void fold_bytes_kernel(const uint8_t *x, uint4 *folded, const __grid_constant__ FoldShape shape,
                                  const __grid_constant__ ChannelConstants constants)
{
    __shared__ uint4 squares[fold_rows][2 * fold_squares];
    uint4 *own = squares[threadIdx.y];
    const int taps = Taps > 0 ? Taps : shape.taps, most = fold_squares - taps + 1;
    const int first = (int)blockIdx.y * most; /* of the pixels */
    const int here = shape.folded_width - first < most ? shape.folded_width - first : most;
    const int64_t row = (int64_t)blockIdx.x * fold_rows + threadIdx.y;
    const int64_t sample = row / shape.folded_height;
    const int i = (int)(row - sample * shape.folded_height);
    for (int n = (int)threadIdx.x; n < 2 * (here + taps - 1) && row < shape.rows; n += fold_columns) {
        const int from_row = 2 * i + n % 2 - shape.front, from_column = 2 * (first + n / 2) - shape.front;
        float left[pixel_channels] = {}, right[pixel_channels] = {};
        if (from_row >= 0 && from_row < shape.height) {
            const int64_t from = (sample * shape.height + from_row) * shape.width + from_column;
            if (from_column >= 0 && from_column < shape.width)
                numbers_of(x + from * shape.channels, shape.channels, constants, left);
            if (from_column + 1 >= 0 && from_column + 1 < shape.width)
                numbers_of(x + (from + 1) * shape.channels, shape.channels, constants, right);
        }
        T *pixels = reinterpret_cast<T *>(own + n);
        store(pixels, left);
        store(pixels + pixel_channels, right);
    }
    __syncthreads();
    if (row >= shape.rows)
        return;
    uint4 *to = folded + (row * shape.folded_width + first) * (2 * taps);
    for (int vector = (int)threadIdx.x; vector < 2 * taps * here; vector += fold_columns) {
        const int square = vector / 2;
        to[vector] = own[2 * (square / taps + square % taps) + vector % 2];
    }
}

template <typename T>
void launch_fold_bytes(const DeviceTensor *x, const DeviceTensor *folded, const FoldShape &shape,
                       const ChannelConstants &constants, cudaStream_t stream)
{
    const int most = fold_squares - shape.taps + 1;
    const dim3 grid((unsigned)((shape.rows + fold_rows - 1) / fold_rows),
                    (unsigned)((shape.folded_width + most - 1) / most)),
        block(fold_columns, fold_rows);
    if (shape.taps == 4)
        fold_bytes_kernel<T, 4>
            <<<grid, block, 0, stream>>>(data_of<const uint8_t>(x), data_of<uint4>(folded), shape, constants);
    else
        fold_bytes_kernel<T, 0>
            <<<grid, block, 0, stream>>>(data_of<const uint8_t>(x), data_of<uint4>(folded), shape, constants);
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

extern "C" cudaError_t kernel_fold_bytes(const DeviceTensor *x, const float *mean, const float *deviation,
                                         const Fold *fold, const DeviceTensor *folded, cudaStream_t stream)
{
    if (x->element != ELEMENT_U8 || x->shape[3] > FOLD_CHANNELS_MAX || fold->taps > fold_taps_most)
        return cudaErrorNotSupported;
    const FoldShape shape = {folded->shape[0] * folded->shape[1],
                             (int)x->shape[1],
                             (int)x->shape[2],
                             (int)x->shape[3],
                             (int)folded->shape[1],
                             (int)folded->shape[2],
                             (int)fold->front,
                             (int)fold->taps};
    const ChannelConstants constants = channel_constants(mean, deviation, x->shape[3]);
    switch (folded->element) {
    case ELEMENT_F16:
        launch_fold_bytes<__half>(x, folded, shape, constants, stream);
        return cudaGetLastError();
    case ELEMENT_BF16:
        launch_fold_bytes<__nv_bfloat16>(x, folded, shape, constants, stream);
        return cudaGetLastError();
    default:
        return cudaErrorNotSupported;
    }
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
