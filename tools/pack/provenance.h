/* provenance.h - the manifest: what the dataset is, and where it comes from. */
#ifndef FSHARD_PACK_PROVENANCE_H
#define FSHARD_PACK_PROVENANCE_H

#include "tools/pack/plan.h"
#include "tools/pack/stats.h"

/* What packing found out, for all outputs of a plan. */
typedef struct PackTotals {
    FshFileInfo *infos;                  /* for each output of the plan; names owned */
    uint64_t *class_counts[PLAN_SPLITS]; /* class_count entries each */
    uint64_t sample_counts[PLAN_SPLITS];
    PixelStatistics statistics;
    uint64_t left_out_count;
} PackTotals;

/* Fills *manifest (owned: fsh_manifest_free). Nothing in it depends on threads, times or the destination. */
FshStatus provenance_manifest(const Plan *plan, const PackOptions *options, const PackTotals *totals,
                              FshManifest *manifest, FshError *error);

#endif
