/* pack_blueprint.h - the manifest in the making: what a plan says of the whole dataset, filled in output by
 * output.
 *
 * Where many machines pack one dataset, each leaves the blueprint in a hidden file beside its outputs,
 * .fpack-plan.json: the same bytes whichever of N parts wrote it. `fpack --merge` needs it, and not the
 * source. One machine alone makes its manifest by the same calls, so that both come to the same bytes.
 *
 * Threads: a Blueprint belongs to one thread at a time. */
#ifndef FSHARD_PACK_BLUEPRINT_H
#define FSHARD_PACK_BLUEPRINT_H

#include "tools/pack/pack_plan.h"
#include "tools/pack/pack_resume.h"

typedef struct Blueprint {
    FshManifest manifest; /* of its files only the names stand, until they are added */
    PixelStatistics statistics;
    uint64_t left_out_count; /* by the plan, and by the outputs added */
    size_t output_count;
    uint64_t *record_bytes; /* of each output, as planned: what parts are cut by */
    uint32_t part_count;    /* of the part that wrote it; 0: none */
} Blueprint;

/* Makes the blueprint that a plan says, to which no output was added. On failure *blueprint is empty.
 * FSH_ERR_MEMORY. */
FshStatus blueprint_make(Blueprint *blueprint, const PackPlan *plan, FshError *error);
void blueprint_free(Blueprint *blueprint);

/* Returns the options that decide what the dataset is, as its provenance has them; those left at "do nothing"
 * are left out. Owned by the caller; NULL: out of memory. */
json_t *blueprint_options(const PackPlan *plan);
/* Returns a source as the user wrote it, less slashes at its end; "" for a path that is no UTF-8, which JSON
 * cannot hold. Owned by the caller; NULL: out of memory. */
json_t *blueprint_source(const char *source);
/* Returns where the dataset comes from as a JSON object: tool, version, source, options, recipe; all but how
 * many samples were left out, which is known in the end. Nothing in it depends on threads, times, parts or
 * the destination. Owned by the caller; NULL: out of memory. */
json_t *blueprint_provenance(const PackPlan *plan);

/* Writes folder/.fpack-plan.json: of a blueprint to which nothing was added. */
FshStatus blueprint_save(const Blueprint *blueprint, const char *folder, FshError *error);

/* Reads folder/.fpack-plan.json. FSH_ERR_NOT_FOUND: there is none. FSH_ERR_CORRUPT: it is no blueprint, or of
 * another version of fpack. On failure *blueprint is empty. */
FshStatus blueprint_load(Blueprint *blueprint, const char *folder, FshError *error);

/* Returns the file of an output, and its split in *split_ret; outputs count through the splits. index <
 * output_count. */
FshFileInfo *blueprint_output(const Blueprint *blueprint, size_t index, FshSplitInfo **split_ret);

/* Makes what part_scan_range finds the outputs of a part by: *scan_ret, to be freed. FSH_ERR_MEMORY. */
FshStatus blueprint_scan(const Blueprint *blueprint, PartScan **scan_ret, FshError *error);

/* Finds what a part of the plan packs, outputs *begin_ret .. *end_ret - 1; part {0, 0}: all.
 * FSH_ERR_MEMORY. */
FshStatus blueprint_part(const Blueprint *blueprint, Part part, size_t *begin_ret, size_t *end_ret,
                         FshError *error);

/* Takes a finished output in; its info moves over. */
void blueprint_add(Blueprint *blueprint, size_t index, OutputResult *output);

/* Fills in statistics and provenance, when all outputs were added. After it blueprint->manifest can be saved.
 * FSH_ERR_MEMORY. */
FshStatus blueprint_finish(Blueprint *blueprint, FshError *error);

#endif
