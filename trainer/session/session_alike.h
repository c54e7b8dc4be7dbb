/* session_alike.h - whether the ranks of a run have found the same, once each has opened its part. In a run
 * of one process they have.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_SESSION_ALIKE_H
#define FSHARD_TRAINER_SESSION_SESSION_ALIKE_H

#include "trainer/session/session.h"

/* Checks that what the ranks have found besides the options, which are compared before, is the same on all.
 * FSH_ERR_USAGE names what is not, with both values and both ranks. */
FshStatus session_check_alike(const Session *session, FshError *error);
/* Checks that all ranks begin with the same weights. verbose: a line tells the time that it took; each
 * checkpoint and each evaluation take it again. FSH_ERR_MISMATCH. */
FshStatus session_check_first_weights(Session *session, bool verbose, FshError *error);

#endif
