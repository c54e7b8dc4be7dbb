/* webdataset.h - tars of WebDataset: their samples, keys and classes, and the lists that stand beside
 * them. */
#ifndef FSHARD_FORMATS_WEBDATASET_H
#define FSHARD_FORMATS_WEBDATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/sample_table.h"
#include "tar/tar_parse.h"

/* Groups members as webdataset does: neighbours whose paths are equal up to the first dot of the last part.
 * names: the fields to expect, or NULL and 0: then those of the first sample with images, in their order.
 * with_class_names: the table gets those that .json or .cls tells, which no manifest has told; else a .cls
 * must be a number. On failure the table is empty. FSH_ERR_CORRUPT, FSH_ERR_MISMATCH: a sample with other
 * fields than the first; FSH_ERR_UNSUPPORTED, FSH_ERR_MEMORY.
 *
 * tear_ret: NULL, or gets the failure of a tar that breaks off after a whole sample, cut short or damaged:
 * then the table has the samples before the one at which it breaks. Untouched where nothing is wrong. */
FshStatus fsh_webdataset_table(SampleTable *table, const uint8_t *bytes, uint64_t length,
                               const char *const *names, size_t name_count, bool with_class_names,
                               FshError *tear_ret, FshError *error);

/* Writes to path the path of a key in a tar, without extension, NUL-terminated: '%', blanks and control
 * characters, dots in the last part and a first '_' of two become %XX. FSH_ERR_MISMATCH: a key that no reader
 * of tars would take (absolute, with "..", ending in '/', longer than 65,535 bytes); FSH_ERR_MEMORY. */
FshStatus fsh_webdataset_key_encode(const char *key, size_t key_bytes, Buffer *path, FshError *error);

/* Writes folder/SPLIT-wids.json, the shard list that webdataset's indexed reader takes.
 * (webdataset_wids.c) */
FshStatus fsh_wids_save(const FshManifest *manifest, const FshSplitInfo *split, const char *folder,
                        bool force, FshError *error);
/* Proves it. FSH_ERR_NOT_FOUND, FSH_ERR_CORRUPT; the message names no file. */
#define WIDS_SUFFIX          "-wids.json"
#define FSH_TAR_INDEX_SUFFIX ".idx"
FshStatus fsh_wids_check(const FshManifest *manifest, const FshSplitInfo *split, const char *folder,
                         FshError *error);

#endif
