#include "trainer/graph/graph_internal.h"

/* ---- zero pad and crop ---- */

static TensorId append_box(Graph *graph, OpKind op, TensorId x, const int64_t size[3])
{
    const Tensor *image = graph_operand(graph, x);
    if (!image || !(image = graph_image(graph, image->name, op_name(op), x)))
        return TENSOR_NONE;
    for (int i = 0; i < 3; i++)
        if (op == OP_CROP ? size[i] > image->shape[i + 1] : size[i] < image->shape[i + 1]) {
            char shape[96];
            return graph_fail(graph, FSH_ERR_MISMATCH, "%s: %s of [%s] to %lld x %lld x %lld; it must not %s",
                              image->name, op_name(op), tensor_shape_text(image, shape, sizeof shape),
                              (long long)size[0], (long long)size[1], (long long)size[2],
                              op == OP_CROP ? "grow" : "shrink");
        }
    Node node = {.op = op, .inputs = {x}, .input_count = 1};
    node.as.box.height = size[0];
    node.as.box.width = size[1];
    node.as.box.channels = size[2];
    node_name_after(&node, image);
    return graph_append(graph, &node);
}

TensorId graph_zero_pad(Graph *graph, TensorId x, int64_t height, int64_t width, int64_t channels)
{
    return append_box(graph, OP_ZERO_PAD, x, (int64_t[]){height, width, channels});
}

TensorId graph_crop(Graph *graph, TensorId x, int64_t height, int64_t width)
{
    const Tensor *image = graph_image(graph, "crop", "crop", x);
    return image ? append_box(graph, OP_CROP, x, (int64_t[]){height, width, image->shape[3]}) : TENSOR_NONE;
}

static void box_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[0]);
    graph_output(graph, node, 0, x->type, 4,
                 (int64_t[]){x->shape[0], node->as.box.height, node->as.box.width, node->as.box.channels});
}

/* Appends the gradient of input k by `op`, the opposite of the node: a box of the size of the input, whose
 * channels lie in y from first_channel on. */
static void append_opposite(Graph *graph, const Node *node, OpKind op, int k, int64_t first_channel,
                            TensorId output_gradient)
{
    const Tensor *x = graph_tensor(graph, node->inputs[k]);
    Node backward = {.op = op, .inputs = {output_gradient}, .input_count = 1};
    backward.as.box.height = x->shape[1];
    backward.as.box.width = x->shape[2];
    backward.as.box.channels = x->shape[3];
    backward.as.box.first_channel = first_channel;
    graph_append_backward(graph, node, &backward, &node->inputs[k], 1);
}

static void zero_pad_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    append_opposite(graph, node, OP_CROP, 0, node->as.box.first_channel, output_gradient);
}

void crop_gradient(Graph *graph, const Node *node, int k, TensorId output_gradient)
{
    append_opposite(graph, node, OP_CROP, k, 0, output_gradient);
}

static void crop_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    append_opposite(graph, node, OP_ZERO_PAD, 0, node->as.box.first_channel, output_gradient);
}

/* ---- concat ---- */

TensorId graph_concat(Graph *graph, TensorId a, TensorId b)
{
    const Tensor *left = graph_operand(graph, a), *right = graph_operand(graph, b);
    char left_shape[96], right_shape[96];
    if (!left || !right || !(left = graph_image(graph, left->name, "concat", a)) ||
        !(right = graph_image(graph, right->name, "concat", b)))
        return TENSOR_NONE;
    bool same = left->type == right->type;
    for (int i = 0; i < 3; i++)
        same = same && left->shape[i] == right->shape[i];
    if (!same)
        return graph_fail(graph, FSH_ERR_MISMATCH,
                          "%s: concat needs two images of one size, not [%s] and [%s]", left->name,
                          tensor_shape_text(left, left_shape, sizeof left_shape),
                          tensor_shape_text(right, right_shape, sizeof right_shape));
    Node node = {.op = OP_CONCAT, .inputs = {a, b}, .input_count = 2};
    node_name_after(&node, left);
    return graph_append(graph, &node);
}

