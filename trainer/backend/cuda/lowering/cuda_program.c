#include "trainer/backend/cuda/lowering/cuda_program.h"

#include "trainer/backend/cuda/lowering/device_ranks.h"
#include "trainer/backend/cuda/lowering/lane_recorder.h"
#include "trainer/backend/cuda/lowering/lowering.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nvtx3/nvToolsExt.h>

#include "trainer/backend/cuda/kernels/kernels_wait.h"
#include "trainer/backend/memory_advice.h"
#include "trainer/backend/cuda/lowering/state.h"
#include "trainer/graph/memory_plan.h"

enum { MEASURED_HEAD_START_NS = 20000000 };

/* ---- messages ---- */

/* Puts the node and its shapes before a message: "conv1: conv2d [8 x 32 x 32 x 3], [16 x 3 x 3 x 3] ->
 * [8 x 32 x 32 x 16]". */
static FshStatus prepend_node(const CudaProgram *program, const Node *node, FshError *error)
{
    char shapes[512] = "", shape[96];
    size_t used = 0;
    for (int i = 0; i < node->input_count + node->output_count; i++) {
        const bool is_output = i >= node->input_count;
        const TensorId id = is_output ? node->outputs[i - node->input_count] : node->inputs[i];
        const char *between = i == node->input_count ? " -> " : i ? ", " : " ";
        if (id == TENSOR_NONE || used >= sizeof shapes)
            continue;
        int wrote = snprintf(shapes + used, sizeof shapes - used, "%s[%s]", between,
                             tensor_shape_text(graph_tensor(program->base.graph, id), shape, sizeof shape));
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    return fsh_error_prepend(error, "%s: %s%s", node->name, op_name(node->op), shapes);
}

/* ---- memory ---- */

static uint64_t arena_bytes_of(const Graph *graph, TensorId id, void *context)
{
    (void)graph;
    const CudaProgram *program = context;
    return device_tensor_room_bytes(&program->tensors[id]);
}

static FshStatus find_in_state(CudaProgram *program, TensorId id, FshError *error)
{
    const Tensor *tensor = graph_tensor(program->base.graph, id);
    const DeviceTensor *held = cuda_state_tensor(program->base.state, tensor->name);
    char shape[96];
    if (!held || device_tensor_count(held) != tensor_count(tensor) ||
        memcmp(held->shape, program->tensors[id].shape, sizeof held->shape) != 0)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%s [%s]: the state's network has %s", tensor->name,
                             tensor_shape_text(tensor, shape, sizeof shape),
                             held ? "another shape for it" : "no such tensor");
    program->tensors[id].data = held->data;
    return FSH_OK;
}

/* Returns the bucket of a parameter's gradient; GRADIENT_BUCKETS: the tensor is none. */
static int bucket_of(const CudaProgram *program, size_t t)
{
    if (graph_tensor(program->base.graph, (TensorId)t)->role != TENSOR_GRADIENT)
        return GRADIENT_BUCKETS;
    return element_is_narrow(program->tensors[t].element) ? GRADIENTS_NARROW : GRADIENTS_F32;
}

/* Places the gradients of parameters, which live for all of a run: bucket by bucket, one after the other from
 * base on. Returns the end; NULL only counts. */
static uint64_t place_fixed(CudaProgram *program, char *base)
{
    uint64_t offset = 0;
    for (int b = 0; b < GRADIENT_BUCKETS; b++) {
        GradientBucket *bucket = &program->gradients[b];
        const uint64_t begin = offset;
        for (size_t t = 0; t < graph_tensor_count(program->base.graph); t++) {
            if (bucket_of(program, t) != b)
                continue;
            if (base)
                program->tensors[t].data = base + offset;
            bucket->element = program->tensors[t].element;
            offset += device_tensor_room_bytes(&program->tensors[t]);
        }
        bucket->bytes = offset - begin;
        bucket->data = base && bucket->bytes ? base + begin : NULL;
    }
    return offset;
}

