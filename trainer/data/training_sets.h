/* training_sets.h - the datasets of a run, where it has several, which train and are evaluated as one
 * (fsh_join).
 *
 * Threads: constant once opened. */
#ifndef FSHARD_TRAINER_DATA_TRAINING_SETS_H
#define FSHARD_TRAINER_DATA_TRAINING_SETS_H

#include "formats/fshard.h"

/* A zeroed struct is of no dataset. */
typedef struct TrainingSets {
    size_t count; /* 1: the dataset is one */
    /* [count]: the last part of each path or, where that is not unique, the path without slashes at its end;
     * owned */
    char **names;
    double *weights; /* [count]: how often each is drawn (set_order.h); NULL: each sample once; owned */
} TrainingSets;

/* Checks that the members, opened and of one kind, have the splits that are wanted: the training split
 * (NULL: none) all of them, and the evaluation split too, if it has a name or nothing is trained. Else
 * that split is "val" where any has it, or "test", and a member with neither is trained on alone.
 * FSH_ERR_NOT_FOUND names the member, FSH_ERR_MISMATCH one with an empty split. */
FshStatus training_sets_check_splits(FshDataset *const *members, size_t count, const char *train_split,
                                     const char *evaluation_split, FshError *error);
/* Names the members of an open dataset. FSH_ERR_MEMORY. */
FshStatus training_sets_name(TrainingSets *sets, const FshDataset *dataset, FshError *error);
/* Takes weights, one for each set; none where all are 1. FSH_ERR_MISMATCH: as many as there are sets, with
 * their names. FSH_ERR_MEMORY. */
FshStatus training_sets_weigh(TrainingSets *sets, const double *weights, size_t count, FshError *error);
/* Frees what the struct owns and zeroes it. */
void training_sets_free(TrainingSets *sets);

#endif
