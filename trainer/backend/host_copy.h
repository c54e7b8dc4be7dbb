/* host_copy.h - copies of a State in host memory, for backends that have no quicker way (state_copy_new). */
#ifndef FSHARD_TRAINER_BACKEND_HOST_COPY_H
#define FSHARD_TRAINER_BACKEND_HOST_COPY_H

#include "trainer/backend/backend.h"

/* As state_copy_new and state_copy_take; taking reads every tensor with state_read. */
FshStatus host_copy_new(State **copy_ret, State *state, FshError *error);
FshStatus host_copy_take(State *copy, State *state, FshError *error);

#endif
