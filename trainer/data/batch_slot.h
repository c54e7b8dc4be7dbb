/* batch_slot.h - the memory of one batch of the loader's ring. Internal to the loader and its sources.
 *
 * Threads: places of one slot may be filled by several threads at a time, each its own; two that are mixed by
 * one. */
#ifndef FSHARD_TRAINER_DATA_BATCH_SLOT_H
#define FSHARD_TRAINER_DATA_BATCH_SLOT_H

#include "common/error.h"
#include "trainer/backend/pixel_recipe.h"
#include "trainer/data/mixing.h"

/* What all slots of a loader have in common. */
typedef struct SlotShape {
    uint64_t batch; /* places */
    uint32_t channels;
    bool pairs; /* each image has a target, */
    bool masks; /* which is a mask of one channel */
    bool mixes;
    size_t row_width;         /* of the row of targets that each sample has; 0: none */
    bool recipes;             /* in place of pixels; */
    bool operations, colours; /* with operations, with what changes colours */
    bool files;               /* of recipes: the images come with the batch */
    bool lent;                /* pixels and target are the caller's memory, which it puts there */
    uint8_t fill[4];          /* of places that are left out */
} SlotShape;

/* Memory that grows. */
typedef struct SlotBytes {
    uint8_t *bytes;
    size_t capacity;
} SlotBytes;

typedef struct BatchSlot {
    SlotShape shape;
    uint32_t width, height; /* of each image; no more than reserved */
    /* [batch, height, width, channels]; target: NULL but for pairs, of masks one channel. shape.lent: not
     * owned, NULL at first */
    uint8_t *pixels, *target;
    size_t pixels_bytes, target_bytes; /* room; shape.lent: that the caller's memory must have */
    PixelRecipe *recipes;              /* [batch]; NULL unless shape.recipes: then there are no pixels */
    PixelOperations *operations;       /* [batch]; NULL unless shape.operations */
    PixelColours *colours;             /* [batch]; NULL unless shape.colours */
    PixelFile *files[2];               /* [batch] of each side; NULL unless shape.files */
    SlotBytes *kept[2];                /* [batch] copies of files that do not last */
    int64_t *labels, *labels_mixed;    /* [batch]; labels_mixed, mix: NULL unless shape.mixes */
    float *mix, *valid;
    float *targets;            /* [batch, row_width]; NULL unless samples have rows of targets */
    uint64_t *samples, *turns; /* [batch] SamplerPick's */
} BatchSlot;

/* Takes memory for images of width x height. FSH_ERR_MEMORY; then batch_slot_free. */
FshStatus batch_slot_make(BatchSlot *slot, const SlotShape *shape, uint32_t width, uint32_t height,
                          FshError *error);
/* Frees what the slot owns; zeroed is fine. */
void batch_slot_free(BatchSlot *slot);

/* Sets the size, and takes more memory if there is too little: pixels are lost then. FSH_ERR_MEMORY. */
FshStatus batch_slot_resize(BatchSlot *slot, uint32_t width, uint32_t height, FshError *error);

/* Return the pixels at a place, and those of its target. NULL: the batch has none, or has recipes. */
uint8_t *batch_slot_pixels(const BatchSlot *slot, uint64_t place);
uint8_t *batch_slot_target(const BatchSlot *slot, uint64_t place);

/* Marks a place as filled with a sample of this label. */
void batch_slot_take(BatchSlot *slot, uint64_t place, int64_t label);
/* Leaves a place out, for padding or a sample that cannot be used: no label, not valid, pixels of the
 * fill. */
void batch_slot_leave_out(BatchSlot *slot, uint64_t place);

/* Returns the row of targets at a place. */
float *batch_slot_row(const BatchSlot *slot, uint64_t place);

/* Mixes places first and first + 1 as mixing and random want it, unless one was left out: pixels, and rows of
 * targets, which must be those of the samples again. labels_mixed and mix are set in any case. */
void batch_slot_mix(BatchSlot *slot, const Mixing *mixing, Random *random, uint64_t first);

/* Returns the bytes of memory that the slot takes. */
uint64_t batch_slot_bytes(const BatchSlot *slot);
/* Returns how many places hold a sample. */
uint64_t batch_slot_valid_count(const BatchSlot *slot);

#endif
