/* fusion_graphs.h - networks in which rewrites of graph_fuse and graph_fuse_backward find their patterns: of
 * 6 small images, differentiated, with these fusions and activations of `type`. */
#ifndef FSHARD_TESTS_TRAINER_FUSION_GRAPHS_H
#define FSHARD_TESTS_TRAINER_FUSION_GRAPHS_H

#include "trainer/graph/graph.h"

/* Returns the network in which every rewrite finds its pattern. */
Graph *fusion_graph(unsigned fusions, DataType type);

/* Returns a network of three blocks with shortcuts of stride 2. Images of 12 pixels become 6, 3 and 2. The
 * second block's first convolution is one of 1 x 1. */
Graph *strided_graph(unsigned fusions, DataType type);

/* Returns a network of norms and max pools. What reads the pools: a sum and a convolution of 3 x 3; one
 * convolution of 1 x 1, of many channels or few; two of them, of which one has a stride. Activations: a ReLU,
 * a leaky one, none. */
Graph *pooled_graph(unsigned fusions, DataType type);

/* Returns a network that begins as resnets do. */
Graph *stem_graph(unsigned fusions, DataType type);

/* Returns a network of the gates of NAFNet, with a bias in front of each rewrite that makes its gradient: a
 * gate whose results are multiplied by factors of their means, one without, and channel scales. */
Graph *gated_graph(unsigned fusions, DataType type);

/* Returns a network of layer scales behind convolutions and a linear layer, of few channels and of more than
 * a warp reads at once, with an addend and without, with a bias and without. */
Graph *scaled_graph(unsigned fusions, DataType type);

/* Returns a network of convolutions of few channels behind reflection pads, at both strides, the first of the
 * images. */
Graph *padded_graph(unsigned fusions, DataType type);

/* Return a network of three pairs of norms. The first has no addend, the second one of fewer channels, the
 * third one of as many, and a leaky ReLU behind it. middle: x is less than a norm of one launch takes, and
 * more than shared memory keeps from one of its passes to the next; large: more than such a norm takes. */
Graph *paired_graph(unsigned fusions, DataType type);
Graph *middle_paired_graph(unsigned fusions, DataType type);
Graph *large_paired_graph(unsigned fusions, DataType type);

#endif
