/* updated.h - shards of a dataset that fpack --update has changed: some of their rows are no samples any
 * more, and some shards are of an earlier packing, with an id and a list of classes of their own. What the
 * manifest says of them is in fshard(5), "Updated datasets".
 *
 * Threads: nothing is shared. */
#ifndef FSHARD_FORMATS_UPDATED_H
#define FSHARD_FORMATS_UPDATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/file.h"
#include "formats/metadata.h"
#include "formats/split_file.h"

/* A manifest takes no longer text of removed rows. */
enum { ROWS_TEXT_BYTES_MAX = 65535 };
/* How often a dataset can be updated: what five digits in the names of its shards hold. */
enum { UPDATES_MAX = 99999 };

/* Writes to buffer the name of a shard that an update has added: "train-u00003-00000-of-00002.fshard".
 * Returns buffer. */
const char *fsh_updated_name(char *buffer, size_t buffer_bytes, const char *split, uint32_t updates,
                             uint32_t shard_index, uint32_t shard_count);
/* Returns whether this is such a name. */
bool fsh_is_updated_name(const char *name);

/* Appends the text of ranges as a manifest has it, "3,17-20", without a NUL. FSH_ERR_MEMORY. */
FshStatus fsh_rows_format(const FshRowRange *ranges, size_t count, Buffer *text, FshError *error);
/* Reads such a text into *ranges_ret, of *count_ret ranges, which is the caller's to free. FSH_ERR_CORRUPT:
 * it is no list of ascending numbers below 2^32, or not written as fsh_rows_format writes it. */
FshStatus fsh_rows_parse(const char *text, FshRowRange **ranges_ret, size_t *count_ret, FshError *error);
/* Returns how many rows the ranges hold. */
uint64_t fsh_rows_count(const FshRowRange *ranges, size_t count);
/* Returns whether the ranges hold a row. */
bool fsh_rows_hold(const FshRowRange *ranges, size_t count, uint64_t row);

enum { LABEL_GONE = -2 }; /* in a SplitFile's labels: of a class that the dataset has no more */

/* Checks what a shard, whose metadata are `found`, says of itself against a manifest's entry of it, and fills
 * file->labels where its classes are others than those that are expected. FSH_ERR_CORRUPT, FSH_ERR_MEMORY. */
FshStatus fsh_updated_fit(SplitFile *file, const Metadata *found, const Metadata *expected,
                          const FshFileInfo *info, FshError *error);
/* Leaves out of an opened shard's rows those that are no samples, and gives the others the labels that the
 * dataset has. FSH_ERR_CORRUPT: a row that is not there, or a sample of a class that is gone; FSH_ERR_MEMORY.
 */
FshStatus fsh_updated_take(SplitFile *file, const FshFileInfo *info, FshError *error);
/* Adds to class_counts, of the dataset's classes, the samples of a shard all of whose rows are there. Fails
 * as fsh_updated_take does. */
FshStatus fsh_updated_count(const SplitFile *file, const FshFileInfo *info, uint64_t *class_counts,
                            FshError *error);
/* Returns what the label of a record of the file is in the dataset; LABEL_GONE: none of its classes. */
int64_t fsh_updated_label(const SplitFile *file, int64_t label);

#endif
