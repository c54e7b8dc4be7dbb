/* pack.h - work and deliver: carries a plan out.
 *
 * Threads read, check and build records; one at a time delivers them in the plan's order to the writers, so
 * the bytes do not depend on the number of threads. At most 32 MiB of records for each job are in memory, or one record
 * that is larger, and for each job one file and its pixels. */
#ifndef FSHARD_PACK_PACK_H
#define FSHARD_PACK_PACK_H

#include "tools/pack/plan.h"

typedef struct PackResult {
    FshManifest manifest;     /* as written to dataset.json */
    uint64_t sample_count;    /* in the dataset */
    uint64_t source_bytes;    /* of the samples' files */
    uint64_t written_bytes;   /* shards or LMDBs */
    uint64_t worked_count;    /* samples looked at in this run: fewer than planned after a resume */
    uint64_t worked_bytes;    /* read from the source in this run */
    size_t kept_output_count; /* finished by an earlier run */
    double seconds;           /* of the whole run, planning included; the caller fills it in */
    NoteList left_out;        /* by the work; the plan has its own list */
} PackResult;

/* left_out is called as soon as a sample is left out, in packing order, with the progress bar cleared. */
typedef void (*PackLeftOut)(const Note *note, void *context);

/* FSH_ERR_EXISTS, FSH_ERR_USAGE: the destination (see destination.h). FSH_ERR_NO_SPACE, FSH_ERR_SYSTEM:
 * writing; the outputs finished so far stay. FSH_ERR_INTERRUPTED likewise: the message says how to go on.
 * FSH_ERR_CORRUPT: no sample could be packed, nothing is left behind. *result is to be freed in every case.
 */
FshStatus pack_run(const Plan *plan, const PackOptions *options, PackLeftOut left_out, void *context,
                   PackResult *result, FshError *error);
void pack_result_free(PackResult *result);

#endif
