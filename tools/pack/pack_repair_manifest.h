/* pack_repair_manifest.h - dataset.json made again from the files of its folder, for one that was damaged,
 * edited, lost, or has no checksum yet. */
#ifndef FSHARD_PACK_REPAIR_MANIFEST_H
#define FSHARD_PACK_REPAIR_MANIFEST_H

#include "formats/fshard.h"
#include "tools/job/notes.h"

typedef struct RepairOptions {
    const char *folder;
    int jobs;
    bool quiet, dry_run;
} RepairOptions;

typedef struct RepairResult {
    FshDataset *dataset;      /* the files, by what they say of themselves; NULL after a failure */
    FshStatistics statistics; /* of the images that decode */
    NoteList undecodable;     /* images of the training split */
    /* what people call the classes: no file tells it, and the old manifest told it, or cannot be read */
    bool names_lost;
} RepairResult;

/* Opens the files without their manifest, decodes the training split's images for mean and deviation, and
 * writes dataset.json (and of tars their indexes and lists). Errors as fsh_open_without_manifest;
 * FSH_ERR_EXISTS: fpack is writing there, or was stopped before it had finished; FSH_ERR_INTERRUPTED,
 * and FSH_ERR_SYSTEM where the disk cannot read an image: nothing is written. The result is to be freed in
 * every case. */
FshStatus repair_manifest(const RepairOptions *options, RepairResult *result, FshError *error);
void repair_result_free(RepairResult *result);

#endif
