/* verify_thumbs.h - a few samples of a dataset as small images, for people to look at: a contact sheet, a
 * page. */
#ifndef FSHARD_VERIFY_VERIFY_THUMBS_H
#define FSHARD_VERIFY_VERIFY_THUMBS_H

#include "common/file.h"
#include "formats/fshard.h"
#include "imaging/image.h"

typedef struct Thumb {
    const FshSplit *split;
    uint64_t index;
    FshSample sample;             /* borrowed from the dataset; field_count 0 where it cannot be read */
    Image images[FSH_FIELDS_MAX]; /* width 0 where it cannot be decoded; owned */
    Image crop[FSH_FIELDS_MAX];   /* with_crops: the middle of each side, pixel for pixel */
    char reason[256];             /* why the first of those cannot */
    char note[512];               /* what is wrong with the sample, where that is why it is shown */
} Thumb;

typedef struct Thumbs {
    Thumb *items; /* owned */
    size_t count;
} Thumbs;

typedef struct ThumbOptions {
    /* at most so many samples, of each split in proportion, but at least one, evenly spread over it */
    size_t count;
    uint32_t edge; /* of the box a thumbnail fits in, px */
    bool with_crops;
    int jobs;
} ThumbOptions;

/* Makes thumbnails of samples of a dataset. What cannot be decoded is no failure. FSH_ERR_MEMORY,
 * FSH_ERR_INTERRUPTED; *thumbs is to be freed in every case. */
FshStatus thumbs_make(const FshDataset *dataset, const ThumbOptions *options, Thumbs *thumbs,
                      FshError *error);
/* Makes the thumbnails of items that name split and index; options->count is not looked at. where: for
 * messages. */
FshStatus thumbs_fill(Thumbs *thumbs, const ThumbOptions *options, const char *where, FshError *error);
void thumbs_free(Thumbs *thumbs);

#endif
