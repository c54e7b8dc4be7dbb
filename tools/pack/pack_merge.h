/* pack_merge.h - the last step of a packing on many machines: parts become the dataset.
 *
 *   machine 1:  fpack --part 1/2 photos/ part1/        or both:  fpack --part I/2 photos/ shards/
 *   machine 2:  fpack --part 2/2 photos/ part2/
 *   then:       fpack --merge shards/ part1/ part2/    or:       fpack --merge shards/
 *
 * Every part makes the same plan and takes a run of whole shards from it, as equal in bytes as they allow
 * (tools/job/part.h). A merge needs neither the source nor the plan: the blueprint (pack_blueprint.h) and the
 * progress file of each shard say all that the manifest does, and the bytes are those that one machine alone
 * would have come to. What lies in other folders is linked or, on another file system, copied; those folders
 * stay as they are. */
#ifndef FSHARD_PACK_MERGE_H
#define FSHARD_PACK_MERGE_H

#include "tools/pack/pack.h"

typedef struct MergeOptions {
    const char *destination;
    const char *const *parts; /* folders; the destination itself is always looked into */
    size_t part_count;
    bool force;             /* replace the finished dataset in destination */
    bool dry_run;           /* only say whether all is there */
    const PackTaker *taker; /* of the manifest; NULL: it stays where it is */
} MergeOptions;

/* Merges the parts into the dataset, and fills *result. FSH_ERR_NOT_FOUND: no parts, or not all of them; what
 * is missing is named. FSH_ERR_MISMATCH: parts of different datasets. FSH_ERR_EXISTS: the destination, or a
 * part is still being packed. FSH_ERR_SYSTEM, FSH_ERR_NO_SPACE. *result is to be freed in every case. After a
 * failure the same command goes on. */
FshStatus merge_run(const MergeOptions *options, PackResult *result, FshError *error);

#endif
