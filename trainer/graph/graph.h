/* graph.h - the network as a static graph: built once, differentiated as a graph, planned, then lowered by a
 * backend.
 *
 *   Graph *graph = graph_new();
 *   TensorId pixels = graph_input(graph, "image", DATA_U8, 4, (int64_t[]){64, 32, 32, 3});
 *   TensorId labels = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){64});
 *   TensorId x = graph_normalize(graph, pixels, mean, deviation);
 *   x = graph_conv2d(graph, "conv1", x, &(Conv2d){.channels = 64, .kernel = 7, .stride = 2, .padding = 3});
 *   x = graph_batch_norm(graph, "bn1", x, &(BatchNorm){.training = true});
 *   x = graph_relu(graph, x);
 *   …
 *   TensorId loss = graph_softmax_cross_entropy(graph, logits, labels, TENSOR_NONE, TENSOR_NONE, 0.1F);
 *   graph_fuse(graph, FUSE_ALL);                  // batch norm and what follows it become one node
 *   graph_differentiate(graph, loss);             // gradients are nodes like all others
 *   graph_fuse_backward(graph, FUSE_ALL);
 *   graph_update(graph, &(Optimizer){…});         // so is the update
 *   if (graph_check(graph, &error)) …             // the first mistake, by layer and shapes
 *
 * Conventions.
 * - Shapes are logical: activations [N, H, W, C], matrices [N, C], convolution weights [out, in / groups,
 * kernel_h, kernel_w] (OIHW, as in checkpoints), linear weights [out, in]. How a backend lays a tensor out in
 * memory is its own affair.
 * - Batch size is part of the shapes: one graph for each (resolution, batch, training or evaluation). Graphs
 * of one network share their parameters by name, through a backend's State (backend.h).
 * - Names of parameters and buffers are torchvision's: "layer1.0.conv1.weight", "bn1.running_mean".
 * - A builder call that fails records the error in the graph, returns TENSOR_NONE, and every later call does
 * nothing: model code needs no checks, graph_check tells at the end.
 * - Nodes are in execution order: an input of a node is made by an earlier node.
 *
 * Threads: a graph belongs to one thread until it is built; then it is constant. */
#ifndef FSHARD_TRAINER_GRAPH_GRAPH_H
#define FSHARD_TRAINER_GRAPH_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

typedef int32_t TensorId;
typedef int32_t NodeId;
#define TENSOR_NONE ((TensorId)-1)
#define NODE_NONE   ((NodeId)-1)

enum {
    GRAPH_RANK_MAX = 4,
    GRAPH_NAME_MAX = 96,
    NODE_INPUTS_MAX = 8,
    NODE_OUTPUTS_MAX = 5,
    GRAPH_CHANNELS_MAX = 4
};

/* bf16 and f16 are for activations alone: parameters, buffers, the optimizer's state, statistics and losses
 * are f32. */
typedef enum DataType { DATA_F32, DATA_U8, DATA_I64, DATA_BF16, DATA_F16 } DataType;
size_t data_type_bytes(DataType type);
const char *data_type_name(DataType type);
/* Returns true for f32, bf16 and f16. */
bool data_type_is_float(DataType type);

typedef enum TensorRole {
    TENSOR_INPUT,      /* written from outside before a run: images, labels, learning rate */
    TENSOR_PARAMETER,  /* trained; lives in the State from run to run */
    TENSOR_BUFFER,     /* lives in the State, not trained: running_mean, running_var */
    TENSOR_OPTIMIZER,  /* a parameter's or buffer's, shaped like it; lives in the State: NAME.exp_avg */
    TENSOR_ACTIVATION, /* computed in each run, forward or backward; placed by the memory plan */
    TENSOR_GRADIENT,   /* of a parameter; all in one arena in parameter order, for optimizer and all-reduce */
} TensorRole;

typedef struct Initializer {
    enum { INIT_ZEROS, INIT_ONES, INIT_NORMAL, INIT_UNIFORM, INIT_CONSTANT } kind;
    double scale; /* standard deviation, half-width of the interval around 0, or the constant */
} Initializer;

