/* backend.h - what runs a graph. One interface; cpu/ (oneDNN, OpenMP) and cuda/ (cuDNN, cuBLASLt, own
 * kernels) lower the same graph.
 *
 *   Backend *backend;
 *   State *state; // parameters, buffers, momentum: one for all programs of a network
 *   Program *train, *evaluate;
 *   backend_open(&backend, "cpu", &options, &error);
 *   state_new(&state, backend, train_graph, &error);
 *   state_initialize(state, seed, &error);
 *   program_new(&train, state, train_graph, &error);
 *   program_new(&evaluate, state, evaluate_graph, &error);
 *   program_write(train, image, pixels, bytes, &error);
 *   …
 *   program_run(train, &error);
 *   program_read(train, loss, …);
 *
 * A device works on its own: program_run enqueues, and what asks for a value waits for it. A loop that shall
 * never leave the device idle enqueues the next run before it looks at the last one's results:
 *
 *   program_results(train, (TensorId[]){loss, logits}, 2, 2, &error);  // two runs may be under way
 *   program_run(train, &error);                                        // run 0
 *   for (uint64_t run = 1; …; run++) {
 *       program_write(train, image, …);
 *       program_run(train, &error);                                    // run `run`, while
 *       program_collect(train, run - 1, values, &error); // values[0]: the loss of the one before
 *   }
 *
 * A State keeps parameters in whatever layout the backend's kernels prefer; state_read and state_write speak
 * the graph's logical layout (OIHW, float32), so checkpoints never see it. Optimizer state has the
 * parameters' layout.
 *
 * Threads: one thread drives a backend and all that belongs to it. After the first run a program allocates
 * nothing. */
#ifndef FSHARD_TRAINER_BACKEND_BACKEND_H
#define FSHARD_TRAINER_BACKEND_BACKEND_H

#include "trainer/graph/graph.h"

struct Communicator; /* trainer/ranks/communicator.h */
typedef struct Backend Backend;
typedef struct State State;
typedef struct Program Program;

typedef struct BackendOptions {
    /* Threads of the CPU backend; of the CUDA backend, those that build plans at the start. 0: all
     * available. */
    int threads;
    /* The options below are the CUDA backend's; the CPU backend gives the same bits in every run, and has no
     * TF32. */
    /* Time the ways to compute each convolution, and keep the fastest. Without it the libraries' first
     * proposals are taken. */
    bool benchmark;
    /* Take only ways whose sums have one order: the same plans give the same bits in every run. Which way
     * wins when ways are timed is chance: for the same bits with benchmark, plans come from a plan_cache. */
    bool deterministic;
    /* Products of float32 may round what they multiply to TF32 (10 bits of mantissa; sums stay float32). */
    bool tf32;
    /* The folder where chosen plans are kept for the next start; NULL: nowhere. Copied by backend_open. */
    const char *plan_cache;
    /* Which of the GPUs that the process sees to use; the CPU backend has no such choice. */
    int device_index;
} BackendOptions;

/* Opens the backend of a device, "cpu" or "cuda". FSH_ERR_UNSUPPORTED: this build has no such backend, or
 * this machine no such device; the message says how to get it. */
FshStatus backend_open(Backend **backend, const char *device, const BackendOptions *options, FshError *error);
void backend_close(Backend **backend);
/* Sets *count_ret to the number of devices that a process sees (cuda), or that it makes sense to speak of
 * (cpu: 1). Fails as backend_open where there is none. It may load the device's libraries: a process that
 * will fork asks in a process of its own. */
FshStatus backend_device_count(const char *device, int *count_ret, FshError *error);
/* Joins the backend to the other ranks: from now on the update of every program made on it takes the mean,
 * over the ranks, of the gradients and of the loss. program_read gives that mean, so all ranks decide alike
 * by it. A run that only accumulates exchanges nothing: gradient, accumulated sum and loss stay this rank's
 * own, and the next update takes the mean of the sums. A loss that is no number in such a run stops nothing
 * there (gradient_norm stays 0), and becomes the loss of the run that updates, on all ranks.
 * Every rank calls it before it makes a program, and then runs the same programs in the same order.
 * communicator is borrowed and outlives the backend. Norms with BatchNorm.sync exchange their statistics in
 * every run; other state (the running statistics of all other norms) stays each rank's own.
 * FSH_ERR_UNSUPPORTED: this build cannot (no NCCL). */
