#include "trainer/graph/graph_internal.h"

#include <stdlib.h>

/* How often each tensor is read, and by which node last. */
typedef struct Uses {
    int *counts;       /* [tensor_count] */
    NodeId *consumers; /* [tensor_count] */
} Uses;

static bool find_uses(Graph *graph, Uses *uses)
{
    *uses = (Uses){calloc(graph->tensor_count + 1, sizeof *uses->counts),
                   calloc(graph->tensor_count + 1, sizeof *uses->consumers)};
    if (!uses->counts || !uses->consumers) {
        graph_fail(graph, FSH_ERR_MEMORY, "graph: no memory to fuse %zu tensors", graph->tensor_count);
        return false;
    }
    for (size_t i = 0; i < graph->node_count; i++)
        for (int k = 0; k < graph->nodes[i].input_count; k++)
            if (graph->nodes[i].inputs[k] != TENSOR_NONE) {
                uses->counts[graph->nodes[i].inputs[k]]++;
                uses->consumers[graph->nodes[i].inputs[k]] = (NodeId)i;
            }
    return true;
}

/* The node that reads `tensor`, if it is the only one, is of this kind, and nothing else needs the tensor. */
static Node *only_consumer(const Graph *graph, const Uses *uses, TensorId tensor, OpKind op)
{
    if (uses->counts[tensor] != 1 || graph->tensors[tensor].tensor.keep)
        return NULL;
    Node *consumer = &graph->nodes[uses->consumers[tensor]];
    return consumer->op == op && consumer->output_count ? consumer : NULL; /* one that was fused is empty */
}

/* The batch norm takes the place of the last node of its pattern, so that all it reads is made before it; the
 * nodes before it become empty (no inputs, no outputs) and go at the end of the pass. */
static void fuse_into(Graph *graph, Node *norm, Node *add, Node *relu, TensorId addend)
{
    Node fused = *norm;
    fused.inputs[5] = addend;
    fused.as.norm.relu = true;
    fused.as.norm.slope = relu->as.relu.slope;
    graph->tensors[norm->outputs[0]].tensor.producer = NODE_NONE;
    if (add)
        graph->tensors[add->outputs[0]].tensor.producer = NODE_NONE;
    fused.outputs[0] = relu->outputs[0];
    norm->input_count = norm->output_count = 0;
    if (add)
        add->input_count = add->output_count = 0;
    *relu = fused;
}

static void remove_empty_nodes(Graph *graph)
{
    size_t count = 0;
    for (size_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i].input_count || graph->nodes[i].output_count)
            graph->nodes[count++] = graph->nodes[i];
    graph->node_count = count;
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < graph->nodes[i].output_count; k++) {
            TensorId output = graph->nodes[i].outputs[k];
            if (output != TENSOR_NONE && graph->tensors[output].tensor.role == TENSOR_ACTIVATION)
                graph->tensors[output].tensor.producer = (NodeId)i;
        }
}

void graph_fuse(Graph *graph, unsigned fusions)
{
    Uses uses = {0};
    if (!graph || graph->failure.status)
        return;
    if (graph->differentiated) {
        graph_fail(graph, FSH_ERR_USAGE, "graph: fuse before differentiating");
        return;
    }
    if (!find_uses(graph, &uses))
        goto done;
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *norm = &graph->nodes[i];
        if (norm->op != OP_BATCH_NORM || norm->as.norm.relu || !norm->output_count)
            continue;
        Node *relu = only_consumer(graph, &uses, norm->outputs[0], OP_RELU);
        if (relu && (fusions & FUSE_NORM_RELU)) {
            fuse_into(graph, norm, NULL, relu, TENSOR_NONE);
            continue;
        }
        Node *add = only_consumer(graph, &uses, norm->outputs[0], OP_ADD);
        if (!add || !(fusions & FUSE_NORM_ADD_RELU))
            continue;
        relu = only_consumer(graph, &uses, add->outputs[0], OP_RELU);
        if (relu)
            fuse_into(graph, norm, add, relu,
                      add->inputs[0] == norm->outputs[0] ? add->inputs[1] : add->inputs[0]);
    }
    remove_empty_nodes(graph);
done:
    free(uses.counts);
    free(uses.consumers);
}
