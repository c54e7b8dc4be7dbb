/* classification.h - TrainingData under the name that trainer/loop knows, until it opens pairs too. */
#ifndef FSHARD_TRAINER_DATA_CLASSIFICATION_H
#define FSHARD_TRAINER_DATA_CLASSIFICATION_H

#include "trainer/data/training_data.h"

typedef TrainingData Classification;

static inline FshStatus classification_open(Classification *data, const char *path, const char *train_split,
                                            const char *evaluation_split, FshError *error)
{
    return training_data_open(data, path, FSH_KIND_CLASSES, train_split, evaluation_split, error);
}

static inline void classification_close(Classification *data)
{
    training_data_close(data);
}

#endif
