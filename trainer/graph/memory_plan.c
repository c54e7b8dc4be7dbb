#include "trainer/graph/memory_plan.h"

#include <stdlib.h>

#include "trainer/graph/graph_internal.h"

/* Tensors that lie in the same bytes one after the other because each took over its predecessor in place. */
typedef struct Block {
    uint64_t bytes, offset_bytes;
    size_t first, last; /* nodes, inclusive; last == node_count for kept tensors */
    bool placed;
} Block;

typedef struct Planner {
    const Graph *graph;
    const size_t *ends; /* [node_count] as for memory_plan_make; or NULL */
    size_t *last_use;   /* [tensor_count] the node with which the last use ends */
    size_t *block_of;   /* [tensor_count] */
    uint64_t *bytes;    /* [tensor_count] */
    Block *blocks;      /* [tensor_count] at most */
    size_t *order;      /* blocks by size */
    size_t block_count;
} Planner;

static bool in_arena(const Graph *graph, TensorId id)
{
    return id != TENSOR_NONE && graph_tensor(graph, id)->role == TENSOR_ACTIVATION;
}

static void use_until(const Planner *planner, TensorId id, size_t end)
{
    if (in_arena(planner->graph, id) && planner->last_use[id] < end)
        planner->last_use[id] = end;
}

static void find_last_uses(Planner *planner)
{
    const Graph *graph = planner->graph;
    const size_t node_count = graph_node_count(graph);
    for (size_t i = 0; i < node_count; i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        const size_t end = planner->ends ? planner->ends[i] : i;
        for (int k = 0; k < node->output_count; k++)
            use_until(planner, node->outputs[k], end);
        for (int k = 0; k < node->input_count; k++)
            use_until(planner, node->inputs[k], end);
    }
    for (size_t t = 0; t < graph_tensor_count(graph); t++)
        if (in_arena(graph, (TensorId)t) && graph_tensor(graph, (TensorId)t)->keep)
            planner->last_use[t] = node_count;
}

/* Sets *input_ret to the input whose block output k of the node may take over: one that dies in this node and
 * that no other output took. Returns false if there is none. */
static bool find_overwritten(const Planner *planner, const Node *node, size_t at, int k, const bool *taken,
                             int *input_ret)
{
    for (int j = 0; j < node->input_count; j++) {
        TensorId input = node->inputs[j];
        if (in_arena(planner->graph, input) && !taken[j] && planner->last_use[input] == at &&
            planner->bytes[input] == planner->bytes[node->outputs[k]] &&
            node_may_overwrite(planner->graph, node, k, j)) {
            *input_ret = j;
            return true;
        }
    }
    return false;
}

static void make_blocks(Planner *planner)
{
    const Graph *graph = planner->graph;
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        bool taken[NODE_INPUTS_MAX] = {false};
        for (int k = 0; k < node->output_count; k++) {
            TensorId output = node->outputs[k];
            int input = 0;
            if (!in_arena(graph, output))
                continue;
            if (find_overwritten(planner, node, i, k, taken, &input)) {
                /* The same tensor may be two inputs (x + x): it can be taken once. */
                for (int j = 0; j < node->input_count; j++)
                    taken[j] |= node->inputs[j] == node->inputs[input];
                planner->block_of[output] = planner->block_of[node->inputs[input]];
                planner->blocks[planner->block_of[output]].last = planner->last_use[output];
                continue;
            }
            planner->block_of[output] = planner->block_count;
            planner->blocks[planner->block_count++] =
                (Block){.bytes = planner->bytes[output], .first = i, .last = planner->last_use[output]};
        }
    }
}

/* Returns the lowest offset at which the block overlaps no placed block that lives at the same time. The
 * candidates are 0 and the ends of such blocks. */
