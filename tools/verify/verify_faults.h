/* verify_faults.h - the samples that a report finds fault with, as small images: what is suspicious is to be
 * looked at.
 *
 * Threads: one. */
#ifndef FSHARD_VERIFY_VERIFY_FAULTS_H
#define FSHARD_VERIFY_VERIFY_FAULTS_H

#include "tools/verify/verify.h"
#include "tools/verify/verify_thumbs.h"

typedef struct Faults {
    Thumbs suspects;       /* pairs whose sides do not look alike, the least alike first */
    Thumbs problems;       /* samples that other problems name, in the report's order */
    FshDataset **datasets; /* files opened by themselves, where the dataset cannot be; owned */
    size_t dataset_count;
} Faults;

/* Makes options->count thumbnails of each kind at most, and of absent sources as few as verify_is_listed
 * takes; note says what is wrong. dataset: the report's, or NULL where it cannot be opened: then each file
 * is, by itself. What cannot be read or decoded is there without its image. FSH_ERR_MEMORY,
 * FSH_ERR_INTERRUPTED; *faults is to be freed in every case. */
FshStatus faults_make(const VerifyReport *report, const FshDataset *dataset, const ThumbOptions *options,
                      Faults *faults, FshError *error);
void faults_free(Faults *faults);

#endif
