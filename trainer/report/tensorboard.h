/* tensorboard.h - event files that TensorBoard reads: curves, images and text of a run.
 *
 *   TensorBoard *board = NULL;
 *   if (!tensorboard_open(&board, "runs/a", 0, &error))
 *       status = tensorboard_scalar(board, "train/loss", step, loss, &error);
 *   tensorboard_close(&board);
 *
 * A file is a row of records as TensorFlow frames them (tensorflow/core/lib/io/record_writer.cc): the length,
 * its checksum, the bytes, their checksum; the bytes are an Event of tensorflow/core/util/event.proto with,
 * in it, a Summary of tensorflow/core/framework/summary.proto, written here field by field. Checked against
 * TensorBoard 2.21 (tests/trainer/tensorboard_read.py).
 *
 * Records are appended whole, each with one write: whoever reads along sees no half of one, and where the
 * disk is full (FSH_ERR_NO_SPACE) the file ends with the record before. The call that failed may be taken for
 * a warning: a later one works again when there is space.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_REPORT_TENSORBOARD_H
#define FSHARD_TRAINER_REPORT_TENSORBOARD_H

#include <stdint.h>

#include "common/error.h"
#include "imaging/image.h"

typedef struct TensorBoard TensorBoard;

/* Makes events.out.tfevents.SECONDS.HOST.PID in folder, which must exist. Its name sorts behind those of the
 * event files that are there: TensorBoard reads them as one run, in that order. What those say of step
 * first_step and later is superseded: 0 for a new run, the next step for one that goes on. FSH_ERR_NOT_FOUND,
 * FSH_ERR_NO_SPACE, FSH_ERR_SYSTEM; nothing is left then. */
FshStatus tensorboard_open(TensorBoard **board, const char *folder, uint64_t first_step, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
void tensorboard_close(TensorBoard **board);

/* A point of a curve, as f32. tag: UTF-8; a '/' groups ("train/loss"). value may be infinite or NaN:
 * TensorBoard marks it. */
FshStatus tensorboard_scalar(TensorBoard *board, const char *tag, uint64_t step, double value,
                             FshError *error);
/* An image, as JPEG of quality 95 without chroma subsampling. */
FshStatus tensorboard_image(TensorBoard *board, const char *tag, uint64_t step, const ImageView *image,
                            FshError *error);
/* Text, which TensorBoard shows as Markdown: a table of options, for instance. */
FshStatus tensorboard_text(TensorBoard *board, const char *tag, uint64_t step, const char *text,
                           FshError *error);

#endif
