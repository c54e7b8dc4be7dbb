/* graph.h - the network as a static graph: built once, differentiated as a graph, planned, then lowered by a backend.
 *
 *   Graph *graph = graph_new();
 *   TensorId pixels = graph_input(graph, "image", DATA_U8, 4, (int64_t[]){64, 32, 32, 3});
 *   TensorId labels = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){64});
 *   TensorId x = graph_normalize(graph, pixels, mean, deviation);
 *   x = graph_conv2d(graph, "conv1", x, &(Conv2d){.channels = 64, .kernel = 7, .stride = 2, .padding = 3});
 *   x = graph_batch_norm(graph, "bn1", x, &(BatchNorm){.training = true});
 *   x = graph_relu(graph, x);
 *   …
 *   TensorId loss = graph_softmax_cross_entropy(graph, logits, labels, 0.1F);
 *   graph_differentiate(graph, loss);             // gradients are nodes like all others
 *   graph_sgd(graph, &(Sgd){…});                  // so is the update
 *   if (graph_check(graph, &error)) …             // the first mistake, by layer and shapes
 *
 * Conventions.
 * - Shapes are logical: activations [N, H, W, C], matrices [N, C], convolution weights [out, in / groups, kernel_h,
 *   kernel_w] (OIHW, as in checkpoints), linear weights [out, in]. How a backend lays a tensor out in memory is its own affair.
 * - Batch size is part of the shapes: one graph for each (resolution, batch, training or evaluation). Graphs of one network
 *   share their parameters by name, through a backend's State (backend.h).
 * - Names of parameters and buffers are torchvision's: "layer1.0.conv1.weight", "bn1.running_mean".
 * - A builder call that fails records the error in the graph, returns TENSOR_NONE, and every later call does nothing: model
 *   code needs no checks, graph_check tells at the end.
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

enum { GRAPH_RANK_MAX = 4, GRAPH_NAME_MAX = 96, NODE_INPUTS_MAX = 8, NODE_OUTPUTS_MAX = 5 };

typedef enum DataType { DATA_F32, DATA_U8, DATA_I64 } DataType;
size_t data_type_bytes(DataType type);
const char *data_type_name(DataType type);

typedef enum TensorRole {
    TENSOR_INPUT,      /* written from outside before a run: images, labels, learning rate */
    TENSOR_PARAMETER,  /* trained; lives in the State from run to run */
    TENSOR_BUFFER,     /* lives in the State, not trained: running_mean, running_var */
    TENSOR_ACTIVATION, /* computed in each run, forward or backward; placed by the memory plan */
    TENSOR_GRADIENT,   /* of a parameter; all in one arena in parameter order, for optimizer and all-reduce */
} TensorRole;

typedef struct Tensor {
    char name[GRAPH_NAME_MAX]; /* parameters, buffers, inputs, outputs: unique; activations: of their layer */
    TensorRole role;
    DataType type;
    int rank;
    int64_t shape[GRAPH_RANK_MAX];
    NodeId producer;           /* NODE_NONE for inputs, parameters, buffers */
    TensorId of;               /* TENSOR_GRADIENT: its parameter; TENSOR_ACTIVATION made by autodiff: what it is the gradient of */
    bool keep;                 /* readable after a run: loss, logits */
    bool decays;               /* TENSOR_PARAMETER: weight decay applies (off for norms and biases) */
    struct Initializer {
        enum { INIT_ZEROS, INIT_ONES, INIT_NORMAL, INIT_UNIFORM } kind;
        double scale;          /* standard deviation, or half-width of the interval around 0 */
    } initializer;             /* TENSOR_PARAMETER and TENSOR_BUFFER */
} Tensor;

/* Elements of the tensor. */
int64_t tensor_count(const Tensor *tensor);

typedef enum OpKind {
    OP_NORMALIZE,
    OP_CONV2D,
    OP_CONV2D_BACKWARD_DATA,
    OP_CONV2D_BACKWARD_WEIGHT,
    OP_BATCH_NORM,
    OP_BATCH_NORM_BACKWARD,
    OP_RELU, /* leaky where slope != 0 */
    OP_RELU_BACKWARD,
    OP_ADD,
    OP_MAX_POOL,
    OP_MAX_POOL_BACKWARD,
    OP_AVG_POOL,
    OP_AVG_POOL_BACKWARD,
    OP_GLOBAL_AVG_POOL,
    OP_GLOBAL_AVG_POOL_BACKWARD,
    OP_REFLECTION_PAD,
    OP_REFLECTION_PAD_BACKWARD,
    OP_FLATTEN,
    OP_FLATTEN_BACKWARD,
    OP_LINEAR,
    OP_LINEAR_BACKWARD_DATA,
    OP_LINEAR_BACKWARD_WEIGHT, /* weight and bias */
    OP_SOFTMAX_CROSS_ENTROPY,
    OP_SOFTMAX_CROSS_ENTROPY_BACKWARD,
    OP_SGD,
    OP_KIND_COUNT
} OpKind;

/* Square kernels in the builder's short form; groups and dilation when a network needs them. */
typedef struct Conv2d {
    int64_t channels;          /* out */
    int64_t kernel, stride, padding;
    bool bias;
    enum { CONV_INIT_DEFAULT, CONV_INIT_KAIMING_FAN_OUT } init; /* PyTorch's default (kaiming_uniform, a = sqrt 5), or torchvision's resnet */
} Conv2d;

typedef struct BatchNorm {
    bool training;             /* batch statistics and update of the running ones; else the running ones */
    double epsilon, momentum;  /* 0 chooses PyTorch's 1e-5 and 0.1 */
} BatchNorm;

typedef struct Pool2d {
    int64_t kernel, stride, padding; /* average: padding counts in the divisor (PyTorch's default) */
} Pool2d;

