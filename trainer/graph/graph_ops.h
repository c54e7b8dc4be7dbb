/* graph_ops.h - what a graph can compute: the kind of each op, the names of its operands, its attributes in a
 * node, and the call that appends it. What an op does with shapes, gradients and cost is its row in an op_*.c
 * file. */
#ifndef FSHARD_TRAINER_GRAPH_GRAPH_OPS_H
#define FSHARD_TRAINER_GRAPH_GRAPH_OPS_H

#include "trainer/graph/graph_loss.h"
#include "trainer/graph/graph_optimizer.h"
#include "trainer/graph/graph_tensor.h"

/* What each node reads and writes, in the order of Node.inputs and Node.outputs; `d` is "gradient of"; `?`
 * may be TENSOR_NONE. Activations have one float type in a node: that of its first input. Everything else is
 * f32 unless said; a convolution or matrix product in a narrower type reads its f32 weight rounded to it, and
 * adds up in f32. */
typedef enum OpKind {
    OP_FILL,      /* () -> y: as.fill.value everywhere */
    OP_CAST,      /* (x) -> y of another float type */
    OP_NORMALIZE, /* (x u8) -> y */
    /* (x, weight, bias?) -> y, sums? f32 [2, C up to STATISTICS_MULTIPLE]: of y over its pixels, and of its
     * square. y = activation(x * weight + bias). x is u8 with FUSE_NORMALIZE_CONV, and y of the compute type:
     * pixels that are normalized as OP_NORMALIZE does; so is that of OP_CONV2D_BACKWARD_WEIGHT. */
    OP_CONV2D,
    OP_CONV2D_BACKWARD_DATA,   /* (dy, weight) -> dx */
    OP_CONV2D_BACKWARD_WEIGHT, /* (dy, x) -> dweight, dbias? */
    OP_BIAS_BACKWARD,          /* (dy) -> dbias, of a layer whose weight is frozen */
    /* (x, weight, bias, running_mean, running_var, addend?, sums?, layer_bias?) -> y, mean, inverse_deviation
     * [C], and in training the buffers running_mean, running_var, written in place; signs? u8 [.., C / 8]:
     * bit c % 8 of value c / 8 is y[.., c] > 0. mean and inverse_deviation are what y was made with: y =
     * activation((x - mean) * inverse_deviation * weight + bias + addend). sums: of OP_CONV2D, of x.
     * layer_bias: of the layer in front, left out there, by which only running_mean moves. addend may have
     * fewer channels than x with FUSE_PAD_ADD. */
    OP_BATCH_NORM,
    /* (dy, x, weight, bias, mean, inverse_deviation, y?, dy2?) -> dx?, dweight, dbias, g?, dlayer_bias?. y is
     * there when there was an addend and an activation: it tells where that was on; signs in its place do
     * too. Without an addend, x tells. g: dy + dy2 through the activation, the gradient of the addend; it is
     * there with any other activation than OP_RELU, too, whose slope takes longer to compute twice than g to
     * store, and for an OP_NORM_POOL_BACKWARD. dlayer_bias is 0. dy2 may have more channels than x with
     * FUSE_PAD_ADD, and every second row and column alone, from the first on, with FUSE_GRADIENT_STRIDE; so
     * in OP_CONV_NORM_BACKWARD. */
    OP_BATCH_NORM_BACKWARD,
    /* What graph_fuse_backward makes of the data gradient of a convolution of 1 x 1 and the backward node of
     * the norm in front of it: (as OP_BATCH_NORM_BACKWARD, but dy [.., K] of the convolution's result;
     * conv_weight [K, C, 1, 1]) -> dx?, dweight, dbias, g, dlayer_bias?. Activation: OP_RELU or none. */
    OP_CONV_NORM_BACKWARD,
    /* What graph_fuse_backward makes of a training batch norm, the first, without an activation, and one that
     * reads its result y, the second, of the same options: (as OP_BATCH_NORM of the first; weight, bias,
     * running_mean, running_var of the second) -> (as OP_BATCH_NORM of the first), z, mean,
     * inverse_deviation, running_mean, running_var of the second. z = activation(second(y)), OP_RELU or
     * none. */
    OP_NORM_PAIR,
    /* What it makes of the backward nodes of two norms, where the dx of the one, the second, goes to the
     * other, the first, whose result y the second has read; of others than are an OP_NORM_PAIR, maybe: (as
     * OP_BATCH_NORM_BACKWARD of the first, but dz in place of dy; y, weight, bias, mean, inverse_deviation of
     * the second) -> dx, dweight, dbias, g, dlayer_bias? of the first, dweight, dbias of the second. g = dy +
     * dy2, where dy is the second's gradient of y. */
    OP_NORM_PAIR_BACKWARD,
    /* What graph_fuse makes of a batch norm, an activation that never falls, and a max pool of its result,
     * which is never in memory: the largest result is that of the largest x of a window, or of the smallest
     * where the channel's scale, weight * inverse_deviation, is below 0.
     * (as OP_BATCH_NORM, without an addend) -> (as OP_BATCH_NORM, y [N, H', W', C]), extreme [N, H', W', C],
     * index u8 [N, H', W', C]: that x, and where in its window it lay, as in OP_MAX_POOL. Backward: the
     * OP_BATCH_NORM_BACKWARD of extreme and y, with g and without dx, then OP_NORM_POOL_BACKWARD. */
    OP_NORM_POOL,
    /* (g [N, H', W', C], x, weight, mean, inverse_deviation, dweight, dbias, index) -> dx = weight *
     * inverse_deviation * (G - (dbias + x^ * dweight) / n), where G is the sum of g of the windows whose
     * extreme the pixel is, x^ = (x - mean) * inverse_deviation, n the pixels of x */
    OP_NORM_POOL_BACKWARD,
    /* What graph_fuse_backward makes of an OP_NORM_POOL_BACKWARD and the weight gradient of the convolution
     * in front, as.conv, which reads bytes: (as OP_NORM_POOL_BACKWARD, pixels u8) -> dweight */
    OP_STEM_BACKWARD_WEIGHT,
    /* These two are what graph_fuse makes of a batch norm whose result n goes to squeeze and excitation
     * alone; n is never in memory. The first makes what the gate is computed from, the second multiplies by
     * the gate.
     * (x [N, H, W, C], weight, bias, running_mean, running_var) -> y [N, C], mean, inverse_deviation,
     * running_mean, running_var (as OP_BATCH_NORM), image_means f32 [N, C]: of x over the pixels of each
     * image. y: those of n. */
    OP_NORM_SQUEEZE,
    /* (dy [N, C], g, x, weight, mean, inverse_deviation, factors, sums, image_means) -> dx?, dweight, dbias,
     * both through y and through the OP_NORM_GATE of the same norm, whose backward node made g and sums. */
    OP_NORM_SQUEEZE_BACKWARD,
    /* (x, weight, bias, mean, inverse_deviation, factors f32 [N, C], addend?) -> y = activation(n * factors +
     * addend), n = (x - mean) * inverse_deviation * weight + bias */
    OP_NORM_GATE,
    /* (as OP_BATCH_NORM_BACKWARD, y with any activation) -> g?, dfactors, sums f32 [2, N, C]: of g and of g *
     * (x - mean) over the pixels of each image. g is there unless it is dy. */
    OP_NORM_GATE_BACKWARD,
    OP_RELU,          /* (x) -> y; leaky where slope != 0 */
    OP_RELU_BACKWARD, /* (dy, y) -> dx */
    /* Functions of one value; a _BACKWARD follows its op. */
    OP_GELU,             /* (x) -> y */
    OP_GELU_BACKWARD,    /* (dy, x) -> dx, dbias? */
    OP_SILU,             /* (x) -> y */
    OP_SILU_BACKWARD,    /* (dy, x) -> dx, dbias? */
    OP_MISH,             /* (x) -> y */
    OP_MISH_BACKWARD,    /* (dy, x) -> dx, dbias? */
    OP_SIGMOID,          /* (x f32) -> y */
    OP_SIGMOID_BACKWARD, /* (dy, x) -> dx */
    OP_ADD,              /* (a, b) -> y */
    /* (x) -> y, index u8: where in its window the maximum lay, row * kernel + column, the first of equals. */
    OP_MAX_POOL,
    OP_MAX_POOL_BACKWARD,        /* (dy, index) -> dx */
    OP_AVG_POOL,                 /* (x) -> y */
    OP_AVG_POOL_BACKWARD,        /* (dy) -> dx */
    OP_GLOBAL_AVG_POOL,          /* (x) -> y */
    OP_GLOBAL_AVG_POOL_BACKWARD, /* (dy) -> dx */
    OP_REFLECTION_PAD,           /* (x) -> y */
    OP_REFLECTION_PAD_BACKWARD,  /* (dy) -> dx */
    OP_FLATTEN,                  /* (x) -> y */
    OP_FLATTEN_BACKWARD,         /* (dy) -> dx */
    OP_LINEAR,                   /* (x, weight, bias?, addend?) -> y; addend: of y's shape */
    OP_LINEAR_BACKWARD_DATA,     /* (dy, weight) -> dx */
    OP_LINEAR_BACKWARD_WEIGHT,   /* (dy, x) -> dweight, dbias? */
    /* (x, weight, bias?, addend?, factors [1, C, 1, 1]) -> y, scaled weight [C, C of x], scaled bias [C]?:
     * FUSE_LINEAR_SCALE. What is scaled is factors * weight and factors * bias, of y's type; y = x * scaled
     * weight' + scaled bias + addend. The gradient of x is OP_LINEAR_BACKWARD_DATA of the scaled weight. */
    OP_SCALED_LINEAR,
    OP_SCALED_LINEAR_BACKWARD_WEIGHT, /* (dy, x, weight, bias?, factors) -> dweight, dbias?, dfactors */
    /* Boxes of an image (as.box: size of the smaller tensor's place in the larger), each the other's
     * gradient. */
    OP_ZERO_PAD, /* (x) -> y: x at the top left, its channels from first_channel on, zeros elsewhere */
    OP_CROP,     /* (x) -> y: that box of x */
    OP_CONCAT,   /* (a, b) -> y: the channels of a, then those of b */
    OP_SCALE,    /* (x) -> y = factor * x */
    /* (x, weight [1, C, 1, 1], addend?) -> y = x * weight[c] + addend */
    OP_CHANNEL_SCALE,
    OP_CHANNEL_SCALE_BACKWARD,    /* (dy, x, weight) -> dx, dweight, dbias? */
    OP_CHANNEL_MULTIPLY,          /* (x [N, H, W, C], s f32 [N, C]) -> y = x * s */
    OP_CHANNEL_MULTIPLY_BACKWARD, /* (dy, x, s) -> dx?, ds? */
    /* (x [.., 2 C]) -> y [.., C], means? [N, C]: first half of the channels * second half, and with
     * FUSE_GATE_MEAN its means over the pixels of each image */
    OP_GATE,
    /* (dy, x, s f32 [N, C]?, dmeans [N, C]?) -> dx, dbias?: with FUSE_GATE_MEAN of dy * s + dmeans / pixels
     * in the place of dy */
    OP_GATE_BACKWARD,
    /* (x, weight, bias) -> y, mean, inverse_deviation [N, H, W, 1]: over the channels of each pixel */
    OP_LAYER_NORM,
    /* (dy, x, weight, mean, inverse_deviation, addend?) -> dx, dweight, dbias. addend, the gradient that x
     * has from others by then, is part of dx. */
    OP_LAYER_NORM_BACKWARD,
    /* (x [N, H, W, C], weight [C], bias [C]) -> y, norms f32 [N, C]: of the channels of each sample. y = x *
     * (1 + weight * norms / (mean of norms + epsilon)) + bias, as.layer_norm.epsilon */
    OP_RESPONSE_NORM,
    OP_RESPONSE_NORM_BACKWARD, /* (dy, x, weight, norms) -> dx, dweight, dbias */
    /* as.shuffle.factor r, each the other's gradient: y[h * r + i, w * r + j, c] = x[h, w, (c * r + i) * r +
     * j] */
    OP_PIXEL_SHUFFLE,   /* (x [N, H, W, C * r * r]) -> y [N, H * r, W * r, C] */
    OP_PIXEL_UNSHUFFLE, /* (x [N, H * r, W * r, C]) -> y [N, H, W, C * r * r] */
    /* (x [N, H, W, C], class [1, 1, C]?, positions [1, T, C]?) -> y [N, T, 1, C]: class, then the pixels of x
     * row by row, plus positions or, with as.tokens.sines, graph_tokens' fixed ones */
    OP_TOKENS,
    OP_TOKENS_BACKWARD, /* (dy) -> dx?, dclass?, dpositions? */
    /* (x [N, T, 1, 3 C]) -> y [N, T, 1, C], log_sums f32 [N, heads, T, 1]: of each query over the keys of
     * exp(product / sqrt(channels of a head)) */
    OP_ATTENTION,
    OP_ATTENTION_BACKWARD, /* (dy, x, y, log_sums) -> dx */
    /* (weight, u [rows], v [columns]) -> y, sigma [1], and in training the buffers u, v, written in place:
     * v = weight' u and u = weight v, each divided by its length. y = weight / sigma, sigma = u' weight v. */
    OP_SPECTRAL_NORM,
    OP_SPECTRAL_NORM_BACKWARD, /* (dy, y, u, v, sigma) -> dweight */
    /* (x [N, H, W, C], weight f32 [C, C, 1], gamma f32 [1]) -> y, products f32 [N, C, C]: of each channel
     * with each other one, summed over the pixels of an image; mixing f32 [N, C, C]: products * weight. y =
     * x + gamma * (mixing * the channels of each pixel) */
    OP_SELF_ATTENTION,
    OP_SELF_ATTENTION_BACKWARD, /* (dy, x, weight, gamma, products, mixing) -> dx?, dweight?, dgamma? */
    /* (logits [N, K], labels i64 [N], labels_mixed i64 [N]?, mix [N]?, weights [K]?) -> loss [1],
     * probabilities [N, K], in f32 also of narrower logits (FUSE_CAST_LOSS) */
    OP_SOFTMAX_CROSS_ENTROPY,
    OP_SOFTMAX_CROSS_ENTROPY_BACKWARD, /* (dloss, probabilities, labels, labels_mixed?, mix?, weights?)
                                          -> dlogits, of the type of the logits */
    OP_BINARY_CROSS_ENTROPY,           /* as OP_SOFTMAX_CROSS_ENTROPY; probabilities are the sigmoids */
    OP_BINARY_CROSS_ENTROPY_BACKWARD,  /* as OP_SOFTMAX_CROSS_ENTROPY_BACKWARD */
    /* (x [N, K], targets [N, K], valid [N], weights [K]?, positive_weights [K]?) -> loss [1] */
    OP_TARGET_LOSS,
    OP_TARGET_LOSS_BACKWARD, /* (dloss, x, targets, valid, weights?, positive_weights?) -> dx */
    OP_PIXEL_LOSS,          /* (prediction, target [N, H, W, C], valid [N]?) -> loss [1], squared error [N] */
    OP_PIXEL_LOSS_BACKWARD, /* (dloss, prediction, target, squared error, valid?) -> dprediction */
    /* (logits [N, H, W, K], mask u8 [N, H, W, 1], valid [N]?) -> loss [1], classes u8 [N, H, W, 1], sums
     * [N, 3] */
    OP_MASK_LOSS,
    OP_MASK_LOSS_BACKWARD, /* (dloss, logits, mask, sums, valid?) -> dlogits */
    /* (learning_rate, step, micro?, scale?, tracker?, loss?, momentum?, perturbed?) -> gradient_norm,
     * updated; all [1]. Writes every parameter that has a gradient, all tensors of TENSOR_OPTIMIZER, and
     * step, micro, scale, tracker, perturbed in place: see Optimizer. */
    OP_UPDATE,
    OP_KIND_COUNT
} OpKind;

