#include "tools/pack/pack_work.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "imaging/jpeg_size.h"
#include "imaging/y4m.h"

void worker_free(Worker *worker)
{
    image_decoder_free(&worker->decoder);
    intake_free(&worker->intake);
    image_encoder_free(&worker->encoder);
    fsh_packer_free(&worker->packer);
    for (size_t field = 0; field < FSH_FIELDS_MAX; field++) {
        image_free(&worker->images[field]);
        buffer_free(&worker->encoded[field]);
    }
}

/* Returns whether the machine failed, not the image: out of memory or of file descriptors. Samples are not
 * left out for that, or the dataset would depend on the day. */
static bool is_fatal(const FshError *failure)
{
    const int number = failure->system_errno;
    return failure->status == FSH_ERR_MEMORY || number == EMFILE || number == ENFILE || number == ENOMEM;
}

static FshStatus refuse_size(uint32_t width, uint32_t height, const PackOptions *options, FshError *failure)
{
    return fsh_error_set(failure, FSH_ERR_MISMATCH,
                         "%" PRIu32 "x%" PRIu32 " is more than --max-pixels %" PRIu64, width, height,
                         options->max_pixels);
}

/* Takes pixels that need no decoding: as they are, or gray ones in three channels. */
static FshStatus take_pixels(const IntakeBytes *taken, uint32_t channels, Image *image, FshError *error)
{
    const uint8_t *pixels = taken->data;
    const size_t pixel_count = (size_t)taken->width * taken->height;
    FshStatus status = image_reserve(image, taken->width, taken->height, channels, error);
    if (status)
        return status;
    if (channels == taken->channels) {
        memcpy(image->pixels, pixels, taken->bytes);
        return FSH_OK;
    }
    if (channels < taken->channels)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "has colours, in a dataset that was planned gray");
    for (size_t i = 0; i < pixel_count; i++)
        memset(image->pixels + 3 * i, pixels[i], 3);
    return FSH_OK;
}

/* Decodes, or takes pixels as they are; channels: 0 for what the image has. */
static FshStatus take_image(Worker *worker, const PackOptions *options, const IntakeBytes *taken,
                            uint32_t channels, Image *image, FshCodec *codec, FshError *failure)
{
    ImageInfo info = {0};
    FshStatus status = FSH_OK;
    if (taken->is_raw) {
        *codec = FSH_CODEC_RAW;
        return (uint64_t)taken->width * taken->height > options->max_pixels
                   ? refuse_size(taken->width, taken->height, options, failure)
                   : take_pixels(taken, channels ? channels : taken->channels, image, failure);
    }
    const ImageDecodeOptions decode = {.channels = channels, .max_pixels = options->max_pixels};
    status = image_decode(worker->decoder, taken->data, taken->bytes, &decode, image, &info, failure);
    *codec = codec_of_format(info.format);
    return status;
}

/* Encodes the image again and, where its pixels will be summed, decodes what came of it: statistics are of
 * what is stored. */
static FshStatus encode_again(Worker *worker, const PackOptions *options, size_t field, bool sum_pixels,
                              FshField *description, FshError *failure)
{
    Image *image = &worker->images[field];
    Buffer *encoded = &worker->encoded[field];
    const ImageEncodeOptions encode = {
        .format = IMAGE_JPEG, .quality = options->resize.quality, .subsampling = options->resize.subsampling};
    FshStatus status = worker->encoder ? FSH_OK : image_encoder_new(&worker->encoder, failure);
    if (!status)
        status = image_encode(worker->encoder, image, &encode, encoded, failure);
    if (!status && sum_pixels) {
        const ImageDecodeOptions decode = {.max_pixels = options->max_pixels};
        status =
            image_decode(worker->decoder, encoded->bytes, encoded->length, &decode, image, NULL, failure);
    }
    description->codec = FSH_CODEC_JPEG;
    description->data = encoded->bytes;
    description->bytes = encoded->length;
    return status;
}

/* Writes the planes of the JPEG whose header the decoder has read to the file of its field. */
static FshStatus write_planes(Worker *worker, const ImageInfo *info, PlanesChroma chroma, size_t field,
                              FshError *failure)
{
    uint8_t *planes = NULL;
    FshStatus status =
        y4m_begin(&worker->encoded[field], chroma, info->width, info->height, &planes, failure);
    return status ? status : planes_read_jpeg(worker->decoder, planes, failure);
}

