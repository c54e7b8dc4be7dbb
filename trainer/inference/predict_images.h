/* predict_images.h - --predict and --export of images that nobody has packed: a folder, a list, a tar, an
 * image.
 *
 * They go through the loader as a dataset's do, cropped and normalised as the weights say. Classifiers
 * leave a table (class_rows.h), restorers an image for each. What cannot be read is named and left out.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_INFERENCE_PREDICT_IMAGES_H
#define FSHARD_TRAINER_INFERENCE_PREDICT_IMAGES_H

#include "trainer/plan/train_options.h"

/* Finds out, *wanted_ret, whether options->shards is such images rather than a dataset; reads the weights'
 * head to know what they take. */
FshStatus predict_images_wanted(const TrainOptions *options, bool *wanted_ret, FshError *error);

/* Predicts them; says on stdout what was made of them and where it is. *partial_ret: some were left out.
 * FSH_ERR_EXISTS: there is a table already, and no --force; images that are there already are passed over.
 * FSH_ERR_INTERRUPTED on a signal: what is written is whole, and the same command goes on. */
FshStatus predict_images(const TrainOptions *options, bool *partial_ret, FshError *error);

#endif
