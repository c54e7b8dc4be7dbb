/* resize_pairs.h - the other image of a pair. */
#ifndef FSHARD_RESIZE_PAIRS_H
#define FSHARD_RESIZE_PAIRS_H

#include "tools/resize/resize_source.h"

/* The partner of an item of pairs, below root: the file item->partner names, else the one image in that
 * folder whose name is the same but for the extension. FSH_ERR_NOT_FOUND: there is none; FSH_ERR_MISMATCH:
 * there are several. */
FshStatus pair_find_partner(const char *root, const ResizeItem *item, char partner[PATH_MAX],
                            FshError *error);

#endif
