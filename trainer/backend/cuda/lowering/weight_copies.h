/* weight_copies.h - which weights a node reads in 16 bits, from a copy beside the State's (state.h): one rule
 * for the lowerings, which have the copies made, and for memory_use.h, which foresees them. Asks the graph
 * alone; needs no device.
 *
 * Threads: no state. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_WEIGHT_COPIES_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_WEIGHT_COPIES_H

#include "trainer/graph/graph.h"

/* Returns whether the node is a convolution of one channel a group, or a gradient of one, for which there are
 * kernels of our own: they read the weight as it is. */
bool node_is_depthwise(const Graph *graph, const Node *node);

/* Returns whether input number `input` of the node is read from a copy where input 0 is narrow: parameters
 * that are weights of convolutions and products, but for depthwise ones and those that their layer scales,
 * and biases that a library may add. (That of a leaky ReLU is only where the plan is timed,
 * lowering_convolution.c.) */
bool node_reads_copy(const Graph *graph, const Node *node, int input);

#endif