/* Writes a gray image to the file of its field. */
static FshStatus write_gray(Worker *worker, size_t field, FshError *failure)
{
    const Image *image = &worker->images[field];
    uint8_t *planes = NULL;
    FshStatus status =
        y4m_begin(&worker->encoded[field], PLANES_GRAY, image->width, image->height, &planes, failure);
    if (!status)
        memcpy(planes, image->pixels, (size_t)image->width * image->height);
    return status;
}

/* Describes a field whose bytes are the file that was made of it, or raw pixels. */
static void describe(FshField *description, FshCodec codec, const ImageInfo *info, const void *data,
                     size_t bytes)
{
    description->codec = codec;
    description->width = info->width;
    description->height = info->height;
    description->channels = (uint8_t)info->channels;
    description->data = data;
    description->bytes = bytes;
}

/* Takes an image as a Y4M: a JPEG's planes as they are, a gray image, or the Y4M that it is. An image that
 * has colours but no such planes is taken as raw pixels. With sum_pixels the worker's image has the pixels
 * of what is stored. */
static FshStatus take_planes(Worker *worker, const PackOptions *options, const IntakeBytes *taken,
                             size_t field, bool sum_pixels, FshField *description, FshError *failure)
{
    Image *image = &worker->images[field];
    const Buffer *file = &worker->encoded[field];
    const ImageFormat format = taken->is_raw ? IMAGE_UNKNOWN : image_sniff(taken->data, taken->bytes);
    PlanesChroma chroma = PLANES_GRAY;
    ImageInfo info = {0};
    FshStatus status = FSH_OK;
    if (format == IMAGE_JPEG &&
        image_probe(worker->decoder, taken->data, taken->bytes, &info, NULL) == FSH_OK &&
        planes_of_jpeg(worker->decoder, &info, &chroma)) {
        const ImageDecodeOptions decode = {.max_pixels = options->max_pixels};
        status = image_check_size(&info, options->max_pixels, failure);
        if (!status)
            status = write_planes(worker, &info, chroma, field, failure);
        if (!status && sum_pixels)
            status = image_decode(worker->decoder, file->bytes, file->length, &decode, image, NULL, failure);
        describe(description, FSH_CODEC_Y4M, &info, file->bytes, file->length);
        return status;
    }
    status = take_image(worker, options, taken, 0, image, &description->codec, failure);
    info = (ImageInfo){.width = image->width, .height = image->height, .channels = image->channels};
    if (status)
        return status;
    if (format == IMAGE_Y4M) {
        describe(description, FSH_CODEC_Y4M, &info, taken->data, taken->bytes);
    } else if (image->channels == 1) {
        status = write_gray(worker, field, failure);
        describe(description, FSH_CODEC_Y4M, &info, file->bytes, file->length);
    } else {
        describe(description, FSH_CODEC_RAW, &info, image->pixels,
                 (size_t)image->width * image->height * image->channels);
    }
    return status;
}

/* Takes an image by its pixels, which are checked so. */
static FshStatus take_whole(Worker *worker, const PackStored *stored, PackStore store,
                            const IntakeBytes *taken, size_t field, bool sum_pixels, FshField *description,
                            FshError *failure)
{
    const PackOptions *options = stored->found->options;
    const bool pixels = store == PACK_STORE_RAW || store == PACK_STORE_ZSTD;
    Image *image = &worker->images[field];
    if (store == PACK_STORE_YUV420)
        return take_planes(worker, options, taken, field, sum_pixels, description, failure);
    FshStatus status = take_image(worker, options, taken, pixels ? stored->raw_channels : 0, image,
                                  &description->codec, failure);
    const ImageInfo info = {.width = image->width, .height = image->height, .channels = image->channels};
    if (status)
        return status;
    if (pixels)
        describe(description, FSH_CODEC_RAW, &info, image->pixels,
                 (size_t)image->width * image->height * image->channels);
    else
        describe(description, description->codec, &info, taken->data, taken->bytes);
    if (store == PACK_STORE_JPEG && !(taken->is_new && description->codec == FSH_CODEC_JPEG)) {
        status = encode_again(worker, options, field, sum_pixels, description, failure);
    }
    return status;
}