typedef struct Tensor {
    /* Unique for all but activations that are not kept; those are named after what made them, "bn1.relu". */
    char name[GRAPH_NAME_MAX];
    TensorRole role;
    DataType type;
    int rank;
    int64_t shape[GRAPH_RANK_MAX];
    NodeId producer; /* NODE_NONE for inputs, parameters, buffers */
    /* For gradients, the tensor that they are the gradient of; for TENSOR_OPTIMIZER, its parameter or buffer;
     * else TENSOR_NONE. */
    TensorId of;
    bool keep;               /* readable after a run: loss, logits */
    bool decays;             /* TENSOR_PARAMETER: weight decay applies (off for norms and biases) */
    Initializer initializer; /* TENSOR_PARAMETER, TENSOR_BUFFER, TENSOR_OPTIMIZER */
    bool saved_without_ones; /* TENSOR_PARAMETER: files of weights have its shape without dimensions of 1 */
    float drop_rate;         /* TENSOR_INPUT of graph_drop_path: its rate; other tensors: 0 */
} Tensor;

/* Returns the number of elements. */
int64_t tensor_count(const Tensor *tensor);
/* Writes the shape for messages, "64 x 32 x 32 x 3". Returns buffer. */
const char *tensor_shape_text(const Tensor *tensor, char *buffer, size_t buffer_bytes);
/* Returns true for what a file of weights holds: parameters, and the buffers that layers name; not the
 * counters of the update, "optimizer.step", "scaler.scale", …. */
bool tensor_is_weight(const Tensor *tensor);

/* What each node reads and writes, in the order of Node.inputs and Node.outputs; `d` is "gradient of"; `?`
 * may be TENSOR_NONE. Activations have one float type in a node: that of its first input. Everything else is
 * f32 unless said; a convolution or matrix product in a narrower type reads its f32 weight rounded to it, and
 * adds up in f32. */
typedef enum OpKind {
    OP_FILL,      /* () -> y: as.fill.value everywhere */
    OP_CAST,      /* (x) -> y of another float type */
    OP_NORMALIZE, /* (x u8) -> y */
    /* (x, weight, bias?) -> y, sums? f32 [2, C up to STATISTICS_MULTIPLE]: of y over its pixels, and of its
     * square. y = activation(x * weight + bias). */
    OP_CONV2D,
    OP_CONV2D_BACKWARD_DATA,   /* (dy, weight) -> dx */
    OP_CONV2D_BACKWARD_WEIGHT, /* (dy, x) -> dweight, dbias? */
    /* (x, weight, bias, running_mean, running_var, addend?, sums?, layer_bias?) -> y, mean, inverse_deviation
     * [C], and in training the buffers running_mean, running_var, written in place. mean and
     * inverse_deviation are what y was made with: y = activation((x - mean) * inverse_deviation * weight +
     * bias + addend). sums: of OP_CONV2D, of x. layer_bias: of the layer in front, left out there, by which
     * only running_mean moves. addend may have fewer channels than x with FUSE_PAD_ADD. */
    OP_BATCH_NORM,
    /* (dy, x, weight, bias, mean, inverse_deviation, y?, dy2?) -> dx?, dweight, dbias, g?, dlayer_bias?. y is
     * there when there was an addend and an activation: it tells where that was on. Without one, x tells. g:
     * dy + dy2 through the activation, the gradient of the addend. dlayer_bias is 0. dy2 may have more
     * channels than x with FUSE_PAD_ADD. */
    OP_BATCH_NORM_BACKWARD,
    OP_RELU,          /* (x) -> y; leaky where slope != 0 */
    OP_RELU_BACKWARD, /* (dy, y) -> dx */
    /* Functions of one value; a _BACKWARD follows its op. */
    OP_GELU,             /* (x) -> y */
    OP_GELU_BACKWARD,    /* (dy, x) -> dx */
    OP_SILU,             /* (x) -> y */
    OP_SILU_BACKWARD,    /* (dy, x) -> dx */
    OP_MISH,             /* (x) -> y */
    OP_MISH_BACKWARD,    /* (dy, x) -> dx */
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
    OP_LINEAR,                   /* (x, weight, bias?) -> y */
    OP_LINEAR_BACKWARD_DATA,     /* (dy, weight) -> dx */
    OP_LINEAR_BACKWARD_WEIGHT,   /* (dy, x) -> dweight, dbias? */
    /* Boxes of an image (as.box: size of the smaller tensor's place in the larger), each the other's
     * gradient. */
    OP_ZERO_PAD, /* (x) -> y: x at the top left, its channels from first_channel on, zeros elsewhere */
    OP_CROP,     /* (x) -> y: that box of x */
    OP_CONCAT,   /* (a, b) -> y: the channels of a, then those of b */
    OP_SCALE,    /* (x) -> y = factor * x */
    /* (x, weight [1, C, 1, 1], addend?) -> y = x * weight[c] + addend */
    OP_CHANNEL_SCALE,
    OP_CHANNEL_SCALE_BACKWARD,    /* (dy, x, weight) -> dx, dweight */
    OP_CHANNEL_MULTIPLY,          /* (x [N, H, W, C], s f32 [N, C]) -> y = x * s */
    OP_CHANNEL_MULTIPLY_BACKWARD, /* (dy, x, s) -> dx, ds */
    OP_GATE,                      /* (x [.., 2 C]) -> y [.., C]: first half of the channels * second half */
    OP_GATE_BACKWARD,             /* (dy, x) -> dx */
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
    /* (logits [N, K], labels i64 [N], labels_mixed i64 [N]?, mix [N]?) -> loss [1], probabilities [N, K] */
    OP_SOFTMAX_CROSS_ENTROPY,
    OP_SOFTMAX_CROSS_ENTROPY_BACKWARD, /* (dloss, probabilities, labels, labels_mixed?, mix?) -> dlogits */
    OP_BINARY_CROSS_ENTROPY,           /* as OP_SOFTMAX_CROSS_ENTROPY; probabilities are the sigmoids */
    OP_BINARY_CROSS_ENTROPY_BACKWARD,  /* as OP_SOFTMAX_CROSS_ENTROPY_BACKWARD */
    OP_PIXEL_LOSS,          /* (prediction, target [N, H, W, C], valid [N]?) -> loss [1], squared error [N] */
    OP_PIXEL_LOSS_BACKWARD, /* (dloss, prediction, target, squared error, valid?) -> dprediction */
    /* (learning_rate, step, micro?, scale?, tracker?, loss?) -> gradient_norm, updated; all [1]. Writes every
     * parameter that has a gradient, all tensors of TENSOR_OPTIMIZER, and step, micro, scale, tracker in
     * place: see Optimizer. */
    OP_UPDATE,
    OP_KIND_COUNT
} OpKind;

