#include "trainer/data/sample_loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/progress.h"
#include "common/read_fault.h"
#include "imaging/decode.h"
#include "trainer/data/sample_recipe.h"

const char *const sample_stage_names[] = {"read", "decode", "augment", "copy", NULL};

enum { SIDES = 2 };

struct SampleLoader {
    SampleOptions options;
    const SampleChecksums *checksums; /* borrowed */
    FshUnpacker *unpackers[SIDES];
    ImageDecoder *decoder;
    Augmenter *augmenter;
    Image image; /* decoded */
    /* the sample that was opened last */
    uint64_t turn, index;
    FshSample sample;
    bool has_record;        /* sample is that of index */
    FshField fields[SIDES]; /* as their codecs know them: the sample's own, or in an unpacker */
    SampleExpand
        expand[SIDES]; /* fields hold what this makes pixels of; NULL: they are as their codecs say */
    unsigned sides;
    SampleStatistics statistics;
    bool measures;
    double mark; /* when the stage in hand began */
};

/* ---- life ---- */

FshStatus sample_checksums_make(SampleChecksums *checksums, uint64_t sample_count, FshError *error)
{
    checksums->right = calloc(sample_count / 8 + 1, sizeof *checksums->right);
    if (!checksums->right)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a loader");
    return FSH_OK;
}

void sample_checksums_free(SampleChecksums *checksums)
{
    free(checksums->right);
    *checksums = (SampleChecksums){0};
}

FshStatus sample_loader_new(SampleLoader **loader, const SampleOptions *options,
                            const SampleChecksums *checksums, FshError *error)
{
    SampleLoader *made = *loader = calloc(1, sizeof **loader);
    if (!made)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a loader");
    made->options = *options;
    made->checksums = checksums;
    made->sides = options->kind != FSH_KIND_CLASSES && !options->inputs_alone ? 2 : 1;
    FshStatus status = image_decoder_new(&made->decoder, error);
    if (!status)
        status = augmenter_new(&made->augmenter, error);
    for (unsigned side = 0; !status && side < made->sides; side++)
        status = fsh_unpacker_new(&made->unpackers[side], error);
    if (status)
        sample_loader_free(loader);
    return status;
}

void sample_loader_free(SampleLoader **loader)
{
    if (!*loader)
        return;
    for (unsigned side = 0; side < SIDES; side++)
        fsh_unpacker_free(&(*loader)->unpackers[side]);
    image_decoder_free(&(*loader)->decoder);
    augmenter_free(&(*loader)->augmenter);
    image_free(&(*loader)->image);
    free(*loader);
    *loader = NULL;
}

SampleStatistics *sample_loader_statistics(SampleLoader *loader)
{
    return &loader->statistics;
}

void sample_loader_measure(SampleLoader *loader, bool measures)
{
    loader->measures = measures;
}

void sample_loader_stage(SampleLoader *loader, SampleStage stage)
{
    if (!loader->measures)
        return;
    double now = progress_now_seconds();
    loader->statistics.seconds[stage] += now - loader->mark;
    loader->mark = now;
}

static void begin_stages(SampleLoader *loader)
{
    if (loader->measures)
        loader->mark = progress_now_seconds();
}

/* ---- finding ---- */

static unsigned char bit_of(uint64_t index)
{
    return (unsigned char)(1U << (index % 8));
}

static bool is_verified(const SampleLoader *loader, uint64_t index)
{
    atomic_uchar *right = &loader->checksums->right[index / 8];
    return atomic_load_explicit(right, memory_order_relaxed) & bit_of(index);
}

/* Tests the sample's checksum unless it was right before. A bad sample is found bad in every epoch. */
static FshStatus verify_once(const SampleLoader *loader, uint64_t index, FshError *error)
{
    if (is_verified(loader, index))
        return FSH_OK;
    FshStatus status = fsh_sample_verify(loader->options.split, index, error);
    if (!status)
        (void)atomic_fetch_or_explicit(&loader->checksums->right[index / 8], bit_of(index),
                                       memory_order_relaxed);
    return status;
}

void sample_loader_expect(const SampleLoader *loader, uint64_t index)
{
    fsh_sample_prefetch(loader->options.split, index, !is_verified(loader, index));
}

static const FshField *stored_field(const SampleLoader *loader, unsigned side)
{
    return &loader->sample.fields[side == 0 ? loader->options.input_field : loader->options.target_field];
}

