/* verify_list.h - one line for each sample. */
#ifndef FSHARD_VERIFY_VERIFY_LIST_H
#define FSHARD_VERIFY_VERIFY_LIST_H

#include <stdio.h>

#include "formats/fshard.h"

/* Prints a line for each sample. Nine columns between tabs: split, index, key, label, class ("-" twice where
 * there is none), then of each field, between commas: name, WIDTHxHEIGHTxCHANNELS, codec, bytes as stored.
 * Backslashes, tabs, line ends and other control characters of names come as \\, \t, \n and \xHH. A sample
 * that cannot be read has "?" in the columns that are not known; *bad_count_ret counts these.
 * FSH_ERR_INTERRUPTED. */
FshStatus verify_list(const FshDataset *dataset, FILE *stream, uint64_t *bad_count_ret, FshError *error);

#endif