/* Checks that all narrow gradients have one type: they are one bucket. */
static FshStatus check_gradients(const CudaProgram *program, FshError *error)
{
    const DeviceTensor *first = NULL;
    for (size_t t = 0; t < graph_tensor_count(program->base.graph); t++) {
        const DeviceTensor *tensor = &program->tensors[t];
        if (bucket_of(program, t) != GRADIENTS_NARROW)
            continue;
        if (first && first->element != tensor->element)
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: the network computes in bf16 and in f16",
                                 graph_tensor(program->base.graph, (TensorId)t)->name);
        first = tensor;
    }
    return FSH_OK;
}

/* Takes device memory as cuda_memory_new does. Where there is not enough, the message tells the batch that
 * would fit, from what grows with it: activations and, as far as it is known by then, scratch memory. */
static FshStatus reserve(CudaProgram *program, void **memory, uint64_t bytes, const char *what,
                         FshError *error)
{
    FshStatus status = cuda_memory_new(memory, bytes, what, error);
    if (status != FSH_ERR_MEMORY)
        return status;
    const BatchRoom room = {.use = memory_batch_use(program->base.graph),
                            .needed_bytes = program->base.arena_bytes + program->base.scratch_bytes,
                            .held_bytes = program->arena ? program->base.arena_bytes : 0,
                            .free_bytes = cuda_memory_left()};
    return memory_advise_batch(memory_batch_of(program->base.graph), &room, error);
}

/* apart: some steps may lie beside others. */
static FshStatus place_tensors(CudaProgram *program, bool apart, FshError *error)
{
    const Graph *graph = program->base.graph;
    MemoryPlan plan = {0};
    FshStatus status = FSH_OK;
    for (size_t t = 0; t < graph_tensor_count(graph) && !status; t++)
        if (state_holds(graph_tensor(graph, (TensorId)t)->role))
            status = find_in_state(program, (TensorId)t, error);
    if (!status)
        status = check_gradients(program, error);
    if (!status)
        status = lane_plan_choose(graph, apart, arena_bytes_of, program, &program->lanes, &plan, error);
    const uint64_t fixed_bytes = place_fixed(program, NULL);
    if (!status) {
        program->base.arena_bytes = plan.arena_bytes;
        status = reserve(program, &program->fixed, fixed_bytes, "gradients", error);
    }
    /* a bucket's gaps between tensors travel with it */
    if (!status && fixed_bytes > 0)
        status = CUDA_TRY(cudaMemsetAsync(program->fixed, 0, fixed_bytes, program_backend(program)->stream),
                          error);
    if (!status)
        (void)place_fixed(program, program->fixed);
    if (!status)
        status = reserve(program, &program->arena, plan.arena_bytes, "activations", error);
    for (size_t t = 0; t < graph_tensor_count(graph) && !status; t++)
        if (plan.offset_bytes[t] != UINT64_MAX)
            program->tensors[t].data = (char *)program->arena + plan.offset_bytes[t];
    memory_plan_free(&plan);
    return status;
}

/* ---- steps ---- */