/* Adds the source path to a message that has file and record already. */
static FshStatus add_source(const FshField *field, FshError *error)
{
    if (field->compression == FSH_COMPRESSION_FILE) /* which it names */
        return error ? error->status : FSH_ERR_SYSTEM;
    size_t length = strlen(error->message);
    (void)snprintf(error->message + length, sizeof error->message - length, " (packed from %.*s)",
                   (int)field->source_bytes, field->source);
    return error->status;
}

/* Puts file, record, key and source before a message that has the reason alone. */
static FshStatus add_place(SampleLoader *loader, unsigned side, FshError *error)
{
    char where[256];
    const FshSplit *split = loader->options.split;
    if (!loader->has_record) /* decoded already */
        loader->has_record = fsh_sample_get(split, loader->index, &loader->sample, NULL) == FSH_OK;
    if (!loader->has_record)
        return fsh_error_prepend(error, "%s: %s", fsh_path(split->dataset),
                                 fsh_sample_where(split, loader->index, where, sizeof where));
    const FshSample *sample = &loader->sample;
    const FshField *field = stored_field(loader, side);
    if (loader->options.inputs_alone || field->compression == FSH_COMPRESSION_FILE) /* its key is its path */
        return fsh_error_prepend(error, "%s%s%.*s", fsh_path(split->dataset),
                                 field->compression == FSH_COMPRESSION_FILE ? "/" : ": ",
                                 (int)sample->key_bytes, sample->key);
    return fsh_error_prepend(error, "%s: %s (key %.*s, packed from %.*s)", fsh_path(split->dataset),
                             fsh_sample_where(split, loader->index, where, sizeof where),
                             (int)sample->key_bytes, sample->key, (int)field->source_bytes, field->source);
}

/* Checks that every page of the sample could be read, after its bytes were used where they lie. Zeros stand
 * in the place of an unreadable page, and explain any other failure. Returns status, or FSH_ERR_SYSTEM. */
static FshStatus check_read(const SampleLoader *loader, FshStatus status, FshError *error)
{
    return loader->has_record && fsh_sample_check_read(loader->options.split, &loader->sample, error)
               ? FSH_ERR_SYSTEM
               : status;
}

/* Fills the field of a side: its unpacked bytes and, for a file that nobody has packed, their codec. */
static FshStatus unpack_field(SampleLoader *loader, unsigned side, FshError *error)
{
    const FshField *stored = stored_field(loader, side);
    FshField *field = &loader->fields[side];
    *field = *stored;
    field->compression = FSH_COMPRESSION_NONE;
    loader->expand[side] = NULL;
    FshStatus status = fsh_field_unpack(loader->unpackers[side], loader->options.split, stored, &field->data,
                                        &field->bytes, error);
    if (status)
        return add_source(stored, error);
    const bool file = stored->compression == FSH_COMPRESSION_FILE; /* stored is its path */
    if (file)
        field->codec = fsh_codec_sniff(field->data, field->bytes);
    loader->statistics.stored_bytes += file ? field->bytes : stored->bytes;
    return FSH_OK;
}

/* Takes the image's size from its header, where the container does not know it (tars and LMDBs of others). */
static FshStatus find_size(SampleLoader *loader, FshField *field, FshError *error)
{
    ImageInfo info;
    if (field->width && field->height)
        return FSH_OK;
    if (field->codec == FSH_CODEC_RAW)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "an image without pixels");
    FshStatus status = image_probe(loader->decoder, field->data, field->bytes, &info, error);
    if (!status) {
        field->width = info.width;
        field->height = info.height;
    }
    return status;
}

static FshStatus check_label(const SampleLoader *loader, FshError *error)
{
    int64_t label = loader->sample.label,
            class_count = (int64_t)fsh_manifest(loader->options.split->dataset)->class_count;
    if (loader->options.kind != FSH_KIND_CLASSES || loader->options.inputs_alone || loader->options.labels ||
        (label >= 0 && label < class_count))
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_MISMATCH, "label %lld, but the dataset has %lld classes",
                         (long long)label, (long long)class_count);
}

/* Returns the class of the sample as the network counts classes. */
static int64_t find_label(const SampleLoader *loader)
{
    const SampleLabels *labels = loader->options.labels;
    if (loader->sides > 1 || (labels && labels->kind != LABELS_ONE))
        return FSH_NO_LABEL;
    const int64_t label = labels ? labels->classes[loader->index] : loader->sample.label;
    return loader->options.label_places ? loader->options.label_places[label] : label;
}

static FshStatus check_sides(const SampleLoader *loader, FshError *error)
{
    const FshField *input = &loader->fields[0], *target = &loader->fields[1];
    if (loader->sides == 1 || (input->width == target->width && input->height == target->height))
        return FSH_OK;
    return fsh_error_set(
        error, FSH_ERR_MISMATCH,
        "its sides differ in size: %u x %u and %u x %u pixels; pack them again from equal ones", input->width,
        input->height, target->width, target->height);
}

