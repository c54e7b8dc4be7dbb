/* resident_split.h - all pixels of a split, decoded once: in a backend's own memory (--cache gpu), or in RAM
 * (--cache pixels).
 *
 *   ResidentSplit resident;
 *   resident_split_measure(&resident, &options, &error);        // sizes and checksums: what it will take
 *   resident_split_load(&resident, backend, &options, &error);  // decodes and copies, on all threads
 *   … a loader with options.resident = &resident, which the batches' recipes are drawn from
 *   resident_split_free(&resident);                             // before the backend
 *
 *   resident_split_load_host(&resident, &options, &error);      // the same into RAM
 *   … a loader with options.decoded = &resident, which renders the batches from there
 *
 * Raw pixels stay as they are, everything else is decoded in full size: a crop of a photograph that the
 * loader would have decoded at a half or a quarter of its size (augment_least_size) has other pixels here,
 * those of the better decoding.
 *
 * A sample that cannot be used is noted and left out, or is the failure, as in the loader; but all of it is
 * looked at, where crops in training may not meet what is damaged.
 *
 * Threads: one; constant once loaded. */
#ifndef FSHARD_TRAINER_DATA_RESIDENT_SPLIT_H
#define FSHARD_TRAINER_DATA_RESIDENT_SPLIT_H

#include "trainer/backend/pixels.h"
#include "trainer/data/sample_loader.h"
#include "trainer/data/sample_recipe.h"

typedef struct ResidentOptions {
    SampleOptions samples;
    uint32_t channels; /* what is decoded becomes; raw pixels keep theirs */
    int threads;
    bool skip_bad;
} ResidentOptions;

/* Where an image lies. */
typedef struct ResidentImage {
    uint64_t offset_bytes; /* in the store, or pixels; PIXELS_NONE: it cannot be used */
    uint32_t width, height;
    uint8_t channels;
} ResidentImage;

typedef struct ResidentSplit {
    uint64_t sample_count;
    unsigned sides;
    ResidentImage *images; /* [sample_count][sides] */
    int64_t *labels;       /* [sample_count]; pairs: NULL */
    char **problems;       /* [sample_count] what is wrong with a sample; mostly NULL */
    uint64_t bytes;        /* of all pixels */
    SampleChecksums checksums;
    PixelStore *store; /* NULL unless it is loaded into a backend's memory */
    uint8_t *pixels;   /* [bytes] rows without padding; NULL unless it is loaded into RAM */
} ResidentSplit;

/* Reads every record once. FSH_ERR_CORRUPT and such: the first bad sample, unless skip_bad.
 * FSH_ERR_INTERRUPTED. On failure nothing is held. */
FshStatus resident_split_measure(ResidentSplit *resident, const ResidentOptions *options, FshError *error);
/* FSH_ERR_MEMORY: says what it takes and what is free. FSH_ERR_UNSUPPORTED: the backend has no memory of its
 * own. The split stays measured on failure. */
FshStatus resident_split_load(ResidentSplit *resident, Backend *backend, const ResidentOptions *options,
                              FshError *error);
/* FSH_ERR_MEMORY: the system gives no such memory at all; what it cannot keep is for
 * resident_split_check_room to say. The split stays measured on failure. */
FshStatus resident_split_load_host(ResidentSplit *resident, const ResidentOptions *options, FshError *error);
/* FSH_ERR_MEMORY: `bytes` of pixels in each of so many processes of this host are more than the free_bytes
 * that there are (cpu_free_memory_bytes); the message says what to do. split: for its dataset's name. */
FshStatus resident_split_check_room(const FshSplit *split, uint64_t bytes, uint64_t processes,
                                    uint64_t free_bytes, FshError *error);
/* Zeroed is fine. */
void resident_split_free(ResidentSplit *resident);

/* The image of a sample. */
static inline const ResidentImage *resident_image(const ResidentSplit *resident, uint64_t sample,
                                                  unsigned side)
{
    return &resident->images[sample * resident->sides + side];
}

/* sample_loader_open for a split that lies in RAM; fails as the sample did. Any thread, a loader each. */
FshStatus resident_split_open(const ResidentSplit *resident, SampleLoader *loader, uint64_t epoch,
                              uint64_t sample, SampleInfo *info, FshError *error);
/* That sample will be opened soon. */
void resident_split_expect(const ResidentSplit *resident, uint64_t sample);

/* What a sample's recipe follows from, besides its image's size. */
typedef struct ResidentDraw {
    const FshSplit *split; /* for messages */
    const Augmentation *augmentation;
    const uint8_t *fill; /* [4] */
    uint64_t seed, epoch;
} ResidentDraw;

/* The recipe of a sample, its colours (NULL: not wanted) and its label (pairs: FSH_NO_LABEL). Fails as the
 * sample did; a third of a microsecond, any thread. */
FshStatus resident_split_draw(const ResidentSplit *resident, const ResidentDraw *draw, uint64_t sample,
                              PixelRecipe *recipe, PixelColours *colours, int64_t *label_ret,
                              FshError *error);

#endif