static FshStatus make_steps(CudaProgram *program, FshError *error)
{
    const Graph *graph = program->base.graph;
    uint64_t scratch_bytes[2] = {0, 0}; /* of the main lane, beside */
    FshStatus status = FSH_OK;
    for (size_t n = 0; n < graph_node_count(graph) && !status; n++) {
        const Node *node = graph_node(graph, (NodeId)n);
        const Lowering *lowering = lowering_of(node->op);
        Step *step = &program->steps[n];
        step->node = node;
        for (int i = 0; i < node->input_count; i++)
            if (node->inputs[i] != TENSOR_NONE)
                step->inputs[i] = program->tensors[node->inputs[i]];
        for (int i = 0; i < node->output_count; i++)
            if (node->outputs[i] != TENSOR_NONE)
                step->outputs[i] = program->tensors[node->outputs[i]];
        if (!lowering)
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: the CUDA backend has no %s", node->name,
                                 op_name(node->op));
        if (lowering->want)
            status = lowering->want(program, step, error);
        if (status)
            return prepend_node(program, node, error);
    }
    if (!status)
        status = cudnn_cache_build(program_backend(program)->plans, error);
    for (size_t n = 0; n < graph_node_count(graph) && !status; n++) {
        const Node *node = graph_node(graph, (NodeId)n);
        const Lowering *lowering = lowering_of(node->op);
        Step *step = &program->steps[n];
        if (lowering->prepare)
            status = lowering->prepare(program, step, error);
        if (status) {
            cudnn_cache_settle(program_backend(program)->plans);
            return prepend_node(program, node, error);
        }
        if (node->op == OP_UPDATE)
            program->update = step;
        uint64_t *most = &scratch_bytes[program->lanes.beside[n]];
        if (step->scratch_bytes > *most)
            *most = step->scratch_bytes;
    }
    cudnn_cache_settle(program_backend(program)->plans);
    scratch_bytes[0] =
        (scratch_bytes[0] + TENSOR_ALIGNMENT_BYTES - 1) / TENSOR_ALIGNMENT_BYTES * TENSOR_ALIGNMENT_BYTES;
    program->base.scratch_bytes = scratch_bytes[0] + scratch_bytes[1];
    if (!status)
        status = reserve(program, &program->scratch, program->base.scratch_bytes, "scratch memory", error);
    for (size_t n = 0; n < graph_node_count(graph) && !status; n++) {
        Step *step = &program->steps[n];
        if (program->scratch)
            step->scratch = (char *)program->scratch + (program->lanes.beside[n] ? scratch_bytes[0] : 0);
        const Lowering *lowering = lowering_of(step->node->op);
        if (lowering->bind)
            status = lowering->bind(program, step, error);
        if (status)
            return prepend_node(program, step->node, error);
    }
    return status;
}

/* Enqueues the exchange that makes gradients and loss their means over the ranks, where there are several; as
 * that of a step, which all ranks begin together and which is watched, or on its own. */
static FshStatus share_gradients(const CudaProgram *program, const Step *update, bool is_step,
                                 FshError *error)
{
    const CudaBackend *backend = program_backend(program);
    float *loss = update->inputs[UPDATE_LOSS].data;
    RankMean pieces[GRADIENT_BUCKETS + 1] = {{loss, loss ? 1 : 0, RANK_F32}};
    for (int b = 0; b < GRADIENT_BUCKETS; b++) {
        const GradientBucket *bucket = &program->gradients[b];
        const bool narrow = element_is_narrow(bucket->element);
        pieces[1 + b] = (RankMean){bucket->data, bucket->bytes / (narrow ? 2 : 4),
                                   !narrow                          ? RANK_F32
                                   : bucket->element == ELEMENT_F16 ? RANK_F16
                                                                    : RANK_BF16};
    }
    return is_step ? device_ranks_share(backend->ranks, pieces, GRADIENT_BUCKETS + 1, backend->stream, error)
                   : device_ranks_mean(backend->ranks, pieces, GRADIENT_BUCKETS + 1, backend->stream, error);
}

/* Returns whether ranks exchange their gradients in this kind of run. */
static bool exchanges(const Step *update)
{
    return update->run != UPDATE_ACCUMULATES && update->run != UPDATE_PERTURBS;
}

/* Enqueues what comes before an update. The guard of the loss comes last, so that it sees that of all ranks;
 * in a run that only accumulates or perturbs the ranks' losses are their own, and none of them may stop
 * alone. */
static FshStatus prepare_update(const CudaProgram *program, const Step *update, FshError *error)
{
    cudaStream_t stream = program_backend(program)->stream;
    FshStatus status = FSH_OK;
    if (!exchanges(update))
        return FSH_OK;
    if (update->run == UPDATE_JOINED)
        status = lowering_update_join(update, stream, error);
    if (!status)
        status = share_gradients(program, update, true, error);
    return status ? status : result_ring_guard(&program->ring, update->node, program->tensors, stream, error);
}

