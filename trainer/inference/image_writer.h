/* image_writer.h - images encoded and written by threads, while the next one is computed.
 *
 *   ImageWriter *writer = NULL;
 *   FshStatus status = image_writer_new(&writer, threads, force, &error);
 *   while (!status && …) status = image_writer_put(writer, "out/a.png", IMAGE_PNG, &view, &error);
 *   if (!status) status = image_writer_finish(writer, &error);    // all are written now
 *   image_writer_free(&writer);
 *
 * Each file appears when it is whole (rename). Threads: one puts; it waits where all of the writer's are
 * behind. */
#ifndef FSHARD_TRAINER_INFERENCE_IMAGE_WRITER_H
#define FSHARD_TRAINER_INFERENCE_IMAGE_WRITER_H

#include "imaging/image.h"

typedef struct ImageWriter ImageWriter;

/* Starts the threads. force: files that exist are replaced. FSH_ERR_MEMORY, FSH_ERR_SYSTEM; *writer is NULL
 * then. */
FshStatus image_writer_new(ImageWriter **writer, int threads, bool force, FshError *error);
/* Takes a copy of path and pixels. IMAGE_PNG, or IMAGE_JPEG of quality 95 without subsampling. Makes
 * folders. A failure is that of an image put before; nothing is written after it: FSH_ERR_EXISTS,
 * FSH_ERR_NO_SPACE, FSH_ERR_UNSUPPORTED (PNG without libvips) … */
FshStatus image_writer_put(ImageWriter *writer, const char *path, ImageFormat format, const ImageView *view,
                           FshError *error);
/* Waits for all that were put, and returns the first failure. */
FshStatus image_writer_finish(ImageWriter *writer, FshError *error);
/* Returns how many are written so far. */
uint64_t image_writer_count(ImageWriter *writer);
/* Stops the threads after the images in their hands, frees, sets to NULL; NULL is fine. */
void image_writer_free(ImageWriter **writer);

#endif
