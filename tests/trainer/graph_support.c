#include "tests/trainer/graph_support.h"

TensorId test_image(Graph *graph, int64_t batch, int64_t size, int64_t channels)
{
    static const double mean[3] = {0.5, 0.5, 0.5}, deviation[3] = {0.25, 0.25, 0.25};
    return graph_normalize(graph,
                           graph_input(graph, "image", DATA_U8, 4, (int64_t[]){batch, size, size, channels}),
                           mean, deviation);
}

size_t test_count_ops(const Graph *graph, OpKind op)
{
    size_t count = 0;
    for (size_t i = 0; i < graph_node_count(graph); i++)
        count += graph_node(graph, (NodeId)i)->op == op;
    return count;
}
