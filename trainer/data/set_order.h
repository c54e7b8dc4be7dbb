/* set_order.h - how an epoch goes over several datasets that train together (fsh_join).
 *
 * Training with weights: of a set of n samples and weight w, an epoch has w * n places, rounded to the
 * nearest whole number and at least 1. A set goes through a permutation of its samples again and again, over
 * the epochs: so each of its samples comes equally often to within one, whatever the weight is.
 *
 * Evaluation: each set begins with a step of its own, and its last step is padded. So a step's samples are of
 * one set, and the batches are those of the set alone.
 *
 * Threads: constant once made. */
#ifndef FSHARD_TRAINER_DATA_SET_ORDER_H
#define FSHARD_TRAINER_DATA_SET_ORDER_H

#include "formats/fshard.h"

/* A zeroed struct is one set. */
typedef struct SetOrder {
    size_t count;
    uint64_t *firsts; /* [count + 1]: the first sample of each set in the split, and the end; owned */
    uint64_t *places; /* [count + 1]: its first place of an epoch, and the end; owned */
} SetOrder;

/* Makes the order of training. weights: of each set, > 0. FSH_ERR_MEMORY. */
FshStatus set_order_weighted(SetOrder *order, const FshSplit *split, const double *weights, FshError *error);
/* Makes the order of evaluation, with so many samples of all ranks in a step. FSH_ERR_MEMORY. */
FshStatus set_order_apart(SetOrder *order, const FshSplit *split, uint64_t total_batch, FshError *error);
/* Frees what the order owns and zeroes it. */
void set_order_free(SetOrder *order);
/* Returns the set that has a place; place: below places[count]. */
size_t set_order_find(const SetOrder *order, uint64_t place);

/* Return how many samples of the split a set has, and where they begin. */
uint64_t set_samples(const FshSplit *split, size_t set);
uint64_t set_first(const FshSplit *split, size_t set);
/* Returns the places of an epoch of training. weights NULL: each sample has one. */
uint64_t set_order_places(const FshSplit *split, const double *weights);
/* Returns the steps of an evaluation. */
uint64_t set_order_steps(const FshSplit *split, uint64_t total_batch);
/* Returns how many places of an epoch a set of so many samples has. */
uint64_t set_draws(double weight, uint64_t samples);

#endif
