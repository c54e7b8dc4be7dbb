/* mask_case.h - the graph of a loss of masks alone, for mask_loss_test.c and cuda_mask_loss_test.c. */
#ifndef FSHARD_TESTS_TRAINER_MASK_CASE_H
#define FSHARD_TESTS_TRAINER_MASK_CASE_H

#include "trainer/graph/graph.h"

typedef struct MaskCase {
    int64_t shape[4]; /* of the logits: N, H, W, K */
    bool weighted;    /* images have weights: "valid" */
    float smoothing;
} MaskCase;

/* Returns the graph of inputs "x", "mask", "valid" and "dy", the gradient of the loss. It keeps the loss "y",
 * the gradient of x "dx", "classes" and "sums". The test fails where it is none. */
Graph *mask_loss_graph(const MaskCase *c);

#endif
