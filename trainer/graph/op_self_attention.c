/* Self-attention between the channels of an image, and the norm of its weight: the ops of fastai's
 * SimpleSelfAttention. */
#include "trainer/graph/graph_internal.h"

#include <math.h>

enum { ATTENTION_CHANNELS = 8 }; /* divide the channels: rows need no padding on a device */

/* ---- spectral norm ---- */

TensorId graph_spectral_norm(Graph *graph, const char *name, int64_t rows, int64_t columns, bool training)
{
    if (!graph || graph->failure.status)
        return TENSOR_NONE;
    if (rows < 1 || columns < 1)
        return graph_fail(graph, FSH_ERR_USAGE, "%s: spectral norm of a matrix of %lld x %lld", name,
                          (long long)rows, (long long)columns);
    Node node = {.op = OP_SPECTRAL_NORM, .input_count = 3};
    graph_set_name(graph, node.name, name);
    node.as.spectral_norm.training = training;
    /* u and v begin as directions of any kind, about 1 long. */
    node.inputs[SPECTRAL_NORM_WEIGHT] =
        graph_parameter(graph, name, "weight_orig", 3, (int64_t[]){rows, columns, 1},
                        (Initializer){INIT_NORMAL, sqrt(2 / (double)columns)}, true);
    node.inputs[SPECTRAL_NORM_U] =
        graph_buffer(graph, name, "weight_u", rows, (Initializer){INIT_NORMAL, sqrt(1 / (double)rows)});
    node.inputs[SPECTRAL_NORM_V] =
        graph_buffer(graph, name, "weight_v", columns, (Initializer){INIT_NORMAL, sqrt(1 / (double)columns)});
    return graph_append(graph, &node);
}

static void spectral_norm_infer(Graph *graph, Node *node)
{
    const int64_t one = 1;
    same_shape_infer(graph, node);
    graph_output(graph, node, SPECTRAL_NORM_SIGMA, DATA_F32, 1, &one);
    if (node->as.spectral_norm.training) {
        node->outputs[SPECTRAL_NORM_MOVED_U] = node->inputs[SPECTRAL_NORM_U];
        node->outputs[SPECTRAL_NORM_MOVED_V] = node->inputs[SPECTRAL_NORM_V];
        node->output_count = SPECTRAL_NORM_MOVED_V + 1;
    }
}

/* The gradient reads u and v as the forward node has left them. */
static void spectral_norm_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_SPECTRAL_NORM_BACKWARD,
                     .inputs = {[SPECTRAL_NORM_BACK_DY] = output_gradient,
                                [SPECTRAL_NORM_BACK_Y] = node->outputs[SPECTRAL_NORM_Y],
                                [SPECTRAL_NORM_BACK_U] = node->inputs[SPECTRAL_NORM_U],
                                [SPECTRAL_NORM_BACK_V] = node->inputs[SPECTRAL_NORM_V],
                                [SPECTRAL_NORM_BACK_SIGMA] = node->outputs[SPECTRAL_NORM_SIGMA]},
                     .input_count = 5};
    backward.as.spectral_norm = node->as.spectral_norm;
    graph_append_backward(graph, node, &backward, node->inputs, 1);
}

/* ---- self-attention ---- */

TensorId graph_self_attention(Graph *graph, const char *name, TensorId x, TensorId weight)
{
    const Tensor *image = graph_image(graph, name, "self-attention", x), *matrix;
    const int64_t one = 1;
    char shape[96];
    if (!image || !(matrix = graph_operand(graph, weight)))
        return TENSOR_NONE;
    const int64_t channels = image->shape[3];
    if (channels % ATTENTION_CHANNELS)
        return graph_fail(graph, FSH_ERR_MISMATCH,
                          "%s: self-attention needs a multiple of %d channels, not %lld", name,
                          ATTENTION_CHANNELS, (long long)channels);
    if (matrix->type != DATA_F32 || matrix->rank != 3 || matrix->shape[0] != channels ||
        matrix->shape[1] != channels || matrix->shape[2] != 1)
        return graph_fail(graph, FSH_ERR_MISMATCH,
                          "%s: self-attention of %lld channels needs a weight [C, C, 1] in f32, not %s [%s]",
                          name, (long long)channels, data_type_name(matrix->type),
                          tensor_shape_text(matrix, shape, sizeof shape));
    Node node = {.op = OP_SELF_ATTENTION, .inputs = {x, weight}, .input_count = 3};
    graph_set_name(graph, node.name, name);
    node.inputs[SELF_ATTENTION_GAMMA] =
        graph_parameter(graph, name, "gamma", 1, &one, (Initializer){INIT_ZEROS, 0}, true);
    return graph_append(graph, &node);
}

static void self_attention_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[SELF_ATTENTION_X]);
    const int64_t shape[3] = {x->shape[0], x->shape[3], x->shape[3]};
    same_shape_infer(graph, node);
    graph_output(graph, node, SELF_ATTENTION_PRODUCTS, DATA_F32, 3, shape);
    graph_output(graph, node, SELF_ATTENTION_MIXING, DATA_F32, 3, shape);
}

static void self_attention_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_SELF_ATTENTION_BACKWARD,
                     .inputs = {[SELF_ATTENTION_BACK_DY] = output_gradient,
                                [SELF_ATTENTION_BACK_X] = node->inputs[SELF_ATTENTION_X],
                                [SELF_ATTENTION_BACK_WEIGHT] = node->inputs[SELF_ATTENTION_WEIGHT],
                                [SELF_ATTENTION_BACK_GAMMA] = node->inputs[SELF_ATTENTION_GAMMA],
                                [SELF_ATTENTION_BACK_PRODUCTS] = node->outputs[SELF_ATTENTION_PRODUCTS],
                                [SELF_ATTENTION_BACK_MIXING] = node->outputs[SELF_ATTENTION_MIXING]},
                     .input_count = 6};
    graph_append_backward(graph, node, &backward, node->inputs, 3);
}

/* Returns the operations of `images` products of all pixels with a matrix of channels by channels, and of
 * `matrices` products of two such matrices. */
static int64_t products_flops(const Graph *graph, TensorId x, int64_t images, int64_t matrices)
{
    const Tensor *image = graph_tensor(graph, x);
    const int64_t channels = image->shape[3];
    return 2 * images * tensor_count(image) * channels +
           2 * matrices * image->shape[0] * channels * channels * channels;
}

static int64_t self_attention_flops(const Graph *graph, const Node *node)
{
    return products_flops(graph, node->inputs[SELF_ATTENTION_X], 2, 1);
}

static int64_t self_attention_backward_flops(const Graph *graph, const Node *node)
{
    return products_flops(graph, node->inputs[SELF_ATTENTION_BACK_X], 3, 2);
}

const OpRow op_rows_self_attention[] = {
    {.op = OP_SPECTRAL_NORM,
     .name = "spectral_norm",
     .infer = spectral_norm_infer,
     .differentiate = spectral_norm_differentiate},
    {.op = OP_SPECTRAL_NORM_BACKWARD, .name = "spectral_norm_backward"},
    {.op = OP_SELF_ATTENTION,
     .name = "self_attention",
     .infer = self_attention_infer,
     .differentiate = self_attention_differentiate,
     .flops = self_attention_flops},
    {.op = OP_SELF_ATTENTION_BACKWARD,
     .name = "self_attention_backward",
     .optional =
         1 << SELF_ATTENTION_BACK_DX | 1 << SELF_ATTENTION_BACK_DWEIGHT | 1 << SELF_ATTENTION_BACK_DGAMMA,
     .flops = self_attention_backward_flops},
    {.name = NULL},
};
