#include "trainer/graph/graph_internal.h"

enum { MAX_POOL_KERNEL_MAX = 15 }; /* the index of the maximum within its window is one byte */

static TensorId append_pool(Graph *graph, OpKind op, TensorId x, const Pool2d *pool)
{
    const Tensor *image = graph_operand(graph, x);
    if (!image || !(image = graph_image(graph, image->name, op_name(op), x)))
        return TENSOR_NONE;
    if (pool->kernel < 1 || pool->stride < 1 || pool->padding < 0 || 2 * pool->padding > pool->kernel)
        return graph_fail(graph, FSH_ERR_USAGE,
                          "%s: %s with kernel %lld, stride %lld, padding %lld; kernel and stride must be "
                          "positive and the padding at most half of the kernel",
                          image->name, op_name(op), (long long)pool->kernel, (long long)pool->stride,
                          (long long)pool->padding);
    if (pool->ceil && (op != OP_AVG_POOL || pool->stride != pool->kernel || pool->padding))
        return graph_fail(graph, FSH_ERR_UNSUPPORTED,
                          "%s: %s beyond the edge; averages alone, of stride %lld without padding",
                          image->name, op_name(op), (long long)pool->kernel);
    Node node = {.op = op, .inputs = {x}, .input_count = 1, .as.pool = *pool};
    node_name_after(&node, image);
    return graph_append(graph, &node);
}

/* Returns the windows along an axis of `in` pixels. */
static int64_t pool_windows(int64_t in, const Pool2d *pool)
{
    return pool->ceil ? (in + pool->stride - 1) / pool->stride
                      : window_count(in, pool->kernel, pool->stride, pool->padding);
}

/* Computes the shape of the result. Returns false after a failure. */
static bool pool_shape(Graph *graph, const Node *node, int64_t shape[4])
{
    const Tensor *x = graph_tensor(graph, node->inputs[0]);
    const Pool2d *pool = &node->as.pool;
    shape[0] = x->shape[0];
    shape[1] = pool_windows(x->shape[1], pool);
    shape[2] = pool_windows(x->shape[2], pool);
    shape[3] = x->shape[3];
    if (shape[1] > 0 && shape[2] > 0)
        return true;
    graph_fail(graph, FSH_ERR_MISMATCH,
               "%s: kernel %lld with padding %lld does not fit a %lld x %lld input; use larger images",
               node->name, (long long)pool->kernel, (long long)pool->padding, (long long)x->shape[1],
               (long long)x->shape[2]);
    return false;
}

TensorId graph_max_pool(Graph *graph, TensorId x, const Pool2d *pool)
{
    const Tensor *image = graph_operand(graph, x);
    if (!image)
        return TENSOR_NONE;
    if (pool->kernel > MAX_POOL_KERNEL_MAX)
        return graph_fail(graph, FSH_ERR_UNSUPPORTED, "%s: max pool with kernel %lld; at most %d",
                          image->name, (long long)pool->kernel, MAX_POOL_KERNEL_MAX);
    return append_pool(graph, OP_MAX_POOL, x, pool);
}

static void max_pool_infer(Graph *graph, Node *node)
{
    int64_t shape[4];
    if (!pool_shape(graph, node, shape))
        return;
    graph_output(graph, node, 0, graph_tensor(graph, node->inputs[0])->type, 4, shape);
    graph_output(graph, node, 1, DATA_U8, 4, shape);
}

static void max_pool_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_MAX_POOL_BACKWARD,
                     .inputs = {output_gradient, node->outputs[MAX_POOL_INDEX]},
                     .input_count = 2,
                     .as.pool = node->as.pool};
    graph_append_backward(graph, node, &backward, &node->inputs[0], 1);
}

TensorId graph_avg_pool(Graph *graph, TensorId x, const Pool2d *pool)
{
    return append_pool(graph, OP_AVG_POOL, x, pool);
}

