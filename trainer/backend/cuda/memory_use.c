#include "trainer/backend/cuda/memory_use.h"

#include <stdlib.h>

#include "trainer/backend/cuda/lowering/cuda_program.h"
#include "trainer/backend/cuda/lowering/state.h"
#include "trainer/backend/cuda/lowering/weight_copies.h"
#include "trainer/graph/lanes.h"

enum { INPUT_COPIES = 2 }; /* program_inputs.h: block and staging, and two pinned ones */

void cuda_program_memory(const Program *program, MemoryUse *use)
{
    const CudaProgram *cuda = (const CudaProgram *)program;
    const ProgramResults *results = &program->results;
    const uint64_t result_bytes = (uint64_t)results->depth * results->slot_floats * sizeof(float);
    use->bytes[MEMORY_ACTIVATIONS] += program->arena_bytes;
    use->bytes[MEMORY_SCRATCH] += program->scratch_bytes;
    for (int b = 0; b < GRADIENT_BUCKETS; b++)
        use->bytes[MEMORY_GRADIENTS] += cuda->gradients[b].bytes;
    use->bytes[MEMORY_INPUTS] += INPUT_COPIES * cuda->inputs.block_bytes;
    use->bytes[MEMORY_RESULTS] += result_bytes;
    use->bytes[MEMORY_PINNED] += INPUT_COPIES * cuda->inputs.block_bytes + result_bytes;
}

/* ---- without a device ---- */

static uint64_t room_bytes(const Graph *graph, TensorId id, void *context)
{
    (void)context;
    const DeviceTensor tensor = device_tensor_describe(graph, id);
    return device_tensor_room_bytes(&tensor);
}

/* Counts a weight's copy in that type, once: counted holds a bit for each narrow type. */
static void add_copy(const Graph *graph, TensorId weight, ElementType element, unsigned char *counted,
                     MemoryUse *use)
{
    if (!element_is_narrow(element) || counted[weight] >> element & 1)
        return;
    const DeviceTensor described = device_tensor_describe(graph, weight);
    const DeviceTensor copy = device_tensor_narrow(&described, element);
    counted[weight] |= (unsigned char)(1U << element);
    use->bytes[MEMORY_COPIES] += device_tensor_room_bytes(&copy);
}

static void add_copies(const Graph *graph, const Node *node, unsigned char *counted, MemoryUse *use)
{
    for (int i = 1; i < node->input_count; i++)
        if (node_reads_copy(graph, node, i))
            add_copy(graph, node->inputs[i], element_of_type(graph_product_type(graph, node)), counted, use);
}

FshStatus cuda_foresee_memory(const Graph *graph, MemoryUse *use, FshError *error)
{
    const size_t tensor_total = graph_tensor_count(graph);
    LanePlan lanes = {0};
    MemoryPlan plan = {0};
    unsigned char *counted = calloc(tensor_total + 1, 1);
    FshStatus status = counted ? lane_plan_choose(graph, true, room_bytes, NULL, &lanes, &plan, error)
                               : fsh_error_set(error, FSH_ERR_MEMORY, "cuda: no memory for a memory plan");
    for (size_t t = 0; t < tensor_total && !status; t++) {
        const TensorRole role = graph_tensor(graph, (TensorId)t)->role;
        const uint64_t bytes = room_bytes(graph, (TensorId)t, NULL);
        if (state_holds(role))
            use->bytes[MEMORY_WEIGHTS] += bytes;
        else if (role == TENSOR_GRADIENT)
            use->bytes[MEMORY_GRADIENTS] += bytes;
        else if (role == TENSOR_INPUT) {
            use->bytes[MEMORY_INPUTS] += INPUT_COPIES * bytes;
            use->bytes[MEMORY_PINNED] += INPUT_COPIES * bytes;
        }
    }
    for (size_t n = 0; n < graph_node_count(graph) && !status; n++)
        add_copies(graph, graph_node(graph, (NodeId)n), counted, use);
    if (!status)
        use->bytes[MEMORY_ACTIVATIONS] += plan.arena_bytes;
    lane_plan_free(&lanes);
    memory_plan_free(&plan);
    free(counted);
    return status;
}
