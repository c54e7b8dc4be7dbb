/* op_run.h - the graph of one case of op_cases.h alone, run on a backend and compared with the CPU's in f32.
 *
 * Inputs and weights are rounded to eight significant bits, so they are the same numbers in every type,
 * and what differs is the rounding of results. Memory is poisoned before each of two runs; the second
 * gives the bits of the first, unless the op moves a buffer. */
#ifndef FSHARD_TESTS_TRAINER_OP_RUN_H
#define FSHARD_TESTS_TRAINER_OP_RUN_H

#include "tests/trainer/backend_compare.h"
#include "tests/trainer/op_cases.h"

/* One way to compute a case. */
typedef struct OpWay {
    DataType type;
    bool between_norms;
    bool fused; /* rewritten by graph_fuse */
} OpWay;

/* Returns the graph of f32 inputs "x", "other" and "dy" and kept "y", "dx" and "dother": the op in the
 * type of `way`, and the gradients that follow from dy. Fails the test where the op does not compute in
 * that type. */
Graph *op_graph(const OpTest *row, const OpCase *c, OpWay way);
/* Adds an f32 input that gets a gradient, as no input of a network does. */
TensorId op_input(Graph *graph, const char *name, int rank, const int64_t *shape);
/* Appends the backward pass of y from an input "dy", and keeps the gradients of x and other as "dx" and
 * other_gradient. other: TENSOR_NONE, or without a gradient. */
void op_differentiate(Graph *graph, TensorId y, TensorId x, TensorId other, const char *other_gradient);

/* Writes "ROW of 2 x 9 x 11 x 3 (case 5), bf16, fused" to text and returns it. */
const char *op_text(const OpTest *row, const OpCase *c, int i, OpWay way, char *text, size_t size);

/* Returns how many elements x has. */
int64_t op_elements(const OpCase *c);
/* Writes normal inputs and weights of the comparison's seed. `rounded` to eight bits. */
void op_write(Side *side, const Graph *graph, const Comparison *comparison, bool rounded);

/* OP_CASES_LARGE: the large ones of a row; OP_CASES: the others; OP_CASES_OF_CPU: those of them that take
 * the CPU a moment. */
typedef enum OpCases { OP_CASES, OP_CASES_LARGE, OP_CASES_OF_CPU } OpCases;
/* Compares these cases of every row in one type, in all ways that the row has, and returns their number.
 * ours is compared with comparison->theirs, which computes in f32, unfused. */
int compare_ops(Comparison *comparison, Backend *ours, DataType type, OpCases cases);

#endif
