#include "trainer/graph/graph_internal.h"

TensorId graph_normalize(Graph *graph, TensorId x, const double *mean, const double *deviation)
{
    return graph_normalize_to(graph, x, mean, deviation, graph ? graph->compute_type : DATA_F32);
}

TensorId graph_normalize_to(Graph *graph, TensorId x, const double *mean, const double *deviation,
                            DataType type)
{
    const Tensor *image = graph_operand(graph, x);
    char shape[96];
    if (!image)
        return TENSOR_NONE;
    if (image->rank != 4 || image->type != DATA_U8 || image->shape[3] > GRAPH_CHANNELS_MAX)
        return graph_fail(graph, FSH_ERR_MISMATCH,
                          "%s: normalize needs a u8 image [N, H, W, C] of at most %d channels, not %s [%s]",
                          image->name, GRAPH_CHANNELS_MAX, data_type_name(image->type),
                          tensor_shape_text(image, shape, sizeof shape));
    Node node = {.op = OP_NORMALIZE, .inputs = {x}, .input_count = 1, .as.normalize.type = type};
    for (int64_t c = 0; c < image->shape[3]; c++) {
        if (!(deviation[c] > 0))
            return graph_fail(graph, FSH_ERR_USAGE, "%s: deviation %g of channel %lld; it must be positive",
                              image->name, deviation[c], (long long)c);
        node.as.normalize.mean[c] = (float)(mean[c] * 255);
        node.as.normalize.deviation[c] = (float)(deviation[c] * 255);
    }
    node_name_after(&node, image);
    return graph_append(graph, &node);
}

static void normalize_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[0]);
    graph_output(graph, node, 0, node->as.normalize.type, 4,
                 (int64_t[]){x->shape[0], x->shape[1], x->shape[2], x->shape[3]});
}

int64_t batch_norm_sampled(const BatchNorm *batch_norm, int64_t images)
{
    if (!batch_norm->training || batch_norm->sample <= 1)
        return images;
    return images > batch_norm->sample ? images / batch_norm->sample : 1;
}

TensorId graph_batch_norm(Graph *graph, const char *name, TensorId x, const BatchNorm *batch_norm)
{
    const Tensor *image = graph_operand(graph, x);
    char shape[96];
    if (!image)
        return TENSOR_NONE;
    if ((image->rank != 4 && image->rank != 2) || !data_type_is_float(image->type))
        return graph_fail(graph, FSH_ERR_MISMATCH,
                          "%s: batch norm needs a float image [N, H, W, C] or matrix [N, C], not %s [%s]",
                          name, data_type_name(image->type), tensor_shape_text(image, shape, sizeof shape));
    const int64_t channels = image->shape[image->rank - 1];
    const bool sync = batch_norm->training && (batch_norm->sync || graph->sync_norms);
    BatchNorm options = *batch_norm;
    options.sync = sync;
    options.sample = batch_norm->training ? batch_norm->sample : 0;
    if (batch_norm->training && options.sample == 0)
        options.sample = graph->norm_sample;
    const int64_t sampled = batch_norm_sampled(&options, image->shape[0]);
    if (batch_norm->training && !sync && tensor_count(image) / image->shape[0] * sampled == channels)
        return graph_fail(
            graph, FSH_ERR_MISMATCH,
            "%s: batch norm in training needs more than one value for each channel, not %s[%s]; use "
            "a larger batch or larger images",
            name, sampled < image->shape[0] ? "that of one image of " : "",
            tensor_shape_text(image, shape, sizeof shape));
    Node node = {.op = OP_BATCH_NORM, .inputs = {x}, .input_count = NORM_INPUTS};
    graph_set_name(graph, node.name, name);
    node.as.norm.options = options;
    if (node.as.norm.options.epsilon == 0)
        node.as.norm.options.epsilon = 1e-5;
    if (node.as.norm.options.momentum == 0)
        node.as.norm.options.momentum = 0.1;
    const Initializer zeros = {INIT_ZEROS, 0}, ones = {INIT_ONES, 0};
    node.inputs[NORM_WEIGHT] = graph_parameter(graph, name, "weight", 1, &channels, ones, false);
    node.inputs[NORM_BIAS] = graph_parameter(graph, name, "bias", 1, &channels, zeros, false);
    node.inputs[NORM_RUNNING_MEAN] = graph_buffer(graph, name, "running_mean", channels, zeros);
    node.inputs[NORM_RUNNING_VAR] = graph_buffer(graph, name, "running_var", channels, ones);
    /* What graph_fuse may put there. */
    node.inputs[NORM_ADDEND] = node.inputs[NORM_SUMS] = node.inputs[NORM_LAYER_BIAS] = TENSOR_NONE;
    return graph_append(graph, &node);
}

