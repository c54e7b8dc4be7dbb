/* backend_plugin.h - the line between ftrain and the backends. Each is a plugin, which is loaded when a run
 * first asks for its device (common/plugin.h says from where): libfshard-cpu.so needs oneDNN and OpenMP,
 * libfshard-cuda.so needs CUDA and cuDNN. So ftrain itself needs none of them and starts in milliseconds, and
 * main can set what OpenMP reads from the environment once, when it is loaded.
 *
 * A plugin exports one object of type BackendPlugin. A program that is linked to a backend's objects has it
 * inside and loads nothing: tests of the CPU backend do so.
 *
 * Both sides share structs by address, so they must be of one build: FSHARD_VERSION, the number
 * of operations and the sizes of those structs are compared. */
#ifndef FSHARD_TRAINER_BACKEND_BACKEND_PLUGIN_H
#define FSHARD_TRAINER_BACKEND_BACKEND_PLUGIN_H

#include "trainer/backend/backend.h"
#include "trainer/backend/pixels.h"
#include "trainer/ranks/rank_place.h"

enum { BACKEND_SHARED_STRUCTS = 19 };
typedef struct BackendPlugin {
    const char *version; /* FSHARD_VERSION */
    size_t plugin_bytes; /* what follows may be read only where it is sizeof(BackendPlugin) */
    size_t op_kind_count;
    size_t shared_bytes[BACKEND_SHARED_STRUCTS]; /* the sizes of the structs that both sides read or write */
    const BackendInterface *interface;
} BackendPlugin;

/* What the side that is compiled has; interface is left to the caller. */
#define BACKEND_PLUGIN_HERE                                                                                  \
    .version = FSHARD_VERSION, .plugin_bytes = sizeof(BackendPlugin), .op_kind_count = OP_KIND_COUNT,        \
    .shared_bytes = {                                                                                        \
        sizeof(BackendInterface), sizeof(BackendOptions),    sizeof(BackendRates),   sizeof(struct Backend), \
        sizeof(struct State),     sizeof(struct Program),    sizeof(ProgramResults), sizeof(MemoryUse),      \
        sizeof(PixelInterface),   sizeof(struct PixelStore), sizeof(PixelRecipe),    sizeof(PixelColours),   \
        sizeof(PixelFile),        sizeof(PixelBatch),        sizeof(Node),           sizeof(Tensor),         \
        sizeof(Optimizer),        sizeof(RankPlace),         sizeof(FshError)}

/* What libfshard-cpu.so and libfshard-cuda.so export. */
extern const BackendPlugin fshard_cpu_plugin, fshard_cuda_plugin;

/* Finds the backend of a device and loads it; *interface_ret is then its interface, which stays. for_use: the
 * device is to be used now, so that a machine that cannot is told before the plugin brings in half a gigabyte
 * of libraries; else only what the backend would do is asked. FSH_ERR_USAGE: no such device.
 * FSH_ERR_UNSUPPORTED: there is no plugin, it cannot be loaded (a library that it needs is missing), it is of
 * another version, or the machine has no driver. */
FshStatus backend_find(const char *device, bool for_use, const BackendInterface **interface_ret,
                       FshError *error);

#endif