static void concat_infer(Graph *graph, Node *node)
{
    const Tensor *a = graph_tensor(graph, node->inputs[CONCAT_A]),
                 *b = graph_tensor(graph, node->inputs[CONCAT_B]);
    graph_output(graph, node, 0, a->type, 4,
                 (int64_t[]){a->shape[0], a->shape[1], a->shape[2], a->shape[3] + b->shape[3]});
}

static void concat_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    const int64_t channels = graph_tensor(graph, node->inputs[CONCAT_A])->shape[3];
    append_opposite(graph, node, OP_CROP, CONCAT_A, 0, output_gradient);
    append_opposite(graph, node, OP_CROP, CONCAT_B, channels, output_gradient);
}

/* ---- pixel shuffle ---- */

static TensorId append_shuffle(Graph *graph, OpKind op, TensorId x, int64_t factor)
{
    enum { FACTOR_MAX = 64 };
    const Tensor *image = graph_operand(graph, x);
    char shape[96];
    if (!image || !(image = graph_image(graph, image->name, op_name(op), x)))
        return TENSOR_NONE;
    const bool fits =
        factor >= 1 && factor <= FACTOR_MAX &&
        (op == OP_PIXEL_SHUFFLE ? image->shape[3] % (factor * factor) == 0
                                : image->shape[1] % factor == 0 && image->shape[2] % factor == 0);
    if (!fits)
        return graph_fail(graph, FSH_ERR_MISMATCH, "%s: %s by %lld does not divide [%s]", image->name,
                          op_name(op), (long long)factor, tensor_shape_text(image, shape, sizeof shape));
    Node node = {.op = op, .inputs = {x}, .input_count = 1};
    node.as.shuffle.factor = factor;
    node_name_after(&node, image);
    return graph_append(graph, &node);
}

TensorId graph_pixel_shuffle(Graph *graph, TensorId x, int64_t factor)
{
    return append_shuffle(graph, OP_PIXEL_SHUFFLE, x, factor);
}

TensorId graph_pixel_unshuffle(Graph *graph, TensorId x, int64_t factor)
{
    return append_shuffle(graph, OP_PIXEL_UNSHUFFLE, x, factor);
}

static void pixel_shuffle_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[0]);
    const int64_t r = node->as.shuffle.factor;
    if (node->op == OP_PIXEL_SHUFFLE)
        graph_output(graph, node, 0, x->type, 4,
                     (int64_t[]){x->shape[0], x->shape[1] * r, x->shape[2] * r, x->shape[3] / (r * r)});
    else
        graph_output(graph, node, 0, x->type, 4,
                     (int64_t[]){x->shape[0], x->shape[1] / r, x->shape[2] / r, x->shape[3] * r * r});
}

static void pixel_shuffle_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = node->op == OP_PIXEL_SHUFFLE ? OP_PIXEL_UNSHUFFLE : OP_PIXEL_SHUFFLE,
                     .inputs = {output_gradient},
                     .input_count = 1};
    backward.as.shuffle = node->as.shuffle;
    graph_append_backward(graph, node, &backward, &node->inputs[0], 1);
}

const OpRow op_rows_box[] = {
    {.op = OP_ZERO_PAD, .name = "zero_pad", .infer = box_infer, .differentiate = zero_pad_differentiate},
    {.op = OP_CROP, .name = "crop", .infer = box_infer, .differentiate = crop_differentiate},
    {.op = OP_CONCAT, .name = "concat", .infer = concat_infer, .differentiate = concat_differentiate},
    {.op = OP_PIXEL_SHUFFLE,
     .name = "pixel_shuffle",
     .infer = pixel_shuffle_infer,
     .differentiate = pixel_shuffle_differentiate},
    {.op = OP_PIXEL_UNSHUFFLE,
     .name = "pixel_unshuffle",
     .infer = pixel_shuffle_infer,
     .differentiate = pixel_shuffle_differentiate},
    {.name = NULL},
};
