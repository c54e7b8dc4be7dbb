#include "trainer/backend/cuda/cudnn_graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "trainer/backend/cuda/device.h"

enum { TENSORS_MAX = 16, OPERATIONS_MAX = 16, CANDIDATES_MAX = 16, PROPOSALS_MAX = 64, TIMED_RUNS = 5 };

typedef cudnnBackendDescriptor_t Descriptor;

typedef struct Candidate {
    Descriptor plan;
    int64_t engine, workspace_bytes;
} Candidate;

struct CudnnPlan {
    const CudnnDevice *device;
    FshError failure;  /* the first one of the describing calls */
    Descriptor *owned; /* every descriptor, freed in reverse: those made last refer to those made first */
    size_t owned_count, owned_capacity;
    Descriptor tensors[TENSORS_MAX], operations[OPERATIONS_MAX];
    int tensor_count, operation_count;
    Candidate candidates[CANDIDATES_MAX];
    int candidate_count;
    Descriptor variant_pack; /* the addresses; its own owner, since binding again replaces it */
};

FshStatus cudnn_check(cudnnStatus_t code, const char *call, FshError *error)
{
    if (code == CUDNN_STATUS_SUCCESS)
        return FSH_OK;
    char detail[512] = "";
    cudnnGetLastErrorString(detail, sizeof detail);
    FshStatus status = code == CUDNN_STATUS_ALLOC_FAILED ? FSH_ERR_MEMORY : FSH_ERR_LIBRARY;
    return fsh_error_set(error, status, "%s: %s%s%s", call, cudnnGetErrorString(code), detail[0] ? ": " : "",
                         detail);
}

