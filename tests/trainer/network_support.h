/* network_support.h - a model with its state, program and a batch of made-up images, for tests of
 * backends. */
#ifndef FSHARD_TESTS_TRAINER_NETWORK_SUPPORT_H
#define FSHARD_TESTS_TRAINER_NETWORK_SUPPORT_H

#include "trainer/backend/backend.h"
#include "trainer/models/models.h"

typedef struct TestNetwork {
    Backend *backend; /* borrowed */
    Graph *graph;
    State *state;
    Program *program;
} TestNetwork;

enum { TEST_CLASSES = 10 };

/* Fails the running test with the message. */
void test_check(FshStatus status, const FshError *error);

Backend *test_backend(int threads);
/* Returns the model's graph; fails the test with the message where the model refuses. */
Graph *test_model(const char *name, int64_t batch, int64_t size, bool training);

/* Returns whether the model has more than a hundred million parameters. Those are other sizes of smaller
 * models, and tests of every network leave them out for their time and memory; onnx_runtime_test.py does the
 * same. */
bool test_model_is_large(const Model *model);

/* Returns a model in training (sgd, momentum 0.9, weight decay 0.01) with weights of seed 1; images, labels
 * and learning rate 0.01 are written. */
TestNetwork test_network(Backend *backend, const char *name, int64_t batch, int64_t size);
void test_network_free(TestNetwork *network);
/* Writes images and labels (0, 1, 2, …) to a program of test_model's. */
void test_write_batch(Program *program);
void test_run(Program *program);
/* Runs once and returns the loss. */
float test_step(TestNetwork *network);
/* Returns the tensor of this name, kept by the program or in its state; the caller frees it. *count_ret is
 * the number of values; count_ret may be NULL. */
float *test_read(Program *program, const char *name, size_t *count_ret);
/* Returns ||a - b|| / ||b||. */
double test_relative_error(const float *a, const float *b, size_t count);

#endif
