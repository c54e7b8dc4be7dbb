/* pack_plan.h - every decision of a packing, made before a pixel is read: plan, then work, then deliver.
 *
 *   PackPlan plan = {0};
 *   FshStatus status = pack_plan_make(&plan, &options, &error); // which sample goes where
 *   if (!status)                                                // pack.h: reads, checks, writes
 *       status = pack_run(&plan, left_out, context, &result, &error);
 *   pack_plan_free(&plan);
 *
 * A plan is a function of the names, sizes (and for `raw` the image headers) below the source and of the
 * options: not of threads, times or the destination. It is made in phases, each a function from the struct of
 * the phase before to the next:
 *
 *   pack_find  -> PackFound   what lies in the source: files, or a dataset     pack_found.h
 *   pack_key   -> PackKeyed   samples with key, label and split                pack_keyed.h
 *   pack_split -> PackSplit   those that are packed, in packing order          pack_split.h
 *   pack_store -> PackStored  how each is stored, and what it takes            pack_stored.h
 *   pack_cut   -> outputs     which shard each goes to; the dataset's id       pack_outputs.c
 *
 * Threads: a finished plan is only read. */
#ifndef FSHARD_PACK_PLAN_H
#define FSHARD_PACK_PLAN_H

#include "tools/pack/pack_stored.h"

enum { PACK_SHARDS_MAX = 99999 }; /* of a split: what five digits in the name hold */

/* One file of the dataset: a shard, or a split's LMDB. Its samples are neighbours. */
typedef struct PackOutput {
    uint32_t split;
    uint32_t shard_index, shard_count; /* of its split */
    uint64_t first_sample, sample_count;
    uint64_t record_bytes;
} PackOutput;

/* The phases point to each other: a plan stays where it was made. */
typedef struct PackPlan {
    PackFound found;
    PackKeyed keyed;
    PackSplit split;
    PackStored stored;
    PackOutput *outputs; /* by pack_cut, as the next two */
    size_t output_count;
    char id[33];
    const PackBase *base; /* NULL: a dataset of its own */
    PackNotes notes;      /* by all phases */
} PackPlan;

/* Runs all phases. The options must live as long as the plan. Errors as theirs; FSH_ERR_USAGE too: a
 * container that cannot hold what was found. On failure the notes may be read, and pack_plan_free is to be
 * called. */
FshStatus pack_plan_make(PackPlan *plan, const PackOptions *options, FshError *error);

/* Does the same in two halves: finds the samples, and decides how and where they are stored. Between the two
 * an update takes out those that are stored already. base: NULL, or what is added to. */
FshStatus pack_plan_find(PackPlan *plan, const PackOptions *options, FshError *error);
FshStatus pack_plan_place(PackPlan *plan, const PackBase *base, FshError *error);

/* Refuses a plan that lacks files or folders because the system could not read them, unless
 * options->skip_unread: another time they would make another dataset. FSH_ERR_SYSTEM. */
FshStatus pack_plan_check_read(const PackPlan *plan, FshError *error);

/* Frees all phases. A plan of zeros is fine. */
void pack_plan_free(PackPlan *plan);

/* Returns whether --shard-size says how many outputs a split has; else it is one. */
bool pack_is_cut(const PackOptions *options);

/* ---- for pack_plan.c ---- */

/* Refuses what options->container cannot hold. FSH_ERR_USAGE, FSH_ERR_MISMATCH. */
FshStatus pack_check_container(const PackSplit *split, FshError *error);

/* Cuts the splits into outputs, and makes the id: the last phase. */
FshStatus pack_cut(PackPlan *plan, FshError *error);

#endif