FshStatus backend_join(Backend *backend, struct Communicator *communicator, FshError *error);
/* Returns a line for people, "oneDNN 2.6.3, avx512_core_amx, 2 threads"; good for the backend's life. */
const char *backend_description(const Backend *backend);
/* Returns what went wrong without harm, for people, or NULL: plans that could not be kept, say. Good until
 * the next call on the backend. */
const char *backend_warning(const Backend *backend);
/* Writes where the device is on the PCI bus, "0000:3B:00.0". Returns false if it is not there, or does not
 * say. */
enum { BACKEND_BUS_ID_MAX = 32 };
bool backend_bus_id(const Backend *backend, char text[BACKEND_BUS_ID_MAX]);
/* Returns the rewrites (GraphFusion bits) whose nodes the backend runs: for graph_fuse and
 * graph_fuse_backward. */
unsigned backend_fusions(const Backend *backend);

/* Rates that a device reaches, measured when asked for; the times of a profile are compared with them. */
typedef struct BackendRates {
    double bytes_per_second;         /* of a copy within its memory, read and written */
    double product_flops_per_second; /* of a large product */
} BackendRates;
/* Measures the rates of a device and fills *rates; takes memory meanwhile. type: of the products'
 * operands. */
FshStatus backend_rates(Backend *backend, DataType type, BackendRates *rates, FshError *error);

/* What takes memory. */
typedef enum MemoryKind {
    MEMORY_WEIGHTS, /* parameters, buffers, optimizer state */
    MEMORY_COPIES,  /* of weights, in the 16 bits that a device computes in */
    MEMORY_GRADIENTS,
    MEMORY_ACTIVATIONS,
    MEMORY_SCRATCH,
    MEMORY_INPUTS, /* batches, once for each that may be under way */
    MEMORY_RESULTS,
    MEMORY_PIXELS, /* samples that batches are made from (pixels.h) */
    /* memory of the host through which a device is reached; the other kinds are where the backend computes */
    MEMORY_PINNED,
    MEMORY_KINDS
} MemoryKind;
/* "weights", "weight_copies", "gradients", … */
extern const char *const memory_kind_names[MEMORY_KINDS];
typedef struct MemoryUse {
    uint64_t bytes[MEMORY_KINDS];
} MemoryUse;
/* Returns the sum of all kinds but MEMORY_PINNED: the memory where the backend computes. */
uint64_t memory_total(const MemoryUse *use);
/* Returns the bytes of all tensors of a role, as the graph has them. */
uint64_t memory_of_role(const Graph *graph, TensorRole role);
/* Foresees, without any device, what a backend would do with a graph: *fusions_ret gets its fusions, *use the
 * memory of the graph's State and program. Scratch memory, which only a device's libraries know, and results,
 * which are asked for later, are left 0. graph NULL: the fusions alone. fusions_ret, use: either may be NULL.
 * FSH_ERR_UNSUPPORTED: this build has no such backend. */
FshStatus backend_foresee(const char *device, const Graph *graph, unsigned *fusions_ret, MemoryUse *use,
                          FshError *error);

/* Returns whether tensors of a role live in a State. */
static inline bool state_holds(TensorRole role)
{
    return role == TENSOR_PARAMETER || role == TENSOR_BUFFER || role == TENSOR_OPTIMIZER;
}

/* Allocates the parameters and buffers of a graph (and the optimizer's state if it has an update),
 * uninitialised. Every graph whose program uses this State must have the same parameters, by name and shape;
 * FSH_ERR_MISMATCH names the first that differs. */
FshStatus state_new(State **state, Backend *backend, const Graph *graph, FshError *error);
void state_free(State **state);
/* Adds the memory that a State takes now: a device's copies of weights come with the programs that read
 * them. */
void state_memory(const State *state, MemoryUse *use);
/* Draws every parameter by its initializer from (seed, its name's hash), buffers by theirs; momentum becomes
 * zero. The same seed gives the same weights on every backend. */
FshStatus state_initialize(State *state, uint64_t seed, FshError *error);
/* Read and write `count` values in logical layout, float32. name: of a parameter or buffer;
 * "NAME.momentum_buffer", … are its optimizer state (OptimizerSlot). */