static void batch_norm_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[0]);
    const int64_t channels = x->shape[x->rank - 1];
    int64_t shape[GRAPH_RANK_MAX];
    const int rank = x->rank;
    for (int i = 0; i < rank; i++)
        shape[i] = x->shape[i];
    graph_output(graph, node, NORM_Y, x->type, rank, shape);
    graph_output(graph, node, NORM_MEAN, DATA_F32, 1, &channels);
    graph_output(graph, node, NORM_INVERSE_DEVIATION, DATA_F32, 1, &channels);
    if (node->as.norm.options.training) {
        node->outputs[NORM_MOVED_MEAN] = node->inputs[NORM_RUNNING_MEAN];
        node->outputs[NORM_MOVED_VAR] = node->inputs[NORM_RUNNING_VAR];
        node->output_count = NORM_OUTPUTS;
    }
}

/* Gives node `at` of the graph, a backward node, an output that is no gradient of anything. */
static void store_output(Graph *graph, size_t at, int slot, DataType type, int rank, const int64_t *shape)
{
    graph_output(graph, &graph->nodes[at], slot, type, rank, shape);
    if (!graph->failure.status)
        graph->tensors[graph->nodes[at].outputs[slot]].tensor.producer = (NodeId)at;
}

/* Returns the backward node of a norm of x, which is the node's or stands for it, that reads no result. */
static Node backward_of(const Node *node, TensorId dy, TensorId x)
{
    return (Node){.op = OP_BATCH_NORM_BACKWARD,
                  .inputs = {[NORM_BACK_DY] = dy,
                             [NORM_BACK_X] = x,
                             [NORM_BACK_WEIGHT] = node->inputs[NORM_WEIGHT],
                             [NORM_BACK_BIAS] = node->inputs[NORM_BIAS],
                             [NORM_BACK_MEAN] = node->outputs[NORM_MEAN],
                             [NORM_BACK_INVERSE_DEVIATION] = node->outputs[NORM_INVERSE_DEVIATION],
                             [NORM_BACK_Y] = TENSOR_NONE,
                             [NORM_BACK_DY2] = TENSOR_NONE},
                  .input_count = NORM_BACK_INPUTS,
                  .as.norm = node->as.norm};
}

static void batch_norm_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    const TensorId addend = node->inputs[NORM_ADDEND];
    const OpKind activation = node->as.norm.activation;
    const bool gated_by_y = addend != TENSOR_NONE && activation;
    const size_t at = graph->node_count;
    Node backward = backward_of(node, output_gradient, node->inputs[NORM_X]);
    if (gated_by_y)
        backward.inputs[NORM_BACK_Y] = node->outputs[NORM_Y];
    const TensorId of[5] = {[NORM_BACK_DX] = node->inputs[NORM_X],
                            [NORM_BACK_DWEIGHT] = node->inputs[NORM_WEIGHT],
                            [NORM_BACK_DBIAS] = node->inputs[NORM_BIAS],
                            [NORM_BACK_G] = gated_by_y ? addend : TENSOR_NONE,
                            [NORM_BACK_DLAYER_BIAS] = node->inputs[NORM_LAYER_BIAS]};
    graph_append_backward(graph, node, &backward, of, 5);
    if (activation && activation != OP_RELU && graph->node_count > at) {
        const Tensor like = *graph_tensor(graph, node->outputs[NORM_Y]); /* a copy: the table moves */
        store_output(graph, at, NORM_BACK_G, like.type, like.rank, like.shape);
    }
    if (addend == TENSOR_NONE || gated_by_y)
        return;
    const Tensor *y = graph_tensor(graph, node->outputs[NORM_Y]);
    if (tensor_count(graph_tensor(graph, addend)) < tensor_count(y))
        crop_gradient(graph, node, NORM_ADDEND, output_gradient);
    else
        graph_contribute_gradient(graph, addend, output_gradient);
}

