/* memory_plan.h - where each activation lies in one arena.
 *
 * Tensors whose lifetimes (first node to the end of the last that touches them; a kept one's lasts to
 * the end) do not
 * overlap share bytes; and an output takes the bytes of an input that dies in the same node where
 * node_may_overwrite allows it. Placed greedily, largest first, at the lowest offset that is free for the
 * whole lifetime (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020,
 * greedy by size). bytes_of says what a tensor takes in the backend's layout (padding included).
 *
 * Threads: nothing is shared. */
#ifndef FSHARD_TRAINER_GRAPH_MEMORY_PLAN_H
#define FSHARD_TRAINER_GRAPH_MEMORY_PLAN_H

#include "trainer/graph/graph.h"

enum { MEMORY_PLAN_ALIGNMENT = 64 };
typedef struct MemoryPlan {
    uint64_t *offset_bytes; /* [tensor_count]; UINT64_MAX for tensors outside the arena */
    uint64_t arena_bytes;
    uint64_t unshared_bytes; /* without sharing, for the report */
} MemoryPlan;

/* Returns the bytes of a tensor as the graph has it, packed: a bytes_of. */
uint64_t memory_packed_bytes(const Graph *graph, TensorId tensor, void *unused);

/* Makes the plan of a graph that is built; the caller frees it. ends: for each node the one before
 * which it has ended, or itself (lanes.h); NULL: each ends before the next begins. FSH_ERR_MEMORY. */
FshStatus memory_plan_make(const Graph *graph,
                           uint64_t (*bytes_of)(const Graph *graph, TensorId tensor, void *context),
                           void *context, const size_t *ends, MemoryPlan *plan, FshError *error);
void memory_plan_free(MemoryPlan *plan);

#endif
