/* kernels_norm.h - batch norm, biases, and sums over rows for each channel (batch_norm.cu). Rules:
 * kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_NORM_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_NORM_H

#include "trainer/backend/cuda/kernels/kernels.h"
#include "trainer/backend/cuda/kernels/kernels_peers.h"
#include "trainer/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns scratch bytes that are enough for any function below, on a tensor of x's shape. */
uint64_t kernel_column_scratch_bytes(const DeviceTensor *x);

/* Computes v = y[.., c] + bias[c], then y[.., c] = v > 0 ? v : slope * v; slope 1: the sum alone. */
cudaError_t kernel_add_bias(const DeviceTensor *y, const DeviceTensor *bias, float slope,
                            cudaStream_t stream);

/* Computes sum[c] = sum of x[.., c], the gradient of a bias. */
cudaError_t kernel_column_sum(const DeviceTensor *x, const DeviceTensor *sum, void *scratch,
                              cudaStream_t stream);

/* Operands of a batch norm. */
typedef struct NormTensors {
    const DeviceTensor *x;             /* [.., C] */
    const DeviceTensor *weight, *bias; /* [C] f32 */
    const DeviceTensor *mean,
        *inverse_deviation; /* [C] f32: made of sums or running statistics here, read by apply and backward */
    /* u8 [.., C / 8] or NULL: bit c % 8 of value c / 8 is y[.., c] > 0. Written with a narrow y that has an
     * addend of as many channels, read in place of NormGradient.y. Rows have no padding. */
    const DeviceTensor *signs;
} NormTensors;
/* The activation that was fused into the norm, if any: what the node has as as.norm.activation. Functions
 * below return cudaErrorNotSupported for an op that is none of these. */
typedef struct NormActivation {
    OpKind op;   /* OP_RELU, or without an addend OP_GELU, OP_SILU, OP_MISH; 0: none */
    float slope; /* of OP_RELU, for values that are not above 0 */
} NormActivation;

/* Statistics over all batches, and how a batch changes them. */
typedef struct NormRunning {
    const DeviceTensor *mean, *var; /* [C] f32 */
    /* [C] f32 or NULL: bias of the layer before the norm. It is left out of x, since the norm subtracts it
     * again; only the running mean includes it. */
    const DeviceTensor *bias;
    double epsilon, momentum;
    int64_t sampled_rows; /* of x, its first, that the statistics are of; 0: all (graph_set_norm_sample) */
    uint64_t ranks;       /* whose rows the statistics are of, as many on each; 0: 1 */
    /* For kernel_batch_norm_forward: the ranks, which all enqueue it; NULL: this one alone. */
    const PeerBoxes *peers;
} NormRunning;

/* Computes sums [2, at least the pitch of x] f32, of x and of its squares over its rows, for the norm that
 * follows a convolution that cannot compute them itself. */
cudaError_t kernel_channel_sums(const DeviceTensor *x, const DeviceTensor *sums, void *scratch,
                                cudaStream_t stream);
/* Computes mean and inverse_deviation from the running statistics. */
cudaError_t kernel_batch_norm_running(const NormTensors *tensors, const NormRunning *running,
                                      cudaStream_t stream);
/* Computes y = activation(x^ * weight + bias + addend) with x^ = (x - mean) * inverse_deviation. addend may
 * be NULL, and may have fewer channels than x: the missing ones add 0. */
cudaError_t kernel_batch_norm_apply(const NormTensors *tensors, const NormActivation *activation,
                                    const DeviceTensor *addend, const DeviceTensor *y, cudaStream_t stream);

/* Computes mean and inverse_deviation = 1 / sqrt(variance + epsilon) of the batch, moves the running
 * statistics by momentum (with the unbiased variance), and then does what kernel_batch_norm_apply does; for
 * small images in one launch (rows_whole.cuh). With peers there is only that one launch, which exchanges the
 * statistics too: cudaErrorNotSupported, and nothing is done, where it does not suit the shape or the card,
 * which ranks have alike (peer_exchange.h); a launch that fails on this rank alone is an error. */