/* Takes a mask as it is, whatever --store says, and looks at all of its values. */
static FshStatus take_mask(Worker *worker, const PackOptions *options, const IntakeBytes *taken, size_t field,
                           FshField *description, PixelStatistics *statistics, FshError *failure)
{
    Image *mask = &worker->images[field];
    bool ignored = false;
    if (taken->is_raw)
        return fsh_error_set(failure, FSH_ERR_UNSUPPORTED,
                             "raw pixels are no mask, which is a PNG whose values are classes");
    FshStatus status =
        image_decode_mask(worker->decoder, taken->data, taken->bytes, options->max_pixels, mask, failure);
    if (status)
        return status;
    const ImageInfo info = {.width = mask->width, .height = mask->height, .channels = 1};
    describe(description, FSH_CODEC_PNG, &info, taken->data, taken->bytes);
    stats_add_mask(statistics, mask, &ignored);
    return ignored
               ? fsh_error_set(failure, FSH_ERR_MISMATCH,
                               "every pixel of the mask is %d, which is no class: there is nothing to learn",
                               FSH_MASK_IGNORED)
               : FSH_OK;
}

/* Refuses an image that its EXIF orientation turns: whether its mask was drawn before or after nobody can
 * tell. */
static FshStatus check_upright(Worker *worker, const IntakeBytes *taken, FshError *failure)
{
    ImageInfo info = {0};
    if (taken->is_raw || image_probe(worker->decoder, taken->data, taken->bytes, &info, NULL) ||
        info.orientation == 1)
        return FSH_OK;
    return fsh_error_set(failure, FSH_ERR_MISMATCH,
                         "is turned by its EXIF orientation (%u), and its mask may be of the image before or "
                         "after: write the image upright, as its mask shows it",
                         (unsigned)info.orientation);
}

/* Takes an image by its header, without a look at the pixels. */
static FshStatus take_header(Worker *worker, const PackOptions *options, const IntakeBytes *taken,
                             FshField *description, FshError *failure)
{
    ImageInfo info = {.width = taken->width, .height = taken->height, .channels = taken->channels};
    FshStatus status = taken->is_raw
                           ? FSH_OK
                           : jpeg_size_or_probe(worker->decoder, taken->data, taken->bytes, &info, failure);
    if (status)
        return status;
    if ((uint64_t)info.width * info.height > options->max_pixels)
        return refuse_size(info.width, info.height, options, failure);
    description->width = info.width;
    description->height = info.height;
    description->channels = (uint8_t)info.channels;
    description->codec = taken->is_raw ? FSH_CODEC_RAW : codec_of_format(info.format);
    description->data = taken->data;
    description->bytes = taken->bytes;
    return FSH_OK;
}

/* Returns where the field's payload goes in the record that is made in room, with all that is free after it;
 * empty if nowhere. */
static Buffer place_of(const Buffer *room, const FshSample *description, size_t field)
{
    const size_t offset = room ? fsh_record_payload_offset(description, (unsigned)field) : 0;
    if (!room || offset >= room->capacity)
        return (Buffer){0};
    return (Buffer){.bytes = room->bytes + offset, .capacity = room->capacity - offset};
}

/* Takes the bytes of one field. Bytes that are stored as they are go straight to their place in the
 * record. */
static FshStatus take_bytes(Worker *worker, const PackStored *stored, const PackSample *sample, size_t field,
                            const Buffer *place, IntakeBytes *taken, FshError *failure)
{
    const bool as_it_is =
        fsh_is_mask(stored->found->kind, field) ||
        (stored_as(stored, sample) == PACK_STORE_COPY && !stored->found->options->resize.max_size);
    return as_it_is ? intake_original(&worker->intake, stored->found, sample, field, place, taken, failure)
                    : intake_take(&worker->intake, stored->found, sample, field, taken, failure);
}

/* Counts an image of --store yuv420. */
static void count_planes(PackPlanes *planes, const FshField *description)
{
    const bool is_raw = description->codec == FSH_CODEC_RAW;
    *(is_raw ? &planes->raw_count : &planes->planes_count) += 1;
    *(is_raw ? &planes->raw_bytes : &planes->planes_bytes) += description->bytes;
}

