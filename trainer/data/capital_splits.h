/* capital_splits.h - tells splits that would be trained as classes: their folders are called Train, or VAL.
 *
 * Threads: nothing is shared. */
#ifndef FSHARD_TRAINER_DATA_CAPITAL_SPLITS_H
#define FSHARD_TRAINER_DATA_CAPITAL_SPLITS_H

#include "formats/fshard.h"

/* Returns the name that would make a split of a class, "train" of "Train": the dataset is of class folders
 * that nobody has packed, and an image of the class lies in a folder of its folder, or all classes are called
 * as splits are. It is fpack's rule, which warns of the same. NULL: it is most likely a class. */
const char *capital_split(const FshSplit *split, size_t class_number);

#endif
