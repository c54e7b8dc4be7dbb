#include "trainer/data/batch_slot.h"

#include <stdlib.h>
#include <string.h>

#include "formats/fshard.h"
#include "trainer/data/sample_recipe.h"

enum { ALIGNMENT = 64, NO_LABEL = -1 };

/* Makes room for bytes. What was there is lost if the room grows. */
static FshStatus reserve_pixels(uint8_t **pixels, size_t *capacity, size_t bytes, FshError *error)
{
    if (bytes <= *capacity)
        return FSH_OK;
    free(*pixels);
    *pixels = NULL;
    *capacity = 0;
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (rounded >= bytes)
        *pixels = aligned_alloc(ALIGNMENT, rounded);
    if (!*pixels)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a batch of %zu bytes of pixels",
                             bytes);
    *capacity = rounded;
    return FSH_OK;
}

FshStatus batch_slot_resize(BatchSlot *slot, uint32_t width, uint32_t height, FshError *error)
{
    uint64_t image_pixels = (uint64_t)width * height;
    size_t bytes = 0;
    if (__builtin_mul_overflow(image_pixels, slot->shape.channels, &image_pixels) ||
        __builtin_mul_overflow(image_pixels, slot->shape.batch, &bytes))
        return fsh_error_set(error, FSH_ERR_MEMORY,
                             "a batch of %llu images of %u x %u does not fit in memory",
                             (unsigned long long)slot->shape.batch, width, height);
    if (slot->shape.recipes)
        bytes = 0;
    const size_t of_targets = slot->shape.masks ? bytes / slot->shape.channels : bytes;
    if (slot->shape.lent && bytes > slot->pixels_bytes) { /* batch_slot_make, before memory is lent */
        slot->pixels_bytes = bytes;
        slot->target_bytes = slot->shape.pairs ? of_targets : 0;
    }
    FshStatus status = reserve_pixels(&slot->pixels, &slot->pixels_bytes, bytes, error);
    if (!status && slot->shape.pairs)
        status = reserve_pixels(&slot->target, &slot->target_bytes, of_targets, error);
    slot->width = status ? 0 : width;
    slot->height = status ? 0 : height;
    return status;
}

FshStatus batch_slot_make(BatchSlot *slot, const SlotShape *shape, uint32_t width, uint32_t height,
                          FshError *error)
{
    *slot = (BatchSlot){.shape = *shape};
    slot->labels = calloc(shape->batch, sizeof *slot->labels);
    slot->samples = calloc(shape->batch, sizeof *slot->samples);
    slot->turns = calloc(shape->batch, sizeof *slot->turns);
    slot->valid = calloc(shape->batch, sizeof *slot->valid);
    bool made = slot->labels && slot->samples && slot->turns && slot->valid;
    if (shape->mixes) {
        slot->labels_mixed = calloc(shape->batch, sizeof *slot->labels_mixed);
        slot->mix = calloc(shape->batch, sizeof *slot->mix);
        made = made && slot->labels_mixed && slot->mix;
    }
    if (shape->row_width) {
        slot->targets = calloc(shape->batch, shape->row_width * sizeof *slot->targets);
        made = made && slot->targets;
    }
    if (shape->recipes) {
        slot->recipes = calloc(shape->batch, sizeof *slot->recipes);
        made = made && slot->recipes;
    }
    if (shape->operations) {
        slot->operations = calloc(shape->batch, sizeof *slot->operations);
        made = made && slot->operations;
    }
    if (shape->colours) {
        slot->colours = calloc(shape->batch, sizeof *slot->colours);
        made = made && slot->colours;
    }
    for (int side = 0; side < (shape->pairs ? 2 : 1) && shape->files; side++) {
        slot->files[side] = calloc(shape->batch, sizeof *slot->files[side]);
        slot->kept[side] = calloc(shape->batch, sizeof *slot->kept[side]);
        made = made && slot->files[side] && slot->kept[side];
    }
    if (!made)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a batch of %llu samples",
                             (unsigned long long)shape->batch);
    return batch_slot_resize(slot, width, height, error);
}

void batch_slot_free(BatchSlot *slot)
{
    if (!slot->shape.lent) {
        free(slot->pixels);
        free(slot->target);
    }
    free(slot->labels);
    free(slot->labels_mixed);
    free(slot->mix);
    free(slot->valid);
    free(slot->targets);
    free(slot->samples);
    free(slot->turns);
    for (int side = 0; side < 2; side++) {
        for (uint64_t i = 0; slot->kept[side] && i < slot->shape.batch; i++)
            free(slot->kept[side][i].bytes);
        free(slot->kept[side]);
        free(slot->files[side]);
    }
    free(slot->recipes);
    free(slot->operations);
    free(slot->colours);
    *slot = (BatchSlot){0};
}

