/* Images that lie decoded in a backend's memory (--cache gpu), as a JPEG holds them (decoded_planes.h).
 * Batches are recipes, which the backend renders, from planes as from RGB. Where a team's GPUs cannot hold
 * all images each, they hold a part each, and every GPU reads from all. */
#include <sys/mman.h>

#include "common/progress.h"
#include "trainer/data/decoded_planes.h"

enum { KEPT_FREE_BYTES = 256 << 20 }; /* programs for other sizes, libraries' own */

/* Checks that `bytes` of the split fit on this process's GPU. whose: what they are, for the message. */
static FshStatus check_fits(const PixelSource *source, uint64_t bytes, const char *whose, FshError *error)
{
    const FshSplit *split = source->options.samples.split;
    uint64_t free_bytes = 0;
    char needed[32], available[32];
    FshStatus status = backend_free_memory(source->options.backend, &free_bytes, error);
    free_bytes = free_bytes > KEPT_FREE_BYTES ? free_bytes - KEPT_FREE_BYTES : 0;
    if (status || bytes <= free_bytes)
        return status;
    return fsh_error_set(
        error, FSH_ERR_MEMORY,
        "%s: --cache gpu: the pixels of split '%s' take %s%s, and %s of the GPU's memory are free; "
        "pack smaller images (fpack --max-size), lower --batch-size, or use --cache planes, in RAM",
        fsh_path(split->dataset), split->info->name, progress_format_bytes(needed, sizeof needed, bytes),
        whose, progress_format_bytes(available, sizeof available, free_bytes));
}

/* Keeps all images in a store of this process. */
static FshStatus load_whole(PixelSource *source, FshError *error)
{
    DecodedSplit *split = &((DecodedSource *)source)->split;
    FshStatus status = pixel_store_new(&source->store, source->options.backend, split->bytes, error);
    status = decoded_split_agree(&source->options, status, error); /* all load, or none does */
    return status ? status : decoded_split_load_store(split, &source->options, source->store, error);
}

/* Exchanges keys with the team, and opens the parts of the others. */
static FshStatus join_parts(PixelSource *source, FshError *error)
{
    const DecodeTeam *team = decoded_split_of(source)->team;
    const size_t bytes = (size_t)team->count * sizeof(PixelStoreKey);
    void *memory = NULL;
    FshStatus status = team->share(team->context, bytes, &memory, error);
    PixelStoreKey *keys = memory;
    if (!status && !keys)
        status = fsh_error_set(error, FSH_ERR_SYSTEM, "the processes of this host share memory no more");
    if (!status)
        status = pixel_store_key(source->store, &keys[team->index], error);
    status = decoded_split_agree(&source->options, status, error); /* all have written theirs */
    if (!status)
        status = pixel_store_join(source->store, keys, team->count, team->index, error);
    status = decoded_split_agree(&source->options, status, error);
    if (memory)
        (void)munmap(memory, bytes);
    return status
               ? fsh_error_prepend(error, "%s: --cache gpu: the pixels of split '%s' do not fit on one GPU",
                                   fsh_path(source->options.samples.split->dataset),
                                   source->options.samples.split->info->name)
               : FSH_OK;
}

/* Keeps a part of the images in a store of this process, and reads the others from the team's. */
static FshStatus load_part(PixelSource *source, FshError *error)
{
    DecodedSplit *split = &((DecodedSource *)source)->split;
    const uint64_t index = split->team->index, count = split->team->count;
    const uint64_t begin = decoded_split_part(split, index, count),
                   own = decoded_split_part(split, index + 1, count) - begin;
    FshStatus status = check_fits(source, own, " on each GPU, divided among them", error);
    if (!status)
        status =
            pixel_store_new_part(&source->store, source->options.backend, split->bytes, begin, own, error);
    status = decoded_split_agree(&source->options, status, error);
    if (!status)
        status = join_parts(source, error);
    return status ? status : decoded_split_load_part(split, &source->options, source->store, error);
}

static FshStatus load(PixelSource *source, FshError *error)
{
    const DecodedSplit *split = decoded_split_of(source);
    FshStatus status =
        decoded_split_agree(&source->options, check_fits(source, split->bytes, "", error), error);
    const bool divides = status && status != FSH_ERR_INTERRUPTED && split->team && split->team->count > 1;
    if (!status)
        status = load_whole(source, error);
    else if (divides)
        status = load_part(source, error);
    if (status)
        pixel_store_free(&source->store);
    return status;
}

static FshStatus fail_too_small(const PixelSource *source, const SampleView *view, uint64_t sample,
                                const DecodedImage *image, FshError *error)
{
    char where[256];
    const FshSplit *split = source->options.samples.split;
    const uint32_t size = view->augmentation->size;
    return fsh_error_set(error, FSH_ERR_MISMATCH,
                         "%s: %s: it is %u x %u pixels, too small for a crop of %u x %u; use a smaller "
                         "--train-crop-size",
                         fsh_path(split->dataset), fsh_sample_where(split, sample, where, sizeof where),
                         image->width, image->height, size, size);
}

/* Draws the recipe: a third of a microsecond. */
static FshStatus render(const PixelSource *source, SampleLoader *samples, const SampleView *view,
                        uint64_t sample, BatchSlot *slot, uint64_t place, FshError *error)
{
    const DecodedSplit *split = decoded_split_of(source);
    const Augmentation *augmentation = view->augmentation;
    const DecodedImage *images = NULL;
    PixelRecipe *recipe = &slot->recipes[place];
    SampleRecipe drawn;
    (void)samples;
    FshStatus status = decoded_split_find(split, sample, &images, error);
    if (status)
        return status;
    const uint32_t width = images[0].width, height = images[0].height;
    if (augmentation->mode == CROP_RANDOM && (width < augmentation->size || height < augmentation->size))
        return fail_too_small(source, view, sample, &images[0], error);
    sample_recipe_draw(&drawn, augmentation, view->seed, view->turn, sample, width, height);
    sample_recipe_pixels(&drawn, augmentation, width, height, recipe);
    for (unsigned side = 0; side < 2; side++) {
        const DecodedImage *stored = side < split->sides ? &images[side] : NULL;
        recipe->offset_bytes[side] = stored ? stored->offset_bytes : PIXELS_NONE;
        recipe->channels[side] = stored ? stored->channels : 0;
        recipe->planes[side] = stored && stored->expands;
    }
    if (slot->operations)
        sample_recipe_operations(&drawn, augmentation, view->fill, &slot->operations[place]);
    if (slot->colours)
        sample_recipe_colours(&drawn, augmentation, view->fill, &slot->colours[place]);
    batch_slot_take(slot, place, decoded_split_label(split, sample));
    return FSH_OK;
}

const PixelSourceType source_gpu = {
    .name = "gpu",
    .option = "--cache gpu",
    .instead = "--cache ram",
    .gpu_work = "keeps pixels in the memory of a GPU",
    .loaded = "on the GPU",
    .residence = PIXELS_ON_DEVICE,
    .recipes = true,
    .evaluates = true,
    .chunk = 256, /* a recipe is quickly drawn */
    .bytes = sizeof(DecodedSource),
    .measure = decoded_planes_measure,
    .load = load,
    .tell = decoded_source_tell,
    .extent = decoded_source_extent,
    .close = decoded_source_close,
    .open_sample = pixel_source_open_record,
    .render = render,
};
