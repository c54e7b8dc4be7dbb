/* pack_update.h - a dataset that follows its folder: fpack --update and --append.
 *
 *   Update update;
 *   PackPlan plan;
 *   status = update_plan(&update, &plan, &options, &wanted, &error);   // what differs from the folder
 *   if (!status)
 *       status = update_run(&update, &plan, left_out, context, &result, &error);
 *   update_free(&update);
 *   pack_plan_free(&plan);
 *
 * The plan of the whole folder is made as for any packing: what a packing from nothing would hold. Then those
 * samples are taken out of it that the dataset holds already: the same split, key, class and sources, and
 * sources that have not changed since, which the files beside the shards tell (formats/source_list.h). What
 * is left is packed into shards of their own, in the hidden folder DST/.fpack-update, by the work and with
 * the resuming of any packing. In the end these shards are linked into DST and dataset.json changes over,
 * in one rename: killed anywhere before, the dataset is the old one, and the same command goes on.
 *
 * Records that are no samples any more stay in their shards as dead space; a shard that has lost more than
 * one in UPDATE_LOST_SHARE is packed again. Old shards are removed as soon as nobody reads by the old
 * dataset.json (formats/manifest_lock.h): at once, or by a later update. */
#ifndef FSHARD_PACK_UPDATE_H
#define FSHARD_PACK_UPDATE_H

#include "tools/pack/pack.h"

enum { UPDATE_LOST_SHARE = 4 };

typedef struct UpdateOptions {
    bool append;     /* the folder is one more: nothing that is there may vanish, or have a key of its own */
    bool by_content; /* sources are compared by their bytes, not by their times */
    bool dry_run;
} UpdateOptions;

/* What an update has found, in samples. */
typedef struct UpdateCounts {
    uint64_t added, changed, vanished, unchanged;
    uint64_t moved;               /* of the unchanged: packed again, since their shard lost too much */
    uint64_t dead_records;        /* in shards that stay */
    size_t dead_files;            /* shards with such records */
    size_t new_files, gone_files; /* shards */
    size_t waiting_files;         /* shards of no use any more, which somebody reads */
    bool is_same;                 /* nothing was to do */
} UpdateCounts;

typedef struct Update {
    UpdateOptions wanted;
    UpdateCounts counts;
    const PackOptions *options;
    PackBase base;
    FshDataset *dataset;         /* as it is */
    const FshManifest *manifest; /* of it */
    struct OldFile *files;       /* its shards, in the manifest's order; owned */
    size_t file_count;
    struct OldRecord *records; /* its samples, shard after shard; owned */
    uint64_t record_count;
    uint64_t planned_count; /* samples of the whole folder */
    bool several;           /* it holds, or will hold, samples of several folders */
    int lock;               /* on DST; -1: none */
} Update;

/* Makes the plan of what is to be packed, and holds DST against other writers until update_free, but for a
 * dry run. FSH_ERR_NOT_FOUND: DST is no dataset. FSH_ERR_UNSUPPORTED: one that cannot be updated.
 * FSH_ERR_MISMATCH: other options than those it was packed with, or a folder that has nothing to do with it.
 * FSH_ERR_EXISTS: keys that are there of another folder; another fpack writes there. Fails too as
 * pack_plan_make. Both are to be freed in every case. */
FshStatus update_plan(Update *update, PackPlan *plan, const PackOptions *options, const UpdateOptions *wanted,
                      FshError *error);

/* Packs what the plan says, and changes the dataset over. *result: of the whole dataset as it is then. A dry
 * run counts, and writes nothing. Fails as pack_run; then the dataset is as it was. */
FshStatus update_run(Update *update, const PackPlan *plan, PackLeftOut left_out, void *context,
                     PackResult *result, FshError *error);
void update_free(Update *update);

#endif
