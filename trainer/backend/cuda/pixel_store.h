/* pixel_store.h - pixels.h on CUDA: the store is one piece of device memory, filled through pinned memory;
 * recipes go through a ring of pinned buffers, and the batch is made on the stream of the work, straight
 * where the steps read it. A store of parts is the GPUs' of one host: each process holds a part and has
 * the others' open (CUDA's memory handles between processes), and all addresses are of one space, so that
 * the kernels read them as their own. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_PIXEL_STORE_H
#define FSHARD_TRAINER_BACKEND_CUDA_PIXEL_STORE_H

#include "trainer/backend/pixels.h"

extern const PixelInterface cuda_pixels;

#endif
