/* jpeg_batch.h - nvJPEG: the JPEG files of a batch decoded in one call, on the decoding engine where the card
 * has one.
 *
 *   JpegBatch *jpegs;
 *   jpeg_batch_new(&jpegs, true, &error);
 *   jpeg_batch_decode(jpegs, files, count, 3, stream, refused, &error); // enqueued
 *   jpeg_batch_free(&jpegs);
 *
 * Pixels differ from libjpeg-turbo's by a few levels where chroma is subsampled: nvJPEG repeats or
 * interpolates it in another way.
 *
 * Threads: one at a time. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_JPEG_BATCH_H
#define FSHARD_TRAINER_BACKEND_CUDA_JPEG_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "common/error.h"

typedef struct JpegBatch JpegBatch;

/* A file and where its pixels go: [height, width, channels] in device memory, rows without padding. */
typedef struct JpegFile {
    const void *data; /* until the stream has passed the call */
    size_t bytes;
    void *target;
    uint32_t width;
} JpegFile;

/* Makes a decoder. engine: the decoding engine may be taken, until it refuses a file that the kernels read.
 * The engine's pixels need not be the kernels', and which batch is the first that it refuses depends on where
 * a run begins: without the engine the same files give the same pixels. FSH_ERR_UNSUPPORTED: built without
 * nvJPEG. */
FshStatus jpeg_batch_new(JpegBatch **jpegs, bool engine, FshError *error);
/* Frees and sets to NULL; NULL is fine. The stream must have passed the last call. */
void jpeg_batch_free(JpegBatch **jpegs);

/* Enqueues the decoding of a batch of files. channels: 1 or 3, of all. FSH_ERR_CORRUPT: nvJPEG refuses some;
 * refused[i] says whether file i is one, and the others are decoded. */
FshStatus jpeg_batch_decode(JpegBatch *jpegs, const JpegFile *files, size_t count, uint32_t channels,
                            cudaStream_t stream, bool *refused, FshError *error);

#endif
