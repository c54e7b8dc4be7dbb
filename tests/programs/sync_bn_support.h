/* sync_bn_support.h - one update by several ranks with --sync-bn beside that of one process with the total
 * batch.
 *
 * Whatever cannot be done fails the running test. */
#ifndef FSHARD_TESTS_PROGRAMS_SYNC_BN_SUPPORT_H
#define FSHARD_TESTS_PROGRAMS_SYNC_BN_SUPPORT_H

#include "tests/programs/train_support.h"

/* The data set of these updates: 8 raw images of 32 x 32 pixels, which are one step of all ranks. */
extern const DatasetSpec sync_bn_set;

/* Makes one update of the network in one process, by `ranks` ranks with --sync-bn (2, 4 or 8), and by as many
 * whose norms see their own batch. Asserts that the weights of the second are less than `bound` from those of
 * the first, relative to all weights, that losses in training and evaluation are alike, and that the third is
 * ten times further off.
 *
 * Where a value lies at the kink of a ReLU, or two are the maximum, the last bit decides, and a gradient may
 * differ in its fifth digit: then another seed is looked at, up to eight. A norm of other statistics is a
 * hundred times further off, whatever the seed. */
void compare_sync_update(TestFolder *folder, const char *device, const char *network, int ranks,
                         double bound);

/* Returns how far an update by two ranks with --sync-bn is from that of one process, by how far one without
 * it is: for types of 16 bits, whose roundings are larger than any bound. */
double sync_update_share(TestFolder *folder, const char *device, const char *network, const char *amp);

#endif
