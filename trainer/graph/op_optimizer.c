#include "trainer/graph/ops.h"

#include <stdio.h>

/* One tensor for each parameter that has a gradient, shaped like it: NAME.SUFFIX. */
static bool add_optimizer_state(Graph *graph, const char *suffix)
{
    bool any = false;
    for (size_t i = 0, count = graph->tensor_count; i < count && !graph->failure.status; i++) {
        if (graph->tensors[i].tensor.role != TENSOR_PARAMETER || graph->tensors[i].gradient == TENSOR_NONE)
            continue;
        Tensor state = graph->tensors[i].tensor;
        char name[2 * GRAPH_NAME_MAX];
        (void)snprintf(name, sizeof name, "%s.%s", state.name, suffix);
        graph_set_name(graph, state.name, name);
        state.role = TENSOR_OPTIMIZER;
        state.of = (TensorId)i;
        state.initializer = (Initializer){INIT_ZEROS, 0};
        any |= graph_add_tensor(graph, &state) != TENSOR_NONE;
    }
    return any;
}

void graph_sgd(Graph *graph, const Sgd *sgd)
{
    const Tensor *rate = graph_operand(graph, sgd->learning_rate);
    char shape[96];
    if (!rate)
        return;
    if (rate->role != TENSOR_INPUT || rate->type != DATA_F32 || tensor_count(rate) != 1) {
        graph_fail(graph, FSH_ERR_MISMATCH, "%s: the learning rate must be an f32 input [1], not %s [%s]",
                   rate->name, data_type_name(rate->type), tensor_shape_text(rate, shape, sizeof shape));
        return;
    }
    if (!(sgd->momentum >= 0 && sgd->momentum < 1) || !(sgd->weight_decay >= 0) ||
        (sgd->nesterov && sgd->momentum == 0)) {
        graph_fail(graph, FSH_ERR_USAGE,
                   "sgd: momentum %g, weight decay %g; momentum must be at least 0 and below 1 (above 0 for "
                   "nesterov), weight decay at least 0",
                   sgd->momentum, sgd->weight_decay);
        return;
    }
    if (!add_optimizer_state(graph, "momentum")) {
        graph_fail(graph, FSH_ERR_USAGE, "sgd: no parameter has a gradient; call graph_differentiate first");
        return;
    }
    Node node = {
        .op = OP_SGD, .name = "sgd", .inputs = {sgd->learning_rate}, .input_count = 1, .as.sgd = *sgd};
    graph_append(graph, &node);
}

void sgd_infer(Graph *graph, Node *node)
{
    (void)graph;
    node->output_count = 0;
}
