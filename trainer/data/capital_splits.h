/* capital_splits.h - tells splits that would be trained as classes: their folders are called Train, or VAL,
 * or have images in them where folders of classes should be.
 *
 * Threads: nothing is shared. */
#ifndef FSHARD_TRAINER_DATA_CAPITAL_SPLITS_H
#define FSHARD_TRAINER_DATA_CAPITAL_SPLITS_H

#include "formats/fshard.h"

/* What a split's folder lacks that is taken for a class. */
typedef struct SplitLikeClass {
    const char *small; /* what it should be called: "train" for "Train", and for "train" */
    bool flat;         /* its images lie in no folders of classes */
} SplitLikeClass;

/* Returns whether a class is most likely a split: the dataset is of class folders that nobody has packed, and
 * an image of the class lies in a folder of its folder, which is called so but for capitals; or images lie in
 * it directly, and all classes are called as splits are. fpack warns of the same, or refuses it. */
bool class_is_like_split(const FshSplit *split, size_t class_number, SplitLikeClass *like_ret);

#endif