/* The places of operands in Node.inputs and Node.outputs, in the order of OpKind; the one input and output of
 * an op that is not here have place 0. _BACK: of the op's backward node. */
enum { CONV_X, CONV_WEIGHT, CONV_BIAS }; /* OP_CONV2D, OP_LINEAR */
enum { CONV_Y, CONV_SUMS };
enum { CONV_DATA_DY, CONV_DATA_WEIGHT }; /* OP_CONV2D_BACKWARD_DATA, OP_LINEAR_BACKWARD_DATA */
enum { CONV_WEIGHT_DY, CONV_WEIGHT_X };  /* OP_CONV2D_BACKWARD_WEIGHT, OP_LINEAR_BACKWARD_WEIGHT */
enum { CONV_WEIGHT_DWEIGHT, CONV_WEIGHT_DBIAS };
enum {
    NORM_X,
    NORM_WEIGHT,
    NORM_BIAS,
    NORM_RUNNING_MEAN,
    NORM_RUNNING_VAR,
    NORM_ADDEND,
    NORM_SUMS,
    NORM_LAYER_BIAS,
    NORM_INPUTS
};
enum {
    NORM_Y,
    NORM_MEAN,
    NORM_INVERSE_DEVIATION,
    NORM_MOVED_MEAN, /* the buffers running_mean and running_var again */
    NORM_MOVED_VAR,
    NORM_OUTPUTS
};
enum {
    NORM_BACK_DY,
    NORM_BACK_X,
    NORM_BACK_WEIGHT,
    NORM_BACK_BIAS,
    NORM_BACK_MEAN,
    NORM_BACK_INVERSE_DEVIATION,
    NORM_BACK_Y,
    NORM_BACK_DY2,
    NORM_BACK_INPUTS
};
enum { NORM_BACK_DX, NORM_BACK_DWEIGHT, NORM_BACK_DBIAS, NORM_BACK_G, NORM_BACK_DLAYER_BIAS };
enum { RELU_BACK_DY, RELU_BACK_Y };
enum { POINTWISE_BACK_DY, POINTWISE_BACK_X }; /* OP_GELU_BACKWARD, OP_SILU_BACKWARD, … */
enum { ADD_A, ADD_B };
enum { MAX_POOL_Y, MAX_POOL_INDEX };
enum { MAX_POOL_BACK_DY, MAX_POOL_BACK_INDEX };
enum { CONCAT_A, CONCAT_B };
enum { CHANNEL_X, CHANNEL_FACTORS, CHANNEL_ADDEND }; /* OP_CHANNEL_SCALE (weight), OP_CHANNEL_MULTIPLY (s) */
enum { CHANNEL_BACK_DY, CHANNEL_BACK_X, CHANNEL_BACK_FACTORS };
enum { CHANNEL_BACK_DX, CHANNEL_BACK_DFACTORS };
enum { GATE_BACK_DY, GATE_BACK_X };
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
enum { CLASS_LOSS_LOGITS, CLASS_LOSS_LABELS, CLASS_LOSS_LABELS_MIXED, CLASS_LOSS_MIX };
enum { CLASS_LOSS_LOSS, CLASS_LOSS_PROBABILITIES }; /* OP_SOFTMAX_CROSS_ENTROPY, OP_BINARY_CROSS_ENTROPY */
enum {
    CLASS_LOSS_BACK_DLOSS,
    CLASS_LOSS_BACK_PROBABILITIES,
    CLASS_LOSS_BACK_LABELS,
    CLASS_LOSS_BACK_LABELS_MIXED,
    CLASS_LOSS_BACK_MIX
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
enum { UPDATE_LEARNING_RATE, UPDATE_STEP, UPDATE_MICRO, UPDATE_SCALE, UPDATE_TRACKER, UPDATE_LOSS };
enum { UPDATE_GRADIENT_NORM, UPDATE_UPDATED };

/* Square kernels. */
typedef struct Conv2d {
    int64_t channels; /* out */
    int64_t kernel, stride, padding;
    bool bias;
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

typedef struct BatchNorm {
    bool training;            /* batch statistics and update of the running ones; else the running ones */
    bool sync;                /* training: of the batches of all ranks (graph_set_sync_norms) */
    double epsilon, momentum; /* 0 chooses PyTorch's 1e-5 and 0.1 */
} BatchNorm;

typedef struct Pool2d {
    int64_t kernel, stride, padding; /* average: padding counts in the divisor (PyTorch's default) */
    /* Averages alone, of stride `kernel` without padding: last pixels that fill no window have one, too,
     * whose mean is of the pixels inside (PyTorch's ceil_mode). */
    bool ceil;
} Pool2d;

typedef enum LossKind {
    LOSS_CROSS_ENTROPY, /* of classes: see graph_softmax_cross_entropy */
    LOSS_BCE,
    LOSS_L1, /* of images: see graph_pixel_loss */
    LOSS_CHARBONNIER,
    LOSS_MSE,
    LOSS_PSNR,
    LOSS_KIND_COUNT
} LossKind;
extern const char *const loss_names[]; /* "cross-entropy", "bce", "l1", "charbonnier", "mse", "psnr", NULL */

typedef enum OptimizerKind {
    OPTIMIZER_SGD,
    OPTIMIZER_ADAM,
    OPTIMIZER_ADAMW,
    OPTIMIZER_LARS,
    OPTIMIZER_LAMB,
    OPTIMIZER_KIND_COUNT
} OptimizerKind;
extern const char *const optimizer_names[]; /* "sgd", "adam", "adamw", "lars", "lamb", NULL */

/* The update, with all that stands around it. g: the gradient; t: updates made, this one included.
 *
 *   sgd    g += decay w;  v = momentum v + g;  w -= lr (nesterov ? g + momentum v : v)     torch.optim.SGD
 *   adam   g += decay w;  m = beta1 m + (1 - beta1) g;  s = beta2 s + (1 - beta2) g^2
 *          w -= lr m' / (sqrt(s') + epsilon),  m' = m / (1 - beta1^t),  s' likewise       torch.optim.Adam
 *   adamw  the same, with w *= 1 - lr decay in place of g += decay w                     torch.optim.AdamW
 *   lars   sgd's, with (g + decay w) * trust, trust = trust_coefficient ||w|| / (||g|| + decay ||w||), for
 *          each parameter by itself             You, Gitman, Ginsburg 2017; timm.optim.Lars (momentum after
 *          trust)
 *   lamb   u = m' / (sqrt(s') + epsilon) + decay w;  w -= lr ||w|| / ||u|| u  You et al. 2019;
 *          timm.optim.Lamb
 *
 * Parameters whose `decays` is off (norms, biases) get no weight decay, and trust 1 in lars and lamb.
 *
 * A run whose loss is no number changes nothing: what led to it can be looked at (gradient_norm is NaN then,
 * updated 0). In each other run, in this order: the gradient is added to those since the last update
 * (accumulation_steps, whose mean it becomes), divided by the loss scale, its norm taken over all parameters,
 * clipped; then the update; then lookahead; then the average. Before the first update, NAME.slow and NAME.ema
 * become what the parameter is then (the buffer's ema: what it is after the first update's run).
 *
 * Lives in the State, so that a program decides by itself whether a run updates, and checkpoints carry it:
 * NAME.momentum_buffer; NAME.exp_avg, NAME.exp_avg_sq; NAME.slow; NAME.accumulated; NAME.ema (of buffers too;
 * role TENSOR_OPTIMIZER, `of` the parameter or buffer), and f32 [1] of TENSOR_BUFFER: "optimizer.step"
 * (updates made; always there), "optimizer.micro" (runs since the last one; with accumulation; below 0 where
 * ranks accumulate and the loss of one of these runs was no number),
 * "scaler.scale" and "scaler.tracker" (updates since it changed; with loss scaling). */
typedef struct Optimizer {
    OptimizerKind kind;
    TensorId learning_rate;       /* an input [1] f32, written before each run */
    double momentum;              /* sgd, lars */
    double beta1, beta2, epsilon; /* adam, adamw, lamb */
    double trust_coefficient;     /* lars */
    double weight_decay;
    double clip_norm; /* of all gradients together, torch.nn.utils.clip_grad_norm_; 0: none */
    /* Every so many updates slow += alpha (w - slow), w = slow (Zhang et al. 2019); 0: none. */
    int64_t lookahead_steps;
    double lookahead_alpha;
    int64_t accumulation_steps; /* 0, 1: none */
    /* ema = d ema + (1 - d) w after each update; 0: none. With ema_warmup d is at most (1 + t) / (10 + t), t
     * the updates before this one. */
    double ema_decay;
    /* torch.cuda.amp.GradScaler's rule, with loss_scaling: where a gradient is not finite the update is left
     * out and the scale multiplied by backoff, after interval updates in a row by growth. Wants
     * graph_loss_scale. */
    double scale_init, scale_growth, scale_backoff;
    int64_t scale_interval;
    bool nesterov; /* sgd, lars */
    bool ema_warmup, loss_scaling;
} Optimizer;

/* What a tensor of TENSOR_OPTIMIZER is to its parameter. */
typedef enum OptimizerSlot {
    SLOT_MOMENTUM_BUFFER,
    SLOT_EXP_AVG,
    SLOT_EXP_AVG_SQ,
    SLOT_SLOW,
    SLOT_ACCUMULATED,
    SLOT_EMA,
    OPTIMIZER_SLOT_COUNT
} OptimizerSlot;
extern const char *const optimizer_slot_names[]; /* "momentum_buffer", "exp_avg", …; the last part of names */

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
        struct {
            float mean[GRAPH_CHANNELS_MAX], deviation[GRAPH_CHANNELS_MAX]; /* in 0..255 of the bytes */
            DataType type;                                                 /* of y */
        } normalize;
        struct {
            DataType type;
        } cast;
        struct {
            Conv2d options;
            bool relu;   /* an activation is part of the node (graph_fuse) */
            float slope; /* of the activation */
        } conv;
        struct {
            BatchNorm options;
            bool relu;   /* an activation is part of the node (graph_fuse) */
            float slope; /* of the activation */
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
            float smoothing;
        } loss;
        struct {
            LossKind kind;
        } pixel_loss;
        Optimizer update;
    } as;
} Node;

