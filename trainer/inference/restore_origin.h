/* restore_origin.h - records which weights restored the images of a folder, so that a run that continues
 * there does not mix its images with those of other weights.
 *
 * The record is a hidden file in the folder, .ftrain-restored, as JSON: the checksum of the weights' file,
 * its path, whether the mirror image was used. Threads: one. */
#ifndef FSHARD_TRAINER_INFERENCE_RESTORE_ORIGIN_H
#define FSHARD_TRAINER_INFERENCE_RESTORE_ORIGIN_H

#include "trainer/plan/train_options.h"

/* Compares the options with the folder's record. FSH_ERR_EXISTS: other weights, or another way of restoring;
 * the message names the recorded weights. A folder without a record passes, since nothing is known about its
 * images; so does one without images. */
FshStatus restore_origin_check(const char *folder, const TrainOptions *options, FshError *error);

/* Writes the record: from here on the folder's images are of these weights. */
FshStatus restore_origin_write(const char *folder, const TrainOptions *options, FshError *error);

#endif
