/* JPEG files that travel with their batch, for a backend that decodes them (--decode gpu). Images that it may
 * not decode alike (jpeg_plain.h), and those that it has refused, travel as pixels. */
#include <stdlib.h>
#include <string.h>

#include "trainer/data/jpeg_plain.h"
#include "trainer/data/pixel_source.h"

enum { IMAGE_ALIGNMENT = 64 };

typedef struct NvjpegSource {
    PixelSource base;
    atomic_uchar *refused; /* a bit for each sample of the split: the backend has refused a file of it */
} NvjpegSource;

static FshStatus open_store(PixelSource *source, FshError *error)
{
    NvjpegSource *own = (NvjpegSource *)source;
    Backend *backend = source->options.backend;
    own->refused = calloc(source->options.samples.split->sample_count / 8 + 1, sizeof *own->refused);
    if (!own->refused)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a loader");
    if (!backend)
        return FSH_OK;
    FshStatus status = backend_decodes(backend, error);
    return status ? status : pixel_store_new(&source->store, backend, 0, error);
}

static void close_store(PixelSource *source)
{
    free(((NvjpegSource *)source)->refused);
}

static void refuse(const PixelSource *source, uint64_t sample)
{
    (void)atomic_fetch_or_explicit(&((const NvjpegSource *)source)->refused[sample / 8],
                                   (unsigned char)(1U << sample % 8), memory_order_relaxed);
}

static bool is_refused(const PixelSource *source, uint64_t sample)
{
    return ((const NvjpegSource *)source)->refused[sample / 8] >> sample % 8 & 1;
}

/* ---- files ---- */

/* Gives an image as its JPEG file. Returns false where the backend may not decode that. */
static bool take_file(SampleLoader *samples, unsigned side, PixelFile *file)
{
    const FshField *field = sample_loader_field(samples, side);
    uint32_t width = 0, height = 0;
    if (field->codec != FSH_CODEC_JPEG || !jpeg_is_plain(field->data, field->bytes, &width, &height) ||
        width != field->width || height != field->height)
        return false;
    *file = (PixelFile){.data = field->data,
                        .bytes = field->bytes,
                        .is_jpeg = true,
                        .lasting = sample_loader_in_mapping(samples, side)};
    return true;
}

/* Gives an image as pixels, rows without padding. */
static FshStatus take_pixels(SampleLoader *samples, unsigned side, uint32_t decoded, PixelFile *file,
                             FshError *error)
{
    ImageView view;
    FshStatus status = sample_loader_image(samples, side, decoded, &view, error);
    if (status)
        return status;
    *file = (PixelFile){.data = view.pixels,
                        .bytes = (size_t)view.width * view.height * view.channels,
                        .lasting = sample_loader_field(samples, side)->codec == FSH_CODEC_RAW &&
                                   sample_loader_in_mapping(samples, side)};
    return FSH_OK;
}

/* Copies what does not last into the slot. */
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

/* ---- batches ---- */

static FshStatus render(const PixelSource *source, SampleLoader *samples, const SampleView *view,
                        uint64_t sample, BatchSlot *slot, uint64_t place, FshError *error)
{
    const Augmentation *augmentation = view->augmentation;
    const bool refused = is_refused(source, sample);
    const unsigned sides = slot->shape.pairs ? 2 : 1;
    PixelRecipe *recipe = &slot->recipes[place];
    SampleInfo info;
    SampleRecipe drawn;
    FshStatus status = sample_loader_open(samples, view->turn, sample, &info, error);
    if (!status)
        status = sample_loader_draw(samples, augmentation, &drawn, error);
    if (status)
        return status;
    sample_recipe_pixels(&drawn, augmentation, info.width, info.height, recipe);
    recipe->offset_bytes[0] = recipe->offset_bytes[1] = PIXELS_NONE;
    for (unsigned side = 0; side < sides && !status; side++) {
        PixelFile *file = &slot->files[side][place];
        recipe->channels[side] = sample_loader_channels(samples, side, augmentation->channels);
        if (!refused && take_file(samples, side, file))
            status = sample_loader_touch(samples, side, error);
        else
            status = take_pixels(samples, side, augmentation->channels, file, error);
        if (!status)
            status = keep(&slot->kept[side][place], file, error);
        recipe->offset_bytes[side] = 0; /* there is one; finish says where */
    }
    if (!status && slot->operations)
        sample_recipe_operations(&drawn, augmentation, view->fill, &slot->operations[place]);
    if (!status && slot->colours)
        sample_recipe_colours(&drawn, augmentation, view->fill, &slot->colours[place]);
    if (!status)
        batch_slot_take(slot, place, info.label);
    sample_loader_stage(samples, SAMPLE_DECODE);
    return status;
}

/* Says where in the backend's memory each image goes. */
static uint64_t finish(BatchSlot *slot)
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

const PixelSourceType source_nvjpeg = {
    .name = "nvjpeg",
    .option = "--decode gpu",
    .instead = "--decode cpu",
    .gpu_work = "decodes on a GPU",
    .recipes = true,
    .files = true,
    .chunk = 16,
    .bytes = sizeof(NvjpegSource),
    .open = open_store,
    .load = pixel_source_cache_files,
    .tell = pixel_source_tell_files,
    .close = close_store,
    .prefetch = pixel_source_prefetch_record,
    .open_sample = pixel_source_open_record,
    .render = render,
    .finish = finish,
    .refuse = refuse,
};
