/* cpu_internal.h - the CPU backend's own objects: what its files share.
 *
 * Files: cpu_backend.c (opening, threads, memory), cpu_state.c (parameters), cpu_program.c (a graph made
 * runnable), cpu_convolution.c, cpu_depthwise.c, cpu_small_gradient.c, cpu_side_by_side.c, cpu_norm.c,
 * cpu_norm_gate.c, cpu_pointwise.c, cpu_window.c, cpu_box.c, cpu_channel.c, cpu_tokens.c,
 * cpu_self_attention.c, cpu_loss*.c, cpu_update*.c (ops: functions and, at the end of the file, their rows),
 * cpu_muon.c (products of an update), cpu_kernels*.c (loops), onednn*.c (convolution and matrix product).
 *
 * Activations are packed NHWC and NC, in f32 or bf16 (DataType of the tensor): an op is one function for both
 * (cpu_read, cpu_write, CpuStep.kernels; kernels_value.h). Results depend on the number of threads (it
 * divides sums) and on the instruction set (through oneDNN), and on nothing else: the same run gives the same
 * bits. */
#ifndef FSHARD_TRAINER_BACKEND_CPU_CPU_INTERNAL_H
#define FSHARD_TRAINER_BACKEND_CPU_CPU_INTERNAL_H

#include "trainer/backend/backend.h"
#include "trainer/backend/cpu/cpu_kernels.h"
#include "trainer/backend/cpu/onednn.h"
#include "trainer/graph/memory_plan.h"

typedef struct CpuBackend {
    Backend base;
    int threads;
    DnnEngine *dnn;
    const CpuKernels *kernels;         /* for f32 */
    const CpuKernels *kernels_bf16;    /* for activations in bf16 */
    struct Communicator *communicator; /* borrowed; NULL: one rank */
    /* what could be filled when it was opened, and what its programs will fill of that */
    uint64_t free_bytes, promised_bytes;
    char warning[160]; /* "": nothing to warn of */
} CpuBackend;

/* ---- threads and memory (cpu_backend.c) ---- */

/* Works on items begin..end of a job, on thread `part`. */
typedef void (*CpuPart)(void *context, int part, int64_t begin, int64_t end);

/* Divides items 0..count-1 over the threads: contiguous, equal to one item, always the same. */
void cpu_parallel(const CpuBackend *backend, int64_t count, CpuPart work, void *context);

/* Sets the number of threads of OpenMP, which oneDNN uses, for the calling thread, and returns the previous
 * one; cpu_threads_leave sets it back, since the caller may have its own. */
int cpu_threads_enter(const CpuBackend *backend);
void cpu_threads_leave(int previous);

/* Returns zeroed memory, aligned to 64 bytes or, where it is large, to 2 MiB and on huge pages if the system
 * has some. NULL: no memory. */
void *cpu_memory_new(uint64_t bytes);
void cpu_memory_free(void *memory);

/* Measures what this machine reaches (cpu_rates.c). */
FshStatus cpu_rates(Backend *base, DataType type, BackendRates *rates, FshError *error);

/* ---- state (cpu_state.c) ---- */

/* A parameter, buffer or tensor of the optimizer. */
typedef struct CpuVariable {
    char name[GRAPH_NAME_MAX];
    TensorRole role;
    int rank;
    int64_t shape[GRAPH_RANK_MAX];
    DnnLayout *plain, *layout; /* as the graph speaks, and as it is stored; owned */
    uint64_t offset_bytes;     /* in values; a parameter's gradient has the same in gradients */
} CpuVariable;

typedef struct CpuState {
    State base;
    CpuVariable *variables; /* parameters first, those that are trained before the others */
    size_t variable_count;
    char *values;                                         /* all variables */
    uint64_t trained_bytes, parameter_bytes, value_bytes; /* of the first variables; of all */
    char *gradients; /* of parameter_bytes; made for the first program that has gradients, shared by all */
} CpuState;

/* Opens the CPU as a backend, *backend_ret, whose interface is the caller's to set. */
FshStatus cpu_backend_open(Backend **backend_ret, const BackendOptions *options, FshError *error);
FshStatus cpu_backend_join(Backend *base, struct Communicator *communicator, FshError *error);
void cpu_backend_close(Backend *base);
/* Returns what it warns of; NULL: nothing. */
const char *cpu_backend_warning(const Backend *backend);