typedef struct Graph Graph;

Graph *graph_new(void); /* NULL: no memory */
void graph_free(Graph **graph);
/* Sets the compute type, f32 (as a graph begins), bf16 or f16, for the nodes that are appended from here on
 * (mixed precision): graph_normalize yields it, and graph_conv2d and graph_linear compute in it, casting what
 * they read. Norms, pools and the like keep the type they are given, with parameters and statistics in f32;
 * losses cast to f32. */
void graph_set_compute_type(Graph *graph, DataType type);
/* Makes the training norms that are appended from here on take mean and variance over the batches of all
 * ranks, as one process with the total batch does (torch.nn.SyncBatchNorm). Every rank has a batch of the
 * same size. A norm may then have one value for each channel. */
void graph_set_sync_norms(Graph *graph, bool sync);

/* ---- building: returns the result, TENSOR_NONE after a failure ---- */

TensorId graph_input(Graph *graph, const char *name, DataType type, int rank, const int64_t *shape);
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
/* Returns the mean [1] of -sum target log softmax(logits) over the samples whose label is not -1 (a padded
 * sample of a last batch). logits [N, K], labels [N] i64. The target is 1 - smoothing at the label, plus
 * smoothing / K everywhere, as PyTorch's label_smoothing. Where labels_mixed is given (mixup, cutmix), the
 * label has mix [N] f32 of the 1 - smoothing, and the label in labels_mixed the rest. labels_mixed and mix:
 * both or TENSOR_NONE; a label in labels_mixed may be -1 where mix is 1. 0 <= smoothing < 1. */
