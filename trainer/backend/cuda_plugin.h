/* cuda_plugin.h - the line between ftrain and the CUDA backend. libfshard-cuda.so exports one object,
 * CUDA_PLUGIN_SYMBOL, of type CudaPlugin; load.c, which is part of ftrain, finds it at --device cuda
 * (common/plugin.h says where). So ftrain itself needs neither CUDA nor cuDNN, and starts in a millisecond.
 *
 * Both sides share structs by address, so they must be of one build: version and sizes are compared. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_PLUGIN_H
#define FSHARD_TRAINER_BACKEND_CUDA_PLUGIN_H

#include "trainer/backend/backend.h"

#define CUDA_PLUGIN_FILE   "libfshard-cuda.so"
#define CUDA_PLUGIN_SYMBOL "fshard_cuda_plugin"

typedef struct CudaPlugin {
    const char *version; /* FSHARD_VERSION */
    size_t interface_bytes, node_bytes, tensor_bytes, op_kind_count;
    const BackendInterface *interface;
} CudaPlugin;

/* What the side that is compiled has; interface is left to the caller. */
#define CUDA_PLUGIN_HERE                                                                                     \
    .version = FSHARD_VERSION, .interface_bytes = sizeof(BackendInterface), .node_bytes = sizeof(Node),      \
    .tensor_bytes = sizeof(Tensor), .op_kind_count = OP_KIND_COUNT

#endif
