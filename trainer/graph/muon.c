#include "trainer/graph/muon.h"

#include <math.h>
#include <stdlib.h>

#include "trainer/graph/graph_internal.h"

/* timm's limits (timm/optim/muon.py, _is_suitable_for_muon). */
enum { SIDE_MIN = 4, ASPECT_MAX = 128 };

const char *const muon_scale_names[] = {"match_rms_adamw", "original", "spectral_unclamped", NULL};

OptimizerKind muon_rest_kind(const Optimizer *optimizer)
{
    return optimizer->kind == OPTIMIZER_MUON ? optimizer->muon.rest : optimizer->kind;
}

int64_t muon_rows(const Tensor *weight)
{
    return weight->shape[0];
}

int64_t muon_columns(const Tensor *weight)
{
    return tensor_count(weight) / weight->shape[0];
}

double muon_scale(const MuonRule *rule, const Tensor *weight)
{
    const double rows = (double)muon_rows(weight), columns = (double)muon_columns(weight);
    switch (rule->scale) {
    case MUON_ORIGINAL:
        return sqrt(fmax(1, rows / columns));
    case MUON_SPECTRAL_UNCLAMPED:
        return sqrt(rows / columns);
    case MUON_MATCH_RMS_ADAMW:
    default:
        return 0.2 * sqrt(fmax(rows, columns));
    }
}

int64_t muon_step_flops(const Tensor *tensor)
{
    if (tensor->role != TENSOR_PARAMETER || !tensor->muon)
        return 0;
    const int64_t rows = muon_rows(tensor), columns = muon_columns(tensor),
                  side = rows < columns ? rows : columns;
    return 4 * side * rows * columns + 2 * side * side * side;
}

int64_t muon_parameter_count(const Graph *graph)
{
    int64_t count = 0;
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        count += muon_step_flops(tensor) > 0 ? tensor_count(tensor) : 0;
    }
    return count;
}

/* ---- which matrices ---- */

static bool is_layer(const Node *node)
{
    return node->op == OP_CONV2D || node->op == OP_LINEAR || node->op == OP_SCALED_LINEAR;
}

/* Marks each tensor that a layer stands before. */
static void find_after(const Graph *graph, bool *after)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        const Node *node = &graph->nodes[n];
        bool comes_after = is_layer(node);
        for (int i = 0; i < node->input_count; i++)
            comes_after |= node->inputs[i] != TENSOR_NONE && after[node->inputs[i]];
        for (int i = 0; i < node->output_count; i++)
            if (node->outputs[i] != TENSOR_NONE)
                after[node->outputs[i]] |= comes_after;
    }
}

/* Marks each tensor that a layer reads, or that leads to one. */
static void find_before(const Graph *graph, bool *before)
{
    for (size_t n = graph->node_count; n-- > 0;) {
        const Node *node = &graph->nodes[n];
        bool comes_before = is_layer(node);
        for (int i = 0; i < node->output_count; i++)
            comes_before |= node->outputs[i] != TENSOR_NONE && before[node->outputs[i]];
        for (int i = 0; i < node->input_count; i++)
            if (node->inputs[i] != TENSOR_NONE)
                before[node->inputs[i]] |= comes_before;
    }
}

static bool has_shape(const Tensor *weight)
{
    const int64_t rows = muon_rows(weight), columns = muon_columns(weight);
    const int64_t least = rows < columns ? rows : columns, most = rows < columns ? columns : rows;
    return weight->shape[1] > 1 && least >= SIDE_MIN && most <= least * ASPECT_MAX;
}

void muon_mark(Graph *graph, const MuonRule *rule)
{
    bool *after = calloc(2 * graph->tensor_count, sizeof *after), *before = after + graph->tensor_count;
    if (!after) {
        graph_fail(graph, FSH_ERR_MEMORY, "no memory for a list of %zu tensors", graph->tensor_count);
        return;
    }
    find_after(graph, after);
    find_before(graph, before);
    for (size_t n = 0; n < graph->node_count; n++) {
        const Node *node = &graph->nodes[n];
        if (!is_layer(node) || !after[node->inputs[CONV_X]] || !before[node->outputs[CONV_Y]])
            continue;
        TensorRecord *weight = &graph->tensors[node->inputs[CONV_WEIGHT]];
        weight->tensor.muon = weight->gradient != TENSOR_NONE && has_shape(&weight->tensor);
    }
    for (size_t t = 0; t < graph->tensor_count; t++) {
        Tensor *tensor = &graph->tensors[t].tensor;
        if (tensor->role == TENSOR_PARAMETER && !tensor->muon)
            tensor->rate *= rule->rest_rate;
    }
    free(after);
}
