/* image_writer.h - encodes and writes images in threads, while the next one is computed.
 *
 *   ImageWriter *writer = NULL;
 *   FshStatus status = image_writer_new(&writer, threads, force, masks, &error);
 *   while (!status && …) status = image_writer_put(writer, "out/a.png", IMAGE_PNG, &view, &error);
 *   if (!status) status = image_writer_finish(writer, &error);    // all are written now
 *   image_writer_free(&writer);
 *
 * Each file appears when it is complete (rename). Threads: one caller; image_writer_put waits while all of
 * the writer's threads are busy. */
#ifndef FSHARD_TRAINER_INFERENCE_IMAGE_WRITER_H
#define FSHARD_TRAINER_INFERENCE_IMAGE_WRITER_H

#include "imaging/image.h"

typedef struct ImageWriter ImageWriter;

/* Starts the threads. force: replace existing files. masks: what is written are values of masks, of one
 * channel, as PNGs with the palette of Pascal VOC (imaging/mask.h). FSH_ERR_MEMORY, FSH_ERR_SYSTEM; *writer
 * is NULL then. */
FshStatus image_writer_new(ImageWriter **writer, int threads, bool force, bool masks, FshError *error);
/* Queues an image; copies path and pixels. Writes a mask; else IMAGE_PNG, or IMAGE_JPEG of quality 95
 * without subsampling; makes folders. A failure is that of an earlier image, after which nothing more is
 * written: FSH_ERR_EXISTS, FSH_ERR_NO_SPACE … */
FshStatus image_writer_put(ImageWriter *writer, const char *path, ImageFormat format, const ImageView *view,
                           FshError *error);
/* Waits until all images are written. Returns the first failure. */
FshStatus image_writer_finish(ImageWriter *writer, FshError *error);
/* Returns how many images are written so far. */
uint64_t image_writer_count(ImageWriter *writer);
/* Stops the threads after their current images, frees, and sets to NULL; NULL is fine. */
void image_writer_free(ImageWriter **writer);

#endif
