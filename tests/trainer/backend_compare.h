/* backend_compare.h - one graph on two backends, from the same weights and inputs, compared tensor by tensor.
 *
 * Memory is poisoned before the first run, so that what is read before it is written shows as NaN.
 *
 * A ReLU's sign and a maximum's place are decisions: where two values are equal but for rounding both answers
 * are right, and the gradients that follow differ for good. A comparison that meets such a case is made again
 * on other weights and inputs. */
#ifndef FSHARD_TESTS_TRAINER_BACKEND_COMPARE_H
#define FSHARD_TESTS_TRAINER_BACKEND_COMPARE_H

#include "tests/support/support.h"
#include "trainer/backend/backend.h"

typedef struct Comparison {
    Backend *theirs;    /* the reference */
    uint64_t seed;      /* of weights and inputs */
    uint64_t draw;      /* counts the attempts of one comparison */
    double largest;     /* relative difference met so far */
    double tolerance;   /* how far two tensors may be apart, root mean square; 0: 1e-4, what f32 leaves */
    double excess;      /* the largest mismatch, in what is allowed; INFINITY: a value that is not finite */
    bool decided_apart; /* all mismatches are of a few elements, of graphs with a ReLU */
    int mismatches;     /* a test goes on after one, so that all are printed */
    bool ran[OP_KIND_COUNT]; /* ops that were compared */
} Comparison;

/* Returns the seed of this attempt. */
uint64_t drawn_seed(const Comparison *comparison);

/* A state and a program for a graph on one backend. */
typedef struct Side {
    State *state;
    Program *program;
} Side;

/* Makes a state with weights of the seed and a program, whose memory is poisoned. */
void side_start(Side *side, Backend *backend, const Graph *graph, const Comparison *comparison);
void side_end(Side *side);

/* Writes images and labels of the seed and step and the learning rate 0.05. Every seventh label is -1, a
 * sample that does not count. */
void side_write_inputs(Side *side, const Graph *graph, uint64_t step, const Comparison *comparison);

/* Returns the values of a tensor of the State; the caller frees them. */
float *side_read_state(const Side *side, const Tensor *tensor);
/* Makes every activation readable, gradients too. */
void graph_keep_everything(Graph *graph);

/* Returns 2^-8 for bf16, 2^-11 for f16: twice what a number is off by, at most, each time it is stored. */
double epsilon_of(DataType type);
/* Prints and counts a mismatch where ours is not near theirs, or where either is not finite. */
void compare_values(Comparison *comparison, const char *what, const float *ours, const float *theirs,
                    size_t count);
/* Compares all tensors after each of `steps` runs and the state at the end. Keeps all tensors of the graph,
 * and frees the graph. */
void compare_graph(Comparison *comparison, Backend *ours, Graph *graph, const char *name, uint64_t steps);

#endif
