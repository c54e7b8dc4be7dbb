/* sample_loader.h - one sample of a split, from its record to finished pixels: found, tested, decoded,
 * augmented.
 *
 *   sample_loader_open(loader, turn, index, &info, &error);     // its label and its size
 *   sample_loader_render(loader, &augmentation, pixels, target, &error);
 *
 * Records are read in place from the mapping; raw pixels are cropped, resampled and flipped from there,
 * into the batch. What comes out follows from (seed, turn, index) alone. Both sides of a pair get the
 * same geometry; jitter and noise touch the input alone. A mask is resized by the nearest pixel, and its
 * values are checked.
 *
 * Threads: one SampleLoader per thread; SampleChecksums are shared. */
#ifndef FSHARD_TRAINER_DATA_SAMPLE_LOADER_H
#define FSHARD_TRAINER_DATA_SAMPLE_LOADER_H

#include <stdatomic.h>

#include "formats/fshard.h"
#include "trainer/data/augment.h"
#include "trainer/data/sample_labels.h"
#include "trainer/data/sample_recipe.h"

/* A bit for each sample of a split: set once its checksum was right. Two threads may test the same sample;
 * that is harmless. */
typedef struct SampleChecksums {
    atomic_uchar *right;
} SampleChecksums;

/* Makes the bits, all unset. FSH_ERR_MEMORY. */
FshStatus sample_checksums_make(SampleChecksums *checksums, uint64_t sample_count, FshError *error);
void sample_checksums_free(SampleChecksums *checksums);

typedef struct SampleOptions {
    const FshSplit *split; /* borrowed */
    FshKind kind;
    unsigned input_field, target_field; /* of pairs and masks; classes: 0 */
    uint32_t mask_classes;              /* of masks: their values are below, or FSH_MASK_IGNORED */
    const SampleLabels *labels;         /* of the split, in place of the records'; borrowed; NULL: none */
    const int32_t *label_places; /* of the dataset's classes among the network's; borrowed; NULL: the same */
    bool inputs_alone;           /* samples have neither label nor target: images that nobody has packed */
    uint64_t seed;
    uint8_t fill[4]; /* the mean: what random erasing leaves */
} SampleOptions;

/* Where the time of a sample goes. */
typedef enum SampleStage {
    SAMPLE_READ,    /* find the record, test its checksum (touches its pages), unpack */
    SAMPLE_DECODE,  /* JPEG and the like to pixels */
    SAMPLE_AUGMENT, /* resample, jitter, noise, erase, mix */
    SAMPLE_COPY,    /* of raw pixels that need no resampling */
    SAMPLE_STAGE_COUNT
} SampleStage;

/* "read", "decode", "augment", "copy". */
extern const char *const sample_stage_names[];

typedef struct SampleStatistics {
    uint64_t images; /* rendered: two in a pair */
    uint64_t stored_bytes, pixel_bytes;
    double seconds[SAMPLE_STAGE_COUNT]; /* while measuring */
} SampleStatistics;

typedef struct SampleInfo {
    int64_t label;          /* pairs, masks, inputs_alone, rows of targets: FSH_NO_LABEL */
    uint32_t width, height; /* pixels, both sides */
} SampleInfo;

typedef struct SampleLoader SampleLoader;

FshStatus sample_loader_new(SampleLoader **loader, const SampleOptions *options,
                            const SampleChecksums *checksums, FshError *error);
/* Frees the loader and sets *loader to NULL; NULL is fine. */
void sample_loader_free(SampleLoader **loader);

/* Asks for sample index, which will be opened soon: from the disk if it was not read before, else from
 * memory. */
void sample_loader_expect(const SampleLoader *loader, uint64_t index);

/* Opens sample index and fills *info. Tests its checksum until that was right once: a JPEG with a flipped
 * byte may well decode. The message of a failure names dataset, file, record, key, source and reason. */
FshStatus sample_loader_open(SampleLoader *loader, uint64_t turn, uint64_t index, SampleInfo *info,
                             FshError *error);

/* Makes the pixels of a part of an image that lies in memory in another form. stored: its pixels point to the
 * form's bytes, its channels are those of the result. image: reserved here. */
typedef FshStatus (*SampleExpand)(const ImageView *stored, const ImagePart *part, Image *image,
                                  FshError *error);

/* An image that is decoded already, in full size; it lasts. */
typedef struct SampleImage {
    ImageView view;      /* rows without padding, or what expand takes */
    SampleExpand expand; /* NULL: view holds pixels */
} SampleImage;

/* Opens a sample whose images, one for each side, are decoded already. */
void sample_loader_open_decoded(SampleLoader *loader, uint64_t turn, uint64_t index,
                                const SampleImage *images);

/* Renders the sample that was opened last. pixels: [size, size, channels], or the sample's own size
 * (CROP_WHOLE); target: the same for the other side of a pair, of a mask in one channel; classes: not
 * used. Messages as above; FSH_ERR_MISMATCH for a crop larger than the images of a pair. */
FshStatus sample_loader_render(SampleLoader *loader, const Augmentation *augmentation, uint8_t *pixels,
                               uint8_t *target, FshError *error);

/* Returns the channels of a side of that sample: those of raw pixels as they are stored, 1 of a mask; else
 * `decoded`, what it is decoded to. */
uint8_t sample_loader_channels(const SampleLoader *loader, unsigned side, uint32_t decoded);
/* Decodes a side of that sample whole, in full size, in sample_loader_channels. *view points into the
 * mapping, or into the loader until its next call. Messages as above. */
FshStatus sample_loader_image(SampleLoader *loader, unsigned side, uint32_t decoded, ImageView *view,
                              FshError *error);

/* Draws that sample's recipe. FSH_ERR_MISMATCH as sample_loader_render. */
FshStatus sample_loader_draw(SampleLoader *loader, const Augmentation *augmentation, SampleRecipe *recipe,
                             FshError *error);
/* Returns the unpacked field of a side of that sample: a file, or raw pixels. */
const FshField *sample_loader_field(const SampleLoader *loader, unsigned side);
/* Returns whether the field's bytes lie in the mapping, where they stay for as long as the dataset is open;
 * else they are the loader's until its next call. Not for a sample that is decoded already. */
bool sample_loader_in_mapping(const SampleLoader *loader, unsigned side);
/* Returns the loader's decoder, for a caller that decodes the field in another way. */
ImageDecoder *sample_loader_decoder(SampleLoader *loader);
/* Ends such a decoding, which returned status: puts where the sample lies before a message that has the
 * reason alone. Returns status, or FSH_ERR_SYSTEM if a page could not be read. */
FshStatus sample_loader_end(SampleLoader *loader, unsigned side, FshStatus status, FshError *error);
/* Reads all bytes of the field once, for a caller that uses them where they lie. FSH_ERR_SYSTEM: a page
 * cannot be read. */
FshStatus sample_loader_touch(SampleLoader *loader, unsigned side, FshError *error);

/* Returns the loader's statistics, which the caller may add to. */
SampleStatistics *sample_loader_statistics(SampleLoader *loader);

/* Measures the time of each stage from now on, or no longer, as at first; measuring costs some 50 ns a stage.
 */
void sample_loader_measure(SampleLoader *loader, bool measures);
/* Counts the seconds since the last call to stage, if measuring. */
void sample_loader_stage(SampleLoader *loader, SampleStage stage);

#endif
