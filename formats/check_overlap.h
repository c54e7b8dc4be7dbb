/* check_overlap.h - samples whose content is there twice. In two splits: what a network is tested on it must
 * not have seen. In one: worth knowing. Internal to fsh_check. */
#ifndef FSHARD_FORMATS_CHECK_OVERLAP_H
#define FSHARD_FORMATS_CHECK_OVERLAP_H

#include "formats/check.h"

/* What is known of one file once it was checked. */
typedef struct FileContents {
    FshHash128 *hashes; /* of each record's payloads, zero where not known; owned; NULL: none is */
    uint64_t record_count;
} FileContents;

typedef void (*OverlapVisit)(size_t file, const FoundProblem *problem, void *context);

/* Calls visit for each record whose payloads another split holds too, if across_splits: of the two, for the
 * one in the later split. Then once for each split in which samples repeat the content of others, with status
 * FSH_OK: that is a remark, since a training set may hold an image twice for a reason. Memory: 64 to 128
 * bytes for each sample that is not in the largest split, and 16 for each of one split. FSH_ERR_MEMORY,
 * FSH_ERR_INTERRUPTED. */
FshStatus fsh_check_overlap(const FileCheck *files, const FileContents *contents, const size_t *split_of,
                            size_t file_count, bool across_splits, OverlapVisit visit, void *context,
                            FshError *error);

#endif