FshStatus state_read(State *state, const char *name, float *values, size_t count, FshError *error);
FshStatus state_write(State *state, const char *name, const float *values, size_t count, FshError *error);
/* Makes *copy_ret, a State of the same graph for state_read alone, from any one thread, while programs run on
 * `state`. It holds nothing before state_copy_take. Free it with state_free, before `state`. */
FshStatus state_copy_new(State **copy_ret, State *state, FshError *error);
/* Makes the copy hold what `state` holds after the runs that were begun. Nobody may read it meanwhile. */
FshStatus state_copy_take(State *copy, State *state, FshError *error);
/* Returns a number that every write and every run of a program on the State makes larger: while it stays the
 * same, a copy is up to date. */
uint64_t state_changes(const State *state);

FshStatus program_new(Program **program, State *state, const Graph *graph, FshError *error);
void program_free(Program **program);
/* Writes an input, in logical layout (images NHWC). bytes must be the tensor's. */
FshStatus program_write(Program *program, TensorId input, const void *values, size_t bytes, FshError *error);
/* Runs all nodes once, in order. */
FshStatus program_run(Program *program, FshError *error);
/* Runs all nodes once; the update perturbs the parameters in place of moving them, for the program_run that
 * follows with the same inputs (Optimizer.sam_rho). Its results are collected as those of program_run;
 * "updated" is 0. Ranks exchange neither gradients nor loss. FSH_ERR_USAGE: the graph has no sam. */
FshStatus program_perturb(Program *program, FshError *error);
/* Reads, in logical layout, a kept tensor (graph_keep), the gradient of a parameter, or an input as the last
 * run had it. */
FshStatus program_read(Program *program, TensorId tensor, void *values, size_t bytes, FshError *error);

/* Returns true where program_run returns before the run is done, so that it pays to have several under
 * way. */
bool backend_runs_ahead(const Backend *backend);
enum { PROGRAM_RESULTS_MAX = 8, PROGRAM_DEPTH_MAX = 8 };
/* Makes each run from now on leave these kept f32 tensors in host memory, for the last depth runs
 * (1..PROGRAM_DEPTH_MAX); runs count from 0 again. Waits for the runs under way. count 0: no more.
 *
 * Where backend_runs_ahead, with depth > 1 and an update without loss scaling, the runs after one whose loss
 * was no number change no parameter either, and their loss is NaN: who collects that run finds the weights
 * that led to it, whatever was enqueued since. That holds until program_results is called again. (Running
 * statistics of norms move in every run.) */
FshStatus program_results(Program *program, const TensorId *tensors, size_t count, size_t depth,
                          FshError *error);
/* Waits for that run, and no later one, and gives the tensors' values, in the order of program_results, in
 * logical layout; good until run + depth is begun. FSH_ERR_USAGE: there was no such run, or a later one took
 * its place. */
FshStatus program_collect(Program *program, uint64_t run, const float **values, FshError *error);
/* Returns the number of runs since program_results. */
uint64_t program_run_count(const Program *program);

/* Adds the memory that a program takes beside its State. */
void program_memory(const Program *program, MemoryUse *use);
/* Returns how the program computes a node, for people: "cuDNN engine 47, 1.5 MiB workspace, 0.123 ms"; ""
 * where there is nothing to choose, and on the CPU. Good for the program's life. */
const char *program_node_plan(const Program *program, NodeId node);
/* Returns the kinds of code that compute a node, in the order of their launches: "onednn" or "loop" on the
 * CPU, "cudnn+bias+relu", "cudnn sums", "direct" or "kernel" on a GPU; "+" joins what one launch does. Unlike
 * program_node_plan it tells neither times nor which of a library's engines was chosen: with the shapes of
 * the graph it is what a refactoring must not change (tests/trainer/lowered_plans_test.c). Good for the
 * program's life. */
const char *program_node_engine(const Program *program, NodeId node);
/* Switches the measuring of nodes in later runs on or off. seconds: NULL, or gets what each node took over
 * all measured runs so far, node_count values; then FSH_ERR_UNSUPPORTED if no run was measured. */
