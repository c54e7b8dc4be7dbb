/* cuda_load.h - the "cuda" row of the table of backends: opening it loads the plugin. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOAD_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOAD_H

#include "trainer/backend/backend.h"

/* Only device, open, device_count and foresee are set: a Backend that it opened has the plugin's interface.
 * open returns FSH_ERR_UNSUPPORTED where there is no plugin, where the plugin cannot be loaded (a library
 * that it needs is missing), and where there is no usable GPU. */
extern const BackendInterface backend_cuda;

#endif
