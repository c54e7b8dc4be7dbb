#include "trainer/graph/graph_internal.h"

#include <string.h>

void same_shape_infer(Graph *graph, Node *node)
{
    const Tensor x = *graph_tensor(graph, node->inputs[0]); /* a copy: graph_output moves the table */
    graph_output(graph, node, 0, x.type, x.rank, x.shape);
}

TensorId graph_cast(Graph *graph, TensorId x, DataType type)
{
    const Tensor *input = graph_operand(graph, x);
    if (!input)
        return TENSOR_NONE;
    if (input->type == type)
        return x;
    /* Between bf16 and f16 a value would be rounded twice; no network asks for it. */
    if (!data_type_is_float(input->type) || !data_type_is_float(type) ||
        (input->type != DATA_F32 && type != DATA_F32))
        return graph_fail(graph, FSH_ERR_MISMATCH,
                          "%s: a cast is between f32 and another float type, not from %s to %s", input->name,
                          data_type_name(input->type), data_type_name(type));
    Node node = {.op = OP_CAST, .inputs = {x}, .input_count = 1, .as.cast.type = type};
    node_name_after(&node, input);
    return graph_append(graph, &node);
}

static void cast_infer(Graph *graph, Node *node)
{
    const Tensor x = *graph_tensor(graph, node->inputs[0]);
    graph_output(graph, node, 0, node->as.cast.type, x.rank, x.shape);
}

static void cast_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_CAST,
                     .inputs = {output_gradient},
                     .input_count = 1,
                     .as.cast.type = graph_tensor(graph, node->inputs[0])->type};
    graph_append_backward(graph, node, &backward, &node->inputs[0], 1);
}

TensorId graph_relu(Graph *graph, TensorId x)
{
    return graph_leaky_relu(graph, x, 0);
}

TensorId graph_leaky_relu(Graph *graph, TensorId x, float slope)
{
    const Tensor *input = graph_operand(graph, x);
    if (!input)
        return TENSOR_NONE;
    /* The backward pass tells from the sign of the result where the input was negative. */
    if (!(slope >= 0))
        return graph_fail(graph, FSH_ERR_USAGE, "%s: leaky ReLU with slope %g; it must not be negative",
                          input->name, (double)slope);
    if (!data_type_is_float(input->type))
        return graph_fail(graph, FSH_ERR_MISMATCH, "%s: ReLU needs floats, not %s", input->name,
                          data_type_name(input->type));
    Node node = {.op = OP_RELU, .inputs = {x}, .input_count = 1, .as.relu.slope = slope};
    node_name_after(&node, input);
    return graph_append(graph, &node);
}

static void relu_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_RELU_BACKWARD,
                     .inputs = {output_gradient, node->outputs[0]},
                     .input_count = 2,
                     .as.relu = node->as.relu};
    graph_append_backward(graph, node, &backward, &node->inputs[0], 1);
}

/* ---- functions of one value (trainer/backend/pointwise_math.h) ---- */

static TensorId append_function(Graph *graph, OpKind op, TensorId x)
{
    const Tensor *input = graph_operand(graph, x);
    if (!input)
        return TENSOR_NONE;
    if (!data_type_is_float(input->type))
        return graph_fail(graph, FSH_ERR_MISMATCH, "%s: %s needs floats, not %s", input->name, op_name(op),
                          data_type_name(input->type));
    Node node = {.op = op, .inputs = {x}, .input_count = 1};
    node_name_after(&node, input);
    return graph_append(graph, &node);
}

static void function_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = (OpKind)(node->op + 1),
                     .inputs = {[POINTWISE_BACK_DY] = output_gradient, [POINTWISE_BACK_X] = node->inputs[0]},
                     .input_count = 2};
    graph_append_backward(graph, node, &backward, &node->inputs[0], 1);
}

TensorId graph_gelu(Graph *graph, TensorId x)
{
    return append_function(graph, OP_GELU, x);
}

TensorId graph_silu(Graph *graph, TensorId x)
{
    return append_function(graph, OP_SILU, x);
}

TensorId graph_mish(Graph *graph, TensorId x)
{
    return append_function(graph, OP_MISH, x);
}

TensorId graph_sigmoid(Graph *graph, TensorId x)
{
    return append_function(graph, OP_SIGMOID, graph_cast(graph, x, DATA_F32));
}

/* ---- add ---- */

TensorId graph_add(Graph *graph, TensorId a, TensorId b)
{
    const Tensor *left = graph_operand(graph, a), *right = graph_operand(graph, b);
    if (!left || !right)
        return TENSOR_NONE;
    if (left->type != right->type && data_type_is_float(left->type) && data_type_is_float(right->type)) {
        a = graph_cast(graph, a, DATA_F32);
        b = graph_cast(graph, b, DATA_F32);
        left = graph_operand(graph, a); /* casting moved the table */
        if (!left)
            return TENSOR_NONE;
    }
    Node node = {.op = OP_ADD, .inputs = {a, b}, .input_count = 2};
    node_name_after(&node, left);
    return graph_append(graph, &node);
}

