/* kernels_excite.h - the layers of squeeze and excitation, between what is squeezed and the gates (excite.cu,
 * excite_weights.cu). Rules: kernels.h. x is [N, C], a layer's hidden numbers [N, H].
 *
 *   sums = x weight1' + bias1,  hidden = activation(sums),  gates = sigmoid(hidden weight2' + bias2)
 *
 * x, the weights, sums, hidden and all gradients but those of gates and biases have one storage type; gates,
 * biases and their gradients are float32. What the passes of each layer alone would round is rounded: sums,
 * hidden, and what the sigmoid is of. C is at most 8192 and H at most 256. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_EXCITE_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_EXCITE_H

#include "trainer/backend/cuda/kernels/kernels.h"
#include "trainer/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ExciteLayers {
    const DeviceTensor *weight1, *weight2; /* [H, C], [C, H] */
    const DeviceTensor *bias1, *bias2;     /* not read backward */
    OpKind activation;                     /* OP_RELU, OP_GELU, OP_SILU or OP_MISH */
} ExciteLayers;

cudaError_t kernel_excite(const DeviceTensor *x, const ExciteLayers *layers, const DeviceTensor *gates,
                          const DeviceTensor *sums, const DeviceTensor *hidden, cudaStream_t stream);

/* What goes backward: the gradient of gates becomes that of what the sigmoid is of, logits; of sums; of x. */
typedef struct ExciteGradient {
    const DeviceTensor *dgates, *gates, *sums;
    const DeviceTensor *dlogits, *dsums, *dx; /* written */
} ExciteGradient;
cudaError_t kernel_excite_backward(const ExciteGradient *gradient, const ExciteLayers *layers,
                                   cudaStream_t stream);

/* Gradients of a layer: weight = left' right, bias = the sums of left's columns; either may be NULL. */
typedef struct ExciteWeights {
    const DeviceTensor *left, *right; /* dsums and x, or dlogits and hidden */
    const DeviceTensor *weight, *bias;
} ExciteWeights;
/* Computes those of both layers. */
cudaError_t kernel_excite_weights(const ExciteWeights layers[2], cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
