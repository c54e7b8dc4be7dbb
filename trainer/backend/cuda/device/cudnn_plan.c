/* From a pattern to a plan that runs: heuristics, candidates, timing, and plans written down as JSON. */
#include <inttypes.h>
#include <stdio.h>

#include "trainer/backend/cuda/device/cudnn_internal.h"
#include "trainer/backend/cuda/device/device.h"
#include "trainer/backend/cuda/device/stream_time.h"

enum { PROPOSALS_MAX = 64 };

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

static int64_t workspace_of(Descriptor plan)
{
    int64_t count = 0, bytes = 0;
    (void)cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                   &count, &bytes);
    return bytes;
}

/* Sets the handle or the properties: they must be the first of all attributes, or loading crashes (9.14). */
static FshStatus set_device(const CudnnDevice *device, Descriptor plan, FshError *error)
{
    if (device->handle)
        return CUDNN_TRY(cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
                                                  1, &device->handle),
                         error);
    return CUDNN_TRY(cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device->properties),
                     error);
}

/* Makes an execution plan from a proposal, or from JSON where proposal is NULL. */
static FshStatus finalize_plan(const CudnnDevice *device, Descriptor proposal, const void *json, size_t bytes,
                               Descriptor *plan, FshError *error)
{
    *plan = NULL;
    FshStatus status =
        CUDNN_TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, plan), error);
    if (!status)
        status = set_device(device, *plan, error);
    if (!status && proposal)
        status = CUDNN_TRY(cudnnBackendSetAttribute(*plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &proposal),
                           error);
    if (!status && !proposal)
        status = CUDNN_TRY(cudnnBackendSetAttribute(*plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                                    CUDNN_TYPE_CHAR, (int64_t)bytes, json),
                           error);
    if (!status)
        status = cudnn_check(cudnnBackendFinalize(*plan), "finalize plan", error);
    if (status && *plan) {
        (void)cudnnBackendDestroyDescriptor(*plan);
        *plan = NULL;
    }
    return status;
}

/* Turns one proposal into a candidate if the policy lets it. A plan that does not build is no failure: the
 * next one may. */
static void try_proposal(CudnnPlan *plan, Descriptor proposal, const CudnnPolicy *policy, Refusals *refusals)
{
    refusals->proposals++;
    int64_t count = 0, engine_index = -1;
    Descriptor engine = CREATE(plan, CUDNN_BACKEND_ENGINE_DESCRIPTOR), built = NULL;
    if (!engine || cudnnBackendGetAttribute(proposal, CUDNN_ATTR_ENGINECFG_ENGINE,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine))
        return;
    (void)cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count,
                                   &engine_index);
    if (engine_notes(engine) & policy->refused_notes) {
        refusals->by_note++;
        return;
    }
    if (finalize_plan(plan->device, proposal, NULL, 0, &built, &refusals->last)) {
        refusals->by_build++;
        return;
    }
    const int64_t workspace_bytes = workspace_of(built);
    if (workspace_bytes < 0 || (uint64_t)workspace_bytes > policy->workspace_limit_bytes) {
        refusals->by_workspace++;
        (void)cudnnBackendDestroyDescriptor(built);
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
    cudnn_note_failure(plan,
                       cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL),
                       "count CUDNN_ATTR_ENGINEHEUR_RESULTS");
    count = count < PROPOSALS_MAX ? count : PROPOSALS_MAX;
    for (int64_t i = 0; i < count; i++)
        proposals[i] = CREATE(plan, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (plan->failure.status || count == 0)
        return;
    cudnn_note_failure(plan,
                       cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, proposals),
                       "CUDNN_ATTR_ENGINEHEUR_RESULTS");
    int wanted = policy->candidates < CUDNN_CANDIDATES_MAX ? policy->candidates : CUDNN_CANDIDATES_MAX;
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
    cudnn_finalize(plan, graph, "finalize operation graph");
    if (!plan->failure.status)
        ask_heuristics(plan, graph, CUDNN_HEUR_MODE_A, policy, &refusals);
    if (!plan->failure.status && plan->candidate_count < policy->candidates)
        ask_heuristics(plan, graph, CUDNN_HEUR_MODE_B, policy, &refusals);
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

FshStatus cudnn_plan_load(CudnnPlan *plan, const void *json, size_t bytes, FshError *error)
{
    Descriptor loaded = NULL;
    if (plan->failure.status)
        return fsh_error_set(error, plan->failure.status, "%s", plan->failure.message);
    FshStatus status = finalize_plan(plan->device, NULL, json, bytes, &loaded, error);
    if (status)
        return status;
    plan->candidates[0] = (Candidate){loaded, -1, workspace_of(loaded)};
    plan->candidate_count = 1;
    return FSH_OK;
}

FshStatus cudnn_plan_json(const CudnnPlan *plan, Buffer *json, FshError *error)
{
    const Descriptor built = plan->candidates[0].plan;
    int64_t count = 0;
    FshStatus status =
        CUDNN_TRY(cudnnBackendGetAttribute(built, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                           CUDNN_TYPE_CHAR, 0, &count, NULL),
                  error);
    if (!status)
        status = buffer_reserve(json, json->length + (size_t)count, error);
    if (!status)
        status =
            CUDNN_TRY(cudnnBackendGetAttribute(built, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                               CUDNN_TYPE_CHAR, count, &count, json->bytes + json->length),
                      error);
    if (!status)
        json->length += (size_t)count;
    return status;
}