/* The places of operands in Node.inputs and Node.outputs, in the order of OpKind; the one input and output of
 * an op that is not here have place 0. _BACK: of the op's backward node. */
/* OP_CONV2D, OP_LINEAR, OP_SCALED_LINEAR */
enum { CONV_X, CONV_WEIGHT, CONV_BIAS, LINEAR_ADDEND, LINEAR_FACTORS, SCALED_LINEAR_INPUTS };
enum { CONV_Y, CONV_SUMS };
enum { LINEAR_SCALED_WEIGHT = CONV_Y + 1, LINEAR_SCALED_BIAS }; /* OP_SCALED_LINEAR */
enum { CONV_DATA_DY, CONV_DATA_WEIGHT }; /* OP_CONV2D_BACKWARD_DATA, OP_LINEAR_BACKWARD_DATA */
enum { CONV_WEIGHT_DY, CONV_WEIGHT_X };  /* OP_CONV2D_BACKWARD_WEIGHT, OP_LINEAR_BACKWARD_WEIGHT */
enum { CONV_WEIGHT_DWEIGHT, CONV_WEIGHT_DBIAS };
/* OP_SCALED_LINEAR_BACKWARD_WEIGHT, after the operands of OP_LINEAR_BACKWARD_WEIGHT */
enum {
    SCALED_LINEAR_BACK_WEIGHT = CONV_WEIGHT_X + 1,
    SCALED_LINEAR_BACK_BIAS,
    SCALED_LINEAR_BACK_FACTORS,
    SCALED_LINEAR_BACK_INPUTS
};
enum { SCALED_LINEAR_BACK_DFACTORS = CONV_WEIGHT_DBIAS + 1, SCALED_LINEAR_BACK_OUTPUTS };
enum {
    NORM_X,
    NORM_WEIGHT,
    NORM_BIAS,
    NORM_RUNNING_MEAN,
    NORM_RUNNING_VAR,
    NORM_ADDEND,
    NORM_SUMS,
    NORM_LAYER_BIAS,
    NORM_INPUTS,
    NORM_PAIR_WEIGHT = NORM_INPUTS, /* of OP_NORM_PAIR, whose other operands are OP_BATCH_NORM's */
    NORM_PAIR_BIAS,
    NORM_PAIR_RUNNING_MEAN,
    NORM_PAIR_RUNNING_VAR,
    NORM_PAIR_INPUTS
};
enum {
    NORM_Y,
    NORM_MEAN,
    NORM_INVERSE_DEVIATION,
    NORM_MOVED_MEAN, /* the buffers running_mean and running_var again */
    NORM_MOVED_VAR,
    NORM_OUTPUTS,
    NORM_SIGNS = NORM_OUTPUTS,       /* FUSE_NORM_SIGNS */
    NORM_IMAGE_MEANS = NORM_OUTPUTS, /* of OP_NORM_SQUEEZE, whose other operands are OP_BATCH_NORM's */
    NORM_SQUEEZE_OUTPUTS,
    NORM_POOL_EXTREME = NORM_OUTPUTS, /* of OP_NORM_POOL, whose other operands are OP_BATCH_NORM's */
    NORM_POOL_INDEX,
    NORM_POOL_OUTPUTS,
    NORM_PAIR_Z = NORM_OUTPUTS, /* of OP_NORM_PAIR: NORM_Y to NORM_MOVED_VAR of the second */
    NORM_PAIR_MEAN,
    NORM_PAIR_INVERSE_DEVIATION,
    NORM_PAIR_MOVED_MEAN,
    NORM_PAIR_MOVED_VAR,
    NORM_PAIR_OUTPUTS
};
enum { SIGNS_IN_BYTE = 8 }; /* of NORM_SIGNS */
enum {
    NORM_BACK_DY,
    NORM_BACK_X,
    NORM_BACK_WEIGHT,
    NORM_BACK_BIAS,
    NORM_BACK_MEAN,
    NORM_BACK_INVERSE_DEVIATION,
    NORM_BACK_Y, /* or NORM_SIGNS */
    NORM_BACK_DY2,
    NORM_BACK_INPUTS,
    NORM_BACK_CONV_WEIGHT = NORM_BACK_INPUTS, /* of OP_CONV_NORM_BACKWARD */
    CONV_NORM_BACK_INPUTS,
    NORM_PAIR_BACK_Y = NORM_BACK_INPUTS, /* of OP_NORM_PAIR_BACKWARD, of the second norm */
    NORM_PAIR_BACK_WEIGHT,
    NORM_PAIR_BACK_BIAS,
    NORM_PAIR_BACK_MEAN,
    NORM_PAIR_BACK_INVERSE_DEVIATION,
    NORM_PAIR_BACK_INPUTS
};
enum {
    NORM_BACK_DX,
    NORM_BACK_DWEIGHT,
    NORM_BACK_DBIAS,
    NORM_BACK_G,
    NORM_BACK_DLAYER_BIAS,
    NORM_PAIR_BACK_DWEIGHT, /* of OP_NORM_PAIR_BACKWARD, of the second norm */
    NORM_PAIR_BACK_DBIAS,
    NORM_PAIR_BACK_OUTPUTS
};
enum {
    NORM_POOL_BACK_G,
    NORM_POOL_BACK_X,
    NORM_POOL_BACK_WEIGHT,
    NORM_POOL_BACK_MEAN,
    NORM_POOL_BACK_INVERSE_DEVIATION,
    NORM_POOL_BACK_DWEIGHT,
    NORM_POOL_BACK_DBIAS,
    NORM_POOL_BACK_INDEX,
    NORM_POOL_BACK_INPUTS,
    STEM_BACK_PIXELS = NORM_POOL_BACK_INPUTS, /* of OP_STEM_BACKWARD_WEIGHT */
    STEM_BACK_INPUTS
};
enum {
    NORM_SQUEEZE_BACK_DY,
    NORM_SQUEEZE_BACK_G,
    NORM_SQUEEZE_BACK_X,
    NORM_SQUEEZE_BACK_WEIGHT,
    NORM_SQUEEZE_BACK_MEAN,
    NORM_SQUEEZE_BACK_INVERSE_DEVIATION,
    NORM_SQUEEZE_BACK_FACTORS,
    NORM_SQUEEZE_BACK_SUMS,
    NORM_SQUEEZE_BACK_IMAGE_MEANS,
    NORM_SQUEEZE_BACK_INPUTS
}; /* its outputs: NORM_BACK_DX, NORM_BACK_DWEIGHT, NORM_BACK_DBIAS */
enum {
    NORM_GATE_X,
    NORM_GATE_WEIGHT,
    NORM_GATE_BIAS,
    NORM_GATE_MEAN,
    NORM_GATE_INVERSE_DEVIATION,
    NORM_GATE_FACTORS,
    NORM_GATE_ADDEND,
    NORM_GATE_INPUTS
};
/* of OP_NORM_GATE_BACKWARD, whose inputs are NORM_BACK_DY to NORM_BACK_DY2 */
enum { NORM_GATE_BACK_G, NORM_GATE_BACK_DFACTORS, NORM_GATE_BACK_SUMS };
enum { RELU_BACK_DY, RELU_BACK_Y };
enum { POINTWISE_BACK_DY, POINTWISE_BACK_X }; /* OP_GELU_BACKWARD, OP_SILU_BACKWARD, … */
/* _DBIAS, here and below: with FUSE_FUNCTION_BIAS, the sums of dx. */
enum { POINTWISE_BACK_DX, POINTWISE_BACK_DBIAS };
enum { ADD_A, ADD_B };
enum { MAX_POOL_Y, MAX_POOL_INDEX };
enum { MAX_POOL_BACK_DY, MAX_POOL_BACK_INDEX };
enum { CONCAT_A, CONCAT_B };
enum { CHANNEL_X, CHANNEL_FACTORS, CHANNEL_ADDEND }; /* OP_CHANNEL_SCALE (weight), OP_CHANNEL_MULTIPLY (s) */
enum { CHANNEL_BACK_DY, CHANNEL_BACK_X, CHANNEL_BACK_FACTORS };
enum { CHANNEL_BACK_DX, CHANNEL_BACK_DFACTORS, CHANNEL_BACK_DBIAS };
enum { GATE_PRODUCTS, GATE_MEANS };
enum { GATE_MULTIPLE = 8 }; /* of channels of a gate's result, with FUSE_GATE_MEAN and FUSE_FUNCTION_BIAS */
enum { GATE_BACK_DY, GATE_BACK_X, GATE_BACK_FACTORS, GATE_BACK_DMEANS, GATE_BACK_INPUTS };
enum { GATE_BACK_DX, GATE_BACK_DBIAS };
enum { LAYER_NORM_X, LAYER_NORM_WEIGHT, LAYER_NORM_BIAS };
enum { LAYER_NORM_Y, LAYER_NORM_MEAN, LAYER_NORM_INVERSE_DEVIATION };
enum {
    LAYER_NORM_BACK_DY,
    LAYER_NORM_BACK_X,
    LAYER_NORM_BACK_WEIGHT,
    LAYER_NORM_BACK_MEAN,
    LAYER_NORM_BACK_INVERSE_DEVIATION,
    LAYER_NORM_BACK_ADDEND
};
enum { LAYER_NORM_BACK_DX, LAYER_NORM_BACK_DWEIGHT, LAYER_NORM_BACK_DBIAS };
enum { RESPONSE_NORM_X, RESPONSE_NORM_WEIGHT, RESPONSE_NORM_BIAS };
enum { RESPONSE_NORM_Y, RESPONSE_NORM_NORMS };
enum { RESPONSE_NORM_BACK_DY, RESPONSE_NORM_BACK_X, RESPONSE_NORM_BACK_WEIGHT, RESPONSE_NORM_BACK_NORMS };
enum { RESPONSE_NORM_BACK_DX, RESPONSE_NORM_BACK_DWEIGHT, RESPONSE_NORM_BACK_DBIAS };
enum { TOKENS_X, TOKENS_CLASS, TOKENS_POSITIONS };
enum { TOKENS_BACK_DX, TOKENS_BACK_DCLASS, TOKENS_BACK_DPOSITIONS };
enum { ATTENTION_Y, ATTENTION_LOG_SUMS };
enum { ATTENTION_BACK_DY, ATTENTION_BACK_X, ATTENTION_BACK_Y, ATTENTION_BACK_LOG_SUMS };
enum { SPECTRAL_NORM_WEIGHT, SPECTRAL_NORM_U, SPECTRAL_NORM_V };
enum { SPECTRAL_NORM_Y, SPECTRAL_NORM_SIGMA, SPECTRAL_NORM_MOVED_U, SPECTRAL_NORM_MOVED_V };
enum {
    SPECTRAL_NORM_BACK_DY,
    SPECTRAL_NORM_BACK_Y,
    SPECTRAL_NORM_BACK_U,
    SPECTRAL_NORM_BACK_V,
    SPECTRAL_NORM_BACK_SIGMA
};
enum { SELF_ATTENTION_X, SELF_ATTENTION_WEIGHT, SELF_ATTENTION_GAMMA };
enum { SELF_ATTENTION_Y, SELF_ATTENTION_PRODUCTS, SELF_ATTENTION_MIXING };
enum {
    SELF_ATTENTION_BACK_DY,
    SELF_ATTENTION_BACK_X,
    SELF_ATTENTION_BACK_WEIGHT,
    SELF_ATTENTION_BACK_GAMMA,
    SELF_ATTENTION_BACK_PRODUCTS,
    SELF_ATTENTION_BACK_MIXING
};
enum { SELF_ATTENTION_BACK_DX, SELF_ATTENTION_BACK_DWEIGHT, SELF_ATTENTION_BACK_DGAMMA };
enum { CLASS_LOSS_LOGITS, CLASS_LOSS_LABELS, CLASS_LOSS_LABELS_MIXED, CLASS_LOSS_MIX, CLASS_LOSS_WEIGHTS };
enum { CLASS_LOSS_LOSS, CLASS_LOSS_PROBABILITIES }; /* OP_SOFTMAX_CROSS_ENTROPY, OP_BINARY_CROSS_ENTROPY */
enum {
    CLASS_LOSS_BACK_DLOSS,
    CLASS_LOSS_BACK_PROBABILITIES,
    CLASS_LOSS_BACK_LABELS,
    CLASS_LOSS_BACK_LABELS_MIXED,
    CLASS_LOSS_BACK_MIX,
    CLASS_LOSS_BACK_WEIGHTS
};
enum {
    TARGET_LOSS_X,
    TARGET_LOSS_TARGETS,
    TARGET_LOSS_VALID,
    TARGET_LOSS_WEIGHTS,
    TARGET_LOSS_POSITIVE_WEIGHTS
};
enum {
    TARGET_LOSS_BACK_DLOSS,
    TARGET_LOSS_BACK_X,
    TARGET_LOSS_BACK_TARGETS,
    TARGET_LOSS_BACK_VALID,
    TARGET_LOSS_BACK_WEIGHTS,
    TARGET_LOSS_BACK_POSITIVE_WEIGHTS
};
enum { PIXEL_LOSS_PREDICTION, PIXEL_LOSS_TARGET, PIXEL_LOSS_VALID };
enum { PIXEL_LOSS_LOSS, PIXEL_LOSS_ERRORS };
enum {
    PIXEL_LOSS_BACK_DLOSS,
    PIXEL_LOSS_BACK_PREDICTION,
    PIXEL_LOSS_BACK_TARGET,
    PIXEL_LOSS_BACK_ERRORS,
    PIXEL_LOSS_BACK_VALID
};
enum { MASK_LOSS_LOGITS, MASK_LOSS_MASK, MASK_LOSS_VALID };
enum { MASK_LOSS_LOSS, MASK_LOSS_CLASSES, MASK_LOSS_SUMS };
enum {
    MASK_LOSS_BACK_DLOSS,
    MASK_LOSS_BACK_LOGITS,
    MASK_LOSS_BACK_MASK,
    MASK_LOSS_BACK_SUMS,
    MASK_LOSS_BACK_VALID
};
/* The numbers of an image in the sums: of the losses of its pixels, of its pixels that count, and of those
 * whose class is the mask's. */