static void norm_pool_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    const size_t at = graph->node_count;
    Node of_norm = backward_of(node, output_gradient, node->outputs[NORM_POOL_EXTREME]);
    const TensorId of[5] = {[NORM_BACK_DX] = TENSOR_NONE,
                            [NORM_BACK_DWEIGHT] = node->inputs[NORM_WEIGHT],
                            [NORM_BACK_DBIAS] = node->inputs[NORM_BIAS],
                            [NORM_BACK_G] = TENSOR_NONE,
                            [NORM_BACK_DLAYER_BIAS] = node->inputs[NORM_LAYER_BIAS]};
    const TensorId x = node->inputs[NORM_X];
    const Tensor like = *graph_tensor(graph, node->outputs[NORM_Y]); /* a copy: the table moves */
    graph_append_backward(graph, node, &of_norm, of, 5);
    if (graph->node_count == at || !graph->tensors[x].needs_gradient)
        return;
    store_output(graph, at, NORM_BACK_G, like.type, like.rank, like.shape);
    if (graph->failure.status)
        return;
    const TensorId *made = graph->nodes[at].outputs;
    Node backward = {.op = OP_NORM_POOL_BACKWARD,
                     .inputs = {[NORM_POOL_BACK_G] = made[NORM_BACK_G],
                                [NORM_POOL_BACK_X] = x,
                                [NORM_POOL_BACK_WEIGHT] = node->inputs[NORM_WEIGHT],
                                [NORM_POOL_BACK_MEAN] = node->outputs[NORM_MEAN],
                                [NORM_POOL_BACK_INVERSE_DEVIATION] = node->outputs[NORM_INVERSE_DEVIATION],
                                [NORM_POOL_BACK_DWEIGHT] = made[NORM_BACK_DWEIGHT],
                                [NORM_POOL_BACK_DBIAS] = made[NORM_BACK_DBIAS],
                                [NORM_POOL_BACK_INDEX] = node->outputs[NORM_POOL_INDEX]},
                     .input_count = NORM_POOL_BACK_INPUTS,
                     .as.norm = node->as.norm};
    graph_append_backward(graph, node, &backward, &x, 1);
}

/* Returns the operations of the convolution's data gradient. */
static int64_t conv_norm_backward_flops(const Graph *graph, const Node *node)
{
    const Tensor *dy = graph_tensor(graph, node->inputs[NORM_BACK_DY]),
                 *x = graph_tensor(graph, node->inputs[NORM_BACK_X]);
    return 2 * tensor_count(dy) * x->shape[x->rank - 1];
}

/* ---- squeeze and excitation ---- */

/* Returns the node of this op that reads the tensor as its operand `place`; NULL: none does. */
static const Node *reader_of(const Graph *graph, OpKind op, int place, TensorId tensor)
{
    for (size_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i].op == op && graph->nodes[i].inputs[place] == tensor)
            return &graph->nodes[i];
    return NULL;
}

static void norm_gate_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    const TensorId addend = node->inputs[NORM_GATE_ADDEND], y = node->outputs[0];
    const bool gated_by_y = node->as.norm.activation;
    const size_t at = graph->node_count;
    const Tensor image = *graph_tensor(graph, y); /* a copy: graph_output moves the table */
    Node backward = {.op = OP_NORM_GATE_BACKWARD,
                     .inputs = {[NORM_BACK_DY] = output_gradient,
                                [NORM_BACK_X] = node->inputs[NORM_GATE_X],
                                [NORM_BACK_WEIGHT] = node->inputs[NORM_GATE_WEIGHT],
                                [NORM_BACK_BIAS] = node->inputs[NORM_GATE_BIAS],
                                [NORM_BACK_MEAN] = node->inputs[NORM_GATE_MEAN],
                                [NORM_BACK_INVERSE_DEVIATION] = node->inputs[NORM_GATE_INVERSE_DEVIATION],
                                [NORM_BACK_Y] = gated_by_y ? y : TENSOR_NONE,
                                [NORM_BACK_DY2] = TENSOR_NONE},
                     .input_count = NORM_BACK_INPUTS};
    backward.as.norm = node->as.norm;
    const TensorId of[3] = {[NORM_GATE_BACK_G] = gated_by_y ? addend : TENSOR_NONE,
                            [NORM_GATE_BACK_DFACTORS] = node->inputs[NORM_GATE_FACTORS],
                            [NORM_GATE_BACK_SUMS] = TENSOR_NONE};
    graph_append_backward(graph, node, &backward, of, 3);
    const bool appended = graph->node_count > at; /* not where all is frozen that the factors depend on */
    if (appended)
        store_output(graph, at, NORM_GATE_BACK_SUMS, DATA_F32, 3,
                     (int64_t[]){2, image.shape[0], image.shape[3]});
    if (appended && gated_by_y && graph->nodes[at].outputs[NORM_GATE_BACK_G] == TENSOR_NONE)
        store_output(graph, at, NORM_GATE_BACK_G, image.type, image.rank, image.shape);
    if (!gated_by_y)
        graph_contribute_gradient(graph, addend, output_gradient);
}

