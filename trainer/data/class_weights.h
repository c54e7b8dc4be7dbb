/* class_weights.h - how much a sample of each class counts in the loss (--class-weights) and, of several
 * labels, how much one that has the class counts beside one that has not (--pos-weight).
 *
 *   float *weights = NULL;
 *   class_weights_make(&weights, CLASS_WEIGHTS, "balanced", &data, &error);    // data->class_count of them
 *   free(weights);
 *
 * CLASS_WEIGHTS, "balanced": samples / (classes * samples of the class), as scikit-learn's
 * compute_class_weight, so that the mean over the training split is 1; a class that has no samples there
 * has weight 1. Samples of several labels count once for each.
 *
 * POSITIVE_WEIGHTS, "balanced": samples that have not the class / samples that have it, as PyTorch's
 * BCEWithLogitsLoss proposes; 1 for a class that all have, or none. A number is that of every class.
 *
 * Else the path of a file: a line for each class, its name and its weight (CLASS WEIGHT, CLASS<tab>WEIGHT,
 * CLASS,WEIGHT), or the weights alone in the order of the classes.
 *
 * Threads: no state. */
#ifndef FSHARD_TRAINER_DATA_CLASS_WEIGHTS_H
#define FSHARD_TRAINER_DATA_CLASS_WEIGHTS_H

#include "trainer/data/training_data.h"

typedef enum ClassWeighing { CLASS_WEIGHTS, POSITIVE_WEIGHTS } ClassWeighing;

/* Sets *weights_ret to data->class_count weights; the caller frees them. data has a training split of
 * classes. FSH_ERR_NOT_FOUND, FSH_ERR_SYSTEM, FSH_ERR_CORRUPT: of the file. FSH_ERR_MISMATCH: a class that it
 * does not weigh, a weight that is no number from 0 to 1e6, or none above 0. FSH_ERR_MEMORY. On failure
 * *weights_ret is NULL. */
FshStatus class_weights_make(float **weights_ret, ClassWeighing weighing, const char *text,
                             const TrainingData *data, FshError *error);

#endif