FshStatus program_profile(Program *program, bool enable, double *seconds, size_t node_count, FshError *error);
/* Fills activations, gradients and scratch memory with NaN, so that a run that reads what it did not write
 * shows. For tests. */
FshStatus program_poison(Program *program, FshError *error);

/* What a backend implements; the functions above check arguments and call these. */
typedef struct BackendInterface {
    const char *device;
    unsigned fusions; /* GraphFusion bits of what it can run */
    FshStatus (*open)(Backend **backend, const BackendOptions *options, FshError *error);
    void (*close)(Backend *backend);
    const char *(*warning)(const Backend *backend);                        /* NULL: there never is one */
    bool (*bus_id)(const Backend *backend, char text[BACKEND_BUS_ID_MAX]); /* NULL: it is on no bus */
    FshStatus (*rates)(Backend *backend, DataType type, BackendRates *rates, FshError *error);
    FshStatus (*state_new)(State **state, Backend *backend, const Graph *graph, FshError *error);
    void (*state_free)(State *state);
    FshStatus (*state_read)(State *state, const char *name, float *values, size_t count, FshError *error);
    FshStatus (*state_write)(State *state, const char *name, const float *values, size_t count,
                             FshError *error);
    /* As the functions above; both NULL: the copy is made in host memory, by state_read. */
    FshStatus (*state_copy_new)(State **copy, State *state, FshError *error);
    FshStatus (*state_copy_take)(State *copy, State *state, FshError *error);
    FshStatus (*program_new)(Program **program, State *state, const Graph *graph, FshError *error);
    void (*program_free)(Program *program);
    FshStatus (*program_write)(Program *program, TensorId input, const void *values, size_t bytes,
                               FshError *error);
    FshStatus (*program_run)(Program *program, bool perturbs, FshError *error);
    FshStatus (*program_read)(Program *program, TensorId tensor, void *values, size_t bytes, FshError *error);
    FshStatus (*program_profile)(Program *program, bool enable, double *seconds, size_t node_count,
                                 FshError *error);
    FshStatus (*program_poison)(Program *program, FshError *error);
    const char *(*program_node_plan)(const Program *program, NodeId node); /* NULL: nothing is chosen */
    const char *(*program_node_engine)(const Program *program, NodeId node);
    /* Takes memory for Program.results, which has just been set (count may be 0); each run fills a slot.
     * NULL, as program_collect, where program_run returns when all is done: the functions above then read
     * after each run. */
    FshStatus (*program_results)(Program *program, FshError *error);
    /* Gives the tensors of the slot, slot_floats, once the run that fills it is done. */
    FshStatus (*program_collect)(Program *program, size_t slot, const float **values, FshError *error);
    FshStatus (*device_count)(int *count_ret, FshError *error); /* NULL: 1 */
    /* Add as the functions above. The three may be NULL where tensors lie as the graph has them, once
     * each. */
    void (*state_memory)(const State *state, MemoryUse *use);
    void (*program_memory)(const Program *program, MemoryUse *use);
    FshStatus (*foresee)(const Graph *graph, unsigned *fusions_ret, MemoryUse *use, FshError *error);
    FshStatus (*join)(Backend *backend, struct Communicator *communicator, FshError *error);
    const struct PixelInterface *pixels; /* pixels.h; NULL: batches come from the loader's memory alone */
} BackendInterface;

/* What every backend's objects begin with. */
struct Backend {
    const BackendInterface *interface;
    int threads; /* of the host, that it may take: BackendOptions; left by backend_open */
    char description[224];
};
struct State {
    Backend *backend;
    const Graph *graph; /* of state_new; borrowed, outlives the State */
    uint64_t changes;   /* state_changes; counted by the functions above */
};
/* Run r leaves its results in slot r % depth. */
typedef struct ProgramResults {
    TensorId tensors[PROGRAM_RESULTS_MAX];
    size_t first_float[PROGRAM_RESULTS_MAX]; /* of the slot */
    size_t count, depth, slot_floats;
    uint64_t run_count;
    float *memory; /* [depth][slot_floats] of a backend that does not run ahead */
} ProgramResults;
struct Program {
    State *state;
    const Graph *graph; /* borrowed, outlives the program */
    uint64_t arena_bytes, scratch_bytes;
    ProgramResults results;
};

#endif
