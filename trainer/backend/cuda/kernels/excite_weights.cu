/* excite_weights.cu - the gradients of the weights and biases of both layers of squeeze and excitation, in
 * one launch: see kernels_excite.h.
 *
 * Both are products over the images, of which there are few: a block's warps share them, and each has its
 * own in flight at once where there are 32 or fewer. */
#include "trainer/backend/cuda/kernels/excite.cuh"
#include "trainer/backend/cuda/kernels/kernels_excite.h"
#include "trainer/backend/cuda/kernels/kernels_reduce.cuh"

using namespace fshard;

namespace
{

/* weight [rows, pitch] and bias [rows], of left [images, rows] and right [images, pitch]. A tile is 32
 * lanes, `lanes` of them along a row; it takes a block, whose warps share the images. */
template <typename T> struct WeightSums {
    const T *left, *right;
    T *weight;   /* or NULL */
    float *bias; /* or NULL */
    int rows, pitch, lanes, tiles_x, tiles;
};
template <typename T> struct BothWeights {
    WeightSums<T> layers[2];
    int64_t images;
};

template <int Width> constexpr int rows_of_lane = Width > 1 ? 4 : 1;

template <typename T, int Width>
__global__ void __launch_bounds__(block_threads)
    excite_weights_kernel(const __grid_constant__ BothWeights<T> both)
{
    constexpr int Rows = rows_of_lane<Width>, values = Rows * Width;
    __shared__ float parts[block_warps][32][values + 1]; /* + 1: for other banks */
    __shared__ float bias_parts[block_warps][32 * Rows];
    const bool is_second = (int)blockIdx.x >= both.layers[0].tiles;
    const WeightSums<T> &layer = both.layers[is_second];
    const int tile = (int)blockIdx.x - (is_second ? both.layers[0].tiles : 0), x = tile % layer.tiles_x,
              y = tile / layer.tiles_x;
    const int lanes = layer.lanes, lanes_y = 32 / lanes;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int column = (x * lanes + lane % lanes) * Width, row = (y * lanes_y + lane / lanes) * Rows;
    float sum[Rows][Width] = {}, bias[Rows] = {};
    if (column < layer.pitch && row < layer.rows) {
#pragma unroll 4
        for (int64_t image = warp; image < both.images; image += block_warps) {
            float left[Rows], right[Width];
            load(layer.left + image * layer.rows + row, left);
            load(layer.right + image * layer.pitch + column, right);
#pragma unroll
            for (int r = 0; r < Rows; r++) {
                bias[r] += left[r];
#pragma unroll
                for (int k = 0; k < Width; k++)
                    sum[r][k] = fmaf(left[r], right[k], sum[r][k]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < Rows; r++) {
        bias_parts[warp][lane * Rows + r] = bias[r];
#pragma unroll
        for (int k = 0; k < Width; k++)
            parts[warp][lane][r * Width + k] = sum[r][k];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < 32 * values && layer.weight; i += block_threads) {
        const int from = i / values, value = i % values;
        const int64_t c = (int64_t)(x * lanes + from % lanes) * Width + value % Width,
                      r = (int64_t)(y * lanes_y + from / lanes) * Rows + value / Width;
        float total = 0;
#pragma unroll
        for (int part = 0; part < block_warps; part++)
            total += parts[part][from][value];
        if (c < layer.pitch && r < layer.rows)
            layer.weight[r * layer.pitch + c] = (T)total;
    }
    const int i = (int)threadIdx.x, from = i / Rows, r = (y * lanes_y + from / lanes) * Rows + i % Rows;
    if (x == 0 && layer.bias && i < 32 * Rows && from % lanes == 0 && r < layer.rows) {
        float total = 0;
#pragma unroll
        for (int part = 0; part < block_warps; part++)
            total += bias_parts[part][i];
        layer.bias[r] = total;
    }
}

/* Returns the sums of a layer, with the tiles that they are made in. */
template <typename T, int Width> WeightSums<T> weight_sums(const ExciteWeights &layer)
{
    const int rows = (int)layer.left->pitch, pitch = (int)layer.right->pitch, vectors = pitch / Width;
    int lanes = 1;
    while (lanes < 32 && lanes < vectors)
        lanes *= 2;
    const int tiles_x = (vectors + lanes - 1) / lanes, tile_rows = 32 / lanes * rows_of_lane<Width>;
    const bool wanted = layer.weight || layer.bias;
    return {data_of<T>(layer.left),
            data_of<T>(layer.right),
            layer.weight ? data_of<T>(layer.weight) : nullptr,
            layer.bias ? data_of<float>(layer.bias) : nullptr,
            rows,
            pitch,
            lanes,
            tiles_x,
            wanted ? tiles_x * ((rows + tile_rows - 1) / tile_rows) : 0};
}

bool weights_fit(const ExciteWeights &layer, ElementType element)
{
    const DeviceTensor *weight = layer.weight;
    return layer.left->element == element && layer.right->element == element && is_f32(layer.bias) &&
           layer.left->shape[0] == layer.right->shape[0] &&
           (!weight || (weight->element == element && weight->pitch == layer.right->pitch &&
                        weight->rows == layer.left->pitch));
}

} // namespace

extern "C" cudaError_t kernel_excite_weights(const ExciteWeights layers[2], cudaStream_t stream)
{
    const ElementType element = layers[0].right->element;
    if (!weights_fit(layers[0], element) || !weights_fit(layers[1], element))
        return cudaErrorNotSupported;
    return with_storage(layers[0].right, [&](auto zero) {
        using T = decltype(zero);
        with_width<T>(layers[0].right->pitch, layers[1].right->pitch, [&](auto width) {
            constexpr int Width = decltype(width)::value;
            const BothWeights<T> both = {{weight_sums<T, Width>(layers[0]), weight_sums<T, Width>(layers[1])},
                                         layers[0].right->shape[0]};
            const int tiles = both.layers[0].tiles + both.layers[1].tiles;
            if (tiles > 0)
                excite_weights_kernel<T, Width><<<(unsigned)tiles, block_threads, 0, stream>>>(both);
        });
    });
}
