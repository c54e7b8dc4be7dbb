#include "trainer/data/batch_recipes.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/data/sample_recipe.h"

enum { IMAGE_ALIGNMENT = 64 };

static FshStatus keep(SlotBytes *kept, PixelFile *file, FshError *error)
{
    if (file->lasting)
        return FSH_OK;
    if (kept->capacity < file->bytes) {
        free(kept->bytes);
        kept->bytes = malloc(file->bytes);
        kept->capacity = kept->bytes ? file->bytes : 0;
    }
    if (!kept->bytes)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for an image of %zu bytes", file->bytes);
    file->data = memcpy(kept->bytes, file->data, file->bytes);
    return FSH_OK;
}

FshStatus batch_recipes_read(BatchSlot *slot, uint64_t place, SampleLoader *samples,
                             const Augmentation *augmentation, const uint8_t fill[4], uint64_t epoch,
                             uint64_t sample, bool decode, FshError *error)
{
    SampleInfo info;
    SampleRecipe drawn;
    PixelRecipe *recipe = &slot->recipes[place];
    const unsigned sides = slot->shape.pairs ? 2 : 1;
    FshStatus status = sample_loader_open(samples, epoch, sample, &info, error);
    if (!status)
        status = sample_loader_draw(samples, augmentation, &drawn, error);
    if (status)
        return status;
    sample_recipe_pixels(&drawn, augmentation, info.width, info.height, recipe);
    recipe->offset_bytes[0] = recipe->offset_bytes[1] = PIXELS_NONE;
    for (unsigned side = 0; side < sides && !status; side++) {
        PixelFile *file = &slot->files[side][place];
        recipe->channels[side] = sample_loader_channels(samples, side, augmentation->channels);
        status = decode ? sample_loader_pixels(samples, side, augmentation->channels, file, error)
                        : sample_loader_file(samples, side, augmentation->channels, file, error);
        if (!status)
            status = keep(&slot->kept[side][place], file, error);
        recipe->offset_bytes[side] = 0; /* there is one; batch_recipes_place_files says where */
    }
    if (status)
        return status;
    if (slot->colours)
        sample_recipe_colours(&drawn, augmentation, fill, &slot->colours[place]);
    batch_slot_take(slot, place, info.label);
    return FSH_OK;
}

uint64_t batch_recipes_place_files(BatchSlot *slot)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < slot->shape.batch; i++)
        for (unsigned side = 0; side < 2; side++) {
            PixelRecipe *recipe = &slot->recipes[i];
            if (recipe->offset_bytes[side] == PIXELS_NONE)
                continue;
            recipe->offset_bytes[side] = bytes;
            bytes += (uint64_t)recipe->width * recipe->height * recipe->channels[side];
            bytes = (bytes + IMAGE_ALIGNMENT - 1) / IMAGE_ALIGNMENT * IMAGE_ALIGNMENT;
        }
    return bytes;
}
