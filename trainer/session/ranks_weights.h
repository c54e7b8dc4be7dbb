/* ranks_weights.h - the weights of the ranks: every rank has its own, and they are to be the same bits.
 *
 * They are, because the ranks begin alike and each update takes the same mean gradient in the same order,
 * on one kind of device. Only the running statistics of norms are each rank's own between two evaluations.
 *
 * Where one rank cannot read or write its state, all fail, that rank with its own reason and the others with
 * FSH_ERR_PEER, and the next exchange finds them all at the same place.
 *
 * `communicator` is NULL in a run of one process: then each function returns at once. Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_RANKS_WEIGHTS_H
#define FSHARD_TRAINER_SESSION_RANKS_WEIGHTS_H

#include "trainer/backend/backend.h"
#include "trainer/ranks/communicator.h"

/* Copies rank 0's buffers, such as the running statistics of norms, to all ranks. */
FshStatus ranks_share_buffers(Communicator *communicator, State *state, const Graph *graph, FshError *error);

/* Replaces what the ranks have accumulated since the last update, each from its own gradients, by the mean
 * over the ranks: then one rank's state is that of all, as a checkpoint wants it. Does nothing right after an
 * update. A run that goes on from there differs by roundings from one that was never saved there. */
FshStatus ranks_share_accumulated(Communicator *communicator, State *state, const Graph *graph,
                                  FshError *error);

/* Compares an XXH3-64 of all parameters, bit for bit, with that of rank 0. FSH_ERR_MISMATCH: they differ
 * on some rank; the message is "the weights of rank 2 are not those of rank 0" and `advice`, on rank 0,
 * which speaks for all. Reads all parameters from the device: with resnet50 102 MB, 43 ms of a core with
 * the CPU's backend. No step may be under way. */
FshStatus ranks_check_weights(Communicator *communicator, State *state, const Graph *graph,
                              const char *advice, FshError *error);

#endif
