#include "tests/trainer/mask_case.h"

#include "tests/support/support.h"
#include "trainer/graph/graph_internal.h"

static TensorId input_with_gradient(Graph *graph, const char *name, int rank, const int64_t *shape)
{
    TensorId id = graph_input(graph, name, DATA_F32, rank, shape);
    graph->tensors[id].needs_gradient = true;
    return id;
}

Graph *mask_loss_graph(const MaskCase *c)
{
    FshError error = {0};
    Graph *graph = graph_new();
    const int64_t pixels[] = {c->shape[0], c->shape[1], c->shape[2], 1};
    const TensorId x = input_with_gradient(graph, "x", 4, c->shape),
                   mask = graph_input(graph, "mask", DATA_U8, 4, pixels),
                   valid = c->weighted ? graph_input(graph, "valid", DATA_F32, 1, c->shape) : TENSOR_NONE,
                   y = graph_mask_loss(graph, x, mask, valid, c->smoothing);
    graph_keep(graph, y, "y");
    graph_keep(graph, graph_mask_loss_classes(graph, y), "classes");
    graph_keep(graph, graph_mask_loss_sums(graph, y), "sums");
    const size_t forward_count = graph_node_count(graph);
    graph_contribute_gradient(graph, y, input_with_gradient(graph, "dy", 1, (int64_t[]){1}));
    graph_append_backward_pass(graph, forward_count);
    graph_keep(graph, graph_gradient(graph, x), "dx");
    assert_ok(graph_check(graph, &error), &error);
    return graph;
}