FshStatus sample_loader_open(SampleLoader *loader, uint64_t turn, uint64_t index, SampleInfo *info,
                             FshError *error)
{
    begin_stages(loader);
    loader->turn = turn;
    loader->index = index;
    FshStatus status = fsh_sample_get(loader->options.split, index, &loader->sample, error);
    loader->has_record = status == FSH_OK;
    if (status)
        return status; /* names file and record itself */
    status = verify_once(loader, index, error);
    if (status)
        return add_source(stored_field(loader, 0), error);
    for (unsigned side = 0; !status && side < loader->sides; side++)
        status = unpack_field(loader, side, error);
    if (status)
        return status;
    unsigned at = 0;
    status = check_label(loader, error);
    for (unsigned side = 0; !status && side < loader->sides; side++) {
        at = side;
        status = find_size(loader, &loader->fields[side], error);
    }
    if (!status)
        status = check_sides(loader, error);
    if (status)
        (void)add_place(loader, at, error);
    status = check_read(loader, status, error);
    if (status)
        return status;
    *info = (SampleInfo){
        .label = find_label(loader), .width = loader->fields[0].width, .height = loader->fields[0].height};
    sample_loader_stage(loader, SAMPLE_READ);
    return FSH_OK;
}

void sample_loader_open_decoded(SampleLoader *loader, uint64_t turn, uint64_t index,
                                const SampleImage *images)
{
    begin_stages(loader);
    loader->turn = turn;
    loader->index = index;
    loader->has_record = false;
    for (unsigned side = 0; side < loader->sides; side++) {
        const ImageView *view = &images[side].view;
        loader->expand[side] = images[side].expand;
        loader->fields[side] = (FshField){.codec = FSH_CODEC_RAW,
                                          .data = view->pixels,
                                          .bytes = view->stride_bytes * view->height,
                                          .width = view->width,
                                          .height = view->height,
                                          .channels = (uint8_t)view->channels};
    }
    sample_loader_stage(loader, SAMPLE_READ);
}

/* ---- rendering ---- */

static FshStatus raw_view(const FshField *field, ImageView *view, FshError *error)
{
    uint64_t bytes = (uint64_t)field->width * field->height;
    if (bytes == 0 || (field->channels != 1 && field->channels != 3) || bytes > SIZE_MAX / field->channels ||
        bytes * field->channels != field->bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "%zu bytes are no raw image of %u x %u pixels with %u channels", field->bytes,
                             field->width, field->height, field->channels);
    *view = (ImageView){.pixels = field->data,
                        .stride_bytes = (size_t)field->width * field->channels,
                        .width = field->width,
                        .height = field->height,
                        .channels = field->channels};
    return FSH_OK;
}

/* Makes the pixels that a crop takes of an image which lies in memory in a form of its own. */
static FshStatus expand_field(SampleLoader *loader, unsigned side, const Augmentation *augmentation,
                              const CropPlan *plan, ImageView *view, ImagePlace *place, FshError *error)
{
    const FshField *field = &loader->fields[side];
    const ImageView stored = {
        .pixels = field->data, .width = field->width, .height = field->height, .channels = field->channels};
    ImagePart part;
    augment_part(augmentation, plan, field->width, field->height, &part);
    FshStatus status = loader->expand[side](&stored, &part, &loader->image, error);
    *view = image_view(&loader->image);
    *place = (ImagePlace){.left = part.left, .top = part.top, .eighths = 8};
    return status;
}

static bool is_mask(const SampleLoader *loader, unsigned side)
{
    return side == 1 && loader->options.kind == FSH_KIND_MASKS;
}

/* Refuses a mask with a value that is no class: a network has no output for it. */
static FshStatus check_values(const SampleLoader *loader, const ImageView *mask, FshError *error)
{
    const uint8_t classes = (uint8_t)loader->options.mask_classes;
    for (uint32_t y = 0; y < mask->height; y++) {
        const uint8_t *row = mask->pixels + y * mask->stride_bytes;
        bool bad = false;
        for (uint32_t x = 0; x < mask->width; x++)
            bad |= row[x] >= classes && row[x] != FSH_MASK_IGNORED;
        for (uint32_t x = 0; x < mask->width && bad; x++)
            if (row[x] >= classes && row[x] != FSH_MASK_IGNORED)
                return fsh_error_set(error, FSH_ERR_MISMATCH,
                                     "its mask has the value %u at column %u of row %u, and there are %u "
                                     "classes, 0 to %u; 255 is none",
                                     row[x], x, y, classes, classes - 1U);
    }
    return FSH_OK;
}