uint64_t cudnn_plan_workspace_bytes(const CudnnPlan *plan)
{
    int64_t most = 0;
    for (int i = 0; i < plan->candidate_count; i++)
        most = plan->candidates[i].workspace_bytes > most ? plan->candidates[i].workspace_bytes : most;
    return (uint64_t)most;
}

double cudnn_plan_milliseconds(const CudnnPlan *plan)
{
    return plan->milliseconds;
}

int64_t cudnn_plan_engine(const CudnnPlan *plan)
{
    return plan->candidates[0].engine;
}

void cudnn_plan_set_known(CudnnPlan *plan, double milliseconds, int64_t engine)
{
    plan->milliseconds = milliseconds;
    plan->candidates[0].engine = engine;
}

const char *cudnn_plan_describe(const CudnnPlan *plan, char *buffer, size_t buffer_bytes)
{
    char engine[32] = "as kept", time[32] = "";
    if (plan->candidates[0].engine >= 0)
        (void)snprintf(engine, sizeof engine, "engine %" PRId64, plan->candidates[0].engine);
    if (plan->milliseconds > 0)
        (void)snprintf(time, sizeof time, ", %.3f ms", plan->milliseconds);
    (void)snprintf(buffer, buffer_bytes, "%s, %.1f MiB workspace%s", engine,
                   (double)plan->candidates[0].workspace_bytes / (1 << 20), time);
    return buffer;
}

static void drop_candidate(CudnnPlan *plan, int i)
{
    (void)cudnnBackendDestroyDescriptor(plan->candidates[i].plan);
    plan->candidate_count--;
    for (int k = i; k < plan->candidate_count; k++)
        plan->candidates[k] = plan->candidates[k + 1];
}

FshStatus cudnn_plan_limit_workspace(CudnnPlan *plan, uint64_t most_bytes, FshError *error)
{
    for (int i = plan->candidate_count; i-- > 0;)
        if ((uint64_t)plan->candidates[i].workspace_bytes > most_bytes)
            drop_candidate(plan, i);
    if (plan->candidate_count == 0)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no plan needs %" PRIu64 " MiB of workspace or less",
                             most_bytes >> 20);
    return FSH_OK;
}

/* ---- running ---- */

FshStatus cudnn_pack_new(CudnnPack *pack, const CudnnPlan *plan, void *const *data, void *workspace,
                         FshError *error)
{
    int64_t unique_ids[CUDNN_TENSORS_MAX], count = 0;
    void *addresses[CUDNN_TENSORS_MAX];
    for (int i = 0; i < plan->tensor_count; i++) {
        if (plan->is_virtual[i])
            continue;
        unique_ids[count] = i + 1;
        addresses[count++] = data[i];
    }
    *pack = NULL;
    FshStatus status =
        CUDNN_TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, pack), error);
    if (!status)
        status = CUDNN_TRY(cudnnBackendSetAttribute(*pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                                    CUDNN_TYPE_INT64, count, unique_ids),
                           error);
    if (!status)
        status = CUDNN_TRY(cudnnBackendSetAttribute(*pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                                    CUDNN_TYPE_VOID_PTR, count, addresses),
                           error);
    if (!status)
        status = CUDNN_TRY(cudnnBackendSetAttribute(*pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                                    CUDNN_TYPE_VOID_PTR, 1, &workspace),
                           error);
    if (!status)
        status = CUDNN_TRY(cudnnBackendFinalize(*pack), error);
    if (status)
        cudnn_pack_free(pack);
    return status;
}

void cudnn_pack_free(CudnnPack *pack)
{
    if (*pack)
        (void)cudnnBackendDestroyDescriptor(*pack);
    *pack = NULL;
}

FshStatus cudnn_plan_run(const CudnnPlan *plan, CudnnPack pack, cudnnHandle_t handle, FshError *error)
{
    return CUDNN_TRY(cudnnBackendExecute(handle, plan->candidates[0].plan, pack), error);
}

/* One candidate as work to be timed. */
typedef struct Timed {
    const CudnnPlan *plan;
    int candidate;
    CudnnPack pack;
} Timed;

/* Runs a candidate on the stream of the plan's handle, which is the one that is timed. */
static FshStatus execute_timed(const void *context, cudaStream_t stream, FshError *error)
{
    const Timed *timed = context;
    (void)stream;
    const CudnnPlan *plan = timed->plan;
    return CUDNN_TRY(
        cudnnBackendExecute(plan->device->handle, plan->candidates[timed->candidate].plan, timed->pack),
        error);
}

FshStatus cudnn_plan_choose(CudnnPlan *plan, void *const *data, void *workspace, cudaStream_t stream,
                            FshError *error)
{
    CudnnPack pack = NULL;
    FshError last = {0};
    double best_milliseconds = 0;
    int best = -1;
    FshStatus status = cudnn_pack_new(&pack, plan, data, workspace, error);
    for (int i = 0; i < plan->candidate_count && !status; i++) {
        const Timed timed = {plan, i, pack};
        const StreamWork work = {execute_timed, &timed};
        double milliseconds = 0;
        if (stream_time(&work, stream, &milliseconds, &last))
            continue;
        if (best < 0 || milliseconds < best_milliseconds) {
            best = i;
            best_milliseconds = milliseconds;
        }
    }
    if (!status && best < 0)
        status = fsh_error_set(error, last.status, "none of %d plans runs; the last: %s",
                               plan->candidate_count, last.message);
    if (!status) {
        for (int i = plan->candidate_count; i-- > 0;)
            if (i != best)
                drop_candidate(plan, i);
        plan->milliseconds = best_milliseconds;
    }
    cudnn_pack_free(&pack);
    return status;
}
