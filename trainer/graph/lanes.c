#include "trainer/graph/lanes.h"

#include <stdlib.h>

#include "trainer/graph/graph_internal.h"

/* Windows of 2 to 60 nodes took the same time within 1 %. DEARER: one part of the memory in so many. */
enum { WINDOW = 4, DEARER = 50 };

/* Returns whether the node makes gradients of weights, biases or factors and nothing else. Norms may exchange
 * sums with other ranks, which all do in one order: they are never beside, though those in front of frozen
 * layers make nothing else, too. */
static bool is_movable(const Graph *graph, const Node *node)
{
    if (node->op != OP_CONV2D_BACKWARD_WEIGHT && node->op != OP_LINEAR_BACKWARD_WEIGHT &&
        node->op != OP_SCALED_LINEAR_BACKWARD_WEIGHT && node->op != OP_BIAS_BACKWARD)
        return false;
    for (int k = 0; k < node->output_count; k++)
        if (node->outputs[k] != TENSOR_NONE &&
            (graph_tensor(graph, node->outputs[k])->role != TENSOR_GRADIENT ||
             graph_tensor(graph, node->outputs[k])->keep))
            return false;
    return true;
}

static bool has_movable(const Graph *graph)
{
    for (size_t n = 0; n < graph_node_count(graph); n++)
        if (is_movable(graph, graph_node(graph, (NodeId)n)))
            return true;
    return false;
}

/* Marks the nodes beside. Images that are made again for the gradient of one weight (FUSE_IMAGES_AGAIN) stay
 * in the main lane, where their memory lives as briefly as without lanes. */
static void choose(const Graph *graph, LanePlan *plan)
{
    bool meanwhile = false; /* the main lane has something to do after the node, but for the update */
    for (size_t n = graph_node_count(graph); n-- > 0;) {
        const Node *node = graph_node(graph, (NodeId)n);
        const bool movable = is_movable(graph, node);
        plan->beside[n] = movable && meanwhile;
        plan->beside_count += plan->beside[n];
        meanwhile |= !movable && node->op != OP_UPDATE;
    }
}

/* Sets ends and waits. Nodes of the main lane are counted in windows; what begins beside in window w is
 * waited for where window w + 2 begins, and everything before the update. */
static void place_waits(const Graph *graph, size_t window, LanePlan *plan)
{
    const size_t node_count = graph_node_count(graph);
    size_t counted = 0, begin = 0; /* nodes of the main lane so far; where the window begins */
    size_t open = 0;               /* nodes before it have been waited for */
    for (size_t n = 0; n < node_count; n++) {
        const bool last = graph_node(graph, (NodeId)n)->op == OP_UPDATE;
        size_t wait = 0;
        if (plan->beside[n])
            continue;
        plan->ends[n] = n;
        if (last) {
            wait = n;
        } else if (counted > 0 && counted % window == 0) {
            wait = begin;
            begin = n;
        }
        counted++;
        bool any = false;
        for (; open < wait; open++)
            if (plan->beside[open]) {
                any = true;
                plan->ends[open] = n;
            }
        plan->waits[n] = any || last ? wait : 0;
    }
    for (; open < node_count; open++) /* a graph without an update: the run's end waits */
        if (plan->beside[open])
            plan->ends[open] = node_count;
}

FshStatus lane_plan_make(const Graph *graph, size_t window, LanePlan *plan, FshError *error)
{
    const size_t node_count = graph_node_count(graph);
    *plan = (LanePlan){.beside = calloc(node_count + 1, sizeof *plan->beside),
                       .ends = calloc(node_count + 1, sizeof *plan->ends),
                       .waits = calloc(node_count + 1, sizeof *plan->waits)};
    if (!plan->beside || !plan->ends || !plan->waits) {
        lane_plan_free(plan);
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the lanes of %zu nodes", node_count);
    }
    if (window > 0)
        choose(graph, plan);
    place_waits(graph, window > 0 ? window : 1, plan);
    return FSH_OK;
}

void lane_plan_free(LanePlan *plan)
{
    free(plan->beside);
    free(plan->ends);
    free(plan->waits);
    *plan = (LanePlan){0};
}

/* Makes both plans with the window. */
static FshStatus plan_with(const Graph *graph, size_t window,
                           uint64_t (*bytes_of)(const Graph *graph, TensorId tensor, void *context),
                           void *context, LanePlan *lanes, MemoryPlan *memory, FshError *error)
{
    *memory = (MemoryPlan){0};
    FshStatus status = lane_plan_make(graph, window, lanes, error);
    if (status)
        return status;
    status = memory_plan_make(graph, bytes_of, context, lanes->ends, memory, error);
    if (status)
        lane_plan_free(lanes);
    return status;
}

FshStatus lane_plan_choose(const Graph *graph, bool apart,
                           uint64_t (*bytes_of)(const Graph *graph, TensorId tensor, void *context),
                           void *context, LanePlan *lanes, MemoryPlan *memory, FshError *error)
{
    LanePlan two = {0};
    MemoryPlan of_two = {0};
    FshStatus status = plan_with(graph, 0, bytes_of, context, lanes, memory, error);
    if (status || !apart || !has_movable(graph))
        return status;
    const uint64_t dearer = memory->arena_bytes / DEARER;
    const uint64_t most = memory->arena_bytes + (dearer > LANE_BYTES ? dearer : LANE_BYTES);
    status = plan_with(graph, WINDOW, bytes_of, context, &two, &of_two, error);
    if (status || of_two.arena_bytes <= most) {
        lane_plan_free(lanes);
        memory_plan_free(memory);
        *lanes = two; /* nothing after a failure */
        *memory = of_two;
    } else {
        lane_plan_free(&two);
        memory_plan_free(&of_two);
    }
    return status;
}
