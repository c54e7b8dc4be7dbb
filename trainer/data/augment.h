/* augment.h - from an image of any size to the square of pixels that the network sees: geometry.
 *
 *   CropPlan plan;
 *   Random random;
 *   random_start(&random, seed, random_stream(turn, sample));
 *   augment_plan(&augmentation, width, height, &random, &plan); // no pixels needed
 *   augment_part(&augmentation, &plan, width, height, &part); // what of the image it takes: for the decoder
 *   // pixels: [size, size, channels] u8
 *   augment_render(augmenter, &augmentation, &plan, &view, &place, pixels, &error);
 *
 * The plan is made from the image's size alone, so that a decoder can be told what will be used before it
 * decodes, and so that both sides of a pair get the same. Which thread does it, and in which order, cannot
 * matter: all chance comes from (seed, turn, sample). What changes finished crops is in auto_augment.h,
 * colour_jitter.h, random_erasing.h and mixing.h.
 *
 * Threads: an Augmentation is constant; one Augmenter per thread. */
#ifndef FSHARD_TRAINER_DATA_AUGMENT_H
#define FSHARD_TRAINER_DATA_AUGMENT_H

#include "common/options.h"
#include "common/random.h"
#include "imaging/decode.h"
#include "imaging/resample.h"
#include "trainer/data/auto_augment.h"
#include "trainer/data/colour_jitter.h"
#include "trainer/data/random_erasing.h"

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
    /* The same, but the square from anywhere: torchvision's Resize and RandomCrop, timm's rkrc. */
    CROP_KEPT_RATIO,
    CROP_MODE_COUNT, /* of those for classes, which have a name */
    /* Pairs: size x size pixels from anywhere, as they are: nothing is resized, for that would change what
     * is to be undone. */
    CROP_RANDOM = CROP_MODE_COUNT,
    /* Pairs and masks: the whole image in its own size, for evaluation. */
    CROP_WHOLE,
    /* Masks: the image resized by a factor of its own size, then a crop from anywhere; where the resized
     * image is smaller than the crop, it is padded at the right and below. torchvision's segmentation
     * reference: RandomResize, RandomHorizontalFlip, RandomCrop. */
    CROP_SCALED,
} CropMode;

/* "rrc", "pad", "center", "rkrc", NULL: in enum order, for the option table. */
extern const char *const crop_mode_names[];

/* Returns whether the mode resizes the image, the short edge to `resize`, then cuts a square out of it. */
bool crop_mode_resizes_first(CropMode mode);

/* How a crop is resized, with antialiasing, as torchvision does it on PIL images. */
typedef enum Interpolation {
    INTERPOLATION_BILINEAR,
    INTERPOLATION_BICUBIC,
    INTERPOLATION_LANCZOS, /* Pillow's, of three lobes; operations, for which Pillow has none, are bicubic */
} Interpolation;
extern const char *const interpolation_names[];      /* "bilinear", "bicubic", "lanczos", NULL */
extern const ResampleFilter interpolation_filters[]; /* in enum order */

typedef enum FlipMode {
    FLIP_RANDOM, /* each view is mirrored left to right with a probability */
    /* Half of the samples are mirrored, and in the next turn (epoch) the other half (Jordan 2024). */
    FLIP_ALTERNATING,
} FlipMode;
extern const char *const flip_mode_names[]; /* "random", "alternating", NULL */

typedef struct Augmentation {
    CropMode mode;
    Interpolation interpolation;
    uint32_t size;     /* edge of the result, pixels, > 0; CROP_WHOLE: not used */
    uint32_t channels; /* of the result: 1 or 3; gray becomes r = g = b, colour becomes luma (ITU-R 601) */
    uint32_t resize;   /* CROP_PADDED, _CENTER, _KEPT_RATIO: what the short edge becomes first; >= size */
    uint32_t padding;  /* CROP_PADDED: pixels, less than size */
    double scale_min, scale_max; /* CROP_RESIZED: part of the area; CROP_SCALED: factor of both edges */
    double ratio_min, ratio_max; /* CROP_RESIZED: width / height */
    FlipMode flip_mode;          /* FLIP_ALTERNATING: classes only; sample_recipe.h decides */
    double flip_probability;     /* FLIP_RANDOM: mirrored left to right */
    /* CROP_RANDOM: upside down, and rows for columns; with flip_probability all eight ways to lay a square
     * (BasicSR's hflip, vflip and rot90). */
    double vertical_flip_probability, transpose_probability;
    AutoAugment auto_augment; /* classes only */
    ColourJitter jitter;      /* of what goes into the network: in pairs of the input alone */
    double noise; /* of what goes in: normal, of a deviation drawn from 0 up to this, in grey levels */
    RandomErasing erasing; /* classes only */
    uint8_t fill[4];       /* CROP_SCALED: of what lies outside of the image, `channels` values */
} Augmentation;