enum { MASK_SUM_LOSS, MASK_SUM_PIXELS, MASK_SUM_RIGHT, MASK_SUMS };
enum {
    UPDATE_LEARNING_RATE,
    UPDATE_STEP,
    UPDATE_MICRO,
    UPDATE_SCALE,
    UPDATE_TRACKER,
    UPDATE_LOSS,
    UPDATE_MOMENTUM,
    UPDATE_PERTURBED
};
enum { UPDATE_GRADIENT_NORM, UPDATE_UPDATED };

/* Square kernels. */
typedef struct Conv2d {
    int64_t channels; /* out */
    int64_t kernel, stride, padding;
    bool bias;
    bool reflects; /* graph_fuse sets it: the padding is the mirrored image, as of OP_REFLECTION_PAD */
    enum {
        /* PyTorch's: weight and bias uniform in +-1 / sqrt(fan_in) (kaiming_uniform, a = sqrt 5). */
        CONV_INIT_DEFAULT,
        /* torchvision's resnet: normal, deviation sqrt(2 / fan_out); bias as default. */
        CONV_INIT_KAIMING_FAN_OUT,
        /* Normal, deviation sqrt(2 / (fan_in + fan_out)); bias 0. */
        CONV_INIT_XAVIER_NORMAL,
    } init;
    int64_t groups; /* 0 means 1; channels in and out are divided by it; depthwise: as many as channels */
} Conv2d;
/* Returns whether it is a stem, in front of which 16-bit images of so many channels are folded on a GPU
 * (kernels_convolution.h). Smaller kernels gain less than the pass over the image costs. */