static void add_infer(Graph *graph, Node *node)
{
    const Tensor *a = graph_tensor(graph, node->inputs[ADD_A]), *b = graph_tensor(graph, node->inputs[ADD_B]);
    char left[96], right[96];
    if (a->rank != b->rank || a->type != b->type || !data_type_is_float(a->type) ||
        memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) != 0) {
        graph_fail(graph, FSH_ERR_MISMATCH,
                   "%s: add needs two float tensors of one shape, not %s [%s] and %s [%s]", node->name,
                   data_type_name(a->type), tensor_shape_text(a, left, sizeof left), data_type_name(b->type),
                   tensor_shape_text(b, right, sizeof right));
        return;
    }
    same_shape_infer(graph, node);
}

static void add_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    graph_contribute_gradient(graph, node->inputs[ADD_A], output_gradient);
    graph_contribute_gradient(graph, node->inputs[ADD_B], output_gradient);
}

TensorId graph_flatten(Graph *graph, TensorId x)
{
    const Tensor *input = graph_image(graph, "flatten", "flatten", x);
    if (!input)
        return TENSOR_NONE;
    Node node = {.op = OP_FLATTEN, .inputs = {x}, .input_count = 1};
    node_name_after(&node, input);
    return graph_append(graph, &node);
}

static void flatten_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[0]);
    graph_output(graph, node, 0, x->type, 2,
                 (int64_t[]){x->shape[0], x->shape[1] * x->shape[2] * x->shape[3]});
}

static void flatten_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_FLATTEN_BACKWARD, .inputs = {output_gradient}, .input_count = 1};
    graph_append_backward(graph, node, &backward, &node->inputs[0], 1);
}

/* Returns whether the image and its matrix are the same bytes: of one pixel, or of one channel where no
 * backend pads it, as CUDA does in narrow types. */
static bool flatten_is_a_view(const Graph *graph, const Node *node)
{
    const Tensor *a = graph_tensor(graph, node->inputs[0]), *b = graph_tensor(graph, node->outputs[0]);
    const Tensor *image = a->rank == 4 ? a : b;
    return image->shape[1] * image->shape[2] == 1 || (image->shape[3] == 1 && image->type == DATA_F32);
}

const OpRow op_rows_pointwise[] = {
    {.op = OP_FILL, .name = "fill"},
    {.op = OP_CAST, .name = "cast", .infer = cast_infer, .differentiate = cast_differentiate},
    {.op = OP_RELU,
     .name = "relu",
     .infer = same_shape_infer,
     .differentiate = relu_differentiate,
     .overwrites = {1}},
    {.op = OP_RELU_BACKWARD, .name = "relu_backward", .overwrites = {1 << RELU_BACK_DY | 1 << RELU_BACK_Y}},
    {.op = OP_GELU,
     .name = "gelu",
     .infer = same_shape_infer,
     .differentiate = function_differentiate,
     .overwrites = {1}},
    {.op = OP_GELU_BACKWARD,
     .name = "gelu_backward",
     .overwrites = {1 << POINTWISE_BACK_DY | 1 << POINTWISE_BACK_X}},
    {.op = OP_SILU,
     .name = "silu",
     .infer = same_shape_infer,
     .differentiate = function_differentiate,
     .overwrites = {1}},
    {.op = OP_SILU_BACKWARD,
     .name = "silu_backward",
     .overwrites = {1 << POINTWISE_BACK_DY | 1 << POINTWISE_BACK_X}},
    {.op = OP_MISH,
     .name = "mish",
     .infer = same_shape_infer,
     .differentiate = function_differentiate,
     .overwrites = {1}},
    {.op = OP_MISH_BACKWARD,
     .name = "mish_backward",
     .overwrites = {1 << POINTWISE_BACK_DY | 1 << POINTWISE_BACK_X}},
    {.op = OP_SIGMOID,
     .name = "sigmoid",
     .infer = same_shape_infer,
     .differentiate = function_differentiate,
     .overwrites = {1}},
    {.op = OP_SIGMOID_BACKWARD,
     .name = "sigmoid_backward",
     .overwrites = {1 << POINTWISE_BACK_DY | 1 << POINTWISE_BACK_X}},
    {.op = OP_ADD,
     .name = "add",
     .infer = add_infer,
     .differentiate = add_differentiate,
     .overwrites = {1 << ADD_A | 1 << ADD_B}},
    {.op = OP_FLATTEN,
     .name = "flatten",
     .infer = flatten_infer,
     .differentiate = flatten_differentiate,
     .overwrites = {1},
     .overwrites_if = flatten_is_a_view},
    {.op = OP_FLATTEN_BACKWARD,
     .name = "flatten_backward",
     .overwrites = {1},
     .overwrites_if = flatten_is_a_view},
    {.name = NULL},
};