/* Decodes the whole mask; one that is decoded already was checked then. */
static FshStatus decode_mask(SampleLoader *loader, unsigned side, ImageView *view, FshError *error)
{
    const FshField *field = &loader->fields[side];
    Image *image = &loader->image;
    if (field->codec == FSH_CODEC_RAW && !loader->has_record)
        return raw_view(field, view, error);
    FshStatus status = image_decode_mask(loader->decoder, field->data, field->bytes,
                                         (uint64_t)field->width * field->height, image, error);
    if (!status && (image->width != field->width || image->height != field->height))
        status = fsh_error_set(error, FSH_ERR_MISMATCH,
                               "its mask is %u x %u pixels, not %u x %u as its record says", image->width,
                               image->height, field->width, field->height);
    *view = image_view(image);
    return status ? status : check_values(loader, view, error);
}

static FshStatus render_mask(SampleLoader *loader, unsigned side, const Augmentation *augmentation,
                             const CropPlan *plan, uint8_t *values, FshError *error)
{
    ImageView view;
    FshStatus status = decode_mask(loader, side, &view, error);
    sample_loader_stage(loader, SAMPLE_DECODE);
    if (!status)
        augment_render_mask(augmentation, plan, &view, FSH_MASK_IGNORED, values);
    sample_loader_stage(loader, SAMPLE_AUGMENT);
    loader->statistics.images++;
    return status;
}

static FshStatus decode_field(SampleLoader *loader, unsigned side, const Augmentation *augmentation,
                              const CropPlan *plan, ImageView *view, ImagePlace *place, FshError *error)
{
    const FshField *field = &loader->fields[side];
    ImageDecodeOptions options = {.channels = augmentation->channels};
    ImagePart part;
    augment_part(augmentation, plan, field->width, field->height, &part);
    augment_least_size(augmentation, plan, field->width, field->height, &options.least_width,
                       &options.least_height);
    FshStatus status = image_decode_part(loader->decoder, field->data, field->bytes, &options, field->width,
                                         field->height, &part, &loader->image, place, error);
    *view = image_view(&loader->image);
    return status;
}

static FshStatus render_side(SampleLoader *loader, unsigned side, const Augmentation *augmentation,
                             const CropPlan *plan, uint8_t *pixels, FshError *error)
{
    const FshField *field = &loader->fields[side];
    ImageView view;
    ImagePlace place = {.eighths = 8};
    if (is_mask(loader, side))
        return render_mask(loader, side, augmentation, plan, pixels, error);
    bool raw = field->codec == FSH_CODEC_RAW && !loader->expand[side];
    FshStatus status = raw ? raw_view(field, &view, error)
                       : loader->expand[side]
                           ? expand_field(loader, side, augmentation, plan, &view, &place, error)
                           : decode_field(loader, side, augmentation, plan, &view, &place, error);
    if (!status && !raw)
        sample_loader_stage(loader, SAMPLE_DECODE);
    if (!status)
        status = augment_render(loader->augmenter, augmentation, plan, &view, &place, pixels, error);
    bool copied = raw && augment_copies(augmentation, plan);
    sample_loader_stage(loader, copied ? SAMPLE_COPY : SAMPLE_AUGMENT);
    loader->statistics.images++;
    return status;
}

uint8_t sample_loader_channels(const SampleLoader *loader, unsigned side, uint32_t decoded)
{
    const FshField *field = &loader->fields[side];
    return is_mask(loader, side) ? 1 : field->codec == FSH_CODEC_RAW ? field->channels : (uint8_t)decoded;
}

FshStatus sample_loader_image(SampleLoader *loader, unsigned side, uint32_t decoded, ImageView *view,
                              FshError *error)
{
    const FshField *field = &loader->fields[side];
    const Augmentation whole = {.mode = CROP_WHOLE, .channels = decoded};
    const CropPlan all = {.box = {0, 0, field->width, field->height}};
    ImagePlace place;
    FshStatus status = is_mask(loader, side) ? decode_mask(loader, side, view, error)
                       : field->codec == FSH_CODEC_RAW
                           ? raw_view(field, view, error)
                           : decode_field(loader, side, &whole, &all, view, &place, error);
    if (!status && field->codec == FSH_CODEC_RAW && loader->has_record)
        read_fault_touch(field->data, field->bytes); /* the caller reads them where they lie */
    return sample_loader_end(loader, side, status, error);
}

