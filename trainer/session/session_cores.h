/* session_cores.h - how many cores this rank computes on, and which. Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_SESSION_CORES_H
#define FSHARD_TRAINER_SESSION_SESSION_CORES_H

#include "trainer/session/session.h"

/* Sets options->cores to this rank's share of the cores of its host; leaves it 0 where there is one rank.
 * Every rank calls it, once the ranks have met; with --dry-run the first alone. Fails as
 * communicator_gather. */
FshStatus session_share_cores(const Session *session, TrainOptions *options, FshError *error);

/* Binds this rank to the cores beside its GPU, where nobody has bound it and it loses none by it, and plans
 * its threads anew. Every rank calls it, once the device is known to be of the same kind on all, and before
 * the loaders start. Does nothing on the CPU and where there is one rank. Fails as communicator_gather. */
FshStatus session_bind_cores(Session *session, const Backend *backend, const TrainOptions *options,
                             FshError *error);

#endif