TensorId graph_softmax_cross_entropy(Graph *graph, TensorId logits, TensorId labels, TensorId labels_mixed,
                                     TensorId mix, float smoothing);
/* Returns the mean over samples and classes of binary cross-entropy with logits (timm's BinaryCrossEntropy);
 * the target is graph_softmax_cross_entropy's. */
TensorId graph_binary_cross_entropy(Graph *graph, TensorId logits, TensorId labels, TensorId labels_mixed,
                                    TensorId mix, float smoothing);
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

/* Records that a model refuses its options or images: the graph fails with FSH_ERR_USAGE. Returns
 * TENSOR_NONE. */
TensorId graph_refuse(Graph *graph, const char *format, ...) FSH_PRINTF(2, 3);

/* Marks a tensor as readable after a run. name: the name that an activation gets; NULL for other tensors,
 * which have one. */
void graph_keep(Graph *graph, TensorId tensor, const char *name);
/* Says that files of weights have the parameter without its dimensions of 1: [C] for [1, C, 1, 1], and the
 * matrix [C', C] of a linear layer for the weight of a 1x1 convolution. */
void graph_save_without_ones(Graph *graph, const char *parameter);
/* Replaces the initializer that the layer gave a parameter. */
void graph_set_initializer(Graph *graph, const char *parameter, Initializer initializer);

