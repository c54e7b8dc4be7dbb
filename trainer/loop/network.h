/* network.h - one network ready to run: its graphs for training and evaluation, the state they share, their
 * programs.
 *
 * Threads: one thread at a time. After the first step of each kind nothing is allocated. */
#ifndef FSHARD_TRAINER_LOOP_NETWORK_H
#define FSHARD_TRAINER_LOOP_NETWORK_H

#include "trainer/backend/backend.h"
#include "trainer/data/loader.h"
#include "trainer/loop/metrics.h"
#include "trainer/loop/train_plan.h"

/* A graph, its program, and the tensors that go in and out. */
typedef struct NetworkProgram {
    Graph *graph; /* NULL: the plan has no split for it */
    Program *program;
    ModelSpec spec;
    TensorId image, label, learning_rate, logits, loss;
    float *host_logits; /* [batch, classes] */
} NetworkProgram;

typedef struct Network {
    Backend *backend;
    State *state;
    NetworkProgram train, evaluation;
} Network;

/* Builds graphs and programs for the splits that the plan has. Parameters are not set: network_initialize or
 * weights_load does that. device: "auto", "cpu", "cuda". FSH_ERR_MISMATCH: the model does not fit the images
 * (layer and shapes named). On failure nothing is held. */
FshStatus network_open(Network *network, const TrainPlan *plan, const char *device, FshError *error);
/* Frees what it owns; zeroed is fine. */
void network_close(Network *network);

/* Draws the parameters from the seed. */
FshStatus network_initialize(Network *network, uint64_t seed, FshError *error);

/* The graph whose parameters and buffers are the network's. */
const Graph *network_graph(const Network *network);

/* One step of training: forward, backward, update. Adds to metrics; *loss_ret is this batch's mean loss. */
FshStatus network_train(Network *network, const Batch *batch, double learning_rate, Metrics *metrics,
                        double *loss_ret, FshError *error);
/* One step of evaluation. */
FshStatus network_evaluate(Network *network, const Batch *batch, Metrics *metrics, FshError *error);

#endif
