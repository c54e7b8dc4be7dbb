/* loss_case.h - the graph of one loss alone, for loss_test.c and cuda_loss_test.c. */
#ifndef FSHARD_TESTS_TRAINER_LOSS_CASE_H
#define FSHARD_TESTS_TRAINER_LOSS_CASE_H

#include "trainer/graph/graph.h"

typedef struct LossCase {
    LossKind kind;
    int rank;  /* 2: logits; 4: images */
    bool rows; /* of rank 2: targets beside x, not labels */
    int64_t shape[4];
    bool beside;   /* labels_mixed and mix, or valid, which rows have in any case */
    bool weighted; /* weights of classes */
    bool positive; /* of rows: weights of positives */
    float smoothing;
    float threshold; /* bce, where it binarizes */
    bool binarizes, sums;
} LossCase;

/* Returns the graph of inputs "x", "labels", "labels_mixed", "mix" and "weights", or "x", "target" and
 * "valid", and of rows those with "weights" and "positive_weights"; and "dy", the gradient of the loss. It
 * keeps the loss "y", the gradient of x "dx", and "probabilities" or "error". The test fails where it is
 * none. */
Graph *loss_graph(const LossCase *c);

#endif