FshStatus cpu_state_new(State **state, Backend *backend, const Graph *graph, FshError *error);
void cpu_state_free(State *base);
FshStatus cpu_state_read(State *base, const char *name, float *values, size_t count, FshError *error);
FshStatus cpu_state_write(State *base, const char *name, const float *values, size_t count, FshError *error);
/* Returns the variable of this name, NULL if there is none. */
const CpuVariable *cpu_state_find(const CpuState *state, const char *name);

/* ---- programs (cpu_program.c) ---- */

typedef struct CpuProgram CpuProgram;
typedef struct CpuStep CpuStep;

/* One node, ready to run. */
struct CpuStep {
    const Node *node;
    CpuProgram *program;
    /* Loops for activations of the type of output 0, or, where that is absent, of input 0. Most ops have one
     * type of activations; one that reads another asks cpu_kernels for its loops. */
    const CpuKernels *kernels;
    FshStatus (*run)(CpuStep *step, FshError *error);
    void *inputs[NODE_INPUTS_MAX]; /* NULL where the node's are absent */
    void *outputs[NODE_OUTPUTS_MAX];
    /* Set by prepare. */
    uint64_t scratch_bytes;  /* what run may use of program->scratch */
    DnnPrimitive *primitive; /* or NULL; owned; its scratch memory is the program's */
    const char *engine;      /* for program_node_engine; NULL: "onednn" with a primitive, else "loop" */
    void *plan;              /* what prepare worked out, malloc'd; or NULL; owned */
    FshStatus (*bind_scratch)(CpuStep *step, FshError *error); /* once program->scratch is there; or NULL */
    void (*release)(CpuStep *step); /* of what plan holds, before plan is freed; or NULL */
};

struct CpuProgram {
    Program base;
    const CpuBackend *backend;
    CpuStep *steps; /* [node_count] */
    char *arena, *scratch;
    char *inputs; /* tensors of TENSOR_INPUT */
    MemoryPlan plan;
    uint64_t *input_offsets;       /* [tensor_count] in inputs */
    const CpuVariable **variables; /* [tensor_count] of what lives in the State; a gradient's parameter's */
    double *seconds;               /* [node_count] of measured runs */
    bool measures, measured;
    bool perturbs;           /* the run under way, in place of an update */
    uint64_t promised_bytes; /* of the backend's */
};

/* Return the tensor of the graph that is input or output k of the step; k: a name of graph_ops.h. */
const Tensor *cpu_input(const CpuStep *step, int k);
const Tensor *cpu_output(const CpuStep *step, int k);
/* Return where element `index` of input or output k lies, whatever its type; NULL if it is absent. So an op's
 * part of the work is
 *
 *   step->kernels->relu(cpu_read(step, 0, begin), cpu_write(step, 0, begin), end - begin, slope);
 *
 * for f32 and bf16 alike. */
const void *cpu_read(const CpuStep *step, int k, int64_t index);
void *cpu_write(const CpuStep *step, int k, int64_t index);
/* Returns FSH_ERR_UNSUPPORTED where this processor cannot compute with a type of the graph. */
FshStatus cpu_check_types(const Graph *graph, FshError *error);
/* Returns the loops for activations of this type; those for f32 where no activation has it (u8, i64). */
const CpuKernels *cpu_kernels(const CpuBackend *backend, DataType type);

FshStatus cpu_program_new(Program **program, State *state, const Graph *graph, FshError *error);
void cpu_program_free(Program *base);
FshStatus cpu_program_write(Program *base, TensorId input, const void *values, size_t bytes, FshError *error);
FshStatus cpu_program_run(Program *base, bool perturbs, FshError *error);
FshStatus cpu_program_read(Program *base, TensorId id, void *values, size_t bytes, FshError *error);
const char *cpu_program_node_engine(const Program *base, NodeId node);
FshStatus cpu_program_profile(Program *base, bool enable, double *seconds, size_t node_count,
                              FshError *error);
FshStatus cpu_program_poison(Program *base, FshError *error);

/* ---- ops ---- */

/* How an op is computed. */
typedef struct CpuOp {
    OpKind op;
    /* Fills what CpuStep marks as set by prepare, once; the addresses of the step are known. NULL: nothing to
     * prepare. */
    FshStatus (*prepare)(CpuStep *step, FshError *error);
    /* Computes the outputs from the inputs. */
    FshStatus (*run)(CpuStep *step, FshError *error);
} CpuOp;

