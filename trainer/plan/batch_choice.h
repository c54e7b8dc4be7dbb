/* batch_choice.h - the batch from which on a GPU is nearly as fast as it gets.
 *
 * A step takes a time that no batch makes shorter, mostly that of starting kernels, and one that grows with
 * the batch: that of moving bytes and of products. Both follow from the graph: each node costs a start, and
 * the longer of the times of its bytes and of its operations. The rates are an H200's; a slower GPU is as
 * near to its best with fewer images. docs/measurements/2026-11-23-no-knobs.md holds it against measured
 * steps.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_PLAN_BATCH_CHOICE_H
#define FSHARD_TRAINER_PLAN_BATCH_CHOICE_H

#include "trainer/graph/graph.h"

/* Seconds of a training step: fixed, and for each image. */
typedef struct BatchCost {
    double fixed, image;
} BatchCost;

/* Returns what follows from the training graphs of two batches, few < many images. */
BatchCost batch_cost(const Graph *of_few, uint64_t few, const Graph *of_many, uint64_t many);

/* Returns the part (0..1) of its best rate that a GPU reaches with a batch. */
double batch_rate_share(const BatchCost *cost, uint64_t batch);

/* Returns the smallest power of two, at most BATCH_CHOSEN_MOST, with which it reaches 90 %. */
enum { BATCH_CHOSEN_MOST = 4096 };
uint64_t batch_choose(const BatchCost *cost);

#endif
