/* norm_gate.cu - batch norm, squeeze and excitation, an addition and a ReLU, in three passes over images and
 * two backward ones, of which the last two are those of a block without squeeze and excitation.
 *
 * Bytes moved, in tensors of x's size. Forward: the sums read x, 1, for the batch's statistics and for the
 * mean of the normalised image alike; then, when the gate is known, x and the addend are read and y written,
 * 3. Backward: the first pass reads dy, x and y and writes g, 4 (5 if dy has two parts), and leaves its sums
 * for each image, of which the gate's gradient and, with what comes back through the squeeze, those of weight
 * and bias are made; the second reads g and x and writes dx, 3. Everything else has a number for each channel
 * of an image. */
#include "trainer/backend/cuda/kernels/batch_norm_operands.cuh"
#include "trainer/backend/cuda/kernels/kernels_norm_gate.h"
#include "trainer/backend/cuda/kernels/rows_of_images.cuh"

using namespace fshard;

namespace
{

/* Loads factors [N, channels] of channels c..c + Width, 0 after the last. Rows are not padded. */
template <int Width>
__device__ void load_factors(const float *factors, int64_t image, int channels, int c, float (&values)[Width])
{
    const float *of_image = factors + image * channels;
    if (channels % Width == 0) {
        load(of_image + c, values);
        return;
    }
#pragma unroll
    for (int k = 0; k < Width; k++)
        values[k] = c + k < channels ? of_image[c + k] : 0;
}

/* ---- forward ---- */

/* The norm's own map, with scale and shift times the image's factors. */
template <typename T, Addend kind> struct GateApply : Apply<T, kind, OP_RELU, false> {
    const float *factors;
    int channels;
    template <int Width> __device__ auto columns(int c, int64_t image) const
    {
        Affine<Width> affine(this->norm, c);
        float values[Width];
        load_factors(factors, image, channels, c, values);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            affine.scale[k] *= values[k];
            affine.shift[k] *= values[k];
        }
        return typename Apply<T, kind, OP_RELU, false>::template Columns<Width>(affine);
    }
};

template <typename T> struct Squeeze {
    ImageSums sums;
    Norm norm;
    const T *x; /* its first row is what the sums are about */
    T *y;
    float *image_means;
    double inverse_pixels;
    int64_t images;
    int channels;
};

/* Computes a channel of an image in each thread, up to the pitch. */
template <typename T>
__global__ void __launch_bounds__(block_threads) squeeze_kernel(const __grid_constant__ Squeeze<T> squeeze)
{
    const int pitch = squeeze.sums.pitch;
    const int64_t i = (int64_t)blockIdx.x * block_threads + threadIdx.x, image = i / pitch;
    const int c = (int)(i - image * pitch);
    if (image >= squeeze.images)
        return;
    const Norm &norm = squeeze.norm;
    const float mean =
        (float)((double)(float)squeeze.x[c] + squeeze.sums.of(image, 0, 2, c) * squeeze.inverse_pixels);
    float scale, shift;
    affine_of(norm.weight[c], norm.bias[c], norm.mean[c], norm.inverse_deviation[c], &scale, &shift);
    squeeze.y[i] = (T)fmaf(mean, scale, shift);
    if (c < squeeze.channels)
        squeeze.image_means[image * squeeze.channels + c] = mean;
}

/* ---- backward ---- */

struct GateSums {
    ImageSums sums;
    Norm norm;
    float *dfactors, *to; /* to: [2, images, channels] */
    int64_t images;
    int channels;
};

/* Joins the strips of a channel of an image in each thread. */
__global__ void __launch_bounds__(block_threads) gate_sums_kernel(const __grid_constant__ GateSums gate)
{
    const int64_t i = (int64_t)blockIdx.x * block_threads + threadIdx.x, image = i / gate.channels;
    const int c = (int)(i - image * gate.channels);
    if (image >= gate.images)
        return;
    const Norm &norm = gate.norm;
    const double sum = gate.sums.of(image, 0, 2, c), product = gate.sums.of(image, 1, 2, c);
    gate.to[i] = (float)sum;
    gate.to[gate.images * gate.channels + i] = (float)product;
    gate.dfactors[i] = (float)(product * (double)norm.inverse_deviation[c] * (double)norm.weight[c] +
                               sum * (double)norm.bias[c]);
}

template <typename T> struct SqueezeSums {
    const T *dy;                               /* [images, pitch] */
    const float *factors, *sums, *image_means; /* [images, channels], sums: twice */
    const float *mean;
    int64_t images;
    int channels, pitch;
    FinishBackward finish;
};

