/* expect.h - predicts how long a run takes, or what is left of one that goes on, from two real steps whose
 * results are discarded, or from one where that takes seconds on a CPU. Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_EXPECT_H
#define FSHARD_TRAINER_SESSION_EXPECT_H

#include "trainer/checkpoint/run_state.h"
#include "trainer/session/session.h"

typedef struct ExpectedTime {
    double step_seconds;       /* one training step at the first epoch's image size */
    double training_seconds;   /* all steps that are left; other image sizes are scaled by their FLOP */
    double evaluation_seconds; /* all evaluations that are left */
} ExpectedTime;

/* Returns the FLOP of a training step at the first epoch's image size, backwards too. */
double expect_step_flops(const Session *session);

/* Fills expected from the last of these steps of training and of evaluation. from: where the run stands; all
 * zeros at its beginning. Changes the session's weights,
 * so the session must end afterwards. Fails as the loader and the network do. */
FshStatus expect_time(Session *session, const RunState *from, ExpectedTime *expected, FshError *error);

#endif
