/* Tokens and attention: the ops of vision transformers. Tokens are images [N, T, 1, C], so that norms, linear
 * layers and all else that works pixel by pixel is theirs too. */
#include "trainer/graph/graph_internal.h"

#include <math.h>

enum { TOKEN_CHANNELS = 8 }; /* divide the channels: rows need no padding on a device */

/* ---- tokens ---- */

TensorId graph_tokens(Graph *graph, TensorId x, bool class_token, bool sines)
{
    const Tensor *image = graph_image(graph, "tokens", "tokens", x);
    const Initializer positions = {INIT_NORMAL, 0.02}, class = {INIT_NORMAL, 1e-6}; /* timm's */
    if (!image)
        return TENSOR_NONE;
    const int64_t height = image->shape[1], width = image->shape[2], channels = image->shape[3];
    if (channels % TOKEN_CHANNELS)
        return graph_fail(graph, FSH_ERR_MISMATCH, "%s: tokens need a multiple of %d channels, not %lld",
                          image->name, TOKEN_CHANNELS, (long long)channels);
    Node node = {.op = OP_TOKENS, .inputs = {x, TENSOR_NONE, TENSOR_NONE}, .input_count = 3};
    node_name_after(&node, image);
    node.as.tokens.class_token = class_token;
    node.as.tokens.sines = sines;
    if (class_token)
        node.inputs[TOKENS_CLASS] =
            graph_parameter(graph, "", "cls_token", 3, (int64_t[]){1, 1, channels}, class, false);
    if (!sines) {
        const int64_t shape[3] = {1, height * width + class_token, channels};
        const TensorId added = graph_parameter(graph, "", "pos_embed", 3, shape, positions, false);
        node.inputs[TOKENS_POSITIONS] = added;
        if (added != TENSOR_NONE) {
            graph->tensors[added].tensor.grid_height = height;
            graph->tensors[added].tensor.grid_width = width;
        }
    }
    return graph_append(graph, &node);
}

float tokens_sine(int64_t row, int64_t column, int64_t c, int64_t channels)
{
    const double wavelengths = 1e4;
    const int64_t quarter = channels / 4, part = c / quarter, i = c % quarter;
    const double turn = (double)(part < 2 ? column : row) /
                        pow(wavelengths, quarter > 1 ? (double)i / (double)(quarter - 1) : 0);
    return (float)(part % 2 ? cos(turn) : sin(turn));
}

static void tokens_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[TOKENS_X]);
    graph_output(
        graph, node, 0, x->type, 4,
        (int64_t[]){x->shape[0], x->shape[1] * x->shape[2] + node->as.tokens.class_token, 1, x->shape[3]});
}

static void tokens_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_TOKENS_BACKWARD, .inputs = {output_gradient}, .input_count = 1};
    backward.as.tokens = node->as.tokens;
    graph_append_backward(graph, node, &backward, node->inputs, 3);
}

/* ---- attention ---- */

TensorId graph_attention(Graph *graph, TensorId x, int64_t heads)
{
    const Tensor *image = graph_image(graph, "attention", "attention", x);
    char shape[96];
    if (!image)
        return TENSOR_NONE;
    if (image->shape[2] != 1 || heads < 1 || image->shape[3] % (3 * heads))
        return graph_fail(
            graph, FSH_ERR_MISMATCH,
            "%s: attention of %lld heads needs tokens [N, T, 1, 3 C], C a multiple of the heads, "
            "not [%s]",
            image->name, (long long)heads, tensor_shape_text(image, shape, sizeof shape));
    Node node = {.op = OP_ATTENTION, .inputs = {x}, .input_count = 1};
    node_name_after(&node, image);
    node.as.attention.heads = heads;
    return graph_append(graph, &node);
}

static void attention_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[0]);
    const DataType type = x->type;
    const int64_t samples = x->shape[0], tokens = x->shape[1], channels = x->shape[3] / 3;
    graph_output(graph, node, ATTENTION_Y, type, 4, (int64_t[]){samples, tokens, 1, channels});
    graph_output(graph, node, ATTENTION_LOG_SUMS, DATA_F32, 4,
                 (int64_t[]){samples, node->as.attention.heads, tokens, 1});
}

static void attention_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_ATTENTION_BACKWARD,
                     .inputs = {[ATTENTION_BACK_DY] = output_gradient,
                                [ATTENTION_BACK_X] = node->inputs[0],
                                [ATTENTION_BACK_Y] = node->outputs[ATTENTION_Y],
                                [ATTENTION_BACK_LOG_SUMS] = node->outputs[ATTENTION_LOG_SUMS]},
                     .input_count = 4};
    backward.as.attention = node->as.attention;
    graph_append_backward(graph, node, &backward, &node->inputs[0], 1);
}

/* Returns the operations of a product of each token with each other one, in all channels of y. */
static int64_t product_flops(const Graph *graph, TensorId y)
{
    const Tensor *tokens = graph_tensor(graph, y);
    return 2 * tensor_count(tokens) * tokens->shape[1];
}

/* Counts two products: of queries and keys, and of their shares and values. */
static int64_t attention_flops(const Graph *graph, const Node *node)
{
    return 2 * product_flops(graph, node->outputs[ATTENTION_Y]);
}

/* Counts the two gradients of each product, though one of the products is made again. */
static int64_t attention_backward_flops(const Graph *graph, const Node *node)
{
    return 4 * product_flops(graph, node->inputs[ATTENTION_BACK_Y]);
}

const OpRow op_rows_tokens[] = {
    {.op = OP_TOKENS, .name = "tokens", .infer = tokens_infer, .differentiate = tokens_differentiate},
    {.op = OP_TOKENS_BACKWARD, .name = "tokens_backward"},
    {.op = OP_ATTENTION,
     .name = "attention",
     .infer = attention_infer,
     .differentiate = attention_differentiate,
     .flops = attention_flops},
    {.op = OP_ATTENTION_BACKWARD, .name = "attention_backward", .flops = attention_backward_flops},
    {.name = NULL},
};
