/* graph_internal.h - what the files of graph/ share: the graph's tables, the op table, and how ops append
 * themselves.
 *
 * An op is a kind and its operands' names in graph_ops.h, and a row at the end of an op_*.c file, which holds
 * its builder call, shape rule, gradient and cost. A backend that has no row for an op refuses it by name. */
#ifndef FSHARD_TRAINER_GRAPH_GRAPH_INTERNAL_H
#define FSHARD_TRAINER_GRAPH_GRAPH_INTERNAL_H

#include "trainer/graph/graph.h"

typedef struct TensorRecord {
    Tensor tensor;
    TensorId gradient;   /* after autodiff */
    bool needs_gradient; /* depends on a parameter */
} TensorRecord;

struct Graph {
    Node *nodes;
    size_t node_count, node_capacity;
    TensorRecord *tensors;
    size_t tensor_count, tensor_capacity;
    bool differentiated;
    TensorId loss; /* what was differentiated; TENSOR_NONE before */
    DataType compute_type;
    bool sync_norms;
    int norm_sample;
    int64_t pool_least; /* values of a norm that FUSE_NORM_POOL takes */
    FshError failure;   /* the first; later builder calls do nothing */
};

typedef struct OpRow {
    OpKind op;
    const char *name;
    /* Checks the inputs and attributes of a forward op and creates the outputs by graph_output. node is not
     * in the graph yet. NULL for backward ops, whose outputs are shaped like what they are the gradients of,
     * and for those that graph_fuse alone makes.
     * Fails through graph_fail. */
    void (*infer)(Graph *graph, Node *node);
    /* Appends the backward nodes of node, given the gradient of its output 0, through graph_append_backward.
     * NULL: the op has no gradient. node is a copy: the graph may move its own. */
    void (*differentiate)(Graph *graph, const Node *node, TensorId output_gradient);
    /* Returns multiply-adds times two; NULL: not counted. */
    int64_t (*flops)(const Graph *graph, const Node *node);
    /* Returns the least bytes that the node moves; NULL: each operand once, node_operand_bytes. */
    int64_t (*bytes)(const Graph *graph, const Node *node);
    /* Returns true where overwrites hold for the shapes of this node; NULL: for all shapes. */
    bool (*overwrites_if)(const Graph *graph, const Node *node);
    /* For each output the inputs whose bytes it may take (node_may_overwrite), bit 1 << input each. */
    uint8_t overwrites[NODE_OUTPUTS_MAX];
    /* A backward op: bit 1 << output where it may be absent. Other outputs are made where any is wanted. */
    uint8_t optional;
} OpRow;

/* The op table: the rows of each op_*.c file; each list ends with a row without a name. */
extern const OpRow op_rows_pointwise[], op_rows_convolution[], op_rows_norm[], op_rows_channel[],
    op_rows_box[], op_rows_tokens[], op_rows_self_attention[], op_rows_pool[], op_rows_loss[],
    op_rows_optimizer[];
/* Returns the row of an op. */
const OpRow *op_row(OpKind op);

/* ---- shared by the op_*.c files ---- */

/* Infers that output 0 has the type and shape of input 0: an infer. */
void same_shape_infer(Graph *graph, Node *node);
/* Returns how many windows of `kernel` fit at every `stride` along an axis of `in` pixels padded on both
 * ends. */
int64_t window_count(int64_t in, int64_t kernel, int64_t stride, int64_t padding);
/* Returns the bytes of all operands that the node has. */
int64_t node_operand_bytes(const Graph *graph, const Node *node);
/* Appends the gradient of input k, an image whose channels were added to the first of the result's. */
void crop_gradient(Graph *graph, const Node *node, int k, TensorId output_gradient);

/* ---- for builder calls ---- */

/* Records a failure if it is the first. Returns TENSOR_NONE. */
TensorId graph_fail(Graph *graph, FshStatus status, const char *format, ...) FSH_PRINTF(3, 4);

/* Returns the tensor; NULL once the graph has failed or if id is TENSOR_NONE. */
const Tensor *graph_operand(Graph *graph, TensorId id);
/* Returns a float image [N, H, W, C]; any other tensor is a failure, "LAYER: WHAT needs …", and NULL. */
const Tensor *graph_image(Graph *graph, const char *layer, const char *what, TensorId id);

