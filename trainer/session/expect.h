/* expect.h - how long a run will take, from its first two steps, done for real in memory and forgotten.
 * Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_EXPECT_H
#define FSHARD_TRAINER_SESSION_EXPECT_H

#include "trainer/session/session.h"

typedef struct ExpectedTime {
    double step_seconds;       /* of training, at the first epoch's size */
    double training_seconds;   /* of all steps; other sizes by their operations */
    double evaluation_seconds; /* of all evaluations */
} ExpectedTime;

/* The second step of training and of evaluation is timed. Changes the session's weights: for a session that
 * ends then. Fails as the loader and the network do. */
FshStatus expect_time(Session *session, ExpectedTime *expected, FshError *error);

#endif
