/* dataset.h - what the parts of libfshard that read an open dataset share. */
#ifndef FSHARD_FORMATS_DATASET_H
#define FSHARD_FORMATS_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "common/file.h"
#include "formats/metadata.h"
#include "formats/split_file.h"

struct FshSplitFiles {
    SplitFile *files; /* in the order of the manifest */
    size_t count;
    const char *folder;
    const FshManifest *manifest;
    Metadata metadata;                     /* what each file must say of itself */
    const struct ZSTD_DDict_s *dictionary; /* the dataset's, or NULL */
};

/* Puts file, record and byte offset of the record that holds data in front of a failure's message. Returns
 * status. */
FshStatus fsh_split_fail_at_data(const FshSplit *split, const void *data, FshStatus status, FshError *error);
/* Checks whether these bytes of a mapping of the split were there: FSH_ERR_SYSTEM. */
FshStatus fsh_split_check_read_data(const FshSplit *split, const void *data, size_t bytes, FshError *error);

/* Reads a range of a mapping into the page cache and maps it. A disk that fails is FSH_ERR_SYSTEM here
 * instead of SIGBUS later: where the kernel can (Linux 5.14), or the program has called read_fault_outlive.
 * The message names the byte where that is known, else the range's first. (residency.c) */
FshStatus fsh_populate(const FileMapping *mapping, uint64_t offset, uint64_t length, FshError *error);

/* ---- files that nobody has packed (container_files.c) ---- */

/* Reads the file of a field of FSH_COMPRESSION_FILE. Messages begin with its path. */
FshStatus fsh_files_read(const FshSplit *split, const FshField *field, Buffer *bytes, FshError *error);

#endif
