/* graph_support.h - for tests of rewrites of graphs, without a backend. */
#ifndef FSHARD_TESTS_TRAINER_GRAPH_SUPPORT_H
#define FSHARD_TESTS_TRAINER_GRAPH_SUPPORT_H

#include "trainer/graph/graph.h"

/* Appends a normalised image, "image", of size x size pixels. */
TensorId test_image(Graph *graph, int64_t batch, int64_t size, int64_t channels);
/* Appends the cross-entropy of the logits of 2 samples, fuses, differentiates, and checks the graph. */
void test_finish(Graph *graph, TensorId logits, unsigned fusions);
/* Returns how many nodes have the op. */
size_t test_count_ops(const Graph *graph, OpKind op);
/* Returns the first node of the op; NULL: there is none. */
const Node *test_find_op(const Graph *graph, OpKind op);

#endif
