/* lanes.h - which nodes of a training graph may run beside the others, and until when.
 *
 * The gradient of a convolution's or matrix product's weight is read by the update alone: no other node waits
 * for it. A
 * backend that can do two things at a time keeps the chain of gradients of images (data gradients, norms) in
 * the main lane, in the graph's order, and such nodes in a second one, in that order too. Kernels too small
 * to fill the device fill it together, and what is bound by memory runs beside what is bound by arithmetic.
 *
 *   main    norm  data gradient  norm  data gradient  norm  …  update
 *   beside        weight gradient      weight gradient      …
 *
 * A gradient after which there is only the update stays in the main lane. A node beside begins once all nodes
 * before it in the graph have ended or lie beside, too. What it reads must not be written over before it has
 * ended, so the main lane waits for it where the window after the next one begins.
 *
 * Threads: nothing is shared. */
#ifndef FSHARD_TRAINER_GRAPH_LANES_H
#define FSHARD_TRAINER_GRAPH_LANES_H

#include "trainer/graph/graph.h"
#include "trainer/graph/memory_plan.h"

typedef struct LanePlan {
    bool *beside; /* [node_count] true: the node is not of the main lane */
    /* [node_count] of a node beside: the node of the main lane that waits for it, before which it may still
     * run (node_count: the end of the run); of one of the main lane: itself */
    size_t *ends;
    /* [node_count] of a node of the main lane: how many nodes of the graph, counted from its first, must have
     * ended before it begins, as far as they lie beside; 0: it waits for none */
    size_t *waits;
    size_t beside_count;
} LanePlan;

/* Divides the nodes of a graph that is built. window: of how many nodes of the main lane; 0: all nodes are of
 * the main lane. The caller frees the plan. FSH_ERR_MEMORY. */
FshStatus lane_plan_make(const Graph *graph, size_t window, LanePlan *plan, FshError *error);
void lane_plan_free(LanePlan *plan);

/* Makes the lanes of a graph and its memory plan together (bytes_of, context: as for memory_plan_make). All
 * nodes are of the main lane if apart is false, and where others would cost more than LANE_BYTES and a
 * fiftieth of the memory. The caller frees both plans. FSH_ERR_MEMORY. */
enum { LANE_BYTES = 512 << 20 };
FshStatus lane_plan_choose(const Graph *graph, bool apart,
                           uint64_t (*bytes_of)(const Graph *graph, TensorId tensor, void *context),
                           void *context, LanePlan *lanes, MemoryPlan *memory, FshError *error);

#endif
