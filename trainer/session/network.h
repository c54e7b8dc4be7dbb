/* network.h - one network ready to run: graphs and programs for every size that a run sees, and the State
 * they share.
 *
 * A program is made for one size of image. Training has one for each edge that the plan schedules, all made
 * at once, so that what does not fit is known before the first step. Evaluation has one for classes; pairs
 * are evaluated whole, so theirs are made as sizes come, and the few last used are kept.
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

/* A graph, its program, and the tensors that go in and out; TENSOR_NONE where the task has none. */
typedef struct NetworkProgram {
    Graph *graph;
    Program *program; /* NULL: the graph alone was asked for */
    ModelSpec spec;
    TensorId image, label, label_mixed, mix, target, valid, learning_rate; /* in */
    TensorId output;      /* "logits" [batch, classes]; "restored" [batch, height, width, channels] */
    TensorId loss, error; /* error: of pairs, [batch] */
    TensorId gradient_norm, updated;
    float *host_output;     /* as output; NULL in training */
    uint64_t used;          /* when, for the cache */
    uint64_t measured_runs; /* program_profile has seen */
    MemoryUse foreseen;     /* of network_foresee, where there is no program: State and program */
} NetworkProgram;

/* Steps of training that may be under way: while the device is in one, the host looks at the last one's
 * results and writes the next one's batch, and has a whole step for it. */
enum { NETWORK_SIZES_KEPT = 4, NETWORK_STEPS_AHEAD = 3 };

/* A step of training that was begun and not ended; what is known of its batch when that is gone. */
typedef struct NetworkStep {
    NetworkProgram *part;
    uint64_t run;    /* of part->program */
    int64_t *labels; /* [batch] of classes; owned */
    float *valid;    /* [batch]; owned */
} NetworkStep;

typedef struct Network {
    const TrainPlan *plan; /* borrowed */
    Backend *backend;
    State *state;
    NetworkProgram train[PLAN_EDGES_MAX];   /* plan->edge_count */
    NetworkStep steps[NETWORK_STEPS_AHEAD]; /* step number n at n % NETWORK_STEPS_AHEAD */
    uint64_t steps_begun, steps_ended;
    bool measures;  /* steps that are begun: layer by layer (program_profile) */
    State *average; /* of the weights; NULL: none */
    /* Evaluation, of state and of average. */
    NetworkProgram evaluation[2][NETWORK_SIZES_KEPT];
    uint64_t clock;
    uint8_t *mirrored; /* pixels of a batch turned round, behind them those of its target; plan->flip_tta */
    float *mirrored_output;
    size_t mirrored_bytes;
    uint8_t *pixels; /* of network_read_pixels */
    size_t pixels_bytes;
} Network;

/* Builds graphs and programs for the splits that the plan has. Takes *backend, in any case. Parameters are
 * not set: network_initialize, weights_load or checkpoint_load does that. FSH_ERR_MISMATCH: the model does
 * not fit the images (layer and shapes named). On failure nothing is held. */
FshStatus network_open(Network *network, Backend **backend, const TrainPlan *plan, FshError *error);
/* Graphs alone, and the memory that plan->device would take for them: for what is to be known where that
 * device is not. Nothing runs. FSH_ERR_UNSUPPORTED: this build does not know the device. network_close frees
 * it; on failure nothing is held. */
FshStatus network_foresee(Network *network, const TrainPlan *plan, FshError *error);
/* Frees what it owns; zeroed is fine. */
void network_close(Network *network);

/* Draws the parameters from the seed. */
FshStatus network_initialize(Network *network, uint64_t seed, FshError *error);

/* The graph whose parameters, buffers and, if it trains, optimizer's tensors are the network's: of the
 * largest training size, or of the first evaluation. */
const Graph *network_graph(const Network *network);

typedef struct StepResult {
    double loss;
    double gradient_norm; /* NaN: not measured */
    bool updated;         /* false: gradients are gathered still, or were not finite */
} StepResult;

/* One step of training, forward, backward, update, in two parts: what can fail for want of something good in
 * the batch, and what ranks must do together. Steps are ended in the order in which they were begun. */
/* What the next step takes; nothing runs. Again, with another batch, it replaces what was written. The batch
 * is free when network_begin_step returns. */
FshStatus network_write_step(Network *network, const Batch *batch, double learning_rate, FshError *error);
/* Runs the step that was written for this batch. At most network_steps_ahead steps may be under way;
 * evaluation, reading and writing of the State wait for them, but want them ended. Behind a step whose loss
 * was no number, later ones that are under way change no parameter (program_results). */
FshStatus network_begin_step(Network *network, const Batch *batch, FshError *error);
/* Waits for the oldest step; adds to metrics. */
FshStatus network_end_step(Network *network, Metrics *metrics, StepResult *result, FshError *error);
/* 1 where the device is done when network_begin_step returns (the CPU). */
size_t network_steps_ahead(const Network *network);

/* Writes what the program takes of the batch. */
FshStatus network_write_batch(NetworkProgram *part, const Batch *batch, FshError *error);
FshStatus network_write_input(NetworkProgram *part, TensorId input, const void *values, FshError *error);
/* Of network_open and network_close: what steps of training need. */
FshStatus network_open_steps(Network *network, FshError *error);
void network_close_steps(Network *network);
/* Bytes that `ahead` steps leave of what is looked at. */
uint64_t network_result_bytes(const NetworkProgram *part, size_t ahead);

typedef enum NetworkWeights { NETWORK_TRAINED, NETWORK_AVERAGED } NetworkWeights;

/* Add what is taken, or foreseen: of the State of these weights; of a program beside its State. */
void network_state_memory(const Network *network, NetworkWeights weights, MemoryUse *use);
void network_program_memory(const Network *network, const NetworkProgram *part, MemoryUse *use);

/* What evaluation gives for a batch; valid until the next call. */
typedef struct Evaluated {
    const float *output;           /* NetworkProgram.output; a mean of two with flip_tta */
    const uint8_t *restored;       /* pairs: as pixels, [batch, height, width, channels] */
    double psnr, ssim, input_psnr; /* pairs: of the image; 0 where the batch has no targets */
} Evaluated;

/* Does one step of evaluation and adds to metrics, but for pairs whose targets nobody knows (batch->target
 * NULL). evaluated may be NULL. */
FshStatus network_evaluate(Network *network, NetworkWeights weights, const Batch *batch, Metrics *metrics,
                           Evaluated *evaluated, FshError *error);

/* Finds *bytes_ret, the memory that evaluation takes for each pixel of an image, of as many channels as the
 * plan's. */
FshStatus network_foresee_pixel(const Network *network, double *bytes_ret, FshError *error);

/* The pixels of the batch that was evaluated last, where the backend made them (batch->recipes): [batch,
 * height, width, channels]; valid until the next call. */
FshStatus network_read_pixels(Network *network, NetworkWeights weights, const Batch *batch,
                              const uint8_t **pixels_ret, FshError *error);

/* Takes the averages out of the State, where training keeps them, into `average`. */
FshStatus network_take_average(Network *network, FshError *error);

#endif
