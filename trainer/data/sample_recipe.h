/* sample_recipe.h - all that chance decides about one sample, drawn before any pixel is touched.
 *
 *   SampleRecipe recipe;
 *   sample_recipe_draw(&recipe, &augmentation, seed, turn, index, width, height);
 *
 * turn: how often the sample came before (SamplerPick), in plain training and in evaluation the epoch.
 * It follows from (seed, turn, index) and the image's size alone. The CPU renders it (sample_loader.h); a
 * backend with memory of its own gets it as plain numbers (sample_recipe_pixels).
 *
 * Threads: no state. */
#ifndef FSHARD_TRAINER_DATA_SAMPLE_RECIPE_H
#define FSHARD_TRAINER_DATA_SAMPLE_RECIPE_H

#include "trainer/backend/pixel_recipe.h"
#include "trainer/data/augment.h"
#include "trainer/data/mixing.h"

typedef struct SampleRecipe {
    CropPlan crop;
    ImageSteps operations; /* of the crop, before its colours */
    ColourPlan colours;
    double noise;          /* deviation, grey levels; 0: none */
    ErasingPlan erased;    /* in the result */
    Random noise_random;   /* what the noise's values are drawn from */
    Random erasing_random; /* what the erased values are drawn from */
} SampleRecipe;

/* Draws the recipe of sample index. width, height: of the image; CROP_RANDOM: at least augmentation->size. */
void sample_recipe_draw(SampleRecipe *recipe, const Augmentation *augmentation, uint64_t seed, uint64_t turn,
                        uint64_t index, uint32_t width, uint32_t height);

/* Starts the random numbers of a sample's mixing, apart from those of its own augmentation. */
void sample_mixing_random(uint64_t seed, uint64_t turn, uint64_t index, Random *random);

/* Returns whether the augmentation has operations, so that recipes need sample_recipe_operations. */
bool sample_recipe_has_operations(const Augmentation *augmentation);
/* Returns whether the augmentation changes colours, so that recipes need sample_recipe_colours. */
bool sample_recipe_has_colours(const Augmentation *augmentation);

/* Writes the geometry for a backend that holds the whole image, width x height pixels, in full size. The
 * caller fills in offsets and channels. */
void sample_recipe_pixels(const SampleRecipe *recipe, const Augmentation *augmentation, uint32_t width,
                          uint32_t height, PixelRecipe *pixels);
/* Writes the operations for a backend. fill: the mean. */
void sample_recipe_operations(const SampleRecipe *recipe, const Augmentation *augmentation,
                              const uint8_t fill[4], PixelOperations *operations);
/* Writes the colours for a backend, without mixing. fill: the mean. */
void sample_recipe_colours(const SampleRecipe *recipe, const Augmentation *augmentation,
                           const uint8_t fill[4], PixelColours *colours);
/* Writes the mixing; to be called for both images that are mixed. */
void sample_recipe_mix(const MixPlan *mix, PixelColours *colours);

#endif
