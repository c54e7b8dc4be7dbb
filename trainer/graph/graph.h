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
#include "trainer/graph/graph_ops.h"
#include "trainer/graph/graph_optimizer.h"
#include "trainer/graph/graph_tensor.h"

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
/* Makes the training norms that are appended from here on take mean and variance of one image in `sample` of
 * the batch, the first ones, and normalise all images by them: the batch sampling of Chen et al. 2018
 * (arXiv:1810.10962). Batches are in random order, so the first images are a random choice. 0 and 1: of all.
 * With sync norms each rank takes that part of its own batch. The gradient is that of just this function:
 * with S the sampled pixels, n of them, x^ the normalised image and g the gradient after the activation,
 *
 *   dbias = sum g,  dweight = sum g x^,
 *   dx = weight * inverse_deviation * (g - [in S] (dbias + x^ dweight) / n),
 *
 * where the sums are over all pixels, since all are normalised by these statistics, and only those in S move
 * them. */
void graph_set_norm_sample(Graph *graph, int sample);

/* ---- building: the ops are appended by the calls of graph_ops.h ---- */

TensorId graph_input(Graph *graph, const char *name, DataType type, int rank, const int64_t *shape);
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

/* Set how a parameter is trained, between building and graph_fuse. */
/* Makes its factors of the learning rate and of the weight decay these, 0 or above. */
void graph_set_factors(Graph *graph, TensorId parameter, double rate, double decay);
/* Takes it out of training: no gradient of it is computed, nor of what depends on frozen parameters alone; it
 * has no optimizer state. A training batch norm whose weight and bias are both frozen normalises by its
 * running statistics, which stay as they are (timm's and torchvision's FrozenBatchNorm2d). */