bool conv2d_is_stem(const Conv2d *conv, int64_t in_channels);
/* Returns whether it is a product of each pixel and one matrix: of 1 x 1, at every pixel, in one group. */
bool conv2d_is_pointwise(const Conv2d *conv);

/* How bytes become numbers: y = (x - mean[c]) / deviation[c], of type. */
typedef struct Normalization {
    float mean[GRAPH_CHANNELS_MAX], deviation[GRAPH_CHANNELS_MAX]; /* in 0..255 of the bytes */
    DataType type;
} Normalization;

typedef struct BatchNorm {
    bool training;            /* batch statistics and update of the running ones; else the running ones */
    bool sync;                /* training: of the batches of all ranks (graph_set_sync_norms) */
    int sample;               /* training: of one image in so many (graph_set_norm_sample); 0 and 1: of all */
    double epsilon, momentum; /* 0 chooses PyTorch's 1e-5 and 0.1 */
} BatchNorm;
/* Returns of how many images of a batch, its first, a norm takes the statistics: images / sample, at least
 * one; all where it does not train. */
int64_t batch_norm_sampled(const BatchNorm *batch_norm, int64_t images);

typedef struct Pool2d {
    int64_t kernel, stride, padding; /* average: padding counts in the divisor (PyTorch's default) */
    /* Averages alone, of stride `kernel` without padding: last pixels that fill no window have one, too,
     * whose mean is of the pixels inside (PyTorch's ceil_mode). */
    bool ceil;
} Pool2d;

