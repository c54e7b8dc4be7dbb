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
/* NULL with the error, where the model refuses. */
Graph *test_model(const char *name, int64_t batch, int64_t size, bool training);

/* A model in training (sgd, momentum 0.9, weight decay 0.01), weights of seed 1, images and labels written,
 * learning rate 0.01. */
TestNetwork test_network(Backend *backend, const char *name, int64_t batch, int64_t size);
void test_network_free(TestNetwork *network);
/* Images and labels (0, 1, 2, …) of a program of test_model's. */
void test_write_batch(Program *program);
void test_run(Program *program);
/* Runs once and returns the loss. */
float test_step(TestNetwork *network);
/* The tensor of this name: kept or a gradient of program, or state's. count_ret may be NULL. Free it. */
float *test_read(Program *program, const char *name, size_t *count_ret);
/* ||a - b|| / ||b|| */
double test_relative_error(const float *a, const float *b, size_t count);

#endif
