/* pixel_parts.h - pixels that lie in the memory of several GPUs of a host (--cache gpu where one cannot hold
 * all). Each process opens the memory of the others (CUDA IPC), and its kernels read it where it is.
 *
 * Threads: that of the backend. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_PIXEL_PARTS_H
#define FSHARD_TRAINER_BACKEND_CUDA_PIXEL_PARTS_H

#include "trainer/backend/pixels.h"

typedef struct PixelPart {
    uint64_t begin_bytes;
    uint64_t shift; /* from where an offset lies in the whole to where it lies from own memory on; wraps */
    void *opened;   /* another process's memory; NULL: own */
} PixelPart;

typedef struct PixelParts {
    PixelPart *parts; /* [count] */
    size_t count;     /* 0: own memory holds all */
} PixelParts;

/* Returns the bytes to allocate for a part of `bytes`: the driver lays small pieces into one block, and
 * another process would open the block. */
uint64_t pixel_parts_room(uint64_t bytes);
/* Sets the handle of a key to that of own memory, so that others can open it. */
FshStatus pixel_parts_key(void *memory, PixelStoreKey *key, FshError *error);
/* Opens the parts of the others; `own` is the place of this process's in keys. FSH_ERR_UNSUPPORTED: the GPUs
 * cannot reach each other's memory. Close it in any case. */
FshStatus pixel_parts_open(PixelParts *parts, const void *memory, const PixelStoreKey *keys, size_t count,
                           size_t own, FshError *error);
void pixel_parts_close(PixelParts *parts);
/* Makes the offsets of the recipes count from own memory on, in whose memory ever an image lies. */
void pixel_parts_find(const PixelParts *parts, PixelRecipe *recipes, uint64_t count, unsigned side);

#endif