static FshStatus enqueue_step(const CudaProgram *program, size_t n, cudaStream_t stream, FshError *error)
{
    const Step *step = &program->steps[n];
    FshStatus status = step->node->op == OP_UPDATE ? prepare_update(program, step, error) : FSH_OK;
    if (!status)
        status = lowering_of(step->node->op)->enqueue(step, stream, error);
    return status ? prepend_node(program, step->node, error) : FSH_OK;
}

/* Returns whether the host says which runs update: where several ranks accumulate, the others exchange
 * nothing. */
static bool joins_ranks(const CudaProgram *program)
{
    return program->update && program_backend(program)->ranks &&
           program->update->node->as.update.accumulation_steps > 1;
}

/* Enqueues all steps, those that may lie beside others in their own lane if there are two. */
static FshStatus enqueue_lanes(const CudaProgram *program, LaneWay way, FshError *error)
{
    const CudaBackend *backend = program_backend(program);
    const size_t node_count = graph_node_count(program->base.graph);
    cudaStream_t beside = way == LANES_TWO ? backend->beside : backend->stream;
    LaneRecorder recorder;
    FshStatus status =
        lane_recorder_begin(&recorder, &program->lanes, node_count, backend->stream, beside, error);
    for (size_t n = 0; n < node_count && !status; n++) {
        cudaStream_t stream = NULL;
        status = lane_recorder_enter(&recorder, n, &stream, error);
        if (!status)
            status = enqueue_step(program, n, stream, error);
        if (!status)
            status = lane_recorder_leave(&recorder, n, error);
    }
    FshStatus ended = lane_recorder_end(&recorder, status ? NULL : error);
    return status ? status : ended;
}

/* Records the steps of one kind of run as one graph: a run is one launch. Its nodes keep the priorities of
 * the streams that they were recorded from. Relaxed, since libraries may load a kernel at its first use; one
 * thread drives the backend, so no other thread's call can slip in. */
static FshStatus record_kind(CudaProgram *program, UpdateRun run, LaneWay way, FshError *error)
{
    cudaStream_t stream = program_backend(program)->stream;
    cudaGraph_t graph = NULL;
    FshStatus status = CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), error);
    if (status)
        return status;
    if (program->update)
        program->update->run = run;
    status = enqueue_lanes(program, way, error);
    /* always: it is what gives the stream back */
    cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    const FshStatus told = cuda_check(ended, "cudaStreamEndCapture(stream, &graph)", status ? NULL : error);
    if (!status)
        status = told;
    if (!status)
        status = CUDA_TRY(cudaGraphInstantiate(&program->recorded.graphs[way][run], graph,
                                               cudaGraphInstantiateFlagUseNodePriority),
                          error);
    if (!status)
        status = CUDA_TRY(cudaGraphUpload(program->recorded.graphs[way][run], stream), error);
    if (graph)
        (void)cudaGraphDestroy(graph);
    return status;
}

static FshStatus record_way(CudaProgram *program, LaneWay way, FshError *error)
{
    const bool joins = joins_ranks(program);
    FshStatus status = record_kind(program, joins ? UPDATE_ACCUMULATES : UPDATE_DECIDES, way, error);
    if (!status && joins)
        status = record_kind(program, UPDATE_JOINED, way, error);
    if (!status && program->update && program->update->node->as.update.sam_rho > 0)
        status = record_kind(program, UPDATE_PERTURBS, way, error);
    return status;
}