static void avg_pool_infer(Graph *graph, Node *node)
{
    int64_t shape[4];
    if (pool_shape(graph, node, shape))
        graph_output(graph, node, 0, graph_tensor(graph, node->inputs[0])->type, 4, shape);
}

static void avg_pool_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {
        .op = OP_AVG_POOL_BACKWARD, .inputs = {output_gradient}, .input_count = 1, .as.pool = node->as.pool};
    graph_append_backward(graph, node, &backward, &node->inputs[0], 1);
}

TensorId graph_global_avg_pool(Graph *graph, TensorId x)
{
    const Tensor *image = graph_operand(graph, x);
    if (!image || !(image = graph_image(graph, image->name, "global average pool", x)))
        return TENSOR_NONE;
    Node node = {.op = OP_GLOBAL_AVG_POOL, .inputs = {x}, .input_count = 1};
    node_name_after(&node, image);
    return graph_append(graph, &node);
}

static void global_avg_pool_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[0]);
    graph_output(graph, node, 0, x->type, 2, (int64_t[]){x->shape[0], x->shape[3]});
}

static void global_avg_pool_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_GLOBAL_AVG_POOL_BACKWARD, .inputs = {output_gradient}, .input_count = 1};
    graph_append_backward(graph, node, &backward, &node->inputs[0], 1);
}

TensorId graph_reflection_pad(Graph *graph, TensorId x, int64_t padding)
{
    const Tensor *image = graph_operand(graph, x);
    if (!image || !(image = graph_image(graph, image->name, "reflection pad", x)))
        return TENSOR_NONE;
    Node node = {.op = OP_REFLECTION_PAD, .inputs = {x}, .input_count = 1, .as.pad.padding = padding};
    node_name_after(&node, image);
    return graph_append(graph, &node);
}

static void reflection_pad_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[0]);
    const int64_t padding = node->as.pad.padding;
    /* The edge is not repeated: a mirror image of `padding` pixels needs one pixel more. */
    if (padding < 0 || padding >= x->shape[1] || padding >= x->shape[2]) {
        graph_fail(graph, FSH_ERR_MISMATCH,
                   "%s: a reflection pad of %lld does not fit a %lld x %lld input; use larger images",
                   node->name, (long long)padding, (long long)x->shape[1], (long long)x->shape[2]);
        return;
    }
    graph_output(graph, node, 0, x->type, 4,
                 (int64_t[]){x->shape[0], x->shape[1] + 2 * padding, x->shape[2] + 2 * padding, x->shape[3]});
}

static void reflection_pad_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_REFLECTION_PAD_BACKWARD,
                     .inputs = {output_gradient},
                     .input_count = 1,
                     .as.pad = node->as.pad};
    graph_append_backward(graph, node, &backward, &node->inputs[0], 1);
}

const OpRow op_rows_pool[] = {
    {.op = OP_MAX_POOL, .name = "max_pool", .infer = max_pool_infer, .differentiate = max_pool_differentiate},
    {.op = OP_MAX_POOL_BACKWARD, .name = "max_pool_backward"},
    {.op = OP_AVG_POOL, .name = "avg_pool", .infer = avg_pool_infer, .differentiate = avg_pool_differentiate},
    {.op = OP_AVG_POOL_BACKWARD, .name = "avg_pool_backward"},
    {.op = OP_GLOBAL_AVG_POOL,
     .name = "global_avg_pool",
     .infer = global_avg_pool_infer,
     .differentiate = global_avg_pool_differentiate},
    {.op = OP_GLOBAL_AVG_POOL_BACKWARD, .name = "global_avg_pool_backward"},
    {.op = OP_REFLECTION_PAD,
     .name = "reflection_pad",
     .infer = reflection_pad_infer,
     .differentiate = reflection_pad_differentiate},
    {.op = OP_REFLECTION_PAD_BACKWARD, .name = "reflection_pad_backward"},
    {.name = NULL},
};