/* Rewrites of the forward graph, each a pattern found and put into one node, before graph_differentiate.
 * Results are the same to rounding (tested against the unfused graph). A pattern is left alone where a tensor
 * inside it is kept or used elsewhere. */
typedef enum GraphFusion {
    FUSE_NORM_RELU = 1,     /* batch norm -> ReLU */
    FUSE_NORM_ADD_RELU = 2, /* batch norm -> add -> ReLU */
    FUSE_NORM_ADD = 4,      /* batch norm -> add */
    /* The bias of a convolution or linear layer before a training batch norm is not added: the norm would
     * subtract it with the mean. running_mean moves as if the bias had been added; the gradient of the bias
     * is 0. */
    FUSE_BIAS_NORM = 8,
    /* a convolution in f16 makes the sums from which a training batch norm gets its statistics */
    FUSE_CONV_STATISTICS = 16,
    FUSE_GRADIENT_ADD = 32, /* backward: add -> batch norm's gradient */
    /* The addend of a batch norm without an activation may have fewer channels than x, the others add 0:
     * channels that were zero padding are not written. Backward: a second dy may have more channels than x,
     * which do not count. */
    FUSE_PAD_ADD = 64,
    FUSE_CONV_BIAS_RELU = 128, /* convolution with a bias -> ReLU */
    /* Backward: normalised images that nothing but convolutions reads are made a second time for the
     * gradients of their weights, instead of being kept throughout, where they are many; from the input,
     * which lies there anyhow. */
    FUSE_IMAGES_AGAIN = 256,
    /* The bits that every backend wants: all but FUSE_CONV_STATISTICS, FUSE_PAD_ADD, FUSE_IMAGES_AGAIN. */
    FUSE_ALL = FUSE_NORM_RELU | FUSE_NORM_ADD_RELU | FUSE_NORM_ADD | FUSE_BIAS_NORM | FUSE_GRADIENT_ADD |
               FUSE_CONV_BIAS_RELU,
    FUSE_NONE = 1 << 30, /* no fusion; for where 0 stands for a default */
} GraphFusion;
/* The name of each bit 1 << i: "norm-relu", …; ends with NULL. */
extern const char *const fusion_names[];
/* Takes the fusions that names lists ("norm-add,pad-add"; NULL and "": none) out of *fusions, which are those
 * of `device`; sets FUSE_NONE where none is left. FSH_ERR_USAGE: a name that is none of *fusions. */
