/* kernels_loss.h - losses (loss.cu, target_loss.cu, pixel_loss.cu, mask_loss.cu). All tensors except
 * labels and masks are float32. Rules: kernels.h.
 *
 * arrivals: one number in device memory, 0 before the first call; each call leaves it 0. Calls that may
 * overlap need one each. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_LOSS_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_LOSS_H

#include "trainer/backend/cuda/kernels/kernels.h"
#include "trainer/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The targets of samples. A target has the share mix (1 without mixing) at its label and the rest at the
 * other label, both times 1 - smoothing, plus smoothing / K everywhere. A sample whose label is -1 does not
 * count. If a label names no class, or a share is not within 0..1, loss and gradient are NaN (program_write
 * refuses such labels; nothing outside the logits is read). weights: as graph_class_loss says. */
typedef struct ClassTargets {
    const DeviceTensor *labels, *labels_mixed; /* i64 [N] */
    const DeviceTensor *mix;                   /* f32 [N]; labels_mixed and mix NULL: samples are not mixed */
    const DeviceTensor *weights;               /* f32 [K], or NULL: 1 each */
    double smoothing, threshold;
    bool binary; /* each class by itself; else the softmax of all */
    /* binary: targets above the threshold become 1, others 0; the mean is not over classes */
    bool binarizes, sums;
} ClassTargets;

uint64_t kernel_class_loss_scratch_bytes(const DeviceTensor *logits);
/* Computes loss [1], the mean over samples that count, by their weights (binary: and over classes), and
 * probabilities [N, K], both in f32 also of narrow logits. One launch. */
cudaError_t kernel_class_loss(const ClassTargets *targets, const DeviceTensor *logits,
                              const DeviceTensor *loss, const DeviceTensor *probabilities, void *scratch,
                              unsigned *arrivals, cudaStream_t stream);
/* Computes dlogits = dloss / (samples that count, binary: times classes) * (probabilities - target), each by
 * its weight; 0 for samples that do not count, and in the padding of narrow dlogits. dlogits of f32 may be
 * probabilities. */
cudaError_t kernel_class_loss_backward(const ClassTargets *targets, const DeviceTensor *dloss,
                                       const DeviceTensor *probabilities, const DeviceTensor *dlogits,
                                       cudaStream_t stream);

/* The operands of graph_target_loss. x, targets: f32 [N, K]; valid: f32 [N]; weights, positive_weights: f32
 * [K], or NULL: 1 each. */
typedef struct RowTargets {
    const DeviceTensor *x, *targets, *valid, *weights, *positive_weights;
    TargetLoss loss;
} RowTargets;

uint64_t kernel_target_loss_scratch_bytes(const DeviceTensor *x);
/* Computes loss [1]. One launch; reads 8 bytes for a value. */
cudaError_t kernel_target_loss(const RowTargets *rows, const DeviceTensor *loss, void *scratch,
                               unsigned *arrivals, cudaStream_t stream);
/* Computes dx [N, K], 0 for samples that do not count; dx may be x. */
cudaError_t kernel_target_loss_backward(const RowTargets *rows, const DeviceTensor *dloss,
                                        const DeviceTensor *dx, cudaStream_t stream);

/* Images [N, H, W, C] for the formulas of graph_pixel_loss. valid: f32 [N], or NULL. */
typedef struct PixelImages {
    const DeviceTensor *prediction, *target, *valid;
    LossKind kind;
} PixelImages;

uint64_t kernel_pixel_loss_scratch_bytes(const DeviceTensor *prediction);
/* Computes loss [1], and errors [N], the mean squared difference of each image. One launch; reads 8 bytes for
 * a value. */
cudaError_t kernel_pixel_loss(const PixelImages *images, const DeviceTensor *loss, const DeviceTensor *errors,
                              void *scratch, unsigned *arrivals, cudaStream_t stream);
/* Computes the gradient; reads 8 bytes and writes 4 for a value. dprediction may be prediction or target. */
cudaError_t kernel_pixel_loss_backward(const PixelImages *images, const DeviceTensor *dloss,
                                       const DeviceTensor *errors, const DeviceTensor *dprediction,
                                       cudaStream_t stream);

/* The operands of graph_mask_loss: logits [N, H, W, K]; mask u8 [N, H, W, 1], whose values are classes or
 * GRAPH_MASK_IGNORED (program_write refuses others; where they come nonetheless, the pixel does not count);
 * valid [N], or NULL. */
typedef struct MaskImages {
    const DeviceTensor *logits, *mask, *valid;
    double smoothing;
} MaskImages;

uint64_t kernel_mask_loss_scratch_bytes(const DeviceTensor *mask);
/* Computes loss [1], classes u8 [N, H, W, 1] and sums [N, 3]. One launch; reads 4 K + 1 and writes 1 byte for
 * a pixel. */
cudaError_t kernel_mask_loss(const MaskImages *images, const DeviceTensor *loss, const DeviceTensor *classes,
                             const DeviceTensor *sums, void *scratch, unsigned *arrivals,
                             cudaStream_t stream);
/* Computes the gradient; reads 4 K + 1 and writes 4 K bytes for a pixel. dlogits may be logits. */
cudaError_t kernel_mask_loss_backward(const MaskImages *images, const DeviceTensor *dloss,
                                      const DeviceTensor *sums, const DeviceTensor *dlogits,
                                      cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
