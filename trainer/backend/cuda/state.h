/* state.h - parameters, buffers and optimizer state of a network, in one piece of device memory. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_STATE_H
#define FSHARD_TRAINER_BACKEND_CUDA_STATE_H

#include "trainer/backend/cuda/tensors.h"

FshStatus cuda_state_new(State **state, Backend *backend, const Graph *graph, FshError *error);
void cuda_state_free(State *state);
FshStatus cuda_state_read(State *state, const char *name, float *values, size_t count, FshError *error);
FshStatus cuda_state_write(State *state, const char *name, const float *values, size_t count,
                           FshError *error);

/* True for roles that live in a State. */
bool cuda_state_holds(TensorRole role);
/* The tensor called name; NULL if the state has none. Good for the state's life. */
const DeviceTensor *cuda_state_tensor(const State *state, const char *name);

#endif