static FshStatus record(CudaProgram *program, FshError *error)
{
    /* Once by itself: ranks connect in the first exchange of each kind, which is nothing to record. */
    FshStatus status = program->update ? share_gradients(program, program->update, false, error) : FSH_OK;
    if (!status)
        status = record_way(program, LANES_ONE, error);
    if (status || program->lanes.beside_count == 0)
        return status;
    FshError failed = {0}; /* for want of memory: then there is one lane */
    if (record_way(program, LANES_TWO, &failed) == FSH_OK)
        return recorded_steps_try(&program->recorded, error);
    recorded_steps_drop(&program->recorded, LANES_TWO);
    return failed.status == FSH_ERR_MEMORY ? FSH_OK
                                           : fsh_error_set(error, failed.status, "%s", failed.message);
}

/* Makes the program. *apart: some of its steps may lie beside others; then set to whether some do, after a
 * failure too. */
static FshStatus make_program(Program **program, State *state, const Graph *graph, bool *apart,
                              FshError *error)
{
    const size_t tensor_total = graph_tensor_count(graph), node_total = graph_node_count(graph);
    FshStatus status = FSH_OK;
    CudaProgram *cuda = calloc(1, sizeof *cuda);
    if (cuda) {
        cuda->base.state = state;
        cuda->base.graph = graph;
        cuda->tensors = calloc(tensor_total + 1, sizeof *cuda->tensors);
        cuda->steps = calloc(node_total + 1, sizeof *cuda->steps);
    }
    if (!cuda || !cuda->tensors || !cuda->steps) {
        cuda_program_free(cuda ? &cuda->base : NULL);
        return fsh_error_set(error, FSH_ERR_MEMORY, "cuda: no memory for a program of %zu nodes", node_total);
    }
    for (size_t t = 0; t < tensor_total; t++)
        cuda->tensors[t] = device_tensor_describe(graph, (TensorId)t);
    status = place_tensors(cuda, *apart, error);
    *apart = cuda->lanes.beside_count > 0;
    if (!status)
        status = program_inputs_make(&cuda->inputs, graph, cuda->tensors, cuda->base.arena_bytes, error);
    if (!status)
        status = result_ring_make(&cuda->ring, graph, program_backend(cuda)->stream, error);
    if (!status)
        status = make_steps(cuda, error);
    if (!status)
        status = record(cuda, error);
    if (status) {
        cuda_program_free(&cuda->base);
        return status;
    }
    *program = &cuda->base;
    return FSH_OK;
}

FshStatus cuda_program_new(Program **program, State *state, const Graph *graph, FshError *error)
{
    FshError failed = {0};
    bool apart = true;
    ((CudaBackend *)state->backend)->program_count++;
    FshStatus status = make_program(program, state, graph, &apart, &failed);
    if (status == FSH_ERR_MEMORY && apart) {
        apart = false; /* one lane takes less; nothing has been exchanged with other ranks yet */
        return make_program(program, state, graph, &apart, error);
    }
    return status ? fsh_error_set(error, status, "%s", failed.message) : FSH_OK;
}

static void free_marks(CudaProgram *program)
{
    for (size_t n = 0; program->marks && n <= graph_node_count(program->base.graph); n++)
        if (program->marks[n])
            (void)cudaEventDestroy(program->marks[n]);
    free(program->marks);
    free(program->seconds);
    program->marks = NULL;
    program->seconds = NULL;
}

void cuda_program_free(Program *program)
{
    CudaProgram *cuda = (CudaProgram *)program;
    if (!cuda)
        return;
    (void)cudaStreamSynchronize(program_backend(cuda)->stream);
    recorded_steps_free(&cuda->recorded);
    for (size_t n = 0; cuda->steps && n < graph_node_count(cuda->base.graph); n++)
        if (cuda->steps[n].plan)
            cuda->steps[n].plan_free(cuda->steps[n].plan);
    program_inputs_free(&cuda->inputs);
    result_ring_free(&cuda->ring);
    free_marks(cuda);
    cuda_memory_free(&cuda->arena);
    cuda_memory_free(&cuda->fixed);
    cuda_memory_free(&cuda->scratch);
    lane_plan_free(&cuda->lanes);
    free(cuda->tensors);
    free(cuda->steps);
    free(cuda);
}

/* ---- running ---- */

