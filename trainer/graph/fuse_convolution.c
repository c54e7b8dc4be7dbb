#include "trainer/graph/graph_internal.h"

#include <string.h>

enum { CHANNELS_MULTIPLE = 8 }; /* GPUs pad channels in 16 bits to it */

/* ---- reflection pads ---- */

/* Returns the bytes of a pixel of so many channels in 16 bits, as GPUs have it. */
static int64_t pixel_bytes(int64_t channels)
{
    enum { NARROW_BYTES = 2 };
    return (channels + CHANNELS_MULTIPLE - 1) / CHANNELS_MULTIPLE * CHANNELS_MULTIPLE * NARROW_BYTES;
}

/* Returns whether a block of threads holds the padded image, and what it meets in y: the gradient of a
 * mirrored image is made of whole ones. A block has 94 KiB (shared_most of direct_tile.cuh), of which the
 * largest weights, and the tables, leave 40. */
static bool holds_mirrored(const Conv2d *conv, const Tensor *x, int64_t padding)
{
    enum { BYTES_MOST = 40 << 10 };
    const int64_t around = 2 * padding + conv->kernel;
    return padding < x->shape[1] && padding < x->shape[2] &&
           (x->shape[1] + around) * (x->shape[2] + around) *
                   (pixel_bytes(x->shape[3]) + pixel_bytes(conv->channels)) <=
               BYTES_MOST;
}

/* Makes convolutions of few channels pad by reflection themselves. */
static void fuse_pads(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *pad = &graph->nodes[i];
        if (pad->op != OP_REFLECTION_PAD || !pad->output_count)
            continue;
        Node *conv = graph_only_consumer(graph, uses, pad->outputs[0], OP_CONV2D);
        const Tensor *x = &graph->tensors[pad->inputs[0]].tensor;
        const int64_t padding = pad->as.pad.padding;
        if (!conv || conv->as.conv.options.padding != 0 || !conv2d_has_few_channels(graph, conv) ||
            !holds_mirrored(&conv->as.conv.options, x, padding))
            continue;
        conv->as.conv.options.padding = padding;
        conv->as.conv.options.reflects = true;
        conv->inputs[CONV_X] = pad->inputs[0];
        graph_forget(graph, pad);
        graph_empty_node(pad);
    }
}

/* ---- normalised images ---- */

/* Returns whether there is a kernel that normalises the images of a convolution itself, in 16 bits. */
static bool reads_bytes(const Graph *graph, const Node *conv)
{
    const Tensor *x = &graph->tensors[conv->inputs[CONV_X]].tensor;
    return data_type_is_narrow(x->type) && x->shape[3] <= GRAPH_CHANNELS_MAX &&
           (conv2d_is_stem(&conv->as.conv.options, x->shape[3]) || conv2d_has_few_channels(graph, conv));
}

/* Returns whether only convolutions that take bytes read the images that `normalize` makes. */
static bool only_readers_of_bytes(const Graph *graph, const GraphUses *uses, const Node *normalize)
{
    const TensorId images = normalize->outputs[0];
    const Tensor *tensor = &graph->tensors[images].tensor;
    int readers = 0;
    if (tensor->keep)
        return false;
    for (size_t i = 0; i < graph->node_count; i++) {
        const Node *conv = &graph->nodes[i];
        readers += conv->op == OP_CONV2D && conv->input_count && conv->inputs[CONV_X] == images &&
                   reads_bytes(graph, conv);
    }
    return readers > 0 && readers == uses->counts[images];
}

/* Makes convolutions read the bytes of their images. */
static void read_bytes(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *normalize = &graph->nodes[i];
        if (normalize->op != OP_NORMALIZE || !only_readers_of_bytes(graph, uses, normalize))
            continue;
        for (size_t k = 0; k < graph->node_count; k++) {
            Node *conv = &graph->nodes[k];
            if (conv->op != OP_CONV2D || !conv->input_count || conv->inputs[CONV_X] != normalize->outputs[0])
                continue;
            conv->inputs[CONV_X] = normalize->inputs[0];
            conv->as.conv.pixels = normalize->as.normalize;
        }
        graph_forget(graph, normalize);
        graph_empty_node(normalize);
    }
}

/* ---- activations ---- */

/* Makes the activation behind a convolution with a bias part of it. */
static void fuse_activations(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *conv = &graph->nodes[i];
        if (conv->op != OP_CONV2D || conv->inputs[CONV_BIAS] == TENSOR_NONE)
            continue;
        Node *relu = graph_only_consumer(graph, uses, conv->outputs[0], OP_RELU);
        if (!relu)
            continue;
        conv->as.conv.relu = true;
        conv->as.conv.slope = relu->as.relu.slope;
        graph_forget(graph, conv);
        conv->outputs[0] = relu->outputs[0];
        graph_empty_node(relu);
    }
}