void graph_freeze(Graph *graph, TensorId parameter);

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
    FUSE_LINEAR_ADD = 512, /* linear layer -> add */
    /* Batch norm -> GELU, SiLU or Mish. Backward: the norm's result is computed from x again. */
    FUSE_NORM_FUNCTION = 1024,
    /* Batch norm -> squeeze and excitation -> add -> ReLU, with or without these two: the normalised image is
     * not written, neither is what comes through the multiplication and the addition. */
    FUSE_NORM_GATE = 2048,
    /* Backward, in 16 bits: data gradient of a convolution of 1 x 1 -> batch norm's gradient. */
    FUSE_GRADIENT_CONV = 4096,
    /* Backward, in 16 bits: a batch norm with an addend and a ReLU leaves a bit for each value, which its
     * gradient reads in place of the value. For channels in multiples of 8. */
    FUSE_NORM_SIGNS = 8192,
    /* Backward, in 16 bits: the gradient of a GELU, SiLU, Mish, gate or channel scale makes the gradient of
     * the bias before it, unless that of a depthwise convolution. */
    FUSE_FUNCTION_BIAS = 16384,
    /* Normalised images that nothing reads but stems, and convolutions of few channels, in 16 bits: they read
     * the bytes, in both directions. */
    FUSE_NORMALIZE_CONV = 32768,
    /* Backward, in 16 bits: data gradient of a convolution of 1 x 1 and stride 2 -> batch norm's gradient:
     * the zeros of pixels that the convolution skips are neither written nor read. */
    FUSE_GRADIENT_STRIDE = 65536,
    /* Batch norm in training, with a ReLU or without -> max pool, of many values: the norm's result is not
     * written. Of values that rounding makes equal, the gradient goes to the one that was larger. */
    FUSE_NORM_POOL = 131072,
    /* Backward, in 16 bits, with FUSE_NORM_POOL and FUSE_NORMALIZE_CONV: the gradient of a norm and its pool
     * -> weight gradient of a convolution of 7 x 7, stride 2 and padding 3 to 64 channels, as resnet's: the
     * gradient of its result is not written. */
    FUSE_STEM_GRADIENT = 262144,
    /* Gate -> mean over pixels -> factors for the gate's result, as in NAFNet. Backward: the gate's gradient
     * multiplies by any factors that its result was multiplied by, and adds the gradient of its means.
     * Channels in multiples of 8. */
    FUSE_GATE_MEAN = 524288,
    /* Reflection pad -> convolution of few channels, in 16 bits, of small images: the padded image is not
     * written, neither is its gradient. */
    FUSE_PAD_CONV = 1048576,
    /* Cast -> loss of classes: it reads the scores in 16 bits, and makes their gradient in them. */
    FUSE_CAST_LOSS = 2097152,
    /* Convolution of 1 x 1 or linear layer -> layer scale, in f32 and bf16: the factors are multiplied into
     * the weight and the bias, so that the result is neither written nor read before its scale. Channels in
     * multiples of 8; weight, bias and factors are trained. */
    FUSE_LINEAR_SCALE = 4194304,
    /* By graph_fuse_backward, in 16 bits: batch norm in training, with an addend or without -> batch norm,
     * with a ReLU or without, and their gradients: what is between them is read where it is made. For equal
     * epsilon and momentum, and statistics of one rank over all rows. */
    FUSE_NORM_PAIR = 8388608,
    /* The bits that every backend wants: all but FUSE_CONV_STATISTICS, FUSE_PAD_ADD, FUSE_IMAGES_AGAIN,
     * FUSE_GRADIENT_CONV, FUSE_NORM_SIGNS, FUSE_FUNCTION_BIAS, FUSE_NORMALIZE_CONV,
     * FUSE_GRADIENT_STRIDE, FUSE_STEM_GRADIENT, FUSE_PAD_CONV, FUSE_CAST_LOSS, FUSE_LINEAR_SCALE,
     * FUSE_NORM_PAIR. */
    FUSE_ALL = FUSE_NORM_RELU | FUSE_NORM_ADD_RELU | FUSE_NORM_ADD | FUSE_BIAS_NORM | FUSE_GRADIENT_ADD |
               FUSE_CONV_BIAS_RELU | FUSE_LINEAR_ADD | FUSE_NORM_FUNCTION | FUSE_NORM_GATE | FUSE_NORM_POOL |
               FUSE_GATE_MEAN,
    FUSE_NONE = 1 << 30, /* no fusion; for where 0 stands for a default */
} GraphFusion;
/* The name of each bit 1 << i: "norm-relu", …; ends with NULL. */
extern const char *const fusion_names[];
/* Takes the fusions that names lists ("norm-add,pad-add"; NULL and "": none) out of *fusions, which are those
 * of `device`; sets FUSE_NONE where none is left. FSH_ERR_USAGE: a name that is none of *fusions. */
FshStatus fusions_leave_out(unsigned *fusions, const char *names, const char *device, FshError *error);
enum { STATISTICS_MULTIPLE = 8 };
/* Sets of how many values, or more, a norm is for FUSE_NORM_POOL to take it: before graph_fuse. A graph
 * begins with NORM_POOL_LEAST: fewer lie in a cache, where a norm of one launch, and the pool, take less
 * time. */
void graph_set_pool_least(Graph *graph, int64_t values);
enum { NORM_POOL_LEAST = 1 << 22 };
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
/* Return how many numbers the parameters have, how many of these are trained, and the operations of the
 * forward nodes for the whole batch. */
int64_t graph_parameter_count(const Graph *graph);
int64_t graph_trained_count(const Graph *graph);
int64_t graph_forward_flops(const Graph *graph);
/* Return the operations of one node, multiply-adds times two (0 for ops that are not counted), and the least
 * bytes that it moves. */
int64_t graph_node_flops(const Graph *graph, NodeId id);
int64_t graph_node_bytes(const Graph *graph, NodeId id);
/* Returns the type in which a node of a product computes: that of its first input, or, where this is bytes,
 * of what it makes of them. */
DataType graph_product_type(const Graph *graph, const Node *node);

/* Returns the name of an op in the op table: "conv2d", "batch_norm_backward", …. */
const char *op_name(OpKind op);
/* Returns true where the node's kernel may write this output into the bytes of this input: the kernel reads
 * each element of the input for the last time before it writes the same element of the output. */
bool node_may_overwrite(const Graph *graph, const Node *node, int output, int input);

#endif
