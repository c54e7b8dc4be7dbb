/* kernels_norm.h - by channel, and sums over rows (batch_norm.cu). Rules: kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_NORM_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_NORM_H

#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of scratch memory for any one of the functions below that take some, on a tensor of x's shape. */
uint64_t kernel_column_scratch_bytes(const DeviceTensor *x);

/* y[.., c] = v > 0 ? v : slope * v, v = y[.., c] + bias[c]; slope 1: the sum alone. */
cudaError_t kernel_add_bias(const DeviceTensor *y, const DeviceTensor *bias, float slope,
                            cudaStream_t stream);

/* sum[c] = sum of x[.., c]: the gradient of a bias. */
cudaError_t kernel_column_sum(const DeviceTensor *x, const DeviceTensor *sum, void *scratch,
                              cudaStream_t stream);

/* What a batch norm works with. */
typedef struct NormTensors {
    const DeviceTensor *x;             /* [.., C] */
    const DeviceTensor *weight, *bias; /* [C] f32 */
    const DeviceTensor *mean,
        *inverse_deviation; /* [C] f32: made by one of the two functions below, read by the others */
} NormTensors;
/* The activation that is part of the node, if one is. */
typedef struct NormActivation {
    bool relu;
    float slope; /* where the value is not above 0 */
} NormActivation;

/* Beside the batch's statistics: those over all batches, and what they are made with. */
typedef struct NormRunning {
    const DeviceTensor *mean, *var; /* [C] f32 */
    /* [C] f32 or NULL: the bias of the layer in front, left out of x, since the norm takes it away again: the
     * running mean alone moves by it. */
    const DeviceTensor *bias;
    double epsilon, momentum;
} NormRunning;

/* mean, inverse_deviation = 1 / sqrt(variance + epsilon), of the batch; moves the running statistics by
 * momentum (with the unbiased variance). */
cudaError_t kernel_batch_norm_statistics(const NormTensors *tensors, const NormRunning *running,
                                         void *scratch, cudaStream_t stream);
/* sums [2, at least the pitch of x] f32, of x and of its square over its rows: what a convolution that cannot
 * make them itself does for the norm behind it. */
cudaError_t kernel_channel_sums(const DeviceTensor *x, const DeviceTensor *sums, void *scratch,
                                cudaStream_t stream);
/* mean, inverse_deviation from the running statistics. */
cudaError_t kernel_batch_norm_running(const NormTensors *tensors, const NormRunning *running,
                                      cudaStream_t stream);
/* y = activation(x^ * weight + bias + addend), x^ = (x - mean) * inverse_deviation. addend may be NULL, and
 * may have fewer channels than x: the others add 0. */
cudaError_t kernel_batch_norm_apply(const NormTensors *tensors, const NormActivation *activation,
                                    const DeviceTensor *addend, const DeviceTensor *y, cudaStream_t stream);

/* kernel_batch_norm_statistics and kernel_batch_norm_apply; of small images in one launch. */
cudaError_t kernel_batch_norm_forward(const NormTensors *tensors, const NormRunning *running,
                                      const NormActivation *activation, const DeviceTensor *addend,
                                      const DeviceTensor *y, void *scratch, cudaStream_t stream);

/* Whether that is one launch for an x of this shape, on the current device; but for narrower addends in f32,
 * and where the device has less shared memory than one line takes. */
bool kernel_batch_norm_is_whole(const DeviceTensor *x);

/* Statistics and apply in one, where the sums of x are there already (of kernel_channel_sums, or of a
 * convolution): makes mean and inverse_deviation, and moves the running statistics. */
cudaError_t kernel_batch_norm_apply_sums(const NormTensors *tensors, const NormRunning *running,
                                         const DeviceTensor *sums, const NormActivation *activation,
                                         const DeviceTensor *addend, const DeviceTensor *y,
                                         cudaStream_t stream);

/* What backward reads and makes, with g = dy + dy2 through the activation: dbias = sum g, dweight = sum g *
 * x^, and, through the batch's statistics (Ioffe and Szegedy 2015, section 3), dx = weight *
 * inverse_deviation * (g - (dbias + x^ * dweight) / rows); without batch_statistics, dx = weight *
 * inverse_deviation * g. */
typedef struct NormGradient {
    const DeviceTensor *dy;
    const DeviceTensor *dy2; /* or NULL; with it g must have a place; channels that x has not do not count */
    const DeviceTensor
        *y; /* the result, where there was an addend, which x alone does not tell of; else NULL */
    const DeviceTensor *dx; /* or NULL; may be dy, dy2 of as many channels, x or y */
    const DeviceTensor
        *g; /* or NULL; the gradient of the addend, too; may be dy, dy2 of as many channels or y */
    const DeviceTensor *dweight, *dbias;
    const DeviceTensor *zero; /* [C] f32 or NULL: gets zeros, the gradient of NormRunning.bias */
    bool batch_statistics;
} NormGradient;
cudaError_t kernel_batch_norm_backward(const NormGradient *gradient, const NormTensors *tensors,
                                       const NormActivation *activation, void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