/* ---- layer scales ---- */

/* Returns whether the node is a product of each pixel and a weight and nothing else, with channels in
 * multiples of 8. In f16 factors times weights may be too small to be told from 0: layer scales begin at
 * 0.000001 (ConvNeXt). */
static bool is_plain_product(const Graph *graph, const Node *node)
{
    if ((node->op != OP_LINEAR && node->op != OP_CONV2D) || node->output_count != 1)
        return false;
    const Tensor *x = &graph->tensors[node->inputs[CONV_X]].tensor,
                 *y = &graph->tensors[node->outputs[CONV_Y]].tensor;
    if (x->type != y->type || y->type == DATA_F16 || x->shape[x->rank - 1] % CHANNELS_MULTIPLE ||
        y->shape[y->rank - 1] % CHANNELS_MULTIPLE)
        return false;
    return node->op == OP_LINEAR ? node->inputs[LINEAR_ADDEND] == TENSOR_NONE
                                 : conv2d_is_pointwise(&node->as.conv.options) && !node->as.conv.relu;
}

/* Returns whether no gradient of the operands is left out: they are made by one node. */
static bool all_are_trained(const Graph *graph, const Node *scaled)
{
    static const int parameters[] = {CONV_WEIGHT, CONV_BIAS, LINEAR_FACTORS};
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        const TensorId id = scaled->inputs[parameters[i]];
        if (id != TENSOR_NONE &&
            (graph->tensors[id].tensor.role != TENSOR_PARAMETER || graph->tensors[id].tensor.frozen))
            return false;
    }
    return true;
}

/* Puts a layer that scales its weight in the place of the layer scale behind it. */
static void join_scale(Graph *graph, Node *layer, Node *scale)
{
    const NodeId at = (NodeId)(scale - graph->nodes);
    Node scaled = {.op = OP_SCALED_LINEAR,
                   .inputs = {[CONV_X] = layer->inputs[CONV_X],
                              [CONV_WEIGHT] = layer->inputs[CONV_WEIGHT],
                              [CONV_BIAS] = layer->inputs[CONV_BIAS],
                              [LINEAR_ADDEND] = scale->inputs[CHANNEL_ADDEND],
                              [LINEAR_FACTORS] = scale->inputs[CHANNEL_FACTORS]},
                   .input_count = SCALED_LINEAR_INPUTS,
                   .outputs = {scale->outputs[0]},
                   .output_count = 1};
    if (!all_are_trained(graph, &scaled))
        return;
    const Tensor x = graph->tensors[scaled.inputs[CONV_X]].tensor,
                 y = graph->tensors[scaled.outputs[CONV_Y]].tensor; /* copies: graph_output moves the table */
    const int64_t shape[2] = {y.shape[y.rank - 1], x.shape[x.rank - 1]};
    memcpy(scaled.name, layer->name, sizeof scaled.name);
    graph_output(graph, &scaled, LINEAR_SCALED_WEIGHT, y.type, 2, shape);
    if (scaled.inputs[CONV_BIAS] != TENSOR_NONE)
        graph_output(graph, &scaled, LINEAR_SCALED_BIAS, y.type, 1, shape);
    if (graph->failure.status)
        return;
    for (int k = LINEAR_SCALED_WEIGHT; k < scaled.output_count; k++)
        graph->tensors[scaled.outputs[k]].tensor.producer = at;
    graph_forget(graph, layer);
    graph_empty_node(layer);
    *scale = scaled;
}

static void fuse_scales(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count && !graph->failure.status; i++) {
        Node *layer = &graph->nodes[i];
        if (!is_plain_product(graph, layer))
            continue;
        Node *scale = graph_only_consumer(graph, uses, layer->outputs[CONV_Y], OP_CHANNEL_SCALE);
        if (scale && scale->inputs[CHANNEL_X] == layer->outputs[CONV_Y])
            join_scale(graph, layer, scale);
    }
}

void graph_fuse_convolutions(Graph *graph, const GraphUses *uses, unsigned fusions)
{
    if (fusions & FUSE_CONV_BIAS_RELU)
        fuse_activations(graph, uses);
    if (fusions & FUSE_PAD_CONV)
        fuse_pads(graph, uses);
    if (fusions & FUSE_NORMALIZE_CONV)
        read_bytes(graph, uses);
    if (fusions & FUSE_LINEAR_SCALE)
        fuse_scales(graph, uses);
}
