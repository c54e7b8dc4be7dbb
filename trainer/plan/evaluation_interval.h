/* evaluation_interval.h - how often a run is evaluated where the user does not say: so often that evaluation
 * takes at most a fifth of the time.
 *
 * Pairs are evaluated in whole images, which can take longer than an epoch's crops. The first epoch is
 * evaluated, and shows what both take; then every so many epochs, and the last one. Pure functions; threads:
 * any. */
#ifndef FSHARD_TRAINER_PLAN_EVALUATION_INTERVAL_H
#define FSHARD_TRAINER_PLAN_EVALUATION_INTERVAL_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether an evaluation follows the epoch before number `next`, of `epochs`: at each multiple of
 * interval, and at the end. interval 0: not known yet, so it does. */
bool evaluation_is_due(uint64_t interval, uint64_t next, uint64_t epochs);

/* Returns the number of evaluations from epoch `from` (counted from 0) to the end. */
uint64_t evaluation_count(uint64_t interval, uint64_t from, uint64_t epochs);

/* Returns the least interval with which the evaluations from here on, the one after epoch `epoch` that was
 * just done with them, take at most a fifth of the time that is left with that epoch's: training_seconds and
 * evaluation_seconds are those of one epoch. Where even one more is too much, epochs: the last alone. */
uint64_t evaluation_interval_choose(double training_seconds, double evaluation_seconds, uint64_t epoch,
                                    uint64_t epochs);

#endif
