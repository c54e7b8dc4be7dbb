/* paired_classes.h - tells image pairs that would be trained as two classes.
 *
 * Threads: nothing is shared. */
#ifndef FSHARD_TRAINER_DATA_PAIRED_CLASSES_H
#define FSHARD_TRAINER_DATA_PAIRED_CLASSES_H

#include "formats/fshard.h"

/* Sets *paired_ret to whether the dataset is of class folders that nobody has packed, of two classes, and the
 * split holds most of its files in both, under the same names: fpack's rule, which warns of the same. Files
 * that are numbered in each class are no pairs. *mask_class_ret: the
 * one of the two classes, 0 or 1, whose first image begins as a mask does (imaging/mask.h); -1: neither, or
 * both. FSH_ERR_MEMORY. */
FshStatus paired_classes_look(const FshSplit *split, bool *paired_ret, int *mask_class_ret, FshError *error);

#endif
