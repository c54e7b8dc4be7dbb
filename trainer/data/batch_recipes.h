/* batch_recipes.h - a slot's batch as recipes and files for a backend that makes the pixels itself. Internal
 * to the loader.
 *
 * Threads: as batch_slot.h. */
#ifndef FSHARD_TRAINER_DATA_BATCH_RECIPES_H
#define FSHARD_TRAINER_DATA_BATCH_RECIPES_H

#include "trainer/data/batch_slot.h"
#include "trainer/data/sample_loader.h"

/* A sample's recipe, and its images as files: JPEGs that the backend can decode as they are, all else decoded
 * here; decode: all. What does not last is kept in the slot. Messages as sample_loader_open's. */
FshStatus batch_recipes_read(BatchSlot *slot, uint64_t place, SampleLoader *samples,
                             const Augmentation *augmentation, const uint8_t fill[4], uint64_t epoch,
                             uint64_t sample, bool decode, FshError *error);

/* Once all places are read: says where in the backend's memory each image goes. Returns the bytes of all. */
uint64_t batch_recipes_place_files(BatchSlot *slot);

#endif
