/* muon.h - which parameters Muon moves, and how far (Jordan 2024, https://kellerjordan.github.io/posts/muon).
 *
 * Muon replaces the step of a matrix by the nearest one whose singular values are all 1, or nearly: with
 * X = step / ||step||, MuonRule.steps times
 *
 *   A = X X';  X = a X + (b A + c A A) X        (a, b, c) = (3.4445, -4.7750, 2.0315)
 *
 * where X has no more rows than columns; a matrix that has more goes through it transposed. The filters of a
 * convolution, [O, I, h, w], are a matrix of O rows and I h w columns, in any order: columns may be permuted
 * freely.
 *
 * Muon is for hidden layers. The rest, which MuonRule.rest moves, is: what is no weight of a convolution or
 * linear layer; the layers that read the image and those that make the output (no such layer stands before
 * them, or after them); and, as in timm, matrices with one input (depthwise filters), with fewer than 4 rows
 * or columns, or with more than 128 times as many of one as of the other. */
#ifndef FSHARD_TRAINER_GRAPH_MUON_H
#define FSHARD_TRAINER_GRAPH_MUON_H

#include "trainer/graph/graph.h"

/* a, b, c, and the smallest norm by which a step is divided. */
#define MUON_A       3.4445
#define MUON_B       (-4.7750)
#define MUON_C       2.0315
#define MUON_EPSILON 1e-7

/* Returns the rule by which an optimizer moves parameters that are not Muon's. */
OptimizerKind muon_rest_kind(const Optimizer *optimizer);
/* Return the rows and columns of a weight as Muon sees it. */
int64_t muon_rows(const Tensor *weight);
int64_t muon_columns(const Tensor *weight);
/* Returns the factor of the learning rate for a weight. */
double muon_scale(const MuonRule *rule, const Tensor *weight);
/* Returns the operations of one step of Newton and Schulz for a tensor; 0 where it is not Muon's. */
int64_t muon_step_flops(const Tensor *tensor);
/* Returns how many numbers Muon moves; 0 in a graph without it. */
int64_t muon_parameter_count(const Graph *graph);

/* For graph_update: marks the matrices that are Muon's, and gives the rest its learning rate. */
void muon_mark(Graph *graph, const MuonRule *rule);

#endif
