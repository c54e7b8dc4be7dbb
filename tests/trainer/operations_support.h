/* operations_support.h - images with operations, and what the loader's code makes of them: what a backend's
 * own pixels are held against. */
#ifndef FSHARD_TESTS_TRAINER_OPERATIONS_SUPPORT_H
#define FSHARD_TESTS_TRAINER_OPERATIONS_SUPPORT_H

#include "trainer/backend/pixels.h"

/* A batch of images, each taken as it lies in the store, then operated on. */
typedef struct OperationsCase {
    char name[64];
    bool large;      /* crops of a usual size; the others are of a few pixels, and more than a GPU's blocks */
    uint8_t *stored; /* [count, height, width, channels]; owned, as all that follows */
    uint64_t stored_bytes;
    PixelRecipe *recipes;
    PixelOperations *operations;
    uint8_t *expected; /* as stored */
    PixelBatch batch;  /* points into this */
} OperationsCase;

/* Makes case `number`: sizes, channels and filters take turns; each has every operation with arguments from
 * none to beyond what policies draw, then what policies draw. Returns false when there are no more. */
bool operations_case_make(OperationsCase *test, unsigned number);
void operations_case_free(OperationsCase *test);

/* Fails the test where pixels are not what is expected. */
void operations_case_compare(const OperationsCase *test, const uint8_t *pixels);

/* Operates on the pixels of image i of the batch, by loops that do what a kernel's block of so many threads
 * does. */
void operations_apply(const PixelBatch *batch, uint64_t i, uint32_t threads, uint8_t *pixels);

#endif