FshStatus cudnn_plan_new(CudnnPlan **plan, const CudnnDevice *device, FshError *error)
{
    *plan = calloc(1, sizeof **plan);
    if (!*plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a cuDNN plan");
    (*plan)->device = device;
    return FSH_OK;
}

void cudnn_plan_free(CudnnPlan **plan)
{
    if (!*plan)
        return;
    if ((*plan)->variant_pack)
        (void)cudnnBackendDestroyDescriptor((*plan)->variant_pack);
    for (size_t i = (*plan)->owned_count; i-- > 0;)
        (void)cudnnBackendDestroyDescriptor((*plan)->owned[i]);
    free((*plan)->owned);
    free(*plan);
    *plan = NULL;
}

/* ---- describing: nothing happens after the first failure ---- */

static void check(CudnnPlan *plan, cudnnStatus_t code, const char *call)
{
    if (!plan->failure.status)
        (void)cudnn_check(code, call, &plan->failure);
}

static Descriptor create(CudnnPlan *plan, cudnnBackendDescriptorType_t type, const char *type_name)
{
    if (plan->failure.status)
        return NULL;
    if (plan->owned_count == plan->owned_capacity) {
        size_t capacity = plan->owned_capacity ? 2 * plan->owned_capacity : 32;
        Descriptor *owned = realloc(plan->owned, capacity * sizeof *owned);
        if (!owned) {
            (void)fsh_error_set(&plan->failure, FSH_ERR_MEMORY, "no memory for a cuDNN descriptor");
            return NULL;
        }
        plan->owned = owned;
        plan->owned_capacity = capacity;
    }
    Descriptor descriptor = NULL;
    check(plan, cudnnBackendCreateDescriptor(type, &descriptor), type_name);
    if (descriptor)
        plan->owned[plan->owned_count++] = descriptor;
    return descriptor;
}

static void set(CudnnPlan *plan, Descriptor descriptor, cudnnBackendAttributeName_t name,
                const char *name_text, cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (!plan->failure.status)
        check(plan, cudnnBackendSetAttribute(descriptor, name, type, count, values), name_text);
}

static void finalize(CudnnPlan *plan, Descriptor descriptor, const char *what)
{
    if (!plan->failure.status)
        check(plan, cudnnBackendFinalize(descriptor), what);
}

/* The names of cuDNN's constants are what its manual and its messages speak of, so they travel as text too.
 */
#define CREATE(plan, type) create(plan, type, #type)
#define SET(plan, descriptor, name, type, count, values)                                                     \
    set(plan, descriptor, name, #name, type, count, values)
#define SET_INT64(plan, descriptor, name, count, values)                                                     \
    SET(plan, descriptor, name, CUDNN_TYPE_INT64, count, values)
#define SET_DESCRIPTOR(plan, descriptor, name, value)                                                        \
    SET(plan, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &(value))

int cudnn_plan_tensor(CudnnPlan *plan, cudnnDataType_t type, const int64_t dimensions[4])
{
    if (plan->tensor_count == TENSORS_MAX && !plan->failure.status)
        (void)fsh_error_set(&plan->failure, FSH_ERR_UNSUPPORTED, "a cuDNN pattern has at most %d tensors",
                            TENSORS_MAX);
    int64_t c = dimensions[1], h = dimensions[2], w = dimensions[3];
    const int64_t strides[4] = {h * w * c, 1, w * c, c};
    const int64_t alignment = 16, unique_id = plan->tensor_count + 1;
    Descriptor tensor = CREATE(plan, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    SET(plan, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    SET_INT64(plan, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dimensions);
    SET_INT64(plan, tensor, CUDNN_ATTR_TENSOR_STRIDES, 4, strides);
    SET_INT64(plan, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &unique_id);
    SET_INT64(plan, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment);
    finalize(plan, tensor, "finalize tensor");
    if (plan->failure.status)
        return -1;
    plan->tensors[plan->tensor_count] = tensor;
    return plan->tensor_count++;
}

/* The three operations differ in nothing but the names of their attributes. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
} convolution_operations[] = {
    [CONVOLUTION_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CONVOLUTION_BACKWARD_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CONVOLUTION_BACKWARD_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

void cudnn_plan_convolution(CudnnPlan *plan, ConvolutionKind kind, int x, int w, int y,
                            const ConvolutionShape *shape)
{
    if (plan->failure.status)
        return;
    if (plan->operation_count == OPERATIONS_MAX) {
        (void)fsh_error_set(&plan->failure, FSH_ERR_UNSUPPORTED, "a cuDNN pattern has at most %d operations",
                            OPERATIONS_MAX);
        return;
    }
    const cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t spatial_dimensions = 2, padding[2] = {shape->padding, shape->padding},
                  stride[2] = {shape->stride, shape->stride}, dilation[2] = {1, 1};
    Descriptor convolution = CREATE(plan, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    SET(plan, convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute_type);
    SET(plan, convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    SET_INT64(plan, convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &spatial_dimensions);
    SET_INT64(plan, convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, padding);
    SET_INT64(plan, convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, padding);
    SET_INT64(plan, convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, stride);
    SET_INT64(plan, convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, dilation);
    finalize(plan, convolution, "finalize convolution");

    /* Float, as the compute type is: a double is taken without complaint, and some engines then read half of it, which is 0. */
    const float alpha = 1, beta = 0;
    Descriptor operation = create(plan, convolution_operations[kind].type, "convolution operation");
    SET_DESCRIPTOR(plan, operation, convolution_operations[kind].x, plan->tensors[x]);
    SET_DESCRIPTOR(plan, operation, convolution_operations[kind].w, plan->tensors[w]);
    SET_DESCRIPTOR(plan, operation, convolution_operations[kind].y, plan->tensors[y]);
    SET_DESCRIPTOR(plan, operation, convolution_operations[kind].convolution, convolution);
    SET(plan, operation, convolution_operations[kind].alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    SET(plan, operation, convolution_operations[kind].beta, CUDNN_TYPE_FLOAT, 1, &beta);
    finalize(plan, operation, "finalize convolution operation");
    plan->operations[plan->operation_count++] = operation;
}

/* ---- from a pattern to plans ---- */

/* Why proposals came to nothing, for the message when all of them do. */
typedef struct Refusals {
    int proposals, by_note, by_workspace, by_build;
    FshError last; /* of those that did not build */
} Refusals;

static uint32_t engine_notes(Descriptor engine)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    uint32_t bits = 0;
    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes) != CUDNN_STATUS_SUCCESS)
        return UINT32_MAX; /* nothing is known of it: refuse it */
    for (int64_t i = 0; i < count; i++)
        bits |= CUDNN_NOTE_BIT(notes[i]);
    return bits;
}

/* Turns one proposal into a candidate if the policy lets it. A plan that does not build is no failure: the
 * next one may. */
static void try_proposal(CudnnPlan *plan, Descriptor proposal, const CudnnPolicy *policy, Refusals *refusals)
{
    refusals->proposals++;
    int64_t count = 0, engine_index = -1, workspace_bytes = 0;
    Descriptor engine = CREATE(plan, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (!engine || cudnnBackendGetAttribute(proposal, CUDNN_ATTR_ENGINECFG_ENGINE,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine))
        return;
    (void)cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count,
                                   &engine_index);
    if (engine_notes(engine) & policy->refused_notes) {
        refusals->by_note++;
        return;
    }
    Descriptor built = CREATE(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    SET_DESCRIPTOR(plan, built, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, proposal);
    if (plan->device->handle)
        SET(plan, built, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &plan->device->handle);
    else
        SET_DESCRIPTOR(plan, built, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, plan->device->properties);
    if (plan->failure.status)
        return;
    if (cudnn_check(cudnnBackendFinalize(built), "finalize plan", &refusals->last)) {
        refusals->by_build++;
        return;
    }
    (void)cudnnBackendGetAttribute(built, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                   &count, &workspace_bytes);
    if (workspace_bytes < 0 || (uint64_t)workspace_bytes > policy->workspace_limit_bytes) {
        refusals->by_workspace++;
        return;
    }
    plan->candidates[plan->candidate_count++] = (Candidate){built, engine_index, workspace_bytes};
}

static void ask_heuristics(CudnnPlan *plan, Descriptor graph, cudnnBackendHeurMode_t mode,
                           const CudnnPolicy *policy, Refusals *refusals)
{
    Descriptor heuristics = CREATE(plan, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    SET_DESCRIPTOR(plan, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    SET(plan, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!plan->device->handle)
        SET_DESCRIPTOR(plan, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, plan->device->properties);
    if (plan->failure.status)
        return;
    /* a mode that knows no engine for the pattern fails here; another one may know */
    if (cudnn_check(cudnnBackendFinalize(heuristics), "finalize heuristics", &refusals->last))
        return;
    Descriptor proposals[PROPOSALS_MAX] = {NULL};
    int64_t count = 0;
    check(plan,
          cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                   0, &count, NULL),
          "count CUDNN_ATTR_ENGINEHEUR_RESULTS");
    count = count < PROPOSALS_MAX ? count : PROPOSALS_MAX;
    for (int64_t i = 0; i < count; i++)
        proposals[i] = CREATE(plan, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (plan->failure.status || count == 0)
        return;
    check(plan,
          cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                   count, &count, proposals),
          "CUDNN_ATTR_ENGINEHEUR_RESULTS");
    int wanted = policy->candidates < CANDIDATES_MAX ? policy->candidates : CANDIDATES_MAX;
    for (int64_t i = 0; i < count && plan->candidate_count < wanted && !plan->failure.status; i++)
        try_proposal(plan, proposals[i], policy, refusals);
}

FshStatus cudnn_plan_build(CudnnPlan *plan, const CudnnPolicy *policy, FshError *error)
{
    Refusals refusals = {0};
    Descriptor graph = CREATE(plan, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (plan->device->handle)
        SET(plan, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &plan->device->handle);
    SET(plan, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, plan->operation_count,
        plan->operations);
    finalize(plan, graph, "finalize operation graph");
    if (!plan->failure.status)
        ask_heuristics(plan, graph, CUDNN_HEUR_MODE_A, policy, &refusals);
    if (!plan->failure.status && plan->candidate_count == 0)
        ask_heuristics(plan, graph, CUDNN_HEUR_MODE_FALLBACK, policy, &refusals);
    if (plan->failure.status)
        return fsh_error_set(error, plan->failure.status, "%s", plan->failure.message);
    if (plan->candidate_count == 0)
        return fsh_error_set(error, FSH_ERR_LIBRARY,
                             "cuDNN %zu has no engine for this: of %d proposals %d have refused numerics, %d "
                             "need more workspace "
                             "than %" PRIu64 " MiB, %d do not build%s%s",
                             cudnnGetVersion(), refusals.proposals, refusals.by_note, refusals.by_workspace,
                             policy->workspace_limit_bytes >> 20, refusals.by_build,
                             refusals.last.status ? "; the last: " : "", refusals.last.message);
    return FSH_OK;
}

uint64_t cudnn_plan_workspace_bytes(const CudnnPlan *plan)
{
    int64_t most = 0;
    for (int i = 0; i < plan->candidate_count; i++)
        most = plan->candidates[i].workspace_bytes > most ? plan->candidates[i].workspace_bytes : most;
    return (uint64_t)most;
}

int cudnn_plan_candidates(const CudnnPlan *plan)
{
    return plan->candidate_count;
}

const char *cudnn_plan_describe(const CudnnPlan *plan, char *buffer, size_t buffer_bytes)
{
    (void)snprintf(buffer, buffer_bytes, "engine %" PRId64 ", %.1f MiB workspace", plan->candidates[0].engine,
                   (double)plan->candidates[0].workspace_bytes / (1 << 20));
    return buffer;
}

/* ---- running ---- */

FshStatus cudnn_plan_bind(CudnnPlan *plan, void *const *data, void *workspace, FshError *error)
{
    int64_t unique_ids[TENSORS_MAX];
    void *addresses[TENSORS_MAX];
    for (int i = 0; i < plan->tensor_count; i++) {
        unique_ids[i] = i + 1;
        addresses[i] = data[i];
    }
    if (plan->variant_pack)
        (void)cudnnBackendDestroyDescriptor(plan->variant_pack);
    plan->variant_pack = NULL;
    FshStatus status = CUDNN_TRY(
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &plan->variant_pack), error);
    Descriptor pack = plan->variant_pack;
    if (!status)
        status = CUDNN_TRY(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                                    CUDNN_TYPE_INT64, plan->tensor_count, unique_ids),
                           error);
    if (!status)
        status = CUDNN_TRY(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                                    CUDNN_TYPE_VOID_PTR, plan->tensor_count, addresses),
                           error);
    if (!status)
        status = CUDNN_TRY(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                                    CUDNN_TYPE_VOID_PTR, 1, &workspace),
                           error);
    if (!status)
        status = CUDNN_TRY(cudnnBackendFinalize(pack), error);
    return status;
}