FshStatus cuda_program_write(Program *program, TensorId id, const void *values, size_t bytes, FshError *error)
{
    return program_inputs_write(&((CudaProgram *)program)->inputs, program->graph, id, values, bytes, error);
}

/* Enqueues a step under its layer's name, which NVIDIA's profilers show. */
static FshStatus enqueue_named(const CudaProgram *program, size_t n, FshError *error)
{
    char name[GRAPH_NAME_MAX + 40];
    const Node *node = program->steps[n].node;
    (void)snprintf(name, sizeof name, "%s %s", node->name, op_name(node->op));
    (void)nvtxRangePushA(name);
    FshStatus status = enqueue_step(program, n, program_backend(program)->stream, error);
    (void)nvtxRangePop();
    return status;
}

/* Enqueues step by step with marks between: a recorded graph cannot be looked into. The device waits until
 * the host is ahead: else the time between two marks would be that of the calls. */
static FshStatus run_measured(CudaProgram *program, FshError *error)
{
    const size_t node_total = graph_node_count(program->base.graph);
    cudaStream_t stream = program_backend(program)->stream;
    FshStatus status = CUDA_TRY(kernel_wait(MEASURED_HEAD_START_NS, stream), error);
    if (!status)
        status = CUDA_TRY(cudaEventRecord(program->marks[0], stream), error);
    for (size_t n = 0; n < node_total && !status; n++) {
        status = enqueue_named(program, n, error);
        if (!status)
            status = CUDA_TRY(cudaEventRecord(program->marks[n + 1], stream), error);
    }
    if (!status)
        status = CUDA_TRY(cudaStreamSynchronize(stream), error);
    for (size_t n = 0; n < node_total && !status; n++) {
        float milliseconds = 0;
        status =
            CUDA_TRY(cudaEventElapsedTime(&milliseconds, program->marks[n], program->marks[n + 1]), error);
        program->seconds[n] += (double)milliseconds / 1000;
    }
    program->measured_runs += status == FSH_OK;
    return status;
}

/* Fails where what the program computes is worth nothing, since another rank is gone. */
static FshStatus check_ranks(const CudaProgram *program, FshError *error)
{
    return program->update ? device_ranks_check(program_backend(program)->ranks, error) : FSH_OK;
}

/* Decides of which kind the next run is, and counts it where it accumulates or joins. */
static FshStatus choose_run(CudaProgram *program, bool perturbs, FshError *error)
{
    State *state = program->base.state;
    int64_t runs = 0;
    if (!program->update)
        return FSH_OK;
    if (perturbs || !joins_ranks(program)) {
        program->update->run = perturbs ? UPDATE_PERTURBS : UPDATE_DECIDES;
        return FSH_OK;
    }
    FshStatus status = cuda_state_runs(state, &runs, error);
    const bool updates = runs + 1 >= program->update->node->as.update.accumulation_steps;
    program->update->run = updates ? UPDATE_JOINED : UPDATE_ACCUMULATES;
    cuda_state_count_runs(state, status ? -1 : updates ? 0 : runs + 1);
    return status;
}

FshStatus cuda_program_run(Program *program, bool perturbs, FshError *error)
{
    CudaProgram *cuda = (CudaProgram *)program;
    cudaStream_t stream = program_backend(cuda)->stream;
    FshStatus status = recorded_steps_turn(&cuda->recorded, error);
    if (!status)
        status = check_ranks(cuda, error);
    if (!status)
        status = choose_run(cuda, perturbs, error);
    const UpdateRun run = cuda->update ? cuda->update->run : UPDATE_DECIDES;
    if (!status)
        status = cuda_state_refresh(program->state, error);
    if (!status)
        status = program_inputs_send(&cuda->inputs, stream, error);
    if (!status)
        status = cuda->profiling ? run_measured(cuda, error)
                                 : recorded_steps_launch(&cuda->recorded, run, stream, error);
    if (!status && cuda->update && exchanges(cuda->update))
        device_ranks_begun(program_backend(cuda)->ranks);
    if (cuda->update)
        cuda_state_updated(program->state, cuda->update->narrow_known);
    return status ? status : result_ring_send(&cuda->ring, program, stream, error);
}

