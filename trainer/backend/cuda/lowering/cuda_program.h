/* cuda_program.h - a graph lowered to a list of steps, and the list recorded as CUDA graphs.
 *
 * A step is a node with its tensors' addresses and whatever was prepared for it: a cuDNN plan, a cuBLASLt
 * plan, the optimizer's table. The rows of lowerings (lowering.h) say for each op how to prepare and how to
 * enqueue it; cuda_program.c owns memory, inputs, recording and timing, and knows no op.
 *
 * program_inputs.h: how batches come. program_results.h: how results go. So the host prepares a batch while
 * the device works on the last one, and waits only where it is two ahead. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_CUDA_PROGRAM_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_CUDA_PROGRAM_H

#include "trainer/backend/cuda/device/matmul.h"
#include "trainer/backend/cuda/kernels/kernels_update.h"
#include "trainer/backend/cuda/lowering/recorded_steps.h"
#include "trainer/backend/cuda/lowering/program_inputs.h"
#include "trainer/backend/cuda/lowering/program_results.h"
#include "trainer/backend/cuda/lowering/tensors.h"
#include "trainer/graph/lanes.h"

typedef struct Step {
    const Node *node;
    /* inputs[i] is where node->inputs[i] lies and how, outputs alike: shapes, type and pitch as in
     * CudaProgram.tensors, the address once memory is there. data is NULL for an optional one that is absent.
     * want and prepare may put another tensor in the place of an input (a weight's narrow copy). */
    DeviceTensor inputs[NODE_INPUTS_MAX], outputs[NODE_OUTPUTS_MAX];
    uint64_t scratch_bytes; /* what prepare asks for */
    /* Of OP_UPDATE, set by prepare: how many of the State's narrow copies it writes, cuda_state_narrow_count
     * or 0; the others are made good before the next run. */
    size_t narrow_known;
    UpdateRun run; /* of OP_UPDATE: of which kind the run is that is being recorded or enqueued */
    void *scratch; /* that much, shared by all steps of its lane */
    void *plan;    /* what prepare made and enqueue needs (step_own): of the op's own type; may be NULL */
    void (*plan_free)(void *plan);
    char engine[48]; /* for program_node_engine, set by want or prepare; empty: own kernels, "kernel" */
    /* what prepare says of the plan, for people: "engine 47, 1.5 MiB workspace, 0.123 ms"; may be empty */
    char told[112];
} Step;

/* Gradients of one type, one after the other with gaps up to TENSOR_ALIGNMENT_BYTES that hold no NaN: what
 * ranks add up in one piece. bytes is 0 where there are none. */
typedef struct GradientBucket {
    void *data;
    uint64_t bytes;
    ElementType element;
} GradientBucket;
enum { GRADIENTS_NARROW, GRADIENTS_F32, GRADIENT_BUCKETS };

typedef struct CudaProgram {
    Program base;
    DeviceTensor *tensors; /* [graph_tensor_count] the one list: shapes, types, addresses; data NULL: not of
                              this program */
    void *arena;           /* activations */
    void *fixed;           /* gradients of parameters */
    GradientBucket gradients[GRADIENT_BUCKETS]; /* in fixed, in this order */
    void *scratch;                              /* of the main lane's steps, then of those beside */
    LanePlan lanes;
    ProgramInputs inputs;
    ResultRing ring;
    Step *steps;  /* [graph_node_count] */
    Step *update; /* that of OP_UPDATE; NULL: the program leaves weights alone */
    RecordedSteps recorded;
    bool profiling;
    uint64_t measured_runs;
    double *seconds;    /* [graph_node_count] once profiling was on; else NULL */
    cudaEvent_t *marks; /* [graph_node_count + 1] with seconds */
} CudaProgram;

/* Gives plan to the step, which frees it. */
static inline void step_own(Step *step, void *plan, void (*plan_free)(void *plan))
{
    step->plan = plan;
    step->plan_free = plan_free;
}

/* How an op becomes device work. */
typedef struct Lowering {
    /* Says which of cuDNN's plans prepare will ask for, before any step is prepared, so that they are built
     * together, on several threads (cudnn_cache_want). May be NULL. */
    FshStatus (*want)(const CudaProgram *program, Step *step, FshError *error);
    /* Makes plans and sets scratch_bytes. All addresses are known but that of scratch. May be NULL. */
    FshStatus (*prepare)(const CudaProgram *program, Step *step, FshError *error);
    /* Does what needs scratch's address. May be NULL. */
    FshStatus (*bind)(const CudaProgram *program, Step *step, FshError *error);
    /* Enqueues the step on stream. */
    FshStatus (*enqueue)(const Step *step, cudaStream_t stream, FshError *error);
} Lowering;

/* Returns how an op becomes device work; NULL: this backend does not know it. */
const Lowering *lowering_of(OpKind op);

static inline CudaBackend *program_backend(const CudaProgram *program)
{
    return (CudaBackend *)program->base.state->backend;
}

FshStatus cuda_program_new(Program **program, State *state, const Graph *graph, FshError *error);
void cuda_program_free(Program *program);
FshStatus cuda_program_write(Program *program, TensorId id, const void *values, size_t bytes,
                             FshError *error);
FshStatus cuda_program_run(Program *program, bool perturbs, FshError *error);
FshStatus cuda_program_read(Program *program, TensorId id, void *values, size_t bytes, FshError *error);
const char *cuda_program_node_plan(const Program *program, NodeId node);
const char *cuda_program_node_engine(const Program *program, NodeId node);
FshStatus cuda_program_profile(Program *program, bool enable, double *seconds, size_t node_count,
                               FshError *error);
FshStatus cuda_program_poison(Program *program, FshError *error);
FshStatus cuda_program_results(Program *program, FshError *error);
FshStatus cuda_program_collect(Program *program, size_t slot, const float **values, FshError *error);

#endif