/* Adds a tensor and returns its id, TENSOR_NONE after a failure (no memory, too large, name taken). Names are
 * unique but for TENSOR_ACTIVATION. */
TensorId graph_add_tensor(Graph *graph, const Tensor *tensor);
/* Add LAYER.SUFFIX, a parameter or a buffer of a layer; layer "": SUFFIX. decays: weight decay applies. */
TensorId graph_parameter(Graph *graph, const char *layer, const char *suffix, int rank, const int64_t *shape,
                         Initializer initializer, bool decays);
TensorId graph_buffer(Graph *graph, const char *layer, const char *suffix, int64_t count,
                      Initializer initializer);
/* Adds a number that the update keeps in the State, f32 [1]; `name` is its whole name. */
TensorId graph_counter(Graph *graph, const char *name, double initial);
extern const char loss_scale_name[]; /* "scaler.scale" */
/* Adds an activation and makes it output `slot`: for infer. */
void graph_output(Graph *graph, Node *node, int slot, DataType type, int rank, const int64_t *shape);

/* Infers the outputs of node, appends it and returns output 0. node->name must be set. */
TensorId graph_append(Graph *graph, Node *node);
/* Names a node that has no layer name after the tensor that it reads and after its op: "layer1.0.bn2.add". */
void node_name_after(Node *node, const Tensor *input);
/* Copies at most GRAPH_NAME_MAX - 1 bytes; a longer name is a failure of the graph. */
void graph_set_name(Graph *graph, char target[GRAPH_NAME_MAX], const char *name);

/* ---- for differentiate ---- */

/* Appends backward (op, inputs and attributes set; named here after forward). Output i becomes the gradient
 * of of[i] where that needs one; a node none of whose outputs is needed is left out. An output that is not
 * needed is absent where the op's row allows it; else it is made, and nothing takes it. Gradients of a tensor
 * used twice are added. */
void graph_append_backward(Graph *graph, const Node *forward, Node *backward, const TensorId *of,
                           int of_count);
/* Adds `gradient`, a tensor that exists already, to the gradient of `of`. */
void graph_contribute_gradient(Graph *graph, TensorId of, TensorId gradient);
/* Appends the backward nodes of the first forward_count nodes, as far as their outputs have gradients. Tests
 * start it from a gradient of their own. */
void graph_append_backward_pass(Graph *graph, size_t forward_count);

/* ---- for rewrites (fuse*.c) ---- */

/* How often each tensor is read, and by which node last. */
typedef struct GraphUses {
    int *counts;       /* [tensor_count] */
    NodeId *consumers; /* [tensor_count] */
} GraphUses;
/* Fills uses. Returns false where there is no memory: the graph has failed then. Free it in any case. */
bool graph_find_uses(Graph *graph, GraphUses *uses);
void graph_uses_free(GraphUses *uses);
/* Takes the inputs and outputs of a node away; graph_remove_empty_nodes then removes all nodes without
 * any. */
void graph_empty_node(Node *node);
/* Returns whether the node is an OP_ZERO_PAD or OP_CROP that adds or takes away last channels and nothing
 * else. */
bool graph_pads_channels(const Graph *graph, const Node *box);
void graph_remove_empty_nodes(Graph *graph);
/* Returns the node that reads `tensor` if it is the only one and of this kind, and the tensor is not kept;
 * else NULL. */
Node *graph_only_consumer(const Graph *graph, const GraphUses *uses, TensorId tensor, OpKind op);
/* Makes OP_NORM_PAIR and OP_NORM_PAIR_BACKWARD. Nodes become empty. */
void graph_pair_norms(Graph *graph, const GraphUses *uses);
/* Marks output 0 of a node as made by none: another node takes its place. */
void graph_forget(Graph *graph, const Node *node);
/* Returns whether the convolution, in 16 bits, is one of few channels, for which GPUs have kernels of their
 * own (kernels_direct.h); they take all of these that read bytes, or that mirror images as fuse_convolution.c
 * says. */
bool conv2d_has_few_channels(const Graph *graph, const Node *conv);
/* The part of graph_fuse that makes more of convolutions (fuse_convolution.c). */
void graph_fuse_convolutions(Graph *graph, const GraphUses *uses, unsigned fusions);

#endif