ImageDecoder *sample_loader_decoder(SampleLoader *loader)
{
    return loader->decoder;
}

FshStatus sample_loader_end(SampleLoader *loader, unsigned side, FshStatus status, FshError *error)
{
    if (status)
        (void)add_place(loader, side, error);
    return check_read(loader, status, error);
}

const FshField *sample_loader_field(const SampleLoader *loader, unsigned side)
{
    return &loader->fields[side];
}

bool sample_loader_in_mapping(const SampleLoader *loader, unsigned side)
{
    return stored_field(loader, side)->compression == FSH_COMPRESSION_NONE;
}

FshStatus sample_loader_touch(SampleLoader *loader, unsigned side, FshError *error)
{
    read_fault_touch(loader->fields[side].data, loader->fields[side].bytes);
    return check_read(loader, FSH_OK, error);
}

FshStatus sample_loader_draw(SampleLoader *loader, const Augmentation *augmentation, SampleRecipe *recipe,
                             FshError *error)
{
    const uint32_t width = loader->fields[0].width, height = loader->fields[0].height;
    if (augmentation->mode == CROP_RANDOM && (width < augmentation->size || height < augmentation->size)) {
        (void)fsh_error_set(error, FSH_ERR_MISMATCH,
                            "it is %u x %u pixels, too small for a crop of %u x %u; use a smaller "
                            "--train-crop-size",
                            width, height, augmentation->size, augmentation->size);
        return add_place(loader, 0, error);
    }
    sample_recipe_draw(recipe, augmentation, loader->options.seed, loader->turn, loader->index, width,
                       height);
    return FSH_OK;
}

/* Applies the drawn operations to the network's input of width x height pixels. */
static FshStatus apply_operations(SampleLoader *loader, const Augmentation *augmentation,
                                  const SampleRecipe *recipe, uint32_t width, uint32_t height,
                                  uint8_t *pixels, FshError *error)
{
    if (recipe->operations.count == 0)
        return FSH_OK;
    FshStatus status = image_reserve(&loader->image, width, height, augmentation->channels, error);
    if (status)
        return status;
    ImageCanvas canvas = {.pixels = pixels,
                          .scratch = loader->image.pixels,
                          .width = width,
                          .height = height,
                          .channels = augmentation->channels,
                          .bicubic = augmentation->interpolation != INTERPOLATION_BILINEAR};
    memcpy(canvas.fill, loader->options.fill, sizeof canvas.fill);
    auto_augment_apply(&recipe->operations, &canvas);
    return FSH_OK;
}

/* Applies jitter, noise and erasing to the network's input of width x height pixels. */
static void change_colours(SampleLoader *loader, const Augmentation *augmentation, SampleRecipe *recipe,
                           uint32_t width, uint32_t height, uint8_t *pixels)
{
    const size_t pixel_count = (size_t)width * height;
    colour_jitter_apply(&recipe->colours, pixels, pixel_count, augmentation->channels);
    if (recipe->noise > 0)
        augment_add_noise(pixels, pixel_count * augmentation->channels, recipe->noise, &recipe->noise_random);
    random_erasing_apply(&augmentation->erasing, &recipe->erased, loader->options.fill, pixels, width,
                         augmentation->channels, &recipe->erasing_random);
    sample_loader_stage(loader, SAMPLE_AUGMENT);
}

FshStatus sample_loader_render(SampleLoader *loader, const Augmentation *augmentation, uint8_t *pixels,
                               uint8_t *target, FshError *error)
{
    uint32_t width = loader->fields[0].width, height = loader->fields[0].height;
    SampleRecipe recipe;
    FshStatus status = sample_loader_draw(loader, augmentation, &recipe, error);
    if (status)
        return status;
    unsigned side = 0;
    status = render_side(loader, side, augmentation, &recipe.crop, pixels, error);
    if (!status && loader->sides == 2)
        status = render_side(loader, ++side, augmentation, &recipe.crop, target, error);
    if (status)
        (void)add_place(loader, side, error);
    status = check_read(loader, status, error);
    if (status)
        return status;
    bool whole = augmentation->mode == CROP_WHOLE;
    if (!whole)
        width = height = augmentation->size;
    status = apply_operations(loader, augmentation, &recipe, width, height, pixels, error);
    if (status)
        return status;
    change_colours(loader, augmentation, &recipe, width, height, pixels);
    const uint64_t target_channels = loader->sides == 1 ? 0 : is_mask(loader, 1) ? 1 : augmentation->channels;
    loader->statistics.pixel_bytes += (uint64_t)width * height * (augmentation->channels + target_channels);
    return FSH_OK;
}