/* What becomes of one image. */
typedef struct CropPlan {
    /* In pixels of the image as it is stored, within its edges; whole pixels but in the next two modes. */
    ResampleBox box;
    /* CROP_PADDED, CROP_CENTER, CROP_KEPT_RATIO, CROP_SCALED: the image becomes so large, and this part of
     * it is taken: what box stands for, exactly. */
    uint32_t resized_width, resized_height;
    ResampleWindow window;
    int32_t shift_x, shift_y;      /* then moved by these, edges mirrored */
    bool flip;                     /* then flipped */
    bool vertical_flip, transpose; /* then these, in this order */
} CropPlan;

/* Returns the same view at another size: what is counted in pixels grows in proportion. */
Augmentation augment_at_size(const Augmentation *augmentation, uint32_t size);

/* Returns the short edge of which a centre square of `size` pixels is `part` (0..1]: timm's crop_pct. */
uint32_t augment_resize_of_part(uint32_t size, double part);

/* Draws the plan for an image of width x height > 0; CROP_RANDOM: at least size. Draws from random only what
 * the mode needs, always in the same order. */
void augment_plan(const Augmentation *augmentation, uint32_t width, uint32_t height, Random *random,
                  CropPlan *plan);

/* Sets *part to the part of a width x height image that the plan takes pixels from. */
void augment_part(const Augmentation *augmentation, const CropPlan *plan, uint32_t width, uint32_t height,
                  ImagePart *part);

/* Sets *least_width_ret and *least_height_ret to the smallest decoded size of a width x height image that
 * gives the crop without enlarging, for a decoder that can scale. Evaluation is decoded in full size, for
 * its numbers are compared with those of others; so are pairs: 0 x 0. */
void augment_least_size(const Augmentation *augmentation, const CropPlan *plan, uint32_t width,
                        uint32_t height, uint32_t *least_width_ret, uint32_t *least_height_ret);

typedef struct Augmenter Augmenter;

/* Makes an augmenter. FSH_ERR_MEMORY. */
FshStatus augmenter_new(Augmenter **augmenter, FshError *error);
/* Frees the augmenter and sets *augmenter to NULL; NULL is fine. */
void augmenter_free(Augmenter **augmenter);

/* Renders the plan from `image`, which lies at `place` of the image that the plan was made for
 * (image_decode_part; all of it in full size: {0, 0, 8}) and holds augment_part of it, to target [size,
 * size, channels]; CROP_WHOLE: [height, width, channels]. Where no resampling is needed, pixels are copied
 * as they are; else with the interpolation. FSH_ERR_MEMORY. */
FshStatus augment_render(Augmenter *augmenter, const Augmentation *augmentation, const CropPlan *plan,
                         const ImageView *image, const ImagePlace *place, uint8_t *target, FshError *error);

/* Renders the same plan (CROP_SCALED, CROP_WHOLE) from a whole mask of one channel, [height, width] of
 * values, to target [size, size]; CROP_WHOLE: [height, width]. Each pixel takes the value of the one that
 * its centre lies in, as Pillow's NEAREST; outside of the image `outside` stands. */
void augment_render_mask(const Augmentation *augmentation, const CropPlan *plan, const ImageView *mask,
                         uint8_t outside, uint8_t *target);

/* Returns whether augment_render only copies pixels, of a full-size image with the result's channels. */
bool augment_copies(const Augmentation *augmentation, const CropPlan *plan);

/* Adds noise of deviation sigma (grey levels) to count values. */
void augment_add_noise(uint8_t *values, size_t count, double sigma, Random *random);

/* Returns what the options below say unless given; the rest is zero. */
Augmentation augmentation_default(void);
/* Returns *views without what is left to chance: as evaluation sees images. */
Augmentation augmentation_without_chance(const Augmentation *views);
/* Writes the rows of the options that set fields of *augmentation, and returns their number. */
size_t augmentation_rows(Augmentation *augmentation, Option *rows);

#endif
