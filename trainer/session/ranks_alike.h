/* ranks_alike.h - checks that all ranks of a run were started alike, and names what differs.
 *
 *   the ranks were not started alike: --weight-decay is 0.5 on rank 2 and 0 on rank 0; …
 *
 * Each rank compares its own values with those of rank 0. The sentence is that of the lowest rank that
 * differs; it is the message of the failure on the first rank of each host, and ranks_told_elsewhere on the
 * others. `communicator` is NULL in a run of one process: then nothing is compared.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_RANKS_ALIKE_H
#define FSHARD_TRAINER_SESSION_RANKS_ALIKE_H

#include <jansson.h>

#include "trainer/plan/train_options.h"
#include "trainer/ranks/communicator.h"

/* Compares every option that decides the run or must be the same on all ranks (deciding_options.h).
 * FSH_ERR_USAGE names the options, both values and both ranks. */
FshStatus ranks_check_options(Communicator *communicator, const TrainOptions *options, FshError *error);

/* Compares what the ranks have found: an object whose names stand in the message ("the device is cuda on
 * rank 1 and cpu on rank 0"). A fact that is an array of two texts is compared by the first, and told by
 * the second. Takes the reference to facts; NULL counts as out of memory. FSH_ERR_USAGE: they differ. */
FshStatus ranks_check_facts(Communicator *communicator, json_t *facts, FshError *error);

#endif
