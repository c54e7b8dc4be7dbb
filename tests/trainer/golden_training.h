/* golden_training.h - the small network of golden/make_golden_optim.py in training on the CPU, for tests of
 * the update. What fails fails the running test. */
#ifndef FSHARD_TESTS_TRAINER_GOLDEN_TRAINING_H
#define FSHARD_TESTS_TRAINER_GOLDEN_TRAINING_H

#include <jansson.h>

#include "trainer/backend/backend.h"

typedef struct Training {
    Backend *backend;
    Graph *graph;
    State *state;
    Program *program;
    int64_t shape[4];
    uint64_t runs;
    bool perturbs; /* set by the test: training_run calls program_perturb before program_run */
} Training;

/* Opens the CPU. */
Backend *training_backend(int threads);
/* Writes an input of the program, by its name. */
void training_write(Program *program, const char *name, const void *values, size_t bytes);
/* Returns the first value of a tensor of this name, kept by the program or in its State. */
float training_number(Program *program, const char *name);

/* Returns the optimizer that a case of the golden file names. */
Optimizer training_optimizer(const json_t *o);
/* Returns convolution, batch norm, convolution (for Muon more of them), squared error against "target"; "x"
 * and "target" are f32 images of this shape, "valid" their weights. groups: see training_start_groups. */
Graph *training_graph(const int64_t shape[4], const Optimizer *wanted, const json_t *groups);
/* Starts the network of a golden document with its first weights. groups: the case's object, whose "factors",
 * "decays" and the like are taken; NULL: all parameters are trained alike. */
Training training_start_groups(const json_t *document, const Optimizer *optimizer, const json_t *groups,
                               int threads);
Training training_start(const json_t *document, const Optimizer *optimizer, int threads);
/* Frees everything of a training, also of one that was started otherwise. */
void training_end(Training *training);
/* Runs once, on images of this run's own; an overflowing run has a weight that makes every gradient NaN. */
void training_run(Training *training, double rate, bool overflows);

#endif
