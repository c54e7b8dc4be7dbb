#include "tests/trainer/graph_support.h"

#include "tests/support/support.h"

TensorId test_image(Graph *graph, int64_t batch, int64_t size, int64_t channels)
{
    static const double mean[3] = {0.5, 0.5, 0.5}, deviation[3] = {0.25, 0.25, 0.25};
    return graph_normalize(graph,
                           graph_input(graph, "image", DATA_U8, 4, (int64_t[]){batch, size, size, channels}),
                           mean, deviation);
}

void test_finish(Graph *graph, TensorId logits, unsigned fusions)
{
    FshError error = {0};
    const TensorId label = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){2});
    const TensorId loss = graph_softmax_cross_entropy(graph, graph_cast(graph, logits, DATA_F32), label,
                                                      TENSOR_NONE, TENSOR_NONE, 0);
    graph_fuse(graph, fusions);
    graph_differentiate(graph, loss);
    graph_fuse_backward(graph, fusions);
    assert_ok(graph_check(graph, &error), &error);
}

size_t test_count_ops(const Graph *graph, OpKind op)
{
    size_t count = 0;
    for (size_t i = 0; i < graph_node_count(graph); i++)
        count += graph_node(graph, (NodeId)i)->op == op;
    return count;
}

const Node *test_find_op(const Graph *graph, OpKind op)
{
    for (size_t i = 0; i < graph_node_count(graph); i++)
        if (graph_node(graph, (NodeId)i)->op == op)
            return graph_node(graph, (NodeId)i);
    return NULL;
}
