/* pixels_support.h - random images, augmentations and recipes, and what the loader's code makes of them: what
 * a backend's own pixels are held against. */
#ifndef FSHARD_TESTS_TRAINER_PIXELS_SUPPORT_H
#define FSHARD_TESTS_TRAINER_PIXELS_SUPPORT_H

#include "trainer/backend/pixels.h"
#include "trainer/data/sample_recipe.h"

enum { PIXELS_COUNT = 6 }; /* images of a case; even */

/* A batch of images of all sizes, one after the other, and the recipes drawn for them. */
typedef struct PixelsCase {
    char name[96];
    Augmentation augmentation;
    unsigned sides;
    uint8_t *stored; /* owned */
    uint64_t stored_bytes;
    PixelRecipe recipes[PIXELS_COUNT];
    PixelOperations operations[PIXELS_COUNT];
    PixelColours colours[PIXELS_COUNT];
    PixelBatch batch;     /* points into this; must not move */
    uint8_t *expected[2]; /* [count, size, size, channels]; owned; the target NULL but for pairs */
    bool exact;           /* false: noise, whose last place is the library's */
} PixelsCase;

/* Makes case `number` of a seed: modes, channels, sizes, colours and mixing take turns. Returns false when
 * there are no more. */
bool pixels_case_make(PixelsCase *test, uint64_t seed, unsigned number);
void pixels_case_free(PixelsCase *test);

/* Fails the test where pixels are not side `side` of expected; inexact cases may differ by one level in one
 * value of a thousand. */
void pixels_case_compare(const PixelsCase *test, unsigned side, const uint8_t *pixels);

/* Renders side `side` of the batch from a store in host memory, by loops that do what the kernels do. each:
 * every pixel by itself, as kernels render where tiles do not serve. */
void pixels_apply(const PixelBatch *batch, const uint8_t *store, unsigned side, bool each, uint8_t *pixels);

/* Returns the stored_bytes of a batch whose files come with it, with its JPEGs decoded by libjpeg-turbo; the
 * caller frees them. */
uint8_t *pixels_bring_files(const PixelBatch *batch);

#endif
