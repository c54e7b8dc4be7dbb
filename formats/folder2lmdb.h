/* folder2lmdb.h - LMDBs of folder2lmdb: pickles, and the table of their samples. */
#ifndef FSHARD_FORMATS_FOLDER2LMDB_H
#define FSHARD_FORMATS_FOLDER2LMDB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/sample_table.h"

/* Finds where (bytes, int) lies in a pickle of protocol 0 to 5: the image's place and the label, *label_ret.
 * Nothing is executed or built: opcodes that such a tuple needs are read, every other one is refused by name.
 * FSH_ERR_UNSUPPORTED, FSH_ERR_CORRUPT. */
FshStatus fsh_pickle_sample(const uint8_t *bytes, size_t length, uint64_t *image_at, uint64_t *image_bytes,
                            int64_t *label_ret, FshError *error);
/* Returns whether an LMDB's first key is one of folder2lmdb's; false also for a damaged LMDB. */
bool fsh_folder2lmdb_sniff(const uint8_t *bytes, uint64_t length);
/* Fills *table with the samples, whose keys are "0", "1", … in the order of numbers, without gaps. */
FshStatus fsh_folder2lmdb_table(SampleTable *table, const uint8_t *bytes, uint64_t length, FshError *error);

#endif
