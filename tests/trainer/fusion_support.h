/* fusion_support.h - a network in which every rewrite of graph_fuse and graph_fuse_backward finds its
 * pattern, and its results with and without them. */
#ifndef FSHARD_TESTS_TRAINER_FUSION_SUPPORT_H
#define FSHARD_TESTS_TRAINER_FUSION_SUPPORT_H

#include "trainer/backend/backend.h"

/* The network, differentiated, rewritten; activations of `type`. */
Graph *fusion_graph(unsigned fusions, DataType type);

/* Loss, gradients of all parameters and running statistics of the network with `fusions` against those
 * without any, on one backend from the same weights: ||difference|| / ||without|| at most tolerance. The
 * gradient of a bias in front of a norm must be nearly 0, and 0 itself where bias-norm is among the
 * fusions. */
void compare_fusions(Backend *backend, DataType type, unsigned fusions, double tolerance);

/* In 16 bits, where rounding another value on the way flips signs in front of ReLUs: all gradients together,
 * with `fusions`, may be no more than three times as far from the network's in float32 as they are without
 * any (bf16 on the CPU: 0.05 of their size without, 0.05 to 0.08 with one). */
void compare_narrow_fusions(Backend *backend, DataType type, unsigned fusions);

/* Convolutions of several shapes with a bias and a ReLU, or a leaky one, fused: a pixel that is no number
 * makes results that are none. */
void check_no_number_passes(Backend *backend, DataType type);

/* The weight gradient of a convolution of more images than are kept, with FUSE_IMAGES_AGAIN and without: the
 * same bits. */
void compare_images_again(Backend *backend, DataType type);

#endif
