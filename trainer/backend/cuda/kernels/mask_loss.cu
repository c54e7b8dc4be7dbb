/* mask_loss.cu - cross-entropy of the pixels of masks. A thread works on a pixel at a time, whose K
 * logits lie side by side: a line of the cache serves neighbours. Each image is cut into pieces, one for
 * each block. A piece writes three sums in float64; the last block adds them in their order. */
#include "trainer/backend/cuda/kernels/kernels_loss.h"
#include "trainer/backend/cuda/kernels/kernels_reduce.cuh"

using namespace fshard;

namespace
{

constexpr int piece_pixels = 2048; /* 8 for each thread */

struct Masks {
    const float *logits, *valid;
    const uint8_t *mask;
    int64_t images, pixels; /* pixels of one image */
    int64_t pieces;         /* pieces of one image */
    int classes;
    double smoothing;
};

/* Of the pixels of a piece that count. */
struct PieceSums {
    double loss, pixels, right;
};

__device__ double weight_of(const Masks &masks, int64_t n)
{
    return masks.valid ? (double)masks.valid[n] : 1;
}

/* Returns the class of the highest logit; of equals the lower one, and NaN is below every number. */
__device__ int best_class(const float *x, int classes)
{
    int best = 0;
    float highest = x[0];
    for (int k = 1; k < classes; k++) {
        const float value = x[k];
        if (value > highest || (isnan(highest) && !isnan(value))) {
            best = k;
            highest = value;
        }
    }
    return best;
}

/* Returns the loss of a pixel of this class. */
__device__ double pixel_loss(const Masks &masks, const float *x, int of, float largest)
{
    double sum = 0, sum_x = 0;
    for (int k = 0; k < masks.classes; k++) {
        sum += (double)expf(x[k] - largest);
        sum_x += (double)(x[k] - largest);
    }
    return log(sum) - (1 - masks.smoothing) * (double)(x[of] - largest) -
           masks.smoothing / masks.classes * sum_x;
}

/* Joins the pieces of each image, a warp for each in turn, then the images. */
__device__ void join_pieces(const Masks &masks, const PieceSums *pieces, float *loss, float *sums)
{
    const int lane = (int)threadIdx.x % 32;
    double of_warp = 0, pixels_of_warp = 0;
    for (int64_t n = threadIdx.x / 32; n < masks.images; n += block_warps) {
        PieceSums sum = {0, 0, 0};
        for (int64_t piece = lane; piece < masks.pieces; piece += 32) {
            const double *at = &pieces[n * masks.pieces + piece].loss;
            sum.loss += __ldcg(at);
            sum.pixels += __ldcg(at + 1);
            sum.right += __ldcg(at + 2);
        }
        sum.loss = warp_sum(sum.loss);
        sum.pixels = warp_sum(sum.pixels);
        sum.right = warp_sum(sum.right);
        if (lane > 0)
            continue;
        const double weight = weight_of(masks, n);
        sums[n * MASK_SUMS + MASK_SUM_LOSS] = (float)sum.loss;
        sums[n * MASK_SUMS + MASK_SUM_PIXELS] = (float)sum.pixels;
        sums[n * MASK_SUMS + MASK_SUM_RIGHT] = (float)sum.right;
        if (weight != 0) { /* an image that does not count may hold anything, NaN too */
            of_warp += weight * sum.loss;
            pixels_of_warp += weight * (double)(float)sum.pixels;
        }
    }
    const double sum = block_sum(of_warp), pixels = block_sum(pixels_of_warp);
    if (threadIdx.x == 0)
        *loss = pixels > 0 ? (float)(sum / pixels) : 0;
}

__global__ void mask_loss_kernel(Masks masks, PieceSums *pieces, unsigned *arrivals, float *loss,
                                 uint8_t *predictions, float *sums)
{
    const int64_t image = blockIdx.x / masks.pieces, piece = blockIdx.x % masks.pieces;
    const int64_t first = image * masks.pixels + piece * piece_pixels;
    const int64_t rest = masks.pixels - piece * piece_pixels;
    const int count = (int)(rest < piece_pixels ? rest : piece_pixels);
    PieceSums own = {0, 0, 0};
    for (int i = (int)threadIdx.x; i < count; i += block_threads) {
        const float *x = masks.logits + (first + i) * masks.classes;
        const int of = masks.mask[first + i], best = best_class(x, masks.classes);
        predictions[first + i] = (uint8_t)best;
        if (of >= masks.classes)
            continue;
        own.loss += pixel_loss(masks, x, of, x[best]);
        own.pixels += 1;
        own.right += best == of;
    }
    own.loss = block_sum(own.loss);
    own.pixels = block_sum(own.pixels);
    own.right = block_sum(own.right);
    if (threadIdx.x == 0)
        pieces[blockIdx.x] = own;
    if (block_is_last(arrivals))
        join_pieces(masks, pieces, loss, sums);
}

/* Returns the share of dloss of each pixel of an image, in every thread of the block. */
__device__ float factor_of(const Masks &masks, int64_t image, const float *dloss, const float *sums)
{
    double pixels = 0;
    for (int64_t n = threadIdx.x; n < masks.images; n += block_threads)
        pixels += weight_of(masks, n) * (double)sums[n * MASK_SUMS + MASK_SUM_PIXELS];
    pixels = block_sum(pixels);
    return pixels > 0 ? (float)((double)*dloss / pixels * weight_of(masks, image)) : 0;
}

/* dlogits may be masks.logits: a thread reads a pixel's before it writes them. */
__global__ void mask_loss_backward_kernel(Masks masks, const float *dloss, const float *sums, float *dlogits)
{
    const int64_t image = blockIdx.x / masks.pieces, piece = blockIdx.x % masks.pieces;
    const int64_t first = image * masks.pixels + piece * piece_pixels;
    const int64_t rest = masks.pixels - piece * piece_pixels;
    const int count = (int)(rest < piece_pixels ? rest : piece_pixels);
    const float factor = factor_of(masks, image, dloss, sums);
    const float spread = (float)(masks.smoothing / masks.classes), own = (float)(1 - masks.smoothing);
    for (int i = (int)threadIdx.x; i < count; i += block_threads) {
        const float *x = masks.logits + (first + i) * masks.classes;
        float *dx = dlogits + (first + i) * masks.classes;
        const int of = masks.mask[first + i];
        if (factor == 0 || of >= masks.classes) { /* does not count, whatever it holds */
            for (int k = 0; k < masks.classes; k++)
                dx[k] = 0;
            continue;
        }
        const float largest = x[best_class(x, masks.classes)];
        float sum = 0;
        for (int k = 0; k < masks.classes; k++) {
            const float e = expf(x[k] - largest);
            dx[k] = e;
            sum += e;
        }
        for (int k = 0; k < masks.classes; k++)
            dx[k] = factor * (dx[k] / sum - spread) - (k == of ? factor * own : 0);
    }
}

int64_t pixels_of(const DeviceTensor *mask)
{
    return mask->shape[1] * mask->shape[2];
}

int64_t pieces_of(const DeviceTensor *mask)
{
    return (pixels_of(mask) + piece_pixels - 1) / piece_pixels;
}

Masks masks_of(const MaskImages *images)
{
    return {data_of<float>(images->logits),
            images->valid ? data_of<float>(images->valid) : nullptr,
            data_of<uint8_t>(images->mask),
            images->mask->shape[0],
            pixels_of(images->mask),
            pieces_of(images->mask),
            (int)images->logits->shape[3],
            images->smoothing};
}

bool are_sound(const MaskImages *images)
{
    return is_f32(images->logits) && is_f32(images->valid) && images->mask->element == ELEMENT_U8;
}

unsigned blocks_of(const MaskImages *images)
{
    return (unsigned)(images->mask->shape[0] * pieces_of(images->mask));
}

} // namespace

