/* verify_extract.h - a dataset back to a tree of files. */
#ifndef FSHARD_VERIFY_VERIFY_EXTRACT_H
#define FSHARD_VERIFY_VERIFY_EXTRACT_H

#include "common/progress.h"
#include "tools/verify/verify.h"

typedef struct ExtractResult {
    uint64_t file_count, bytes;
} ExtractResult;

/* Writes every image below folder (made if it is not there) under the name of its source, so that packing and
 * extracting gives identical files; raw pixels become PNG, and their name's extension .png, which follows
 * their own where the dataset has another image of that name (x.jpg.png beside x.png). A record without a
 * source becomes [SPLIT/][FIELD/][CLASS/]KEY.EXTENSION, each part where the dataset has more than one of the
 * kind and the key does not begin with the class itself.
 *
 * Names are hostile: one that is no path below folder is a problem, links below folder are not followed, and
 * an existing file is never replaced. A file appears when it is whole. Records whose CRC32C is wrong are not
 * written. All of these are problems in report, which is opened by verify_report_begin. FSH_ERR_MEMORY,
 * FSH_ERR_INTERRUPTED; FSH_ERR_NO_SPACE and FSH_ERR_SYSTEM where folder itself cannot be written to. */
FshStatus verify_extract(const FshDataset *dataset, const char *folder, int jobs, Progress *progress,
                         VerifyReport *report, ExtractResult *result, FshError *error);

#endif
