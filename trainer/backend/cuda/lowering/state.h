/* state.h - parameters, buffers and optimizer state of a network, in one piece of device memory, float32; and
 * narrow copies of weights for programs that compute in 16 bits.
 *
 * A narrow copy is the weight rounded, padded in both channel counts: [O up to 8][h][w][I up to 8] or [O up
 * to 8][I up to 8], zeros in the pads; biases of linear layers, [O up to 8], have copies, too. It is made
 * when the first program asks for it. After that the update writes it in the pass that moves the weight: when
 * OP_UPDATE is prepared, all copies of its program exist (cuda_state_narrow_copies), since their readers
 * stand before it. What else changes weights (cuda_state_write), and copies that an update did not know, are
 * told here and made good before the next run (cuda_state_refresh). */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_STATE_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_STATE_H

#include "trainer/backend/cuda/lowering/tensors.h"

/* Makes a State of zeros. */
FshStatus cuda_state_new(State **state, Backend *backend, const Graph *graph, FshError *error);
void cuda_state_free(State *state);
void cuda_state_memory(const State *state, MemoryUse *use);
FshStatus cuda_state_read(State *state, const char *name, float *values, size_t count, FshError *error);
FshStatus cuda_state_write(State *state, const char *name, const float *values, size_t count,
                           FshError *error);
FshStatus cuda_state_copy_new(State **copy_ret, State *state, FshError *error);
FshStatus cuda_state_copy_take(State *copy, State *state, FshError *error);

/* Returns the tensor called name; NULL if the state has none. Good for the life of the state. */
const DeviceTensor *cuda_state_tensor(const State *state, const char *name);

/* Returns the copy of weight `name` in element, ELEMENT_BF16 or ELEMENT_F16, and makes it if it is not there
 * yet. Its values are right from the next run on. Good for the life of the state. NULL: FSH_ERR_MEMORY,
 * FSH_ERR_LIBRARY, FSH_ERR_NOT_FOUND. */
const DeviceTensor *cuda_state_narrow(State *state, const char *name, ElementType element, FshError *error);

/* Lists, for the update, the copies that a parameter has, one for each type at most. Element [o, h, w, i] of
 * the float32 weight, at index row * channels + i, row = (o * kernel_h + h) * kernel_w + w, is element row *
 * pitch + i of the copy. Returns their number. */
enum { NARROW_COPIES_MAX = 2 };
int cuda_state_narrow_copies(const State *state, const char *name,
                             const DeviceTensor *copies[NARROW_COPIES_MAX]);

/* Sets *runs_ret to the number of runs since the last update ("optimizer.micro"), for the host that launches
 * another graph for the last of them. Counted here; asks the device, and waits for it, only after something
 * else has written the number. */
FshStatus cuda_state_runs(State *state, int64_t *runs_ret, FshError *error);
/* Notes that a run is enqueued that makes this number what is given. */
void cuda_state_count_runs(State *state, int64_t runs);

/* Returns the number of copies of all weights: what an update that writes them all puts into
 * Step.narrow_known. */
size_t cuda_state_narrow_count(const State *state);
/* Notes that an update that knows the first `known` copies is enqueued: the others are out of date. */
void cuda_state_updated(State *state, size_t known);
/* Enqueues what makes every copy right, if one is not. Not to be captured. */
FshStatus cuda_state_refresh(State *state, FshError *error);

#endif
