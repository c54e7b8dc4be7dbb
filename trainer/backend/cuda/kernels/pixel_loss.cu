/* pixel_loss.cu - losses of images. Each image is cut into pieces, one for each block. A piece writes two
 * sums in float64, of the loss's own terms and of the squares; the last block adds them in their order. */
#include <type_traits>

#include "trainer/backend/cuda/kernels/kernels_loss.h"
#include "trainer/backend/cuda/kernels/kernels_reduce.cuh"

using namespace fshard;

namespace
{

constexpr float charbonnier_square = 1e-6F; /* 1e-3 squared: Lai et al. 2017 */
constexpr double psnr_epsilon = 1e-8;       /* NAFNet's */
constexpr int piece_values = 4096;          /* 16 for each thread */

struct Images {
    const float *prediction, *target, *valid;
    int64_t images, values; /* values of one image */
    int64_t pieces;         /* pieces of one image */
};

__device__ double weight_of(const Images &images, int64_t n)
{
    return images.valid ? (double)images.valid[n] : 1;
}

/* Returns the sum of the weights, in every thread of the block. */
__device__ double total_weight(const Images &images)
{
    double sum = 0;
    for (int64_t n = threadIdx.x; n < images.images; n += block_threads)
        sum += weight_of(images, n);
    return block_sum(sum);
}

/* Returns the loss of one image from its sums. */
template <LossKind Kind> __device__ double image_loss(double terms, double squares, double values)
{
    if (Kind == LOSS_MSE)
        return squares / values;
    if (Kind == LOSS_PSNR)
        return 10 / log(10.0) * log(squares / values + psnr_epsilon);
    return terms / values;
}

/* Joins the pieces of each image, a warp for each in turn, then the images. */
template <LossKind Kind>
__device__ void join_pieces(const Images &images, const double2 *sums, float *loss, float *errors)
{
    const int lane = (int)threadIdx.x % 32;
    double of_warp = 0;
    for (int64_t n = threadIdx.x / 32; n < images.images; n += block_warps) {
        double terms = 0, squares = 0;
        for (int64_t piece = lane; piece < images.pieces; piece += 32) {
            const double2 sum = __ldcg(&sums[n * images.pieces + piece]);
            terms += sum.x;
            squares += sum.y;
        }
        terms = warp_sum(terms);
        squares = warp_sum(squares);
        if (lane > 0)
            continue;
        const double values = (double)images.values, weight = weight_of(images, n);
        errors[n] = (float)(squares / values);
        if (weight != 0) /* an image that does not count may hold anything, NaN too */
            of_warp += weight * image_loss<Kind>(terms, squares, values);
    }
    const double sum = block_sum(of_warp), weights = total_weight(images);
    if (threadIdx.x == 0)
        *loss = weights > 0 ? (float)(sum / weights) : 0;
}

/* Sums a piece. Width 4: images begin at 16-byte boundaries. */
template <LossKind Kind, int Width>
__global__ void pixel_loss_kernel(Images images, double2 *sums, unsigned *arrivals, float *loss,
                                  float *errors)
{
    const int64_t image = blockIdx.x / images.pieces, piece = blockIdx.x % images.pieces;
    const int64_t first = image * images.values + piece * piece_values;
    const int64_t rest = images.values - piece * piece_values;
    const int count = (int)(rest < piece_values ? rest : piece_values);
    double terms = 0, squares = 0;
#pragma unroll 4
    for (int i = Width * (int)threadIdx.x; i < count; i += Width * block_threads) {
        float a[Width], b[Width];
        load(images.prediction + first + i, a);
        load(images.target + first + i, b);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            const double d = (double)(a[k] - b[k]);
            squares += d * d;
            if (Kind == LOSS_L1)
                terms += fabs(d);
            else if (Kind == LOSS_CHARBONNIER)
                terms += (double)sqrtf((a[k] - b[k]) * (a[k] - b[k]) + charbonnier_square);
        }
    }
    terms = block_sum(terms);
    squares = block_sum(squares);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = make_double2(terms, squares);
    if (block_is_last(arrivals))
        join_pieces<Kind>(images, sums, loss, errors);
}

/* Returns the factor in d loss / d prediction = factor * d (mse, psnr), * sign d (l1), * d / sqrt(d^2 + e^2)
 * (charbonnier). */
template <LossKind Kind>
__device__ float factor_of(const Images &images, int64_t image, const float *dloss, const float *errors)
{
    const double weights = total_weight(images);
    const double share =
        weights > 0 ? (double)*dloss * weight_of(images, image) / weights / (double)images.values : 0;
    if (Kind == LOSS_MSE)
        return (float)(2 * share);
    if (Kind == LOSS_PSNR && share != 0)
        return (float)(2 * share * 10 / log(10.0) / ((double)errors[image] + psnr_epsilon));
    return (float)share;
}

