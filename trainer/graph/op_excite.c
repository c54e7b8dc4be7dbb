#include "trainer/graph/graph_internal.h"

/* Returns multiply-adds, times two, of so many products of x [N, C] with a matrix of [H, C]. */
static int64_t products(const Graph *graph, TensorId x, TensorId sums, int count)
{
    const Tensor *matrix = graph_tensor(graph, sums);
    return 2 * count * tensor_count(graph_tensor(graph, x)) * matrix->shape[matrix->rank - 1];
}

static int64_t excite_flops(const Graph *graph, const Node *node)
{
    return products(graph, node->inputs[EXCITE_X], node->outputs[EXCITE_SUMS], 2);
}

static int64_t excite_backward_flops(const Graph *graph, const Node *node)
{
    return products(graph, node->inputs[EXCITE_BACK_GATES], node->inputs[EXCITE_BACK_SUMS], 2);
}

static int64_t excite_backward_weight_flops(const Graph *graph, const Node *node)
{
    const int count =
        (node->outputs[EXCITE_DWEIGHT1] != TENSOR_NONE) + (node->outputs[EXCITE_DWEIGHT2] != TENSOR_NONE);
    return products(graph, node->inputs[EXCITE_WEIGHT_X], node->inputs[EXCITE_WEIGHT_DSUMS], count);
}

/* Two nodes: what makes the gradients of weights can wait beside the main lane (lanes.h). */
static void excite_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    const TensorId x = node->inputs[EXCITE_X];
    const Tensor matrix = *graph_tensor(graph, x), /* copies: graph_store_output moves the table */
        sums = *graph_tensor(graph, node->outputs[EXCITE_SUMS]);
    const size_t at = graph->node_count;
    Node backward = {.op = OP_EXCITE_BACKWARD,
                     .inputs = {[EXCITE_BACK_SUMS] = node->outputs[EXCITE_SUMS],
                                [EXCITE_BACK_DGATES] = output_gradient,
                                [EXCITE_BACK_GATES] = node->outputs[EXCITE_GATES],
                                [EXCITE_BACK_WEIGHT1] = node->inputs[EXCITE_WEIGHT1],
                                [EXCITE_BACK_WEIGHT2] = node->inputs[EXCITE_WEIGHT2]},
                     .input_count = EXCITE_BACK_INPUTS};
    backward.as.excite = node->as.excite;
    const TensorId of[EXCITE_BACK_OUTPUTS] = {
        [EXCITE_BACK_DX] = x, [EXCITE_BACK_DSUMS] = TENSOR_NONE, [EXCITE_BACK_DLOGITS] = TENSOR_NONE};
    graph_append_backward(graph, node, &backward, of, EXCITE_BACK_OUTPUTS);
    if (graph->node_count == at)
        return;
    graph_store_output(graph, at, EXCITE_BACK_DSUMS, sums.type, sums.rank, sums.shape);
    graph_store_output(graph, at, EXCITE_BACK_DLOGITS, matrix.type, matrix.rank, matrix.shape);
    Node weight = {.op = OP_EXCITE_BACKWARD_WEIGHT,
                   .inputs = {[EXCITE_WEIGHT_DSUMS] = graph->nodes[at].outputs[EXCITE_BACK_DSUMS],
                              [EXCITE_WEIGHT_X] = x,
                              [EXCITE_WEIGHT_DLOGITS] = graph->nodes[at].outputs[EXCITE_BACK_DLOGITS],
                              [EXCITE_WEIGHT_HIDDEN] = node->outputs[EXCITE_HIDDEN]},
                   .input_count = EXCITE_WEIGHT_INPUTS};
    graph_append_backward(graph, node, &weight, &node->inputs[EXCITE_WEIGHT1], EXCITE_WEIGHT_OUTPUTS);
}

/* Made by graph_fuse alone, which infers the outputs. */
const OpRow op_rows_excite[] = {
    {.op = OP_EXCITE,
     .name = "excite",
     .differentiate = excite_differentiate,
     .flops = excite_flops,
     .bytes = node_product_bytes},
    {.op = OP_EXCITE_BACKWARD,
     .name = "excite_backward",
     .flops = excite_backward_flops,
     .bytes = node_product_bytes},
    {.op = OP_EXCITE_BACKWARD_WEIGHT,
     .name = "excite_backward_weight",
     .optional = 1 << EXCITE_DWEIGHT1 | 1 << EXCITE_DBIAS1 | 1 << EXCITE_DWEIGHT2 | 1 << EXCITE_DBIAS2,
     .flops = excite_backward_weight_flops,
     .bytes = node_product_bytes},
    {.name = NULL},
};