/* The rows of each file that computes ops; each list ends with a row without run. */
extern const CpuOp cpu_ops_pointwise[], cpu_ops_convolution[], cpu_ops_norm[], cpu_ops_norm_gate[],
    cpu_ops_norm_pool[], cpu_ops_channel[], cpu_ops_box[], cpu_ops_tokens[], cpu_ops_self_attention[],
    cpu_ops_window[], cpu_ops_loss[], cpu_ops_loss_pixel[], cpu_ops_loss_mask[], cpu_ops_loss_target[],
    cpu_ops_update[];

/* Returns the geometry of a convolution, from the tensors that it reads and writes (cpu_convolution.c). */
DnnConvolution cpu_convolution_geometry(const Tensor *x, const Tensor *y, const Conv2d *conv);
/* Returns true where a weight gradient of a convolution has a faster way (cpu_small_gradient.c); prepare puts
 * it into step->run. */
bool cpu_small_gradient_wins(const CpuStep *step, const DnnConvolution *convolution);
FshStatus cpu_small_gradient_prepare(CpuStep *step, const DnnConvolution *convolution,
                                     const DnnLayout *weights, FshError *error);
/* Returns whether each channel is convolved by itself, once. */
bool cpu_is_depthwise(const DnnConvolution *convolution);
/* Returns whether the weight of a convolution is to lie as own loops want it, whatever oneDNN would have. */
bool cpu_depthwise_lays_weight(const DnnConvolution *convolution);
/* Return true where a depthwise convolution or the gradient of its image, and where the gradient of its
 * weight, which is laid out so, has own loops (cpu_depthwise.c); prepare puts them into step->run. */
bool cpu_depthwise_wins(const DnnConvolution *convolution, const DnnLayout *weights);
bool cpu_depthwise_gradient_wins(const DnnConvolution *convolution, const DnnLayout *weights);
FshStatus cpu_depthwise_prepare(CpuStep *step, const DnnConvolution *convolution, FshError *error);
/* Returns true where a convolution or a gradient of it has a faster way (cpu_side_by_side.c); prepare puts it
 * into step->run. */
bool cpu_side_by_side_wins(const DnnConvolution *convolution);
FshStatus cpu_side_by_side_prepare(CpuStep *step, const DnnConvolution *convolution, const DnnLayout *weights,
                                   FshError *error);
/* Return, and make numbers of each channel means over, the ranks that the statistics of a norm or of its
 * backward node are of: `pairs`, first one number of all channels, then the other (cpu_norm.c). */
uint64_t cpu_norm_ranks(const CpuStep *step);
FshStatus cpu_norm_average(const CpuStep *step, double *pairs, int64_t channels, FshError *error);
/* Set mean and inverse deviation of an OP_BATCH_NORM, OP_NORM_POOL or OP_NORM_SQUEEZE: from mean and variance
 * of so many pixels of this rank (moments, pairs that become those of all ranks), where the running
 * statistics are moved, too; and from the running statistics. */
FshStatus cpu_norm_batch_statistics(CpuStep *step, double *moments, int64_t channels, int64_t pixels,
                                    FshError *error);
void cpu_norm_running_statistics(CpuStep *step, int64_t channels);
/* The images of a pool: in, which it reads, and out, which it makes. */
typedef struct CpuPoolImages {
    PoolShape shape;
    int64_t in_size, out_size; /* elements of one image */
    int64_t in_row, out_row;   /* elements of one row */
} CpuPoolImages;
CpuPoolImages cpu_pool_images(const Pool2d *pool, const Tensor *in, const Tensor *out);
/* y = (x - mean) * scale + bias, [channels], in the program's scratch memory. */
typedef struct CpuNormChannels {
    const float *mean, *scale, *bias;
} CpuNormChannels;
/* Prepares a step whose operands are those of an OP_BATCH_NORM. */
FshStatus cpu_norm_prepare(CpuStep *step, FshError *error);
/* Computes what y is made with, for cpu_norm_channels; of a training norm from x, and moves the running
 * statistics. */
FshStatus cpu_norm_statistics(CpuStep *step, FshError *error);
CpuNormChannels cpu_norm_channels(const CpuStep *step);
/* Computes the part of a convolution's activation that its primitive leaves. */
void cpu_convolution_activate(CpuStep *step);

#endif
