/* scaled_filter.cu - filters times a factor for each output, and back: see kernels_scaled_filter.h.
 *
 * Filters are small beside images: a thread or a warp has few elements, and the launch is most of the
 * time. */
#include "trainer/backend/cuda/kernels/kernels_common.cuh"
#include "trainer/backend/cuda/kernels/kernels_reduce.cuh"
#include "trainer/backend/cuda/kernels/kernels_scaled_filter.h"

using namespace fshard;

namespace
{

constexpr int channels_multiple = 8;
constexpr int warp_threads = 32;

/* The filter's numbers; bias may be NULL. */
struct Filter {
    const float *weight, *bias, *factors;
    int outputs, channels;
};

Filter filter_of(const ScaledFilter *filter)
{
    Filter of = {};
    of.weight = data_of<float>(filter->weight);
    of.bias = filter->bias ? data_of<float>(filter->bias) : nullptr;
    of.factors = data_of<float>(filter->factors);
    of.outputs = (int)filter->weight->shape[0];
    of.channels = (int)device_tensor_channels(filter->weight);
    return of;
}

/* Returns whether the tensor has a number for each output of the filter, or is absent where there is no
 * bias. */
bool is_of_outputs(const ScaledFilter *filter, const DeviceTensor *tensor, bool is_bias)
{
    return is_bias && !filter->bias ? !tensor
                                    : tensor && device_tensor_count(tensor) == filter->weight->shape[0];
}

bool is_like_weight(const ScaledFilter *filter, const DeviceTensor *tensor)
{
    return device_tensor_count(tensor) == device_tensor_count(filter->weight) &&
           tensor->pitch == device_tensor_channels(filter->weight);
}

bool filter_fits(const ScaledFilter *filter)
{
    const DeviceTensor *weight = filter->weight;
    return is_f32(weight) && is_f32(filter->bias) && is_f32(filter->factors) &&
           is_like_weight(filter, weight) && is_of_outputs(filter, filter->factors, false) &&
           is_of_outputs(filter, filter->bias, true) &&
           device_tensor_channels(weight) % channels_multiple == 0 &&
           weight->shape[0] % channels_multiple == 0 &&
           device_tensor_count(weight) == weight->shape[0] * device_tensor_channels(weight) &&
           device_tensor_count(weight) <= INT32_MAX;
}

/* A thread scales eight weights of an output; the first of an output its bias, too. */
template <typename T> __global__ void scale_kernel(const __grid_constant__ Filter filter, T *weight, T *bias)
{
    const int first = (int)(blockIdx.x * block_threads + threadIdx.x) * channels_multiple;
    if (first >= filter.outputs * filter.channels)
        return;
    const int output = first / filter.channels;
    const float factor = filter.factors[output];
#pragma unroll
    for (int half = 0; half < channels_multiple; half += 4) {
        float values[4];
        load<4>(filter.weight + first + half, values);
#pragma unroll
        for (int k = 0; k < 4; k++)
            values[k] *= factor;
        store<4>(weight + first + half, values);
    }
    if (bias && first % filter.channels == 0)
        bias[output] = (T)(filter.bias[output] * factor);
}

/* A warp has an output. */
__global__ void scale_backward_kernel(const __grid_constant__ Filter filter, float *dweight, float *dbias,
                                      float *dfactors)
{
    const int output = (int)(blockIdx.x * block_warps + threadIdx.x / warp_threads);
    const int lane = (int)threadIdx.x % warp_threads;
    if (output >= filter.outputs)
        return;
    const float factor = filter.factors[output];
    const int begin = output * filter.channels, end = begin + filter.channels;
    float sum = 0;
    for (int at = begin + lane * 4; at < end; at += warp_threads * 4) {
        float weights[4], gradients[4];
        load<4>(filter.weight + at, weights);
        load<4>(dweight + at, gradients);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            sum = fmaf(weights[k], gradients[k], sum);
            gradients[k] *= factor;
        }
        store<4>(dweight + at, gradients);
    }
    sum = warp_sum(sum);
    if (lane > 0)
        return;
    if (dbias) {
        sum = fmaf(filter.bias[output], dbias[output], sum);
        dbias[output] *= factor;
    }
    dfactors[output] = sum;
}

} // namespace

extern "C" cudaError_t kernel_scale_filter(const ScaledFilter *filter, const DeviceTensor *scaled_weight,
                                           const DeviceTensor *scaled_bias, cudaStream_t stream)
{
    if (!filter_fits(filter) || !is_like_weight(filter, scaled_weight) ||
        !is_of_outputs(filter, scaled_bias, true) ||
        (scaled_bias && scaled_bias->element != scaled_weight->element))
        return cudaErrorNotSupported;
    return with_storage(scaled_weight, [&](auto zero) {
        using T = decltype(zero);
        const int64_t threads = device_tensor_count(filter->weight) / channels_multiple;
        scale_kernel<T><<<blocks_for(threads), block_threads, 0, stream>>>(
            filter_of(filter), data_of<T>(scaled_weight), scaled_bias ? data_of<T>(scaled_bias) : nullptr);
    });
}

extern "C" cudaError_t kernel_scale_filter_backward(const ScaledFilter *filter, const DeviceTensor *dweight,
                                                    const DeviceTensor *dbias, const DeviceTensor *dfactors,
                                                    cudaStream_t stream)
{
    if (!filter_fits(filter) || !is_f32(dweight) || !is_f32(dbias) || !is_f32(dfactors) ||
        !is_like_weight(filter, dweight) || !is_of_outputs(filter, dbias, true) ||
        !is_of_outputs(filter, dfactors, false))
        return cudaErrorNotSupported;
    const int64_t threads = filter->weight->shape[0] * warp_threads;
    scale_backward_kernel<<<blocks_for(threads), block_threads, 0, stream>>>(
        filter_of(filter), data_of<float>(dweight), dbias ? data_of<float>(dbias) : nullptr,
        data_of<float>(dfactors));
    return cudaGetLastError();
}