FshStatus fusions_leave_out(unsigned *fusions, const char *names, const char *device, FshError *error);
enum { STATISTICS_MULTIPLE = 8 };
void graph_fuse(Graph *graph, unsigned fusions);

/* Makes graph_differentiate take the gradients of loss * "scaler.scale", a number in the State that the
 * update moves and divides by. Call it before graph_differentiate, for an update with loss scaling. */
void graph_loss_scale(Graph *graph);
/* Appends the backward nodes of loss for every parameter it depends on; gradients of a tensor used twice are
 * added. */
void graph_differentiate(Graph *graph, TensorId loss);
/* Rewrites the backward graph, right after graph_differentiate; bits and promises as those of graph_fuse. */
void graph_fuse_backward(Graph *graph, unsigned fusions);
/* Appends the update of every parameter that has a gradient, as the last node. It keeps "gradient_norm" [1],
 * taken after accumulation and unscaling and before clipping (0 in a run that only accumulates; inf or nan
 * where an update was left out), and "updated" [1]: 1 or 0. */
void graph_update(Graph *graph, const Optimizer *optimizer);
/* Returns which slot a tensor of TENSOR_OPTIMIZER is. */
OptimizerSlot graph_optimizer_slot(const Graph *graph, TensorId tensor);

/* Returns FSH_OK or the first failure of the calls above: FSH_ERR_MISMATCH with layer and shapes
 * ("layer3.0.conv1: kernel 3 does not fit a 1 x 1 input; use larger images"), FSH_ERR_MEMORY. */
FshStatus graph_check(const Graph *graph, FshError *error);

/* ---- reading ---- */

/* Return counts and entries. Pointers are good until the graph is built further. */
size_t graph_node_count(const Graph *graph);
const Node *graph_node(const Graph *graph, NodeId id);
size_t graph_tensor_count(const Graph *graph);
const Tensor *graph_tensor(const Graph *graph, TensorId id);
/* Returns the tensor of this unique name; TENSOR_NONE if there is none. */
TensorId graph_find(const Graph *graph, const char *name);
/* Returns the gradient of a tensor after graph_differentiate, or TENSOR_NONE. A parameter's is named
 * NAME.grad. */
TensorId graph_gradient(const Graph *graph, TensorId tensor);
/* Return how many numbers are trained, and the operations of the forward nodes for the whole batch. */
int64_t graph_parameter_count(const Graph *graph);
int64_t graph_forward_flops(const Graph *graph);
/* Return the operations of one node, multiply-adds times two (0 for ops that are not counted), and the least
 * bytes that it moves. */
int64_t graph_node_flops(const Graph *graph, NodeId id);
int64_t graph_node_bytes(const Graph *graph, NodeId id);

/* Returns the name of an op in the op table: "conv2d", "batch_norm_backward", …. */
const char *op_name(OpKind op);
/* Returns true where the node's kernel may write this output into the bytes of this input: the kernel reads
 * each element of the input for the last time before it writes the same element of the output. */
bool node_may_overwrite(const Graph *graph, const Node *node, int output, int input);

#endif
