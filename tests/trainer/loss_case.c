#include "tests/trainer/loss_case.h"

#include "tests/support/support.h"
#include "trainer/graph/graph_internal.h"

static TensorId input_with_gradient(Graph *graph, const char *name, int rank, const int64_t *shape)
{
    TensorId id = graph_input(graph, name, DATA_F32, rank, shape);
    graph->tensors[id].needs_gradient = true;
    return id;
}

static TensorId class_loss(Graph *graph, const LossCase *c, TensorId x)
{
    const TensorId labels = graph_input(graph, "labels", DATA_I64, 1, c->shape);
    const TensorId mixed =
        c->beside ? graph_input(graph, "labels_mixed", DATA_I64, 1, c->shape) : TENSOR_NONE;
    const TensorId mix = c->beside ? graph_input(graph, "mix", DATA_F32, 1, c->shape) : TENSOR_NONE;
    const TensorId weights =
        c->weighted ? graph_input(graph, "weights", DATA_F32, 1, &c->shape[1]) : TENSOR_NONE;
    const ClassTargetsOf targets = {labels,       mixed,        mix,          weights,
                                    c->smoothing, c->threshold, c->binarizes, c->sums};
    const TensorId y = graph_class_loss(graph, c->kind, x, &targets);
    const Node *node = graph_node(graph, graph_tensor(graph, y)->producer);
    graph_keep(graph, node->outputs[CLASS_LOSS_PROBABILITIES], "probabilities");
    return y;
}

static TensorId target_loss(Graph *graph, const LossCase *c, TensorId x)
{
    const int64_t *columns = &c->shape[1];
    const RowTargetsOf targets = {
        .targets = graph_input(graph, "targets", DATA_F32, 2, c->shape),
        .valid = graph_input(graph, "valid", DATA_F32, 1, c->shape),
        .weights = c->weighted ? graph_input(graph, "weights", DATA_F32, 1, columns) : TENSOR_NONE,
        .positive_weights =
            c->positive ? graph_input(graph, "positive_weights", DATA_F32, 1, columns) : TENSOR_NONE,
        .loss = {c->kind, c->smoothing, c->threshold, c->binarizes, c->sums}};
    return graph_target_loss(graph, x, &targets);
}

static TensorId pixel_loss(Graph *graph, const LossCase *c, TensorId x)
{
    const TensorId target = graph_input(graph, "target", DATA_F32, c->rank, c->shape);
    const TensorId valid = c->beside ? graph_input(graph, "valid", DATA_F32, 1, c->shape) : TENSOR_NONE;
    const TensorId y = graph_pixel_loss(graph, x, target, valid, c->kind);
    graph_keep(graph, graph_pixel_loss_error(graph, y), "error");
    return y;
}

Graph *loss_graph(const LossCase *c)
{
    FshError error = {0};
    Graph *graph = graph_new();
    const TensorId x = input_with_gradient(graph, "x", c->rank, c->shape),
                   y = c->rows        ? target_loss(graph, c, x)
                       : c->rank == 2 ? class_loss(graph, c, x)
                                      : pixel_loss(graph, c, x);
    graph_keep(graph, y, "y");
    const size_t forward_count = graph_node_count(graph);
    graph_contribute_gradient(graph, y, input_with_gradient(graph, "dy", 1, (int64_t[]){1}));
    graph_append_backward_pass(graph, forward_count);
    graph_keep(graph, graph_gradient(graph, x), "dx");
    assert_ok(graph_check(graph, &error), &error);
    return graph;
}