static size_t image_bytes(const BatchSlot *slot)
{
    return (size_t)slot->width * slot->height * slot->shape.channels;
}

/* Returns the bytes of the target of an image. */
static size_t target_bytes(const BatchSlot *slot)
{
    return slot->shape.masks ? (size_t)slot->width * slot->height : image_bytes(slot);
}

uint8_t *batch_slot_pixels(const BatchSlot *slot, uint64_t place)
{
    return slot->pixels ? slot->pixels + place * image_bytes(slot) : NULL;
}

uint8_t *batch_slot_target(const BatchSlot *slot, uint64_t place)
{
    return slot->target ? slot->target + place * target_bytes(slot) : NULL;
}

float *batch_slot_row(const BatchSlot *slot, uint64_t place)
{
    return slot->targets + place * slot->shape.row_width;
}

void batch_slot_take(BatchSlot *slot, uint64_t place, int64_t label)
{
    slot->labels[place] = label;
    slot->valid[place] = 1;
}

void batch_slot_leave_out(BatchSlot *slot, uint64_t place)
{
    uint8_t *const sides[] = {batch_slot_pixels(slot, place), batch_slot_target(slot, place)};
    slot->labels[place] = NO_LABEL;
    slot->valid[place] = 0;
    if (slot->targets)
        memset(batch_slot_row(slot, place), 0, slot->shape.row_width * sizeof *slot->targets);
    if (slot->recipes)
        slot->recipes[place] = (PixelRecipe){.offset_bytes = {PIXELS_NONE, PIXELS_NONE}};
    if (slot->operations)
        slot->operations[place].count = 0;
    if (slot->colours)
        slot->colours[place] = (PixelColours){.share = 1};
    if (slot->shape.masks && sides[1])
        memset(sides[1], FSH_MASK_IGNORED, target_bytes(slot));
    for (int side = 0; side < (slot->shape.masks ? 1 : 2) && sides[side]; side++)
        for (size_t i = 0; i < image_bytes(slot); i++)
            sides[side][i] = slot->shape.fill[i % slot->shape.channels];
}

/* Mixes two rows of targets as their images were mixed. */
static void mix_rows(const BatchSlot *slot, uint64_t first, float share)
{
    float *a = batch_slot_row(slot, first), *b = batch_slot_row(slot, first + 1);
    for (size_t k = 0; k < slot->shape.row_width; k++) {
        const float left = a[k], right = b[k];
        a[k] = share * left + (1 - share) * right;
        b[k] = share * right + (1 - share) * left;
    }
}

void batch_slot_mix(BatchSlot *slot, const Mixing *mixing, Random *random, uint64_t first)
{
    MixPlan plan = {.share = 1};
    const bool both = slot->valid[first] > 0 && slot->valid[first + 1] > 0;
    if (both)
        mixing_plan(mixing, slot->width, slot->height, random, &plan);
    if (slot->colours) { /* of neither: what an earlier call said of the other no longer holds */
        sample_recipe_mix(&plan, &slot->colours[first]);
        sample_recipe_mix(&plan, &slot->colours[first + 1]);
    } else if (both) {
        mixing_apply(&plan, slot->width, slot->height, slot->shape.channels, batch_slot_pixels(slot, first),
                     batch_slot_pixels(slot, first + 1));
    }
    if (slot->targets && plan.share < 1)
        mix_rows(slot, first, plan.share);
    for (uint64_t place = first; place < first + 2; place++) {
        slot->mix[place] = plan.share;
        slot->labels_mixed[place] =
            slot->labels[plan.share < 1 ? (place == first ? first + 1 : first) : place];
    }
}

uint64_t batch_slot_bytes(const BatchSlot *slot)
{
    uint64_t each = sizeof *slot->labels + sizeof *slot->samples + sizeof *slot->turns + sizeof *slot->valid;
    if (slot->shape.mixes)
        each += sizeof *slot->labels_mixed + sizeof *slot->mix;
    each += slot->shape.row_width * sizeof *slot->targets;
    if (slot->recipes)
        each += sizeof *slot->recipes;
    if (slot->operations)
        each += sizeof *slot->operations;
    if (slot->colours)
        each += sizeof *slot->colours;
    if (slot->shape.files)
        each += (slot->shape.pairs ? 2 : 1) * (sizeof *slot->files[0] + sizeof *slot->kept[0]);
    return slot->pixels_bytes + slot->target_bytes + slot->shape.batch * each;
}

uint64_t batch_slot_valid_count(const BatchSlot *slot)
{
    uint64_t found = 0;
    for (uint64_t i = 0; i < slot->shape.batch; i++)
        found += slot->valid[i] > 0;
    return found;
}