/* PyTorch's SGD: v = momentum * v + (g + decay * w); w -= lr * (nesterov ? g + momentum * v : v). */
typedef struct Sgd {
    double momentum, weight_decay;
    bool nesterov;
    TensorId learning_rate; /* an input [1] f32, written before each step */
} Sgd;

typedef struct Node {
    OpKind op;
    char name[GRAPH_NAME_MAX]; /* layer: "layer1.0.conv1" */
    int input_count, output_count;
    TensorId inputs[NODE_INPUTS_MAX];   /* TENSOR_NONE where an optional one is absent */
    TensorId outputs[NODE_OUTPUTS_MAX];
    union {
        struct { float mean[4], deviation[4]; } normalize; /* in 0..255 of the bytes */
        Conv2d conv;
        BatchNorm batch_norm;
        struct { float slope; } relu;
        Pool2d pool;
        struct { int64_t padding; } pad;
        struct { float smoothing; } loss;
        Sgd sgd;
    } as;
} Node;

typedef struct Graph Graph;

Graph *graph_new(void); /* NULL: no memory */
void graph_free(Graph **graph);

/* ---- building: returns the result, TENSOR_NONE after a failure ---------------------------------------------------- */

TensorId graph_input(Graph *graph, const char *name, DataType type, int rank, const int64_t *shape);
/* [N, H, W, C] u8 -> f32: (x - mean[c]) / deviation[c], mean and deviation in 0..1 of full scale, C values. */
TensorId graph_normalize(Graph *graph, TensorId x, const double *mean, const double *deviation);
/* [N, H, W, C] -> [N, H', W', channels]; makes name.weight and, with bias, name.bias. */
TensorId graph_conv2d(Graph *graph, const char *name, TensorId x, const Conv2d *conv);
/* [N, H, W, C] or [N, C]; makes name.weight, .bias, .running_mean, .running_var. Where the result is followed by a ReLU a
 * backend may fuse the two; that is a pass, not the builder's affair. */
TensorId graph_batch_norm(Graph *graph, const char *name, TensorId x, const BatchNorm *batch_norm);
TensorId graph_relu(Graph *graph, TensorId x);
TensorId graph_leaky_relu(Graph *graph, TensorId x, float slope);
TensorId graph_add(Graph *graph, TensorId a, TensorId b);
TensorId graph_max_pool(Graph *graph, TensorId x, const Pool2d *pool);
TensorId graph_avg_pool(Graph *graph, TensorId x, const Pool2d *pool);
TensorId graph_global_avg_pool(Graph *graph, TensorId x); /* -> [N, C] */
TensorId graph_reflection_pad(Graph *graph, TensorId x, int64_t padding);
TensorId graph_flatten(Graph *graph, TensorId x);         /* [N, H, W, C] -> [N, C * H * W], in PyTorch's order (C, H, W) */
TensorId graph_linear(Graph *graph, const char *name, TensorId x, int64_t features, bool bias);
/* logits [N, K], labels [N] i64 -> mean loss [1] over samples whose label is not -1 (a padded sample of a last batch).
 * 0 <= smoothing < 1, as PyTorch's label_smoothing. */
TensorId graph_softmax_cross_entropy(Graph *graph, TensorId logits, TensorId labels, float smoothing);

/* Marks a tensor as readable after a run and names it. */
void graph_keep(Graph *graph, TensorId tensor, const char *name);

/* Appends the backward nodes of loss for every parameter it depends on; gradients of a tensor used twice are added. */
void graph_differentiate(Graph *graph, TensorId loss);
/* Appends the update of every parameter that has a gradient. */
void graph_sgd(Graph *graph, const Sgd *sgd);

/* FSH_OK, or the first failure of the calls above: FSH_ERR_MISMATCH with layer and shapes ("layer3.0.conv1: kernel 3 does
 * not fit a 1 x 1 input; use larger images"), FSH_ERR_MEMORY. */
FshStatus graph_check(const Graph *graph, FshError *error);

/* ---- reading ------------------------------------------------------------------------------------------------------ */

size_t graph_node_count(const Graph *graph);
const Node *graph_node(const Graph *graph, NodeId id);
size_t graph_tensor_count(const Graph *graph);
const Tensor *graph_tensor(const Graph *graph, TensorId id);
/* By unique name; TENSOR_NONE if there is none. */
TensorId graph_find(const Graph *graph, const char *name);
/* The gradient of a tensor after graph_differentiate, or TENSOR_NONE. */
TensorId graph_gradient(const Graph *graph, TensorId tensor);
/* Trained numbers, and multiply-adds times two of the forward nodes for the whole batch. */
int64_t graph_parameter_count(const Graph *graph);
int64_t graph_forward_flops(const Graph *graph);

/* "conv2d", "batch_norm_backward", …: the row of the op table. */
const char *op_name(OpKind op);

/* ---- the memory plan ---------------------------------------------------------------------------------------------- */

/* Where each activation lies in one arena: tensors whose lifetimes (first to last node that touches them) do not overlap share bytes.
 * Greedy by size over the interval graph. bytes_of says what a tensor takes in the backend's layout (padding included). */
typedef struct MemoryPlan {
    uint64_t *offset_bytes;   /* [tensor_count]; UINT64_MAX for tensors outside the arena */
    uint64_t arena_bytes;
    uint64_t unshared_bytes;  /* without sharing, for the report */
} MemoryPlan;

FshStatus memory_plan_make(const Graph *graph, uint64_t (*bytes_of)(const Graph *graph, TensorId tensor, void *context),
                           void *context, MemoryPlan *plan, FshError *error);
void memory_plan_free(MemoryPlan *plan);

#endif
