/* restore_origin.h - which weights have restored the images of a folder: a run that goes on there mixes them
 * with no others'.
 *
 * A hidden file in the folder, .ftrain-restored, holds it as JSON: the checksum of the weights' file, its
 * path, whether the mirror image was used. Threads: one. */
#ifndef FSHARD_TRAINER_INFERENCE_RESTORE_ORIGIN_H
#define FSHARD_TRAINER_INFERENCE_RESTORE_ORIGIN_H

#include "trainer/plan/train_options.h"

/* Compares what options give with what the folder was begun with. FSH_ERR_EXISTS: it is other weights or
 * another way, and the message names those weights. A folder without the file passes: nothing is known of its
 * images; so does one that has no image. */
FshStatus restore_origin_check(const char *folder, const TrainOptions *options, FshError *error);

/* Writes it: from here on the folder's images are of these weights. */
FshStatus restore_origin_write(const char *folder, const TrainOptions *options, FshError *error);

#endif