typedef struct Node {
    OpKind op;
    char name[GRAPH_NAME_MAX]; /* layer: "layer1.0.conv1" */
    int input_count, output_count;
    TensorId inputs[NODE_INPUTS_MAX]; /* TENSOR_NONE where an optional one is absent */
    TensorId outputs[NODE_OUTPUTS_MAX];
    union {
        struct {
            float value;
        } fill;
        Normalization normalize;
        struct {
            DataType type;
        } cast;
        struct {
            Conv2d options;
            bool relu;            /* an activation is part of the node (graph_fuse) */
            float slope;          /* of the activation */
            Normalization pixels; /* of an x of u8 */
        } conv;
        struct {
            BatchNorm options;
            /* The op that is part of the node (graph_fuse): OP_RELU, or of OP_BATCH_NORM without an addend
             * OP_GELU, OP_SILU, OP_MISH; 0: none. */
            OpKind activation;
            float slope; /* of OP_RELU */
            Pool2d pool; /* of OP_NORM_POOL and OP_NORM_POOL_BACKWARD */
        } norm;
        struct {
            float slope;
        } relu;
        Pool2d pool;
        struct {
            int64_t padding;
        } pad;
        struct {
            int64_t height, width, channels, first_channel;
        } box;
        struct {
            float factor;
        } scale;
        struct {
            float epsilon;
        } layer_norm;
        struct {
            int64_t factor;
        } shuffle;
        struct {
            bool class_token, sines;
        } tokens;
        struct {
            int64_t heads;
        } attention;
        struct {
            bool training; /* u and v move */
        } spectral_norm;
        struct {
            float smoothing, threshold;
            bool binarizes, sums;
        } loss;
        TargetLoss target_loss;
        struct {
            LossKind kind;
        } pixel_loss;
        struct {
            float smoothing;
        } mask_loss;
        Optimizer update;
    } as;
} Node;

