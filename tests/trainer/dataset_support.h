/* dataset_support.h - small datasets for the trainer's tests, made with libfshard as fpack makes them.
 *
 * Whatever cannot be done fails the running test. */
#ifndef FSHARD_TESTS_TRAINER_DATASET_SUPPORT_H
#define FSHARD_TESTS_TRAINER_DATASET_SUPPORT_H

#include "formats/fshard.h"

typedef struct DatasetSpec {
    FshCodec codec; /* FSH_CODEC_RAW or FSH_CODEC_JPEG; FSH_CODEC_Y4M: the planes of that JPEG */
    uint32_t width, height;
    uint8_t channels; /* 1 or 3 */
    uint64_t class_count;
    uint64_t train_count, val_count; /* 0: no such split */
    uint32_t shard_count;            /* of each split */
    FshKind kind;                    /* 0: FSH_KIND_CLASSES */
    bool classes_apart;              /* val has samples of the last class alone, train of all others */
    bool unmeasured;                 /* no mean and deviation, as fpack --no-check leaves them */
    bool compressed;                 /* every field is a zstd frame, made with a trained dictionary */
    bool broken_frame; /* and that of sample 5 of each split is none, but its checksum is right */
    bool garbage;      /* sample 5 of each split is no image, but its checksum is right */
    /* Sample 5 of each split is a JPEG file whose Huffman tables have more codes than there are: its frame
     * looks plain, and no decoder reads it; its checksum is right. */
    bool untabled;
    bool subsampled;     /* JPEG files are 4:2:0; else 4:4:4 */
    bool uneven;         /* the target of pair 5 is a pixel narrower than its input */
    uint32_t claimed;    /* records of JPEG files say that they are squares of this edge; 0: the truth */
    bool backwards;      /* the classes stand from the last to the first: names, labels and looks alike */
    const char *renamed; /* the name of the first class; NULL: its own */
    uint32_t grow;       /* sample i is wider by grow * (i % 3) pixels, higher by grow * (i % 2) */
    bool other_byte;     /* raw: the first byte of sample 0 differs from what it is else; no size does */
} DatasetSpec;

/* Writes the dataset into folder (made). Sample i of a split has class i % class_count, the key "class/N"
 * with six digits, and the source path "SPLIT/class/N.png"; its pixels show a blob whose place and colour
 * follow from its class, in noise. */
void dataset_make(const char *folder, const DatasetSpec *spec);

/* Writes the image of each sample of a split into folder (made) as a file of its own, "LABEL/N.jpg": class
 * folders that nobody has packed. */
void dataset_unpack(const FshSplit *split, const char *folder);

/* Return width and height of sample i. */
uint32_t dataset_width(const DatasetSpec *spec, uint64_t index);
uint32_t dataset_height(const DatasetSpec *spec, uint64_t index);

/* Draws the pixels of sample i as dataset_make does: [height, width, channels]. A pair's target is the
 * negative of its input. */
void dataset_draw(const DatasetSpec *spec, uint64_t index, uint8_t *pixels);

#endif