static uint64_t lowest_free_offset(const Planner *planner, const Block *block)
{
    uint64_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < planner->block_count; i++) {
            const Block *other = &planner->blocks[i];
            if (other->placed && other->first <= block->last && block->first <= other->last &&
                other->offset_bytes < offset + block->bytes && offset < other->offset_bytes + other->bytes) {
                offset = other->offset_bytes + other->bytes;
                moved = true;
            }
        }
    }
    return offset;
}

/* Orders larger blocks first, then earlier ones, so that the plan depends on the graph alone. */
static int compare_blocks(const void *a, const void *b, void *context)
{
    const Block *blocks = context;
    const size_t i = *(const size_t *)a, j = *(const size_t *)b;
    if (blocks[i].bytes != blocks[j].bytes)
        return blocks[i].bytes > blocks[j].bytes ? -1 : 1;
    return i < j ? -1 : i > j;
}

static void place_blocks(Planner *planner, MemoryPlan *plan)
{
    for (size_t i = 0; i < planner->block_count; i++)
        planner->order[i] = i;
    qsort_r(planner->order, planner->block_count, sizeof *planner->order, compare_blocks, planner->blocks);
    for (size_t i = 0; i < planner->block_count; i++) {
        Block *block = &planner->blocks[planner->order[i]];
        block->offset_bytes = lowest_free_offset(planner, block);
        block->placed = true;
        if (block->offset_bytes + block->bytes > plan->arena_bytes)
            plan->arena_bytes = block->offset_bytes + block->bytes;
    }
}

uint64_t memory_packed_bytes(const Graph *graph, TensorId tensor, void *unused)
{
    const Tensor *described = graph_tensor(graph, tensor);
    (void)unused;
    return (uint64_t)tensor_count(described) * data_type_bytes(described->type);
}

FshStatus memory_plan_make(const Graph *graph,
                           uint64_t (*bytes_of)(const Graph *graph, TensorId tensor, void *context),
                           void *context, const size_t *ends, MemoryPlan *plan, FshError *error)
{
    const size_t tensor_total = graph_tensor_count(graph);
    Planner planner = {
        .graph = graph,
        .ends = ends,
        .last_use = calloc(tensor_total + 1, sizeof *planner.last_use),
        .block_of = calloc(tensor_total + 1, sizeof *planner.block_of),
        .bytes = calloc(tensor_total + 1, sizeof *planner.bytes),
        .blocks = calloc(tensor_total + 1, sizeof *planner.blocks),
        .order = calloc(tensor_total + 1, sizeof *planner.order),
    };
    FshStatus status = FSH_OK;
    *plan = (MemoryPlan){.offset_bytes = calloc(tensor_total + 1, sizeof *plan->offset_bytes)};
    if (!planner.last_use || !planner.block_of || !planner.bytes || !planner.blocks || !planner.order ||
        !plan->offset_bytes) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "memory plan: no memory for %zu tensors", tensor_total);
        goto done;
    }
    for (size_t t = 0; t < tensor_total; t++) {
        const uint64_t mask = MEMORY_PLAN_ALIGNMENT - 1;
        if (!in_arena(graph, (TensorId)t))
            continue;
        planner.bytes[t] = (bytes_of(graph, (TensorId)t, context) + mask) & ~mask;
        plan->unshared_bytes += planner.bytes[t];
    }
    find_last_uses(&planner);
    make_blocks(&planner);
    place_blocks(&planner, plan);
    for (size_t t = 0; t < tensor_total; t++) {
        /* An activation that a rewrite left without a node lies nowhere. */
        bool planned =
            in_arena(graph, (TensorId)t) && graph_tensor(graph, (TensorId)t)->producer != NODE_NONE;
        plan->offset_bytes[t] = planned ? planner.blocks[planner.block_of[t]].offset_bytes : UINT64_MAX;
    }
done:
    free(planner.last_use);
    free(planner.block_of);
    free(planner.bytes);
    free(planner.blocks);
    free(planner.order);
    if (status)
        memory_plan_free(plan);
    return status;
}

void memory_plan_free(MemoryPlan *plan)
{
    free(plan->offset_bytes);
    *plan = (MemoryPlan){0};
}