extern "C" uint64_t kernel_mask_loss_scratch_bytes(const DeviceTensor *mask)
{
    return (uint64_t)(mask->shape[0] * pieces_of(mask)) * sizeof(PieceSums);
}

extern "C" cudaError_t kernel_mask_loss(const MaskImages *images, const DeviceTensor *loss,
                                        const DeviceTensor *classes, const DeviceTensor *sums, void *scratch,
                                        unsigned *arrivals, cudaStream_t stream)
{
    if (!are_sound(images) || !is_f32(loss) || !is_f32(sums) || classes->element != ELEMENT_U8)
        return cudaErrorNotSupported;
    mask_loss_kernel<<<blocks_of(images), block_threads, 0, stream>>>(
        masks_of(images), static_cast<PieceSums *>(scratch), arrivals, data_of<float>(loss),
        data_of<uint8_t>(classes), data_of<float>(sums));
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_mask_loss_backward(const MaskImages *images, const DeviceTensor *dloss,
                                                 const DeviceTensor *sums, const DeviceTensor *dlogits,
                                                 cudaStream_t stream)
{
    if (!are_sound(images) || !is_f32(dloss) || !is_f32(sums) || !is_f32(dlogits))
        return cudaErrorNotSupported;
    mask_loss_backward_kernel<<<blocks_of(images), block_threads, 0, stream>>>(
        masks_of(images), data_of<float>(dloss), data_of<float>(sums), data_of<float>(dlogits));
    return cudaGetLastError();
}