/* Takes one field and looks at it as closely as the options ask; fills description's field. */
static FshStatus take_field(Worker *worker, const PackStored *stored, const PackSample *sample, size_t field,
                            bool sum_pixels, const Buffer *room, FshSample *descriptions, WorkResult *result,
                            FshError *failure)
{
    const PackOptions *options = stored->found->options;
    const PackStore store = stored_as(stored, sample);
    const bool mask = fsh_is_mask(stored->found->kind, field);
    const bool whole = !mask && (store != PACK_STORE_COPY || options->check);
    const Buffer place = place_of(room, descriptions, field);
    FshField *description = &descriptions->fields[field];
    IntakeBytes taken = {0};
    if (place.bytes && store == PACK_STORE_RAW && !mask)
        image_lend(&worker->images[field], place.bytes, place.capacity);
    else if (worker->images[field].lent)
        image_free(&worker->images[field]); /* another sample's place */
    FshStatus status = take_bytes(worker, stored, sample, field, &place, &taken, failure);
    if (status)
        return status;
    result->source_bytes += taken.source_bytes;
    if (stored->found->kind == FSH_KIND_MASKS && !mask)
        status = check_upright(worker, &taken, failure);
    if (status)
        return status;
    status = mask    ? take_mask(worker, options, &taken, field, description, &result->statistics, failure)
             : whole ? take_whole(worker, stored, store, &taken, field, sum_pixels, description, failure)
                     : take_header(worker, options, &taken, description, failure);
    if (status)
        return status;
    if (whole && sum_pixels)
        stats_add_pixels(&result->statistics, &worker->images[field]);
    stats_add_size(&result->statistics, description->width, description->height, description->channels);
    if (store == PACK_STORE_YUV420 && !mask)
        count_planes(&result->planes, description);
    result->taken[field].hash = taken.source_hash;
    result->taken[field].width = description->width;
    result->taken[field].height = description->height;
    result->taken[field].channels = description->channels;
    return FSH_OK;
}

/* Refuses sides of a pair whose sizes differ by another factor than --pair-scale: they do not show the same
 * scene. */
static FshStatus check_sizes(const PackStored *stored, const FshSample *description, FshError *failure)
{
    const FshField *first = &description->fields[0];
    const uint64_t scale = stored->found->pair_scale ? stored->found->pair_scale : 1;
    for (size_t field = 1; field < description->field_count; field++) {
        const FshField *other = &description->fields[field];
        char hint[PAIR_SCALE_HINT_BYTES];
        if (other->width != scale * first->width || other->height != scale * first->height)
            return fsh_error_set(
                failure, FSH_ERR_MISMATCH,
                "sizes differ%s: %s is %" PRIu32 "x%" PRIu32 ", %s%s%.*s%s is %" PRIu32 "x%" PRIu32 "%s",
                scale > 1 ? " by another factor than --pair-scale" : "", stored->found->field_names[0],
                first->width, first->height, stored->found->field_names[field],
                other->source_bytes ? " (" : "", (int)other->source_bytes,
                other->source_bytes ? other->source : "", other->source_bytes ? ")" : "", other->width,
                other->height,
                stored->found->kind == FSH_KIND_MASKS
                    ? "; make the mask of its image's size by the nearest pixel (Pillow's NEAREST)"
                    : intake_hint_scale(first->width, first->height, other->width, other->height, false,
                                        hint));
    }
    return FSH_OK;
}

/* Notes in *result why a sample is left out. Returns the failure itself if the machine failed. */
static FshStatus leave_out(const PackFound *found, const PackSample *sample, size_t field,
                           const FshError *failure, WorkResult *result, FshError *error)
{
    if (is_fatal(failure)) {
        char name[PATH_MAX];
        return fsh_error_set(error, failure->status, "%s: %s", sample_source_name(found, sample, field, name),
                             failure->message);
    }
    result->failure = failure->status;
    result->failed_field = field;
    (void)snprintf(result->reason, sizeof result->reason, "%s", failure->message);
    result->statistics = (PixelStatistics){0};
    result->planes = (PackPlanes){0};
    return FSH_OK;
}

FshStatus work_describe(Worker *worker, const PackStored *stored, const PackSample *sample, bool sum_pixels,
                        const Buffer *room, WorkResult *result, FshSample *description, FshError *error)
{
    FshError failure = {0};
    FshStatus status = worker->decoder ? FSH_OK : image_decoder_new(&worker->decoder, error);
    if (status)
        return status;
    result->failure = FSH_OK;
    result->source_bytes = 0;
    result->record_bytes = 0;
    result->statistics = (PixelStatistics){0};
    result->planes = (PackPlanes){0};
    stored_describe(stored, sample, description);

    size_t field = 0;
    for (; field < stored->found->field_count && !status; field++)
        status = take_field(worker, stored, sample, field, sum_pixels, room, description, result, &failure);
    field = status ? field - 1 : 0;
    if (!status)
        status = check_sizes(stored, description, &failure);
    if (intake_check_read(stored->found, sample, &failure))
        status = FSH_ERR_SYSTEM; /* whatever else seemed wrong */
    return status ? leave_out(stored->found, sample, field, &failure, result, error) : FSH_OK;
}

