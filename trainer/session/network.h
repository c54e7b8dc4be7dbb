/* network.h - one network ready to run: graphs and programs for every size that a run sees, and the State
 * they share.
 *
 * A program is made for one image size. Training has a program for each edge that the plan schedules, all
 * made at once, so that lack of memory shows before the first step. Evaluation of classes has one
 * program. Pairs and masks are evaluated whole: their programs are made as sizes come, and the most
 * recently used are kept.
 *
 * With an average of the weights (EMA) there is a second State, for evaluation alone.
 *
 * Threads: one thread at a time. After the first step of each kind and size nothing is allocated. */
#ifndef FSHARD_TRAINER_SESSION_NETWORK_H
#define FSHARD_TRAINER_SESSION_NETWORK_H

#include "trainer/backend/backend.h"
#include "trainer/data/loader.h"
#include "trainer/report/metrics.h"
#include "trainer/plan/train_plan.h"

/* A graph, its program, and its tensors for input and output, TENSOR_NONE if the task has none. Set when it
 * is made, except where noted. */
typedef struct NetworkProgram {
    Graph *graph;
    Program *program; /* NULL: the graph alone was asked for */
    ModelSpec spec;
    TensorId image, label, label_mixed, mix, targets, target, valid; /* inputs */
    TensorId class_weights, positive_weights;                        /* inputs of training */
    TensorId learning_rate, momentum; /* inputs; momentum: where a schedule moves it */
    /* "logits" [batch, classes]; "restored" [batch, height, width, channels]; "classes" u8 [batch, height,
     * width, 1] */
    TensorId output;
    TensorId loss, error; /* error: of pairs [batch], of masks "sums" [batch, MASK_SUMS]; else none */
    TensorId gradient_norm, updated;
    void *host_output;      /* like output, written by each evaluation; NULL in training */
    uint64_t used;          /* Network.clock of the last evaluation with it */
    uint64_t measured_runs; /* runs that program_profile has measured; counted by network_begin_step */
    MemoryUse foreseen;     /* set by network_foresee, without a program: State and program */
} NetworkProgram;

/* NETWORK_STEPS_AHEAD: training steps that may be under way. While the device computes one, the host reads
 * the results of the step before and writes the batch of the next; each has a whole step's time. */
enum { NETWORK_SIZES_KEPT = 4, NETWORK_STEPS_AHEAD = 3 };

/* A training step between its begin and its end. It keeps what network_end_step needs of the batch, which is
 * gone by then. */
typedef struct NetworkStep {
    NetworkProgram *part;
    uint64_t run;    /* the number that part->program gave it, the last one if it has two */
    bool perturbs;   /* it has two runs (Network.perturbs) */
    int64_t *labels; /* [batch], classes only; owned */
    float *valid;    /* [batch], pairs, masks and rows of targets; owned */
} NetworkStep;

/* The fields up to `average` are set by network_open, except where noted. */
typedef struct Network {
    const TrainPlan *plan; /* borrowed */
    Backend *backend;
    State *state;
    NetworkProgram train[PLAN_EDGES_MAX];   /* [plan->edge_count] */
    NetworkStep steps[NETWORK_STEPS_AHEAD]; /* step number n is at n % NETWORK_STEPS_AHEAD; written by
                                             * network_begin_step */
    uint64_t steps_begun, steps_ended;
    bool measures;  /* set by the loop: steps are begun with program_profile, layer by layer */
    bool perturbs;  /* set by the loop: a step is program_perturb, then program_run (Optimizer.sam_rho) */
    State *average; /* State of the averaged weights; NULL: none */
    /* Programs by NetworkWeights and size, made by network_open and network_evaluate; clock counts
     * evaluations. */
    NetworkProgram evaluation[2][NETWORK_SIZES_KEPT];
    uint64_t clock;
    /* With other views than the image itself (plan->flip_tta, plan->shift_tta): a view's pixels, then its
     * target's, or its recipes; what outputs add up to. Written by network_run_views. */
    uint8_t *view_pixels;
    float *view_sum;
    size_t view_bytes, view_outputs;
    uint8_t *pixels; /* written by network_read_pixels */
    size_t pixels_bytes;
} Network;

/* Builds graphs and programs for the plan's splits. Takes over *backend, also on failure. Leaves the
 * parameters unset: network_initialize, weights_load or checkpoint_load sets them. FSH_ERR_MISMATCH: the
 * model does not fit the images (layer and shapes named). On failure nothing is held. */
