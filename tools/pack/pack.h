/* pack.h - work and deliver: carries a plan out.
 *
 * Threads read, check and build records; one at a time delivers them in the plan's order to the writers, so
 * the bytes do not depend on the number of threads. At most 32 MiB of records for each job are in memory, or
 * one record that is larger, and for each job one file and its pixels. */
#ifndef FSHARD_PACK_PACK_H
#define FSHARD_PACK_PACK_H

#include "tools/pack/pack_blueprint.h"
#include "tools/job/destination.h"
#include "tools/pack/pack_plan.h"

typedef struct PackResult {
    /* as written to dataset.json; of a part: what it added to it; of a preview: counts only */
    FshManifest manifest;
    uint64_t sample_count;             /* in the dataset */
    uint64_t source_bytes;             /* of the samples' files */
    uint64_t written_bytes;            /* shards or LMDBs */
    uint64_t worked_count;             /* samples looked at in this run: fewer than planned after a resume */
    uint64_t worked_bytes;             /* read from the source in this run */
    size_t first_output, output_count; /* what this run was to do: all of the plan's, or a part */
    size_t kept_output_count;          /* of them finished by an earlier run */
    double seconds;                    /* of the whole run, planning included; the caller fills it in */
    uint64_t mask_values[4];           /* as PixelStatistics': of the masks that this run looked at */
    PackPlanes planes;                 /* --store yuv420; of an update: of what it packed */
    NoteList left_out;                 /* by the work; the plan has its own list */
} PackResult;

/* Is called as soon as a sample is left out, in packing order, with the progress bar cleared. */
typedef void (*PackLeftOut)(const Note *note, void *context);

/* Packs what the plan says, and fills *result. FSH_ERR_EXISTS, FSH_ERR_USAGE: the destination (see
 * destination.h). FSH_ERR_NO_SPACE, FSH_ERR_SYSTEM: writing; the outputs finished so far stay.
 * FSH_ERR_INTERRUPTED: they stay too, and the message says how to go on. FSH_ERR_CORRUPT: no sample could be
 * packed, nothing is left. *result is to be freed in every case. */
FshStatus pack_run(const PackPlan *plan, PackLeftOut left_out, void *context, PackResult *result,
                   FshError *error);
void pack_result_free(PackResult *result);

/* Writes the folder that is packed as the sources of a shard name it, which tells apart the folders that
 * fpack --append has put into one dataset. */
void pack_root(const PackOptions *options, char root[PATH_MAX]);

/* Fills *result with what pack_run would do, for --dry-run: counts as planned, written_bytes estimated.
 * Writes nothing. Fails on a destination as pack_run does. */
FshStatus pack_preview(const PackPlan *plan, PackResult *result, FshError *error);

/* ---- for pack_merge.c, which ends as a packing does ---- */

/* Counts a finished output. FSH_ERR_MEMORY. */
FshStatus pack_result_add(PackResult *result, const OutputResult *output, FshError *error);
/* Writes the manifest of outputs that are all there, gives it to the taker (NULL: there is none), moves it to
 * the result, and closes the destination. */
FshStatus pack_finish(Blueprint *blueprint, Destination *destination, const PackTaker *taker,
                      PackResult *result, FshError *error);

#endif