static void norm_squeeze_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    const TensorId mean = node->outputs[NORM_MEAN];
    const Node *gate = reader_of(graph, OP_NORM_GATE, NORM_GATE_MEAN, mean),
               *of_gate = reader_of(graph, OP_NORM_GATE_BACKWARD, NORM_BACK_MEAN, mean);
    if (!gate || !of_gate)
        return;
    const TensorId g = of_gate->outputs[NORM_GATE_BACK_G];
    Node backward = {.op = OP_NORM_SQUEEZE_BACKWARD,
                     .inputs = {[NORM_SQUEEZE_BACK_DY] = output_gradient,
                                [NORM_SQUEEZE_BACK_G] = g != TENSOR_NONE ? g : of_gate->inputs[NORM_BACK_DY],
                                [NORM_SQUEEZE_BACK_X] = node->inputs[NORM_X],
                                [NORM_SQUEEZE_BACK_WEIGHT] = node->inputs[NORM_WEIGHT],
                                [NORM_SQUEEZE_BACK_MEAN] = mean,
                                [NORM_SQUEEZE_BACK_INVERSE_DEVIATION] = node->outputs[NORM_INVERSE_DEVIATION],
                                [NORM_SQUEEZE_BACK_FACTORS] = gate->inputs[NORM_GATE_FACTORS],
                                [NORM_SQUEEZE_BACK_SUMS] = of_gate->outputs[NORM_GATE_BACK_SUMS],
                                [NORM_SQUEEZE_BACK_IMAGE_MEANS] = node->outputs[NORM_IMAGE_MEANS]},
                     .input_count = NORM_SQUEEZE_BACK_INPUTS};
    backward.as.norm = node->as.norm;
    const TensorId of[3] = {[NORM_BACK_DX] = node->inputs[NORM_X],
                            [NORM_BACK_DWEIGHT] = node->inputs[NORM_WEIGHT],
                            [NORM_BACK_DBIAS] = node->inputs[NORM_BIAS]};
    graph_append_backward(graph, node, &backward, of, 3);
}

const OpRow op_rows_norm[] = {
    {.op = OP_NORMALIZE, .name = "normalize", .infer = normalize_infer},
    {.op = OP_BATCH_NORM,
     .name = "batch_norm",
     .infer = batch_norm_infer,
     .differentiate = batch_norm_differentiate,
     .overwrites = {[NORM_Y] = 1 << NORM_X | 1 << NORM_ADDEND}},
    {.op = OP_BATCH_NORM_BACKWARD,
     .name = "batch_norm_backward",
     .optional = 1 << NORM_BACK_DX | 1 << NORM_BACK_G | 1 << NORM_BACK_DLAYER_BIAS,
     .overwrites = {[NORM_BACK_DX] =
                        1 << NORM_BACK_DY | 1 << NORM_BACK_X | 1 << NORM_BACK_Y | 1 << NORM_BACK_DY2,
                    [NORM_BACK_G] = 1 << NORM_BACK_DY | 1 << NORM_BACK_Y | 1 << NORM_BACK_DY2}},
    {.op = OP_CONV_NORM_BACKWARD,
     .name = "conv_norm_backward",
     .optional = 1 << NORM_BACK_DX | 1 << NORM_BACK_DLAYER_BIAS,
     .overwrites = {[NORM_BACK_DX] = 1 << NORM_BACK_X | 1 << NORM_BACK_Y | 1 << NORM_BACK_DY2},
     .flops = conv_norm_backward_flops},
    /* Made by graph_fuse and graph_fuse_backward alone, which infer their outputs. */
    /* y takes the bytes of none: all blocks of a sum read the first row of x and of the addend. */
    {.op = OP_NORM_PAIR, .name = "norm_pair"},
    {.op = OP_NORM_PAIR_BACKWARD,
     .name = "norm_pair_backward",
     .overwrites = {[NORM_BACK_DX] = 1 << NORM_BACK_DY | 1 << NORM_BACK_X | 1 << NORM_BACK_DY2,
                    [NORM_BACK_G] = 1 << NORM_BACK_DY | 1 << NORM_BACK_DY2}},
    {.op = OP_NORM_POOL, .name = "norm_pool", .differentiate = norm_pool_differentiate},
    {.op = OP_NORM_SQUEEZE, .name = "norm_squeeze", .differentiate = norm_squeeze_differentiate},
    {.op = OP_NORM_GATE,
     .name = "norm_gate",
     .differentiate = norm_gate_differentiate,
     .overwrites = {1 << NORM_GATE_X | 1 << NORM_GATE_ADDEND}},
    {.op = OP_NORM_POOL_BACKWARD, .name = "norm_pool_backward", .overwrites = {1 << NORM_POOL_BACK_X}},
    {.op = OP_NORM_SQUEEZE_BACKWARD,
     .name = "norm_squeeze_backward",
     .optional = 1 << NORM_BACK_DX,
     .overwrites = {[NORM_BACK_DX] = 1 << NORM_SQUEEZE_BACK_G | 1 << NORM_SQUEEZE_BACK_X}},
    {.op = OP_NORM_GATE_BACKWARD,
     .name = "norm_gate_backward",
     .optional = 1 << NORM_GATE_BACK_G,
     .overwrites = {[NORM_GATE_BACK_G] = 1 << NORM_BACK_DY | 1 << NORM_BACK_Y | 1 << NORM_BACK_DY2}},
    {.name = NULL},
};