static FshStatus execute(const CudnnPlan *plan, int candidate, FshError *error)
{
    return CUDNN_TRY(
        cudnnBackendExecute(plan->device->handle, plan->candidates[candidate].plan, plan->variant_pack),
        error);
}

/* Milliseconds of one run: the mean of a few after one that loads the kernels. */
static FshStatus time_candidate(const CudnnPlan *plan, int candidate, cudaStream_t stream, cudaEvent_t start,
                                cudaEvent_t end, float *milliseconds_ret, FshError *error)
{
    FshStatus status = execute(plan, candidate, error);
    if (!status)
        status = CUDA_TRY(cudaEventRecord(start, stream), error);
    for (int i = 0; i < TIMED_RUNS && !status; i++)
        status = execute(plan, candidate, error);
    if (!status)
        status = CUDA_TRY(cudaEventRecord(end, stream), error);
    if (!status)
        status = CUDA_TRY(cudaEventSynchronize(end), error);
    if (!status)
        status = CUDA_TRY(cudaEventElapsedTime(milliseconds_ret, start, end), error);
    return status;
}

FshStatus cudnn_plan_choose(CudnnPlan *plan, cudaStream_t stream, FshError *error)
{
    cudaEvent_t start = NULL, end = NULL;
    float best_milliseconds = 0;
    int best = -1;
    FshStatus status = CUDA_TRY(cudaEventCreate(&start), error);
    if (!status)
        status = CUDA_TRY(cudaEventCreate(&end), error);
    for (int i = 0; i < plan->candidate_count && !status; i++) {
        float milliseconds = 0;
        status = time_candidate(plan, i, stream, start, end, &milliseconds, error);
        if (!status && (best < 0 || milliseconds < best_milliseconds)) {
            best = i;
            best_milliseconds = milliseconds;
        }
    }
    if (!status) {
        plan->candidates[0] = plan->candidates[best];
        plan->candidate_count = 1;
    }
    if (start)
        (void)cudaEventDestroy(start);
    if (end)
        (void)cudaEventDestroy(end);
    return status;
}

FshStatus cudnn_plan_run(const CudnnPlan *plan, FshError *error)
{
    return execute(plan, 0, error);
}
