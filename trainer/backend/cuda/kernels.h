/* kernels.h - our own CUDA kernels: everything that is not a convolution or a matrix product.
 *
 * Each function enqueues one operation on a stream and returns the launch's cudaError_t; none allocates, none
 * synchronizes, so all can be captured. Activations are NHWC, packed. Arithmetic and sums are float32
 * whatever the storage is (partial sums are joined in float64). No atomics: every sum has one order, fixed by
 * the shapes, so the same input gives the same bits.
 *
 * Storage types: today activations, parameters and gradients are ELEMENT_F32. The kernels are templates over
 * the storage type; a call with a type that has no instance returns cudaErrorNotSupported. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ElementType { ELEMENT_F32, ELEMENT_U8, ELEMENT_I64 } ElementType;

/* A tensor in device memory. data: owned by the program or the state, 256-byte aligned. */
typedef struct DeviceTensor {
    void *data;
    ElementType element;
    int rank;
    int64_t shape[4]; /* in memory order, the last one dense: [N, H, W, C], [N, C], filters [O, kernel_h,
                         kernel_w, I] */
    bool is_filter;   /* OHWI here, OIHW to the graph */
} DeviceTensor;

typedef struct PoolShape {
    int kernel, stride, padding;
} PoolShape;

/* Elements; the last dimension; elements for each of those: rows of a matrix whose columns are channels. */
int64_t device_tensor_count(const DeviceTensor *tensor);
int64_t device_tensor_channels(const DeviceTensor *tensor);
int64_t device_tensor_rows(const DeviceTensor *tensor);

/* ---- one pass over a tensor (elementwise.cu)
 * ----------------------------------------------------------------------------- */

/* y = value everywhere */
cudaError_t kernel_fill(const DeviceTensor *y, float value, cudaStream_t stream);
/* y[.., c] = (x[.., c] - mean[c]) / deviation[c]; x u8, at most 4 channels. */
cudaError_t kernel_normalize(const DeviceTensor *x, const float *mean, const float *deviation,
                             const DeviceTensor *y, cudaStream_t stream);
/* y = x > 0 ? x : slope * x */
cudaError_t kernel_relu(const DeviceTensor *x, float slope, const DeviceTensor *y, cudaStream_t stream);
/* dx = y > 0 ? dy : slope * dy */
cudaError_t kernel_relu_backward(const DeviceTensor *dy, const DeviceTensor *y, float slope,
                                 const DeviceTensor *dx, cudaStream_t stream);
cudaError_t kernel_add(const DeviceTensor *a, const DeviceTensor *b, const DeviceTensor *y,
                       cudaStream_t stream);
/* [N, H, W, C] -> [N, C * H * W] in the order C, H, W; and back, for the gradient. */
cudaError_t kernel_flatten(const DeviceTensor *x, const DeviceTensor *y, cudaStream_t stream);
cudaError_t kernel_flatten_backward(const DeviceTensor *dy, const DeviceTensor *dx, cudaStream_t stream);

/* ---- by channel, and sums over rows (batch_norm.cu)
 * ---------------------------------------------------------------------- */

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

/* ---- windows (window.cu)
 * ------------------------------------------------------------------------------------------------- */

/* index u8, like y: where in its window the maximum lay, row * kernel + column, the first of equals; kernel
 * at most 16. */
cudaError_t kernel_max_pool(const DeviceTensor *x, const PoolShape *pool, const DeviceTensor *y,
                            const DeviceTensor *index, cudaStream_t stream);
cudaError_t kernel_max_pool_backward(const DeviceTensor *dy, const DeviceTensor *index, const PoolShape *pool,
                                     const DeviceTensor *dx, cudaStream_t stream);
/* The divisor is kernel * kernel, padding included. */
cudaError_t kernel_avg_pool(const DeviceTensor *x, const PoolShape *pool, const DeviceTensor *y,
                            cudaStream_t stream);
cudaError_t kernel_avg_pool_backward(const DeviceTensor *dy, const PoolShape *pool, const DeviceTensor *dx,
                                     cudaStream_t stream);
/* [N, H, W, C] -> [N, C] */
cudaError_t kernel_global_avg_pool(const DeviceTensor *x, const DeviceTensor *y, cudaStream_t stream);
cudaError_t kernel_global_avg_pool_backward(const DeviceTensor *dy, const DeviceTensor *dx,
                                            cudaStream_t stream);
/* By padding pixels on each side, smaller than height and width. */
cudaError_t kernel_reflection_pad(const DeviceTensor *x, int padding, const DeviceTensor *y,
                                  cudaStream_t stream);
cudaError_t kernel_reflection_pad_backward(const DeviceTensor *dy, int padding, const DeviceTensor *dx,
                                           cudaStream_t stream);

/* ---- loss and optimizer (loss.cu, optimizer.cu)
 * -------------------------------------------------------------------------- */

/* Bytes of scratch memory for kernel_softmax_cross_entropy. */
uint64_t kernel_softmax_cross_entropy_scratch_bytes(const DeviceTensor *logits);
/* loss [1] f32: the mean over samples whose label is not -1 of -sum target * log(probability), target = (1 -
 * smoothing) at the label plus smoothing / K everywhere; probabilities [N, K] f32. */
cudaError_t kernel_softmax_cross_entropy(const DeviceTensor *logits, const DeviceTensor *labels,
                                         float smoothing, const DeviceTensor *loss,
                                         const DeviceTensor *probabilities, void *scratch,
                                         cudaStream_t stream);
/* dlogits = dloss * (probabilities - target) / samples that count; 0 for the others. */
cudaError_t kernel_softmax_cross_entropy_backward(const DeviceTensor *dloss,
                                                  const DeviceTensor *probabilities,
                                                  const DeviceTensor *labels, float smoothing,
                                                  const DeviceTensor *dlogits, cudaStream_t stream);

/* A piece of a parameter with its gradient and momentum; SGD_PIECE elements at most. */
typedef struct SgdPiece {
    float *parameter, *momentum;
    const float *gradient;
    int32_t count;
    int32_t decays;
} SgdPiece;
enum { SGD_PIECE = 4096 };
typedef struct SgdConstants {
    float momentum, weight_decay;
    bool nesterov;
} SgdConstants;
/* What the update tells, f32 [1] each. */
typedef struct SgdResults {
    const DeviceTensor *gradient_norm, *updated; /* written: of all gradients together; 1 */
    const DeviceTensor *step;                    /* one more than before */
} SgdResults;
/* Bytes of scratch memory for kernel_sgd. */
uint64_t kernel_sgd_scratch_bytes(int64_t piece_count);
/* PyTorch's SGD over all pieces in one launch, and a small one for the results. pieces: in device memory. loss: NULL, or where
 * it is no number nothing is changed. */
cudaError_t kernel_sgd(const SgdPiece *pieces, int64_t piece_count, const SgdConstants *constants,
                       const DeviceTensor *learning_rate, const DeviceTensor *loss, const SgdResults *results,
                       void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
