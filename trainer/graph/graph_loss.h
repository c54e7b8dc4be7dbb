/* graph_loss.h - the losses of a graph, and the calls that append them; the last part of graph_ops.h. */
#ifndef FSHARD_TRAINER_GRAPH_GRAPH_LOSS_H
#define FSHARD_TRAINER_GRAPH_GRAPH_LOSS_H

#include "trainer/graph/graph_tensor.h"

typedef enum LossKind {
    LOSS_CROSS_ENTROPY, /* of classes: see graph_softmax_cross_entropy */
    LOSS_BCE,
    LOSS_L1, /* of images: see graph_pixel_loss */
    LOSS_CHARBONNIER,
    LOSS_MSE,
    LOSS_PSNR,
    LOSS_HUBER, /* of numbers: see graph_target_loss */
    LOSS_KIND_COUNT
} LossKind;
/* "cross-entropy", "bce", "l1", "charbonnier", "mse", "psnr", "huber", NULL */
extern const char *const loss_names[];
/* A loss of rows of targets: see graph_target_loss. */
typedef struct TargetLoss {
    LossKind kind;
    float smoothing, threshold; /* LOSS_BCE */
    bool binarizes, sums;       /* sums: over the columns; else their mean */
} TargetLoss;

/* ---- building, as graph_ops.h says ---- */

/* Returns the mean [1] of -sum target log softmax(logits) over the samples whose label is not -1 (a padded
 * sample of a last batch). logits [N, K], labels [N] i64. The target is 1 - smoothing at the label, plus
 * smoothing / K everywhere, as PyTorch's label_smoothing. Where labels_mixed is given (mixup, cutmix), the
 * label has mix [N] f32 of the 1 - smoothing, and the label in labels_mixed the rest. labels_mixed and mix:
 * both or TENSOR_NONE; a label in labels_mixed may be -1 where mix is 1. 0 <= smoothing < 1. */
TensorId graph_softmax_cross_entropy(Graph *graph, TensorId logits, TensorId labels, TensorId labels_mixed,
                                     TensorId mix, float smoothing);
/* What the samples of a loss of classes shall be. */
typedef struct ClassTargetsOf {
    TensorId labels, labels_mixed, mix; /* as graph_softmax_cross_entropy's */
    TensorId weights;                   /* [K] f32 >= 0, or TENSOR_NONE: 1 */
    float smoothing;
    /* LOSS_BCE, timm's BinaryCrossEntropy: with binarizes, targets above the threshold, 0 to 1, become 1 and
     * others 0; with sums the loss is summed over the classes, and its mean is that over the samples */
    float threshold;
    bool binarizes, sums;
} ClassTargetsOf;
/* Returns a loss of classes: the one above (LOSS_CROSS_ENTROPY), or the mean over samples and classes of
 * binary cross-entropy with logits (LOSS_BCE; timm's BinaryCrossEntropy), whose target is the same. Both with
 * weights of classes as PyTorch's CrossEntropyLoss and BCEWithLogitsLoss have them: cross-entropy is -sum
 * weights target log softmax(logits), divided by the sum of the samples' weights, which are those of their
 * labels in their shares; binary cross-entropy multiplies each class by its weight, and stays a mean. */
TensorId graph_class_loss(Graph *graph, LossKind kind, TensorId logits, const ClassTargetsOf *targets);
/* The operands of graph_target_loss. */
typedef struct RowTargetsOf {
    TensorId targets;          /* [N, K] f32 */
    TensorId valid;            /* [N] f32: 1, or 0: the sample does not count */
    TensorId weights;          /* [K] f32 >= 0, or TENSOR_NONE: 1 */
    TensorId positive_weights; /* LOSS_BCE: the same */
    TargetLoss loss;
} RowTargetsOf;
/* Returns the mean [1] over samples that count and columns of a loss of x [N, K] f32 beside its targets, each
 * column times its weight: of several labels, or of numbers.
 *
 *   LOSS_BCE   -(p t log s(x) + (1 - t) log(1 - s(x))), s the sigmoid, p the positive weight, as PyTorch's
 *              BCEWithLogitsLoss; t is target (1 - smoothing) + smoothing / 2, as Keras has it for several
 *              labels, and then, where it binarizes, 1 above the threshold and else 0
 *   LOSS_MSE d^2;  LOSS_L1 |d|;  LOSS_HUBER d^2 / 2 up to |d| = 1, from there |d| - 1 / 2;  d = x - target */
TensorId graph_target_loss(Graph *graph, TensorId x, const RowTargetsOf *targets);
/* Returns the mean [1] over images [N, H, W, C] f32, each weighted by valid [N] f32 (TENSOR_NONE: 1; 0 leaves
 * a padded image out), of a loss of d = prediction - target:
 *
 *   LOSS_L1 mean |d|;  LOSS_CHARBONNIER mean sqrt(d^2 + 1e-6);  LOSS_MSE mean d^2;
 *   LOSS_PSNR 10 / ln 10 * ln(mean d^2 + 1e-8)                               NAFNet's PSNRLoss
 *
 * The second output of the node, the mean of d^2 of each image, can be kept: graph_pixel_loss_error. */
TensorId graph_pixel_loss(Graph *graph, TensorId prediction, TensorId target, TensorId valid, LossKind kind);
/* Returns the squared error [N] that belongs to a loss of graph_pixel_loss. */
TensorId graph_pixel_loss_error(Graph *graph, TensorId loss);

enum { GRAPH_MASK_IGNORED = 255 }; /* a value of masks that is no class: the pixel does not count */
/* Returns the cross-entropy [1] of the pixels of images: of logits [N, H, W, K], K at most 255, with the
 * classes of mask [N, H, W, 1] u8; the mean over all pixels that count, of images weighted by valid [N] f32
 * (TENSOR_NONE: 1; 0 leaves a padded image out). 0 where no pixel counts. Targets are smoothed as in
 * graph_class_loss. PyTorch's CrossEntropyLoss(ignore_index=255, label_smoothing=smoothing). */
TensorId graph_mask_loss(Graph *graph, TensorId logits, TensorId mask, TensorId valid, float smoothing);
/* Return what else the node of a graph_mask_loss has made: of each pixel the class with the highest logit
 * (the lower one of equals; NaN is below every number), [N, H, W, 1] u8; and [N, 3] f32, MASK_SUM_LOSS
 * and so on. */
TensorId graph_mask_loss_classes(Graph *graph, TensorId loss);
TensorId graph_mask_loss_sums(Graph *graph, TensorId loss);

#endif