/* ---- building: each returns the result, TENSOR_NONE after a failure ---- */

/* Converts x to another float type. Returns x itself if it has that type already. */
TensorId graph_cast(Graph *graph, TensorId x, DataType type);
/* Computes (x - mean[c]) / deviation[c] in the compute type from x [N, H, W, C] u8; mean and deviation, C
 * values each, are in 0..1 of full scale. */
TensorId graph_normalize(Graph *graph, TensorId x, const double *mean, const double *deviation);
/* Normalizes as graph_normalize, to a type of the caller's choice: f32 for what a loss compares with. */
TensorId graph_normalize_to(Graph *graph, TensorId x, const double *mean, const double *deviation,
                            DataType type);
/* Convolves [N, H, W, C] to [N, H', W', channels]. Adds the parameters name.weight and, with bias,
 * name.bias. */
TensorId graph_conv2d(Graph *graph, const char *name, TensorId x, const Conv2d *conv);
/* Normalizes [N, H, W, C] or [N, C] over all but C. Adds name.weight, .bias, .running_mean, .running_var.
 * graph_fuse may put the ops that follow into the node. */
TensorId graph_batch_norm(Graph *graph, const char *name, TensorId x, const BatchNorm *batch_norm);
TensorId graph_relu(Graph *graph, TensorId x);
TensorId graph_leaky_relu(Graph *graph, TensorId x, float slope);
/* Applies the exact GELU, x * (1 + erf(x / sqrt 2)) / 2: torch.nn.GELU(). */
TensorId graph_gelu(Graph *graph, TensorId x);
/* Applies x / (1 + exp(-x)): torch.nn.SiLU(). */
TensorId graph_silu(Graph *graph, TensorId x);
/* Applies x * tanh(log(1 + exp(x))): torch.nn.Mish(). */
TensorId graph_mish(Graph *graph, TensorId x);
/* Applies 1 / (1 + exp(-x)), in f32: a narrower x is cast, since the padding of narrow tensors stays 0. */
TensorId graph_sigmoid(Graph *graph, TensorId x);
/* Adds tensors of one shape and type. Where one is f32 and the other narrower, casts the narrower. */
TensorId graph_add(Graph *graph, TensorId a, TensorId b);
TensorId graph_max_pool(Graph *graph, TensorId x, const Pool2d *pool);
TensorId graph_avg_pool(Graph *graph, TensorId x, const Pool2d *pool);
TensorId graph_global_avg_pool(Graph *graph, TensorId x); /* -> [N, C] */
TensorId graph_reflection_pad(Graph *graph, TensorId x, int64_t padding);
/* Reshapes [N, H, W, C] to [N, C * H * W], in PyTorch's order (C, H, W). */
TensorId graph_flatten(Graph *graph, TensorId x);
/* Appends a linear layer of the last axis: [N, C] -> [N, features], [N, H, W, C] -> [N, H, W, features]. */
TensorId graph_linear(Graph *graph, const char *name, TensorId x, int64_t features, bool bias);
/* Appends a linear layer as a 1x1 convolution of one pixel: [N, C] -> [N, channels], name.weight is
 * [channels, C, 1, 1]. */
