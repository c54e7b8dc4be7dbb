/* Files that a backend's decoder refuses: decoded by the one in imaging/, in the batch in hand. */
#include "trainer/data/batch_recipes.h"
#include "trainer/data/loader_internal.h"

/* FSH_OK too where the sample is left out. */
static FshStatus decode_place(Loader *loader, LoaderSlot *slot, uint64_t epoch, uint64_t place,
                              SampleLoader *single, FshError *error)
{
    BatchSlot *memory = &slot->memory;
    const uint64_t sample = memory->samples[place];
    FshError failure = {0};
    (void)atomic_fetch_or_explicit(&loader->decoded_here[sample / 8], (unsigned char)(1U << sample % 8),
                                   memory_order_relaxed);
    FshStatus status = batch_recipes_read(memory, place, single, loader_augmentation(loader, epoch),
                                          loader->options.fill, epoch, sample, true, &failure);
    if (!status)
        return FSH_OK;
    if (!loader->options.skip_bad || status == FSH_ERR_MEMORY)
        return fsh_error_set(error, status, "%s", failure.message);
    batch_slot_leave_out(memory, place);
    (void)pthread_mutex_lock(&loader->mutex);
    loader_note_problem(loader, sample, &failure);
    (void)pthread_mutex_unlock(&loader->mutex);
    return FSH_OK;
}

FshStatus loader_decode_refused(Loader *loader, const uint64_t *places, size_t count, FshError *error)
{
    const uint64_t number = loader->consumed - 1, epoch = number / loader->step_count;
    LoaderSlot *slot = &loader->slots[number % loader->slot_count];
    SampleLoader *single = NULL;
    FshStatus status = loader_single(loader, &single, error);
    for (size_t i = 0; i < count && !status; i++) {
        status = decode_place(loader, slot, epoch, places[i], single, error);
        if (!status && slot->memory.shape.mixes)
            loader_mix_pair(loader, &slot->memory, epoch, places[i] / 2 * 2);
    }
    slot->recipes.stored_bytes = batch_recipes_place_files(&slot->memory);
    slot->batch.valid_count = batch_slot_valid_count(&slot->memory);
    return status;
}