/* Adds the images up to dweight and dbias. */
template <typename T> __global__ void squeeze_sums_kernel(const __grid_constant__ SqueezeSums<T> squeeze)
{
    const int c = (int)(blockIdx.x * finish_channels + threadIdx.x);
    const int64_t values = squeeze.images * squeeze.channels;
    double sum[2] = {};
    if (c < squeeze.channels) {
        const double mean = (double)squeeze.mean[c];
#pragma unroll 4
        for (int64_t image = threadIdx.y; image < squeeze.images; image += finish_strips) {
            const int64_t i = image * squeeze.channels + c;
            const double dy = (double)(float)squeeze.dy[image * squeeze.pitch + c],
                         factor = (double)squeeze.factors[i];
            sum[0] += factor * (double)squeeze.sums[i] + dy;
            sum[1] +=
                factor * (double)squeeze.sums[values + i] + dy * ((double)squeeze.image_means[i] - mean);
        }
    }
    if (join_strips(sum) && c < squeeze.pitch)
        squeeze.finish(c, sum, c < squeeze.channels);
}

/* dx = from_g * g + from_x * x + constant, of each image its own. */
template <typename T> struct SqueezeBackward {
    Norm norm;
    const T *g, *x, *dy;
    const float *factors, *dweight, *dbias;
    double inverse_rows;
    float inverse_pixels;
    int64_t sampled; /* images that the statistics are of */
    int channels, pitch;
    T *dx;
    template <int Width> struct Columns {
        float from_g[Width], from_x[Width], constant[Width];
    };
    template <int Width> __device__ Columns<Width> columns(int c, int64_t image) const
    {
        Columns<Width> columns;
        float mean[Width], inverse[Width], weight[Width], of_weight[Width], of_bias[Width], factor[Width],
            gradient[Width];
        load(norm.mean + c, mean);
        load(norm.inverse_deviation + c, inverse);
        load(norm.weight + c, weight);
        load(dweight + c, of_weight);
        load(dbias + c, of_bias);
        load_factors(factors, image, channels, c, factor);
        load(dy + image * pitch + c, gradient);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            const float scale = weight[k] * inverse[k];
            gradient_of(scale, mean[k], inverse[k], of_weight[k], of_bias[k],
                        image < sampled ? inverse_rows : 0, &columns.from_x[k], &columns.constant[k]);
            columns.from_g[k] = scale * factor[k];
            columns.constant[k] = fmaf(scale * gradient[k], inverse_pixels, columns.constant[k]);
        }
        return columns;
    }
    template <int Width> struct Row {
        Raw<T, Width> g, x;
        __device__ void read(const SqueezeBackward &map, const Spot &at)
        {
            g = fetch_last<T, Width>(map.g + at.element);
            x = fetch_last<T, Width>(map.x + at.element);
        }
    };
    template <int Width>
    __device__ void write(const Columns<Width> &columns, const Row<Width> &row, int64_t i) const
    {
        float gradients[Width], values[Width];
        unpack(row.g, gradients);
        unpack(row.x, values);
#pragma unroll
        for (int k = 0; k < Width; k++)
            gradients[k] = fmaf(columns.from_g[k], gradients[k],
                                fmaf(columns.from_x[k], values[k], columns.constant[k]));
        put(dx + i, gradients);
    }
};

/* ---- launches ---- */

/* Returns the partial sums that sum_images leaves in scratch. */
template <typename T> ImageSums image_sums(const DeviceTensor *x, const void *scratch)
{
    return {static_cast<const float *>(scratch), deal_image_sums(x, width_for<T>(x)).strips, (int)x->pitch};
}

/* Returns how many partial sums those are of the first rows of x; all where rows is 0. */
template <typename T> int partials_of(const DeviceTensor *x, int64_t rows)
{
    const int64_t images = rows ? rows / (device_tensor_rows(x) / x->shape[0]) : x->shape[0];
    return (int)(images * deal_image_sums(x, width_for<T>(x)).strips);
}

template <typename T, Addend kind>
void gate(const NormTensors *tensors, const NormActivation *activation, const DeviceTensor *factors,
          const DeviceTensor *addend, const DeviceTensor *y, cudaStream_t stream)
{
    GateApply<T, kind> map = {};
    map.norm = norm_of(tensors, activation);
    map.x = data_of<T>(tensors->x);
    map.addend = maybe_data<T>(addend);
    map.y = data_of<T>(y);
    map.factors = data_of<float>(factors);
    map.channels = (int)device_tensor_channels(y);
    run_image_map<T, 4>(map, y, stream);
}