FshStatus cuda_program_results(Program *program, FshError *error)
{
    CudaProgram *cuda = (CudaProgram *)program;
    return result_ring_set(&cuda->ring, program, cuda->tensors, program_backend(cuda)->stream, error);
}

FshStatus cuda_program_collect(Program *program, size_t slot, const float **values, FshError *error)
{
    const CudaProgram *cuda = (const CudaProgram *)program;
    FshStatus status = result_ring_collect(&cuda->ring, program, slot, values, error);
    return status ? status : check_ranks(cuda, error);
}

FshStatus cuda_program_read(Program *program, TensorId id, void *values, size_t bytes, FshError *error)
{
    CudaProgram *cuda = (CudaProgram *)program;
    const char *name = graph_tensor(program->graph, id)->name;
    (void)bytes; /* held against the tensor by program_read */
    if (!cuda->tensors[id].data)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: no node of the program makes it", name);
    FshStatus status = device_tensor_download(&cuda->tensors[id], graph_tensor(program->graph, id)->type,
                                              values, program_backend(cuda)->stream, error);
    return status ? fsh_error_prepend(error, "%s", name) : check_ranks(cuda, error);
}

const char *cuda_program_node_plan(const Program *program, NodeId node)
{
    return ((const CudaProgram *)program)->steps[node].told;
}

const char *cuda_program_node_engine(const Program *program, NodeId node)
{
    const char *engine = ((const CudaProgram *)program)->steps[node].engine;
    return *engine ? engine : "kernel";
}

FshStatus cuda_program_profile(Program *program, bool enable, double *seconds, size_t node_count,
                               FshError *error)
{
    CudaProgram *cuda = (CudaProgram *)program;
    const size_t node_total = graph_node_count(program->graph);
    FshStatus status = FSH_OK;
    if (enable && !cuda->seconds) {
        cuda->seconds = calloc(node_total + 1, sizeof *cuda->seconds);
        cuda->marks = calloc(node_total + 1, sizeof(cudaEvent_t));
        if (!cuda->seconds || !cuda->marks)
            status = fsh_error_set(error, FSH_ERR_MEMORY, "cuda: no memory to measure %zu nodes", node_total);
        for (size_t n = 0; n <= node_total && !status; n++)
            status = CUDA_TRY(cudaEventCreate(&cuda->marks[n]), error);
        if (status) {
            free_marks(cuda);
            return status;
        }
    }
    cuda->profiling = enable;
    if (!seconds)
        return FSH_OK;
    (void)node_count; /* held against the graph by program_profile */
    if (cuda->measured_runs == 0)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "cuda: no run was measured");
    memcpy(seconds, cuda->seconds, node_total * sizeof *seconds);
    return FSH_OK;
}

FshStatus cuda_program_poison(Program *program, FshError *error)
{
    CudaProgram *cuda = (CudaProgram *)program;
    cudaStream_t stream = program_backend(cuda)->stream;
    const int nan_byte = 0xFF; /* of any float type */
    FshStatus status = FSH_OK;
    if (cuda->arena)
        status = CUDA_TRY(cudaMemsetAsync(cuda->arena, nan_byte, program->arena_bytes, stream), error);
    if (!status && cuda->scratch)
        status = CUDA_TRY(cudaMemsetAsync(cuda->scratch, nan_byte, program->scratch_bytes, stream), error);
    for (size_t t = 0; t < graph_tensor_count(program->graph) && !status; t++)
        if (graph_tensor(program->graph, (TensorId)t)->role == TENSOR_GRADIENT)
            status = CUDA_TRY(cudaMemsetAsync(cuda->tensors[t].data, nan_byte,
                                              device_tensor_bytes(&cuda->tensors[t]), stream),
                              error);
    return status;
}