bool work_compresses(const PackStored *stored)
{
    return stored->found->options->store == PACK_STORE_ZSTD || stored->dictionary;
}

FshRecordForm work_record_form(const PackStored *stored)
{
    return fsh_container_has(stored->found->options->container, FSH_HAS_COMPACT) && work_compresses(stored)
               ? FSH_RECORD_COMPACT
               : FSH_RECORD_ALIGNED;
}

/* Reserves room after the records for this one as it was planned, and for the byte more by which a file shows
 * that it has grown. *room stays empty, which is no failure, where the record is made of other bytes than
 * those that are taken. */
static FshStatus reserve_room(const PackStored *stored, const PackSample *sample, Buffer *records,
                              Buffer *room, FshError *error)
{
    const PackStore store = stored_as(stored, sample);
    *room = (Buffer){0};
    if (work_compresses(stored) || (store != PACK_STORE_COPY && store != PACK_STORE_RAW))
        return FSH_OK;
    const uint64_t bytes = stored_record_bytes(stored, sample);
    if (bytes >= SIZE_MAX / 2 - records->length)
        return FSH_OK;
    FshStatus status = buffer_reserve(records, records->length + (size_t)bytes + FSH_ALIGNMENT, error);
    if (!status)
        *room = (Buffer){.bytes = records->bytes + records->length,
                         .capacity = records->capacity - records->length};
    return status;
}

/* Makes room for more bytes after the records. The old memory is the caller's to free: fields may still lie
 * in it. */
static FshStatus grow(Buffer *records, size_t more_bytes, Buffer *old, FshError *error)
{
    Buffer grown = {0};
    const size_t amortized = records->capacity + records->capacity / 2, least = records->length + more_bytes;
    FshStatus status = buffer_reserve(&grown, least > amortized ? least : amortized, error);
    if (!status)
        status = buffer_append(&grown, records->bytes, records->length, error);
    if (status) {
        buffer_free(&grown);
        return status;
    }
    *old = *records;
    *records = grown;
    return FSH_OK;
}

FshStatus work_sample(Worker *worker, const PackStored *stored, const PackSample *sample, bool sum_pixels,
                      Buffer *records, WorkResult *result, FshError *error)
{
    const PackOptions *options = stored->found->options;
    FshError failure = {0};
    FshSample description;
    Buffer room;
    FshStatus status = reserve_room(stored, sample, records, &room, error);
    if (!status)
        status = work_describe(worker, stored, sample, sum_pixels, room.bytes ? &room : NULL, result,
                               &description, error);
    if (status || result->failure)
        return status;
    if (fsh_key_fits(options->container, sample->key, sample->key_bytes, &failure))
        return leave_out(stored->found, sample, 0, &failure, result, error);
    if (work_compresses(stored)) {
        if (!worker->packer)
            status = fsh_packer_new(&worker->packer, options->level, stored->dictionary,
                                    stored->dictionary_bytes, error);
        if (!status)
            status = fsh_sample_pack(worker->packer, &description, &description, error);
        if (status)
            return status;
    }
    const FshRecordForm form = work_record_form(stored);
    size_t record_bytes = fsh_record_bytes(&description, form);
    if (record_bytes == 0)
        status = fsh_error_set(&failure, FSH_ERR_MISMATCH, "too large for a record");
    Buffer before = {0};
    if (!status && record_bytes > records->capacity - records->length)
        status = grow(records, record_bytes, &before, &failure);
    if (!status)
        status =
            fsh_record_build(&description, form, records->bytes + records->length, record_bytes, &failure);
    buffer_free(&before);
    if (!status)
        status =
            intake_check_read(stored->found, sample, &failure); /* the record has copied from the dataset */
    if (status)
        return leave_out(stored->found, sample, 0, &failure, result, error);
    result->record_offset = records->length;
    result->record_bytes = record_bytes;
    records->length += record_bytes;
    return FSH_OK;
}