template <typename T, Gate gate, Second second, bool Stores>
void gate_term(const NormGradient *gradient, const NormTensors *tensors, const Norm &norm, void *scratch,
               cudaStream_t stream)
{
    BackwardTerm<T, gate, OP_RELU, second, Stores> term = {};
    term.norm = norm;
    term.dy = data_of<T>(gradient->dy);
    term.dy2 = maybe_data<T>(gradient->dy2);
    term.x = data_of<T>(tensors->x);
    term.y = maybe_data<T>(gradient->y);
    term.g = maybe_data<T>(gradient->g);
    term.channels = (int)device_tensor_channels(tensors->x);
    sum_images<T>(term, tensors->x, scratch, stream);
}

template <typename T>
void gate_sums(const NormGradient *gradient, const NormTensors *tensors, const Norm &norm, void *scratch,
               cudaStream_t stream)
{
    if (gradient->y && gradient->dy2)
        gate_term<T, Gate::y, Second::like_x, true>(gradient, tensors, norm, scratch, stream);
    else if (gradient->y)
        gate_term<T, Gate::y, Second::none, true>(gradient, tensors, norm, scratch, stream);
    else if (gradient->dy2)
        gate_term<T, Gate::x, Second::like_x, true>(gradient, tensors, norm, scratch, stream);
    else
        gate_term<T, Gate::x, Second::none, false>(gradient, tensors, norm, scratch, stream);
}

template <typename T>
void squeeze_sums(const NormSqueezeGradient *gradient, const NormTensors *tensors, cudaStream_t stream)
{
    SqueezeSums<T> squeeze = {};
    squeeze.dy = data_of<T>(gradient->dy);
    squeeze.factors = data_of<float>(gradient->factors);
    squeeze.sums = data_of<float>(gradient->sums);
    squeeze.image_means = data_of<float>(gradient->image_means);
    squeeze.mean = data_of<float>(tensors->mean);
    squeeze.images = tensors->x->shape[0];
    squeeze.channels = (int)device_tensor_channels(tensors->x);
    squeeze.pitch = (int)tensors->x->pitch;
    squeeze.finish = {data_of<float>(tensors->inverse_deviation), data_of<float>(gradient->dweight),
                      data_of<float>(gradient->dbias), nullptr};
    squeeze_sums_kernel<<<(unsigned)((squeeze.pitch + finish_channels - 1) / finish_channels),
                          dim3(finish_channels, finish_strips), 0, stream>>>(squeeze);
}

template <typename T>
void squeeze_backward(const NormSqueezeGradient *gradient, const NormTensors *tensors, cudaStream_t stream)
{
    const DeviceTensor *x = tensors->x;
    const int64_t rows = device_tensor_rows(x), pixels = rows / x->shape[0],
                  sampled = gradient->sampled_rows ? gradient->sampled_rows : rows;
    const NormActivation none = {};
    SqueezeBackward<T> map = {};
    map.norm = norm_of(tensors, &none);
    map.g = data_of<T>(gradient->g);
    map.x = data_of<T>(x);
    map.dy = data_of<T>(gradient->dy);
    map.factors = data_of<float>(gradient->factors);
    map.dweight = data_of<float>(gradient->dweight);
    map.dbias = data_of<float>(gradient->dbias);
    map.inverse_rows = gradient->batch_statistics ? 1.0 / (double)sampled : 0;
    map.inverse_pixels = 1.0F / (float)pixels;
    map.sampled = sampled / pixels;
    map.channels = (int)device_tensor_channels(x);
    map.pitch = (int)x->pitch;
    map.dx = data_of<T>(gradient->dx);
    run_image_map<T, 4>(map, x, stream);
}

} // namespace

extern "C" uint64_t kernel_image_scratch_bytes(const DeviceTensor *x)
{
    const int sums = 2;
    const ImageDeal d =
        deal_image_sums(x, element_is_narrow(x->element) ? width_for<__half>(x) : width_for<float>(x));
    return (uint64_t)d.images * d.strips * sums * (uint64_t)d.pitch * sizeof(float);
}

extern "C" cudaError_t kernel_image_sums(const DeviceTensor *x, void *scratch, cudaStream_t stream)
{
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        sum_images<T>(MomentsTerm<T>{data_of<T>(x)}, x, scratch, stream);
    });
}

extern "C" cudaError_t kernel_image_statistics(const NormTensors *tensors, const NormRunning *running,
                                               const void *scratch, cudaStream_t stream)
{
    const DeviceTensor *x = tensors->x;
    if (!all_f32({tensors->mean, tensors->inverse_deviation, running->mean, running->var, running->bias}))
        return cudaErrorNotSupported;
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        const FinishMoments<T> finish = {data_of<T>(x), moments_of(tensors, running)};
        finish_sums<2>(static_cast<const float *>(scratch), partials_of<T>(x, running->sampled_rows), x,
                       finish, stream);
    });
}

