/* evaluation_interval.h - chooses how often a run is evaluated if the user does not: as often as evaluation
 * takes at most a fifth of the time.
 *
 * Pairs are evaluated as whole images, which can take longer than an epoch of crops. The first epoch is
 * evaluated, which shows how long both take; then every so many epochs, and the last one. Pure functions;
 * threads: any. */
#ifndef FSHARD_TRAINER_PLAN_EVALUATION_INTERVAL_H
#define FSHARD_TRAINER_PLAN_EVALUATION_INTERVAL_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether an evaluation follows the epoch before number `next` of `epochs`: at each multiple of
 * interval, and at the end. interval 0: it is not chosen yet, and there is one. */
bool evaluation_is_due(uint64_t interval, uint64_t next, uint64_t epochs);

/* Returns the number of evaluations from epoch `from` (counted from 0) to the end. */
uint64_t evaluation_count(uint64_t interval, uint64_t from, uint64_t epochs);

/* Returns the smallest interval with which evaluations take at most a fifth of the time from here on. The
 * evaluation after epoch `epoch`, which was just done, and that epoch are included; training_seconds and
 * evaluation_seconds are those of one epoch. If even one more is too much, returns epochs: the last one
 * only. */
uint64_t evaluation_interval_choose(double training_seconds, double evaluation_seconds, uint64_t epoch,
                                    uint64_t epochs);

#endif
