#include "tests/trainer/odd_network.h"

#include "tests/support/support.h"

Graph *odd_network(DataType type, int64_t groups)
{
    FshError error = {0};
    Graph *graph = graph_new();
    graph_set_compute_type(graph, type);
    TensorId x = graph_input(graph, "image", DATA_U8, 4, (int64_t[]){2, 6, 5, 3});
    TensorId label = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){2});
    x = graph_normalize(graph, x, (double[]){0.5, 0.5, 0.5}, (double[]){1, 1, 1});
    graph_keep(graph, x, "normalized");
    x = graph_conv2d(graph, "conv", x,
                     &(Conv2d){.channels = 9, .kernel = 3, .stride = 1, .padding = 1, .bias = true});
    x = graph_batch_norm(graph, "norm", x, &(BatchNorm){.training = true});
    x = graph_conv2d(graph, "grouped", x,
                     &(Conv2d){.channels = 9, .kernel = 3, .stride = 1, .padding = 1, .groups = groups});
    x = graph_linear(graph, "linear", graph_global_avg_pool(graph, x), 19, true);
    x = graph_cast(graph, x, DATA_F32);
    graph_differentiate(graph, graph_softmax_cross_entropy(graph, x, label, TENSOR_NONE, TENSOR_NONE, 0));
    assert_ok(graph_check(graph, &error), &error);
    return graph;
}
