/* kernels_norm.h - by channel, and sums over rows (batch_norm.cu). Rules: kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_NORM_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_NORM_H

#include "trainer/backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of scratch memory for any one of the functions below that take some, on a tensor of x's shape. */
uint64_t kernel_column_scratch_bytes(const DeviceTensor *x);

/* y[.., c] += bias[c] */
cudaError_t kernel_add_bias(const DeviceTensor *y, const DeviceTensor *bias, cudaStream_t stream);

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

/* mean, inverse_deviation = 1 / sqrt(variance + epsilon), of the batch; moves the running statistics by
 * momentum (with the unbiased variance). */
cudaError_t kernel_batch_norm_statistics(const NormTensors *tensors, double epsilon, double momentum,
                                         const DeviceTensor *running_mean, const DeviceTensor *running_var,
                                         void *scratch, cudaStream_t stream);
/* mean, inverse_deviation from the running statistics. */
cudaError_t kernel_batch_norm_running(const DeviceTensor *running_mean, const DeviceTensor *running_var,
                                      double epsilon, const NormTensors *tensors, cudaStream_t stream);
/* y = activation(x^ * weight + bias + addend), x^ = (x - mean) * inverse_deviation. addend may be NULL. */
cudaError_t kernel_batch_norm_apply(const NormTensors *tensors, const NormActivation *activation,
                                    const DeviceTensor *addend, const DeviceTensor *y, cudaStream_t stream);
/* With g = dy through the activation: dbias = sum g, dweight = sum g * x^, daddend = g, and, through the
 * batch's statistics (Ioffe and Szegedy 2015, section 3), dx = weight * inverse_deviation * (g - (dbias + x^
 * * dweight) / rows); without batch_statistics, dx = weight * inverse_deviation * g. y: the result, where
 * there was an addend, else NULL. dx and daddend may be NULL. */
cudaError_t kernel_batch_norm_backward(const DeviceTensor *dy, const NormTensors *tensors,
                                       const NormActivation *activation, const DeviceTensor *y,
                                       bool batch_statistics, const DeviceTensor *dx,
                                       const DeviceTensor *dweight, const DeviceTensor *dbias,
                                       const DeviceTensor *daddend, void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
