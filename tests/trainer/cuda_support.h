/* cuda_support.h - what the tests of the CUDA backend share: its backends, graphs of a few layers, and a
 * program that leaves with 77 where there is no GPU.
 *
 *   CUDA_TEST(test_gates_agree)
 *   {
 *       compare_layers(gates, "gates", false);
 *   }
 *
 * usage of each: cuda_X_test [SEED [PATTERN]]     other inputs; only the tests whose name matches, as
 * '*_agree' Tests that scripts/device.sh runs under compute-sanitizer have names that end with _agree: small
 * shapes, every kernel. */
#ifndef FSHARD_TESTS_TRAINER_CUDA_SUPPORT_H
#define FSHARD_TESTS_TRAINER_CUDA_SUPPORT_H

#include "tests/trainer/backend_compare.h"
#include "trainer/models/models.h"

enum { CUDA, CPU, CUDA_TIMED, BACKENDS }; /* the last: with BackendOptions.benchmark */
/* Open while tests run. */
extern Backend *backends[BACKENDS];
/* Against the CPU backend; of the whole program, `largest` and `mismatches` of one test. */
extern Comparison comparison;

/* Begin and end a test; the end prints the largest difference met and fails the test if comparison counted a
 * mismatch. */
int cuda_begin_test(void **state);
int cuda_end_test(void **state);
#define CUDA_TEST(name) TEST_WITH(name, cuda_begin_test, cuda_end_test, void *nothing)

/* Asserts, as a program's last test, that every op that the table in cuda_support.c gives to this program was
 * compared, and that what was compared stands in the table. */
void expect_every_op_was_compared(void);

typedef TensorId (*Layers)(Graph *graph, TensorId x);
extern const Optimizer plain_sgd, nesterov_sgd;
TensorId conv(Graph *graph, const char *name, TensorId x, int64_t channels, int64_t kernel, int64_t stride,
              int64_t padding, bool bias);
/* Returns image -> normalize -> layers -> global average pool or flatten -> linear -> loss, differentiated,
 * with its update. */
Graph *network(Layers layers, int64_t batch, int64_t height, int64_t width, int64_t channels, bool flat,
               bool fuse, const Optimizer *sgd);
/* Compares several shapes of that network, pooled and flattened, for three steps each; one sample and odd
 * edges are among them. */
void compare_layers(Layers layers, const char *name, bool fuse);
/* Returns a model of the registry with 10 classes. */
Graph *model(const char *name, int64_t batch, int64_t size, int64_t channels, bool training);

#endif