TensorId graph_linear_1x1(Graph *graph, const char *name, TensorId x, int64_t channels, bool bias);
/* Places the image at the top left of zeros; no size may be below the image's own. */
TensorId graph_zero_pad(Graph *graph, TensorId x, int64_t height, int64_t width, int64_t channels);
/* Cuts out the top left of the image; no size may be above the image's own. */
TensorId graph_crop(Graph *graph, TensorId x, int64_t height, int64_t width);
/* Joins images of one size along the channels. */
TensorId graph_concat(Graph *graph, TensorId a, TensorId b);
TensorId graph_scale(Graph *graph, TensorId x, float factor);
/* Computes x * LAYER.PARAMETER [1, C, 1, 1] + addend (TENSOR_NONE: without); the parameter begins as zeros,
 * undecayed. */
TensorId graph_channel_scale(Graph *graph, const char *layer, const char *parameter, TensorId x,
                             TensorId addend);
/* Multiplies [N, H, W, C] by [N, C]. */
TensorId graph_channel_multiply(Graph *graph, TensorId x, TensorId s);
/* Multiplies the two halves of the channels, [N, H, W, 2 C] -> [N, H, W, C]: NAFNet's SimpleGate. */
TensorId graph_gate(Graph *graph, TensorId x);
/* Drops samples at random (stochastic depth, Huang et al. 2016; timm's DropPath): multiplies x by NAME, an
 * input f32 [N, C] that is written before each run: 0 with probability rate, else 1 / (1 - rate), alike in
 * all channels of a sample. 0 <= rate < 1. Returns x itself with rate 0. */
