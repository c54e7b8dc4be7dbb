/* predict_images.h - runs --predict and --export on images that are not packed: a folder, a list, a tar, an
 * image.
 *
 * They go through the loader as those of a dataset do, cropped and normalised as the weights say. A
 * classifier writes a table (class_rows.h), a restorer an image for each input. Unreadable images are
 * reported and skipped.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_INFERENCE_PREDICT_IMAGES_H
#define FSHARD_TRAINER_INFERENCE_PREDICT_IMAGES_H

#include "trainer/plan/train_options.h"

/* Sets *wanted_ret to whether options->shards is such images rather than a dataset. Reads the head of the
 * weights to know what they take. */
FshStatus predict_images_wanted(const TrainOptions *options, bool *wanted_ret, FshError *error);

/* Predicts the images, and prints on stdout what was done and where the results are. Sets *partial_ret to
 * true if some images were skipped. FSH_ERR_EXISTS: there is a table already, and no --force; restored images
 * that exist are skipped. FSH_ERR_INTERRUPTED on a signal: written files are complete, and the same command
 * goes on. */
FshStatus predict_images(const TrainOptions *options, bool *partial_ret, FshError *error);

#endif
