/* session_batch.h - the batch of a run that nobody has given one, where a GPU trains.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_SESSION_BATCH_H
#define FSHARD_TRAINER_SESSION_SESSION_BATCH_H

#include "trainer/session/session.h"

/* Sets options->device_batch and device_cost to what suits the network and the memory of the GPU, by a plan
 * that was made without them, and makes the plan anew; where the run leaves no such choice it does nothing.
 * With several ranks the smallest batch counts. backend NULL: the GPU is only foreseen, and its memory not
 * known. Every rank calls it. Fails as plan_make and model_graph. */
FshStatus session_choose_batch(Session *session, TrainOptions *options, Backend *backend, FshError *error);

#endif