TensorId graph_drop_path(Graph *graph, const char *name, TensorId x, double rate);
/* Normalizes over the channels of each pixel, [N, H, W, C] or [N, C]; adds name.weight, name.bias. NAFNet's
 * LayerNorm2d has epsilon 1e-6. */
TensorId graph_layer_norm(Graph *graph, const char *name, TensorId x, double epsilon);
/* Weighs each channel by its norm over the pixels of a sample, relative to the mean of all channels' (global
 * response normalisation, Woo et al. 2023); adds name.weight and name.bias, zeros at first. timm's
 * GlobalResponseNorm has epsilon 1e-6. */
TensorId graph_response_norm(Graph *graph, const char *name, TensorId x, double epsilon);
/* Move channels to pixels, [N, H, W, C * r * r] -> [N, H * r, W * r, C], and back, in PyTorch's order. */
TensorId graph_pixel_shuffle(Graph *graph, TensorId x, int64_t factor);
TensorId graph_pixel_unshuffle(Graph *graph, TensorId x, int64_t factor);
/* Makes tokens [N, T, 1, C] of an image [N, H, W, C], row by row, for a vision transformer. With class_token
 * there is one more in front of them, the parameter cls_token [1, 1, C]. To each its position is added: that
 * of the parameter pos_embed [1, T, C], or, with sines, fixed sines and cosines of column and row, which the
 * class token lacks (posemb_sincos_2d of Beyer et al. 2022). C is a multiple of 8. */
TensorId graph_tokens(Graph *graph, TensorId x, bool class_token, bool sines);
/* Returns what graph_tokens adds with sines to channel c of C of the pixel in this row and column. */
float tokens_sine(int64_t row, int64_t column, int64_t c, int64_t channels);
/* Lets each token of [N, T, 1, 3 C] take from all of its sample, [N, T, 1, C]: multi-head attention (Vaswani
 * et al. 2017) of queries, keys and values, C channels each in this order and divided over the heads. */
TensorId graph_attention(Graph *graph, TensorId x, int64_t heads);
/* Divides NAME.weight_orig [rows, columns, 1] by its greatest singular value, as far as the buffers
 * NAME.weight_u and NAME.weight_v know its directions; in training they come nearer by one step of power
 * iteration in each run, and are constants to the gradient (Miyato et al. 2018; the weight of a Conv1d under
 * torch.nn.utils.spectral_norm). */
TensorId graph_spectral_norm(Graph *graph, const char *name, int64_t rows, int64_t columns, bool training);
/* Computes x + NAME.gamma * x x' weight x of each image, x as [C, H * W]: fastai's SimpleSelfAttention, as (x
 * x' weight) x, which no matrix of pixels by pixels and no convolved image is made for. weight [C, C, 1] f32;
 * C is a multiple of 8. gamma begins as 0. */
TensorId graph_self_attention(Graph *graph, const char *name, TensorId x, TensorId weight);

#endif