FshStatus network_open(Network *network, Backend **backend, const TrainPlan *plan, FshError *error);
/* Builds the graphs alone, and computes the memory that plan->device would take for them, on a machine
 * without that device or without that memory. Nothing runs. FSH_ERR_UNSUPPORTED: this build does not know the
 * device. network_close frees it; on failure nothing is held. */
FshStatus network_foresee(Network *network, const TrainPlan *plan, FshError *error);
/* Frees everything; a zeroed network is fine. */
void network_close(Network *network);

/* Draws the parameters from the seed. */
FshStatus network_initialize(Network *network, uint64_t seed, FshError *error);

/* Returns the graph of the largest training size, or of the first evaluation if nothing is trained. Its
 * parameters, buffers and optimizer tensors are those of the network. */
const Graph *network_graph(const Network *network);

typedef struct StepRates {
    double learning_rate, momentum;
} StepRates;

typedef struct StepResult {
    double loss;          /* of a step of two runs: of the first, unless that of the second is no number */
    double gradient_norm; /* NaN: not measured */
    bool updated;         /* false: gradients are still being accumulated, or were not finite */
} StepResult;

/* A training step is written, begun and ended. Writing can fail because of the batch; beginning and ending
 * are done by all ranks together. Steps end in the order in which they were begun. */
/* Writes the batch, the learning rate and the momentum, where a schedule moves it, for the next step; nothing
 * runs. A second call replaces what the
 * first wrote. The batch is free when network_begin_step returns. */
FshStatus network_write_step(Network *network, const Batch *batch, const StepRates *rates, FshError *error);
/* Runs the step that was written for this batch. At most network_steps_ahead steps may be under way.
 * Evaluating and accessing the State wait for them, but end them first. After a step whose loss is not
 * finite, later steps under way change no parameter (program_results). */
FshStatus network_begin_step(Network *network, const Batch *batch, FshError *error);
/* Waits for the oldest step, fills result and adds to metrics. */
FshStatus network_end_step(Network *network, Metrics *metrics, StepResult *result, FshError *error);
/* Returns how many steps may be under way; 1 if the device is done when network_begin_step returns (the
 * CPU). */
size_t network_steps_ahead(const Network *network);

/* Writes the batch to the program. */
FshStatus network_write_batch(NetworkProgram *part, const Batch *batch, FshError *error);
/* Allocate and free what training steps need. For network_open and network_close. */
FshStatus network_open_steps(Network *network, FshError *error);
void network_close_steps(Network *network);
/* Returns the bytes that the results of `ahead` steps take on the host. */
uint64_t network_result_bytes(const NetworkProgram *part, size_t ahead);

typedef enum NetworkWeights { NETWORK_TRAINED, NETWORK_AVERAGED } NetworkWeights;

/* Add to `use` the memory, taken or foreseen, of the State of these weights; of a program without its
 * State. */
void network_state_memory(const Network *network, NetworkWeights weights, MemoryUse *use);
void network_program_memory(const Network *network, const NetworkProgram *part, MemoryUse *use);

/* The results of evaluating a batch; valid until the next call. */
typedef struct Evaluated {
    const float *output;           /* as NetworkProgram.output; the mean over the plan's views; masks: NULL */
    const uint8_t *restored;       /* pairs: the output in bytes, [batch, height, width, channels] */
    const uint8_t *classes;        /* masks: of each pixel, [batch, height, width] */
    double psnr, ssim, input_psnr; /* pairs: of the image; 0 if the batch has no targets */
} Evaluated;

/* Evaluates a batch and adds to metrics, except for pairs without targets (batch->target NULL). evaluated may
 * be NULL. */
FshStatus network_evaluate(Network *network, NetworkWeights weights, const Batch *batch, Metrics *metrics,
                           Evaluated *evaluated, FshError *error);

/* Runs the batch and the views of it that the plan asks for; *loss and part->host_output become their
 * weighted means. For network_evaluate. */
FshStatus network_run_views(Network *network, NetworkProgram *part, const Batch *batch, float *loss,
                            FshError *error);

/* Sets *bytes_ret to the memory that evaluation takes for each pixel of an image with the plan's channels. */
FshStatus network_foresee_pixel(const Network *network, double *bytes_ret, FshError *error);

/* Sets *pixels_ret to the pixels of the batch evaluated last, if the backend made them (batch->recipes):
 * [batch, height, width, channels]; valid until the next call. */
FshStatus network_read_pixels(Network *network, NetworkWeights weights, const Batch *batch,
                              const uint8_t **pixels_ret, FshError *error);

/* Copies the averaged weights from the State that trains into `average`. */
FshStatus network_take_average(Network *network, FshError *error);

#endif