template <LossKind Kind> __device__ float gradient_of(float a, float b, float factor)
{
    const float d = a - b;
    if (Kind == LOSS_L1)
        return a > b ? factor : a < b ? -factor : d * factor;
    if (Kind == LOSS_CHARBONNIER)
        return factor * d / sqrtf(d * d + charbonnier_square);
    return factor * d;
}

template <LossKind Kind, int Width>
__global__ void pixel_loss_backward_kernel(Images images, const float *dloss, const float *errors,
                                           float *dprediction)
{
    const int64_t image = blockIdx.x / images.pieces, piece = blockIdx.x % images.pieces;
    const int64_t first = image * images.values + piece * piece_values;
    const int64_t rest = images.values - piece * piece_values;
    const int count = (int)(rest < piece_values ? rest : piece_values);
    const float factor = factor_of<Kind>(images, image, dloss, errors);
    for (int i = Width * (int)threadIdx.x; i < count; i += Width * block_threads) {
        float a[Width], b[Width], dx[Width];
        load(images.prediction + first + i, a);
        load(images.target + first + i, b);
#pragma unroll
        for (int k = 0; k < Width; k++) /* 0: the image does not count, whatever it holds */
            dx[k] = factor == 0 ? 0 : gradient_of<Kind>(a[k], b[k], factor);
        store(dprediction + first + i, dx);
    }
}

int64_t values_of(const DeviceTensor *images)
{
    return images->shape[1] * images->shape[2] * images->shape[3];
}

int64_t pieces_of(const DeviceTensor *images)
{
    return (values_of(images) + piece_values - 1) / piece_values;
}

Images images_of(const PixelImages *images)
{
    return {data_of<float>(images->prediction),
            data_of<float>(images->target),
            images->valid ? data_of<float>(images->valid) : nullptr,
            images->prediction->shape[0],
            values_of(images->prediction),
            pieces_of(images->prediction)};
}

bool are_sound(const PixelImages *images)
{
    return is_f32(images->prediction) && is_f32(images->target) && is_f32(images->valid);
}

unsigned blocks_of(const PixelImages *images)
{
    return (unsigned)(images->prediction->shape[0] * pieces_of(images->prediction));
}

template <LossKind Kind, typename Launch> cudaError_t with_width(const PixelImages *images, Launch launch)
{
    using std::integral_constant;
    if (values_of(images->prediction) % 4 == 0)
        launch(integral_constant<LossKind, Kind>{}, integral_constant<int, 4>{});
    else
        launch(integral_constant<LossKind, Kind>{}, integral_constant<int, 1>{});
    return cudaGetLastError();
}

/* Calls launch(kind, width) with both as constants. */
template <typename Launch> cudaError_t with_images(const PixelImages *images, Launch launch)
{
    switch (images->kind) {
    case LOSS_L1:
        return with_width<LOSS_L1>(images, launch);
    case LOSS_CHARBONNIER:
        return with_width<LOSS_CHARBONNIER>(images, launch);
    case LOSS_MSE:
        return with_width<LOSS_MSE>(images, launch);
    case LOSS_PSNR:
        return with_width<LOSS_PSNR>(images, launch);
    default:
        return cudaErrorNotSupported;
    }
}

} // namespace

extern "C" uint64_t kernel_pixel_loss_scratch_bytes(const DeviceTensor *prediction)
{
    return (uint64_t)(prediction->shape[0] * pieces_of(prediction)) * sizeof(double2);
}

extern "C" cudaError_t kernel_pixel_loss(const PixelImages *images, const DeviceTensor *loss,
                                         const DeviceTensor *errors, void *scratch, unsigned *arrivals,
                                         cudaStream_t stream)
{
    if (!are_sound(images) || !is_f32(loss) || !is_f32(errors))
        return cudaErrorNotSupported;
    return with_images(images, [&](auto kind, auto width) {
        pixel_loss_kernel<kind(), width()><<<blocks_of(images), block_threads, 0, stream>>>(
            images_of(images), static_cast<double2 *>(scratch), arrivals, data_of<float>(loss),
            data_of<float>(errors));
    });
}

extern "C" cudaError_t kernel_pixel_loss_backward(const PixelImages *images, const DeviceTensor *dloss,
                                                  const DeviceTensor *errors, const DeviceTensor *dprediction,
                                                  cudaStream_t stream)
{
    if (!are_sound(images) || !is_f32(dloss) || !is_f32(errors) || !is_f32(dprediction))
        return cudaErrorNotSupported;
    return with_images(images, [&](auto kind, auto width) {
        pixel_loss_backward_kernel<kind(), width()><<<blocks_of(images), block_threads, 0, stream>>>(
            images_of(images), data_of<float>(dloss), data_of<float>(errors), data_of<float>(dprediction));
    });
}
