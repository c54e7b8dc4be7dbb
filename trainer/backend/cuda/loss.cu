/* loss.cu - softmax cross-entropy with label smoothing. One warp for each sample; the samples' losses meet in
 * one block, in a fixed order. Logits may be of any storage type, what comes out is float32: there is little
 * of it, and it must be exact. */
#include "trainer/backend/cuda/kernels_common.cuh"
#include "trainer/backend/cuda/kernels_loss.h"

using namespace fshard;

namespace
{

constexpr int warps = block_threads / 32;
constexpr int64_t no_label = -1; /* a padded sample of a last batch */

__device__ float warp_max(float value)
{
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, offset));
    return value;
}

__device__ float warp_sum(float value)
{
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xFFFFFFFFU, value, offset);
    return value;
}

/* program_write refuses labels that name no class; should one come by another way, the loss is NaN, and nothing beside the logits
 * is read. */
__device__ float target_of(int64_t label, int k, int classes, float smoothing)
{
    if (label < 0 || label >= classes)
        return NAN;
    return (k == (int)label ? 1 - smoothing : 0) + smoothing / (float)classes;
}

template <typename T>
__global__ void sample_loss_kernel(const T *logits, const int64_t *labels, int64_t samples, int classes,
                                   float smoothing, float *probabilities, float *sample_loss)
{
    int64_t sample = (int64_t)blockIdx.x * warps + threadIdx.x / 32;
    int lane = (int)threadIdx.x % 32;
    if (sample >= samples)
        return;
    const T *x = logits + sample * classes;
    float *p = probabilities + sample * classes;
    float greatest = -INFINITY, exponentials = 0, sum = 0;
    for (int k = lane; k < classes; k += 32)
        greatest = fmaxf(greatest, (float)x[k]);
    greatest = warp_max(greatest);
    for (int k = lane; k < classes; k += 32) {
        float exponential = expf((float)x[k] - greatest);
        p[k] = exponential;
        exponentials += exponential;
        sum += (float)x[k] - greatest;
    }
    exponentials = warp_sum(exponentials);
    sum = warp_sum(sum);
    for (int k = lane; k < classes; k += 32)
        p[k] /= exponentials;
    if (lane > 0)
        return;
    int64_t label = labels[sample];
    float log_exponentials = logf(exponentials), loss = 0;
    if (label < no_label || label >= classes)
        loss = NAN;
    else if (label != no_label)
        loss = -(1 - smoothing) * ((float)x[label] - greatest - log_exponentials) -
               smoothing * (sum / (float)classes - log_exponentials);
    sample_loss[sample] = loss;
}

/* The number of samples that count, in every thread of the block. */
__device__ int64_t count_labels(const int64_t *labels, int64_t samples)
{
    __shared__ int counts[block_threads];
    int thread = (int)threadIdx.x, count = 0;
    for (int64_t i = thread; i < samples; i += block_threads)
        count += labels[i] != no_label;
    counts[thread] = count;
    __syncthreads();
    for (int half = block_threads / 2; half > 0; half /= 2) {
        if (thread < half)
            counts[thread] += counts[thread + half];
        __syncthreads();
    }
    return counts[0];
}

__global__ void mean_loss_kernel(const float *sample_loss, const int64_t *labels, int64_t samples,
                                 float *loss)
{
    __shared__ double sums[block_threads];
    int thread = (int)threadIdx.x;
    double sum = 0;
    for (int64_t i = thread; i < samples; i += block_threads)
        sum += (double)sample_loss[i];
    sums[thread] = sum;
    __syncthreads();
    for (int half = block_threads / 2; half > 0; half /= 2) {
        if (thread < half)
            sums[thread] += sums[thread + half];
        __syncthreads();
    }
    int64_t count = count_labels(labels, samples);
    if (thread == 0)
        *loss = (float)(sums[0] / (double)(count > 0 ? count : 1));
}

template <typename T>
__global__ void loss_backward_kernel(const float *dloss, const float *probabilities, const int64_t *labels,
                                     int64_t samples, int classes, float smoothing, T *dlogits)
{
    int64_t count = count_labels(labels, samples);
    float scale = *dloss / (float)(count > 0 ? count : 1);
    int64_t threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < samples * classes; i += threads) {
        int64_t label = labels[i / classes];
        float gradient = 0;
        if (label != no_label)
            gradient = scale * (probabilities[i] - target_of(label, (int)(i % classes), classes, smoothing));
        dlogits[i] = (T)gradient;
    }
}

} // namespace

extern "C" uint64_t kernel_softmax_cross_entropy_scratch_bytes(const DeviceTensor *logits)
{
    return (uint64_t)logits->shape[0] * sizeof(float);
}

extern "C" cudaError_t kernel_softmax_cross_entropy(const DeviceTensor *logits, const DeviceTensor *labels,
                                                    float smoothing, const DeviceTensor *loss,
                                                    const DeviceTensor *probabilities, void *scratch,
                                                    cudaStream_t stream)
{
    int64_t samples = logits->shape[0];
    int classes = (int)logits->shape[1];
    float *sample_loss = static_cast<float *>(scratch);
    if (labels->element != ELEMENT_I64 || loss->element != ELEMENT_F32 ||
        probabilities->element != ELEMENT_F32)
        return cudaErrorNotSupported;
    return with_storage(logits, [&](auto zero) {
        using T = decltype(zero);
        sample_loss_kernel<T><<<(unsigned)((samples + warps - 1) / warps), block_threads, 0, stream>>>(
            data_of<T>(logits), data_of<int64_t>(labels), samples, classes, smoothing,
            data_of<float>(probabilities), sample_loss);
        mean_loss_kernel<<<1, block_threads, 0, stream>>>(sample_loss, data_of<int64_t>(labels), samples,
                                                          data_of<float>(loss));
    });
}

extern "C" cudaError_t kernel_softmax_cross_entropy_backward(const DeviceTensor *dloss,
                                                             const DeviceTensor *probabilities,
                                                             const DeviceTensor *labels, float smoothing,
                                                             const DeviceTensor *dlogits, cudaStream_t stream)
{
    int64_t samples = dlogits->shape[0];
    int classes = (int)dlogits->shape[1];
    if (labels->element != ELEMENT_I64 || dloss->element != ELEMENT_F32 ||
        probabilities->element != ELEMENT_F32)
        return cudaErrorNotSupported;
    return with_storage(dlogits, [&](auto zero) {
        using T = decltype(zero);
        loss_backward_kernel<T><<<grid_blocks(samples * classes), block_threads, 0, stream>>>(
            data_of<float>(dloss), data_of<float>(probabilities), data_of<int64_t>(labels), samples, classes,
            smoothing, data_of<T>(dlogits));
    });
}