extern "C" cudaError_t kernel_image_means(const DeviceTensor *x, int64_t sampled_rows, double *means,
                                          const void *scratch, cudaStream_t stream)
{
    const double rows = (double)(sampled_rows ? sampled_rows : device_tensor_rows(x));
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        const FinishMeans<T> finish = {data_of<T>(x), 1 / rows, means, means + x->pitch};
        finish_sums<2>(static_cast<const float *>(scratch), partials_of<T>(x, sampled_rows), x, finish,
                       stream);
    });
}

extern "C" cudaError_t kernel_norm_squeeze(const NormTensors *tensors, const DeviceTensor *y,
                                           const DeviceTensor *image_means, const void *scratch,
                                           cudaStream_t stream)
{
    const DeviceTensor *x = tensors->x;
    if (!all_f32({tensors->weight, tensors->bias, tensors->mean, tensors->inverse_deviation, image_means}) ||
        y->element != x->element || y->pitch != x->pitch)
        return cudaErrorNotSupported;
    const NormActivation none = {};
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        Squeeze<T> squeeze = {};
        squeeze.sums = image_sums<T>(x, scratch);
        squeeze.norm = norm_of(tensors, &none);
        squeeze.x = data_of<T>(x);
        squeeze.y = data_of<T>(y);
        squeeze.image_means = data_of<float>(image_means);
        squeeze.inverse_pixels = (double)x->shape[0] / (double)device_tensor_rows(x);
        squeeze.images = x->shape[0];
        squeeze.channels = (int)device_tensor_channels(x);
        squeeze_kernel<<<blocks_for(squeeze.images * x->pitch), block_threads, 0, stream>>>(squeeze);
    });
}

extern "C" cudaError_t kernel_norm_gate(const NormTensors *tensors, const NormActivation *activation,
                                        const DeviceTensor *factors, const DeviceTensor *addend,
                                        const DeviceTensor *y, cudaStream_t stream)
{
    if (!all_f32({tensors->weight, tensors->bias, tensors->mean, tensors->inverse_deviation, factors}) ||
        (activation->op && activation->op != OP_RELU))
        return cudaErrorNotSupported;
    return with_storage(y, [&](auto zero) {
        using T = decltype(zero);
        if (addend)
            gate<T, Addend::like_x>(tensors, activation, factors, addend, y, stream);
        else
            gate<T, Addend::none>(tensors, activation, factors, addend, y, stream);
    });
}

extern "C" cudaError_t kernel_norm_gate_backward(const NormGradient *gradient, const NormTensors *tensors,
                                                 const NormActivation *activation,
                                                 const DeviceTensor *dfactors, const DeviceTensor *sums,
                                                 void *scratch, cudaStream_t stream)
{
    const DeviceTensor *x = tensors->x;
    const bool has_relu = activation->op == OP_RELU;
    if (!all_f32(
            {tensors->weight, tensors->bias, tensors->mean, tensors->inverse_deviation, dfactors, sums}) ||
        (activation->op && !has_relu) || (gradient->y != nullptr) != has_relu ||
        (!gradient->g && (gradient->dy2 || has_relu)))
        return cudaErrorNotSupported;
    const Norm norm = norm_of(tensors, activation);
    return with_storage(gradient->dy, [&](auto zero) {
        using T = decltype(zero);
        gate_sums<T>(gradient, tensors, norm, scratch, stream);
        const GateSums gate = {image_sums<T>(x, scratch), norm,        data_of<float>(dfactors),
                               data_of<float>(sums),      x->shape[0], (int)device_tensor_channels(x)};
        gate_sums_kernel<<<blocks_for(gate.images * gate.channels), block_threads, 0, stream>>>(gate);
    });
}

extern "C" cudaError_t kernel_norm_squeeze_backward(const NormSqueezeGradient *gradient,
                                                    const NormTensors *tensors, cudaStream_t stream)
{
    if (!all_f32({tensors->weight, tensors->mean, tensors->inverse_deviation, gradient->factors,
                  gradient->sums, gradient->image_means, gradient->dweight, gradient->dbias}) ||
        gradient->dy->pitch != tensors->x->pitch)
        return cudaErrorNotSupported;
    return with_storage(gradient->g, [&](auto zero) {
        using T = decltype(zero);
        if (gradient->part != NORM_GRADIENT_X)
            squeeze_sums<T>(gradient, tensors, stream);
        if (gradient->part != NORM_GRADIENT_SUMS && gradient->dx)
            squeeze_backward<T>(gradient, tensors, stream);
    });
}
