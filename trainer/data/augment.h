/* augment.h - from an image of any size to the square of pixels that the network sees.
 *
 *   CropPlan plan;
 *   Random random;
 *   random_start(&random, seed, random_stream(epoch, sample));
 *   augment_plan(&augmentation, width, height, &random, &plan); // geometry: no pixels needed
 *   // pixels: [size, size, channels] u8
 *   augment_render(augmenter, &augmentation, &plan, width, height, &image, pixels, &error);
 *
 * The plan is made from the image's size alone, so that a decoder can be told what will be used before it
 * decodes. Which thread does it, and in which order, cannot matter: all chance comes from (seed, epoch,
 * sample).
 *
 * Threads: an Augmentation is constant; one Augmenter per thread. */
#ifndef FSHARD_TRAINER_DATA_AUGMENT_H
#define FSHARD_TRAINER_DATA_AUGMENT_H

#include "common/random.h"
#include "imaging/resample.h"

typedef enum CropMode {
    /* A random part of the image, resized: torchvision's RandomResizedCrop (Szegedy et al. 2015, "Inception
       crop"). */
    CROP_RESIZED,
    /* The centre crop, moved by up to `padding` pixels each way, what comes in from outside mirrored at the
     * edge: the usual way with CIFAR (Lee et al. 2015), with reflection in place of black. */
    CROP_PADDED,
    /* Short edge resized to `resize`, then the centre: torchvision's Resize and CenterCrop. No chance: for
       evaluation. */
    CROP_CENTER,
    CROP_MODE_COUNT
} CropMode;

/* "rrc", "pad", "center", NULL: in enum order, for the option table. */
extern const char *const crop_mode_names[];

typedef struct Augmentation {
    CropMode mode;
    uint32_t size;     /* edge of the result, pixels, > 0 */
    uint32_t channels; /* of the result: 1 or 3; gray becomes r = g = b, colour becomes luma (ITU-R 601) */
    uint32_t resize;   /* CROP_PADDED, CROP_CENTER: what the short edge becomes first; >= size */
    uint32_t padding;  /* CROP_PADDED: pixels, less than size */
    double scale_min, scale_max; /* CROP_RESIZED: part of the area */
    double ratio_min, ratio_max; /* CROP_RESIZED: width / height */
    double flip_probability;     /* mirrored left to right */
} Augmentation;

/* What becomes of one image. */
typedef struct CropPlan {
    ResampleBox box;          /* in pixels of the image as it is stored, within its edges */
    int32_t shift_x, shift_y; /* then moved by these, edges mirrored */
    bool flip;                /* then flipped */
} CropPlan;

/* width, height > 0. Draws from random only what the mode needs, always in the same order. */
void augment_plan(const Augmentation *augmentation, uint32_t width, uint32_t height, Random *random,
                  CropPlan *plan);

/* The smallest decoded size of a width x height image that still gives the crop without enlarging: for a
 * decoder that can scale. */
void augment_least_size(const Augmentation *augmentation, const CropPlan *plan, uint32_t width,
                        uint32_t height, uint32_t *least_width_ret, uint32_t *least_height_ret);

typedef struct Augmenter Augmenter;

FshStatus augmenter_new(Augmenter **augmenter, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
void augmenter_free(Augmenter **augmenter);

/* Renders the plan made for a width x height image from `image`, which is that image or a scaled decode of
 * it, to target [size, size, channels]. Where no resampling is needed, pixels are copied as they are; else
 * bilinear with antialiasing. FSH_ERR_MEMORY. */
FshStatus augment_render(Augmenter *augmenter, const Augmentation *augmentation, const CropPlan *plan,
                         uint32_t width, uint32_t height, const Image *image, uint8_t *target,
                         FshError *error);

#endif
