/* trial.h - the time of work that competes with another way of doing the same, measured once and kept where
 * the times of cuDNN's plans are, so that the next start chooses alike.
 *
 * Threads: that of the backend. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_TRIAL_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_TRIAL_H

#include "trainer/backend/cuda/device/device.h"

/* Work on its trial, which is enqueued again and again with scratch memory of its own. */
typedef struct Trial {
    FshStatus (*enqueue)(const void *context, void *scratch, cudaStream_t stream, FshError *error);
    const void *context;
    uint64_t scratch_bytes;
} Trial;

enum { TRIAL_NAME_BYTES = 1200 };
/* Writes the name of a trial. Returns name; NULL where it is too long. */
const char *trial_name(char name[TRIAL_NAME_BYTES], const char *format, ...) FSH_PRINTF(2, 3);
/* Sets *milliseconds_ret to the time of one run, remembered or measured now. name: one line, all that the
 * time depends on but the machine (cudnn_cache_remember); NULL: it is measured, and not kept. Fails as
 * enqueue does, and with FSH_ERR_MEMORY, FSH_ERR_LIBRARY. */
FshStatus trial_milliseconds(CudaBackend *backend, const char *name, const Trial *trial,
                             double *milliseconds_ret, FshError *error);

#endif