cudaError_t kernel_batch_norm_forward(const NormTensors *tensors, const NormRunning *running,
                                      const NormActivation *activation, const DeviceTensor *addend,
                                      const DeviceTensor *y, void *scratch, cudaStream_t stream);

/* Returns whether kernel_batch_norm_forward is one launch for an x of this shape on the current device. It is
 * not for narrower addends in f32, and on a device whose shared memory is less than one line takes. */
bool kernel_batch_norm_is_whole(const DeviceTensor *x);

/* Does what kernel_batch_norm_forward does, in one launch, if the sums of x are known (from
 * kernel_channel_sums or a convolution); of several ranks: their means over the ranks. */
cudaError_t kernel_batch_norm_apply_sums(const NormTensors *tensors, const NormRunning *running,
                                         const DeviceTensor *sums, const NormActivation *activation,
                                         const DeviceTensor *addend, const DeviceTensor *y,
                                         cudaStream_t stream);

/* Computes the means of x and of its square over its first sampled_rows rows (0: all), f64 [2, the pitch of
 * x]: the first part of kernel_batch_norm_forward where the statistics are those of several ranks. */
cudaError_t kernel_batch_norm_means(const DeviceTensor *x, int64_t sampled_rows, double *means, void *scratch,
                                    cudaStream_t stream);
/* Makes mean and inverse_deviation of the means of these over the ranks, and moves the running statistics:
 * the second part; kernel_batch_norm_apply is the third. */
cudaError_t kernel_batch_norm_statistics(const NormTensors *tensors, const NormRunning *running,
                                         const double *means, cudaStream_t stream);

/* What kernel_batch_norm_backward makes: all; or dweight, dbias, g and zero; or dx from them. In between
 * dweight and dbias may become their means over ranks that have as many rows: dx is then that of the joint
 * rows. */
typedef enum NormGradientPart { NORM_GRADIENT_ALL, NORM_GRADIENT_SUMS, NORM_GRADIENT_X } NormGradientPart;

/* What the gradient reads and writes, with g = dy + dy2 through the activation: dbias = sum g, dweight = sum
 * g * x^. Through the batch's statistics (Ioffe and Szegedy 2015, section 3) dx = weight * inverse_deviation
 * * (g - (dbias + x^ * dweight) / rows); without batch_statistics dx = weight * inverse_deviation * g.
 *
 * With sampled_rows the statistics are of x's first rows: only these pass a gradient through them, and rows
 * is their number. dx of the others needs no sums, so the launch that makes these writes it too. */
typedef struct NormGradient {
    const DeviceTensor *dy;
    /* or NULL; with it g must not be NULL; channels that x does not have are ignored. In 16 bits, with as
     * many channels and OP_RELU or no activation, it may have every second row and column alone of x [N, H,
     * W, C], from the first on: [N, (H + 1) / 2, (W + 1) / 2, C]; it adds 0 to the others. */
    const DeviceTensor *dy2;
    const DeviceTensor
        *y; /* the result if there was an addend, since x alone does not tell where the activation was on;
             * else, and where there are signs, NULL */
    const DeviceTensor *dx; /* or NULL; may be x, y, dy, or a dy2 of as many channels */
    const DeviceTensor *g;  /* NULL only without activation, or with OP_RELU and no signs; also the gradient
                            * of the addend; may be y, dy, or a dy2 of as many channels */
    const DeviceTensor *dweight, *dbias;
    const DeviceTensor *zero; /* [C] f32 or NULL: set to zeros, the gradient of NormRunning.bias */
    bool batch_statistics;
    int64_t sampled_rows; /* as in NormRunning; with batch_statistics */
    NormGradientPart part;
    const PeerBoxes *peers; /* or NULL; with all parts, as in NormRunning: cudaErrorNotSupported */
} NormGradient;
cudaError_t kernel_batch_norm_backward(const NormGradient *gradient, const NormTensors *tensors,
                                       const NormActivation *activation, void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
