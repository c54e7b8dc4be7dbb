/* network.h - one network ready to run: graphs and programs for every size that a run sees, and the State they share.
 *
 * A program is made for one size of image. Training has one for each edge that the plan schedules, all made at once, so that
 * what does not fit is known before the first step. Evaluation has one for classes; pairs are evaluated whole, so theirs are
 * made as sizes come, and the few last used are kept.
 *
 * With an average of the weights (EMA) there is a second State, for evaluation alone.
 *
 * Threads: one thread at a time. After the first step of each kind and size nothing is allocated. */
#ifndef FSHARD_TRAINER_LOOP_NETWORK_H
#define FSHARD_TRAINER_LOOP_NETWORK_H

#include "trainer/backend/backend.h"
#include "trainer/data/loader.h"
#include "trainer/loop/metrics.h"
#include "trainer/loop/train_plan.h"

/* A graph, its program, and the tensors that go in and out; TENSOR_NONE where the task has none. */
typedef struct NetworkProgram {
    Graph *graph;
    Program *program; /* NULL: the graph alone was asked for */
    ModelSpec spec;
    TensorId image, label, label_mixed, mix, target, valid, learning_rate; /* in */
    TensorId output;      /* "logits" [batch, classes]; "restored" [batch, height, width, channels] */
    TensorId loss, error; /* error: of pairs, [batch] */
    TensorId gradient_norm, updated;
    float *host_output; /* as output; in training of pairs as error */
    uint64_t used;      /* when, for the cache */
} NetworkProgram;

enum { NETWORK_SIZES_KEPT = 4 };

typedef struct Network {
    const TrainPlan *plan; /* borrowed */
    Backend *backend;
    State *state;
    NetworkProgram train[PLAN_EDGES_MAX]; /* plan->edge_count */
    State *average;                       /* of the weights; NULL: none */
    /* Evaluation, of state and of average. */
    NetworkProgram evaluation[2][NETWORK_SIZES_KEPT];
    uint64_t clock;
    uint8_t *mirrored; /* pixels of a batch turned round, behind them those of its target; plan->flip_tta */
    float *mirrored_output;
    size_t mirrored_bytes;
} Network;

/* Builds graphs and programs for the splits that the plan has. Parameters are not set: network_initialize, weights_load or
 * checkpoint_load does that. FSH_ERR_MISMATCH: the model does not fit the images (layer and shapes named). On failure nothing
 * is held. */
FshStatus network_open(Network *network, const TrainPlan *plan, FshError *error);
/* Frees what it owns; zeroed is fine. */
void network_close(Network *network);

/* Draws the parameters from the seed. */
FshStatus network_initialize(Network *network, uint64_t seed, FshError *error);

/* The graph whose parameters, buffers and, if it trains, optimizer's tensors are the network's: of the largest training size, or
 * of the first evaluation. */
const Graph *network_graph(const Network *network);

typedef struct StepResult {
    double loss;
    double gradient_norm; /* NaN: not measured */
    bool updated;         /* false: gradients are gathered still, or were not finite */
} StepResult;

/* One step of training: forward, backward, update. Adds to metrics. */
FshStatus network_train(Network *network, const Batch *batch, double learning_rate, Metrics *metrics,
                        StepResult *result, FshError *error);

typedef enum NetworkWeights { NETWORK_TRAINED, NETWORK_AVERAGED } NetworkWeights;

/* What evaluation gives for a batch; valid until the next call. */
typedef struct Evaluated {
    const float *output;           /* NetworkProgram.output; a mean of two with flip_tta */
    const uint8_t *restored;       /* pairs: as pixels, [batch, height, width, channels] */
    double psnr, ssim, input_psnr; /* pairs: of the image */
} Evaluated;

/* One step of evaluation; adds to metrics. evaluated may be NULL. */
FshStatus network_evaluate(Network *network, NetworkWeights weights, const Batch *batch, Metrics *metrics,
                           Evaluated *evaluated, FshError *error);

/* Takes the averages out of the State, where training keeps them, into `average`. */
FshStatus network_take_average(Network *network, FshError *error);

#endif
