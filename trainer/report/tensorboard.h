/* tensorboard.h - event files that TensorBoard reads: curves and images of a run.
 *
 *   TensorBoard *board = NULL;
 *   if (!tensorboard_open(&board, "runs/a", 0, &error))
 *       status = tensorboard_scalar(board, "train/loss", step, loss, &error);
 *   tensorboard_close(&board);
 *
 * A file is a sequence of records as TensorFlow frames them (tensorflow/core/lib/io/record_writer.cc): the
 * length, its checksum, the bytes, their checksum. The bytes are an Event of tensorflow/core/util/event.proto
 * that holds a Summary of tensorflow/core/framework/summary.proto, written here field by field. Checked
 * against TensorBoard 2.21 (tests/trainer/report/tensorboard_read.py).
 *
 * Each record is appended whole, by one write: a reader never sees half of one, and when the disk is full
 * (FSH_ERR_NO_SPACE) the file ends with the record before. A caller may treat that failure as a warning:
 * later calls work again when there is space.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_REPORT_TENSORBOARD_H
#define FSHARD_TRAINER_REPORT_TENSORBOARD_H

#include <stdint.h>

#include "common/error.h"
#include "imaging/image.h"

typedef struct TensorBoard TensorBoard;

/* Makes events.out.tfevents.SECONDS.HOST.PID in folder, which must exist. Its name sorts after the event
 * files that are there: TensorBoard reads them as one run, in that order. first_step: 0 for a new run, the
 * next step for one that resumes; what the older files hold from this step on is superseded.
 * FSH_ERR_NOT_FOUND, FSH_ERR_NO_SPACE, FSH_ERR_SYSTEM; nothing is left then. */
FshStatus tensorboard_open(TensorBoard **board, const char *folder, uint64_t first_step, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
void tensorboard_close(TensorBoard **board);

/* Appends a point of a curve, as f32. tag: UTF-8; a '/' groups ("train/loss"). TensorBoard marks a value that
 * is infinite or NaN. */
FshStatus tensorboard_scalar(TensorBoard *board, const char *tag, uint64_t step, double value,
                             FshError *error);
/* Appends an image, as JPEG of quality 95 without chroma subsampling. */
FshStatus tensorboard_image(TensorBoard *board, const char *tag, uint64_t step, const ImageView *image,
                            FshError *error);

#endif
