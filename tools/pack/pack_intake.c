#include "tools/pack/pack_intake.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/read_fault.h"
#include "formats/source_list.h"
#include "imaging/jpeg_size.h"
#include "imaging/shrink_names.h"

void intake_free(Intake *intake)
{
    for (size_t field = 0; field < FSH_FIELDS_MAX; field++) {
        buffer_free(&intake->files[field]);
        buffer_free(&intake->smaller[field]);
        fsh_unpacker_free(&intake->unpackers[field]);
    }
    shrink_worker_free(&intake->resizer);
    *intake = (Intake){0};
}

/* Refuses a file that is longer than any image of --max-pixels pixels, sparse ones among them: it might not
 * fit into memory. */
static FshStatus check_length(const PackFound *found, uint64_t bytes, FshError *error)
{
    if (bytes <= found->file_most_bytes)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_MISMATCH,
                         "%" PRIu64 " bytes, and at most %" PRIu64
                         " are read; raise --max-pixels if it is an image",
                         bytes, found->file_most_bytes);
}

/* ---- from a dataset ---- */

static FshStatus take_record(Intake *intake, const PackFound *found, const PackSample *sample, size_t field,
                             IntakeBytes *taken, FshError *error)
{
    FshSample record;
    const FshSplit *split = NULL;
    size_t at = 0;
    FshStatus status = found_dataset_sample(found, sample->items[field], &record, &at, &split, error);
    if (status)
        return status;
    const FshField *from = &record.fields[at];
    *taken = (IntakeBytes){.data = from->data,
                           .bytes = from->bytes,
                           .is_raw = from->codec == FSH_CODEC_RAW,
                           .width = from->width,
                           .height = from->height,
                           .channels = from->channels,
                           .source_bytes = from->bytes};
    status = check_length(found, from->bytes, error);
    if (status)
        return status;
    /* Once for each sample: damage must not get a new checksum. */
    if (field == 0 && found->options->check)
        status = fsh_sample_verify(split, record.index, error);
    if (!status && taken->is_raw && taken->channels != 1 && taken->channels != 3)
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED, "its pixels have %u channels, not 1 or 3",
                               (unsigned)taken->channels);
    if (status || from->compression == FSH_COMPRESSION_NONE)
        return status;
    if (!intake->unpackers[field])
        status = fsh_unpacker_new(&intake->unpackers[field], error);
    if (!status)
        status = fsh_field_unpack(intake->unpackers[field], split, from, &taken->data, &taken->bytes, error);
    return status;
}

/* Makes pixels a PNM file, for decoders that read files only. */
static FshStatus wrap_pixels(Buffer *file, IntakeBytes *taken, FshError *error)
{
    char header[64];
    int header_bytes = snprintf(header, sizeof header, "P%c\n%" PRIu32 " %" PRIu32 "\n255\n",
                                taken->channels == 1 ? '5' : '6', taken->width, taken->height);
    file->length = 0;
    FshStatus status = buffer_append(file, header, (size_t)header_bytes, error);
    if (!status)
        status = buffer_append(file, taken->data, taken->bytes, error);
    taken->data = file->bytes;
    taken->bytes = file->length;
    taken->is_raw = false;
    return status;
}

FshStatus intake_check_read(const PackFound *found, const PackSample *sample, FshError *error)
{
    const bool may_have_failed = found->from.dataset && read_faults_any();
    for (size_t field = 0; may_have_failed && field < found->field_count; field++) {
        FshSample record;
        FshError failure = {0};
        const FshSplit *split = NULL;
        size_t at = 0;
        FshStatus status = found_dataset_sample(found, sample->items[field], &record, &at, &split, &failure);
        if (!status)
            status = fsh_sample_check_read(split, &record, &failure);
        if (status == FSH_ERR_SYSTEM)
            return fsh_error_set(error, status, "%s", failure.message);
    }
    return FSH_OK;
}

/* ---- either ---- */

FshStatus intake_original(Intake *intake, const PackFound *found, const PackSample *sample, size_t field,
                          const Buffer *place, IntakeBytes *taken, FshError *error)
{
    if (found->from.dataset) {
        FshStatus taking = take_record(intake, found, sample, field, taken, error);
        taken->source_hash = taking ? 0 : fsh_source_hash(taken->data, taken->bytes);
        return taking;
    }
    const FileEntry *file = &found->files.files[sample->items[field]];
    Buffer borrowed = place ? *place : (Buffer){0};
    Buffer *buffer = file->bytes < borrowed.capacity ? &borrowed : &intake->files[field];
    FshStatus status = check_length(found, file->bytes, error);
    if (!status)
        status = source_read(found->folder, file->path, file->bytes, buffer, error);
    *taken = (IntakeBytes){
        .data = buffer->bytes, .bytes = buffer->length, .source_bytes = status ? 0 : buffer->length};
    taken->source_hash = status ? 0 : fsh_source_hash(taken->data, taken->bytes);
    return status;
}

void intake_ask(Intake *intake, const PackFound *found, const PackSample *samples, size_t count)
{
    if (found->from.dataset || !read_ahead_is_due(&intake->ahead))
        return;
    for (size_t i = 0; i < count; i++) {
        for (size_t field = 0; field < found->field_count; field++)
            read_ahead_ask(found->folder, found->files.files[samples[i].items[field]].path);
    }
}

/* ---- smaller ---- */

/* Sets *format to what the name of the source promises, which is what fresize would write; IMAGE_UNKNOWN
 * where it promises nothing, and the content decides. */
static FshStatus format_by_name(const PackFound *found, const PackSample *sample, size_t field,
                                ImageFormat *format, FshError *error)
{
    char name[PATH_MAX], target[PATH_MAX];
    const PackSource source = sample_source(found, sample, field);
    *format = IMAGE_UNKNOWN;
    if (source.path_bytes == 0 || source.path_bytes >= sizeof name)
        return FSH_OK;
    memcpy(name, source.path, source.path_bytes);
    name[source.path_bytes] = '\0';
    return shrink_name_target(name, IMAGE_UNKNOWN, target, format, error);
}

static FshStatus prepare_resizing(Intake *intake, const PackFound *found, const PackSample *sample,
                                  size_t field, IntakeBytes *taken, ImageFormat *format, FshError *error)
{
    const bool was_raw = taken->is_raw;
    FshStatus status = intake->resizer ? FSH_OK : shrink_worker_new(&intake->resizer, error);
    if (!status && was_raw)
        status = wrap_pixels(&intake->files[field], taken, error);
    *format = IMAGE_PNG; /* pixels have lost nothing yet */
    return status || was_raw ? status : format_by_name(found, sample, field, format, error);
}

const char *intake_hint_scale(uint32_t width, uint32_t height, uint32_t other_width, uint32_t other_height,
                              bool resizes, char hint[PAIR_SCALE_HINT_BYTES])
{
    const uint32_t up = image_whole_factor(width, height, other_width, other_height);
    const uint32_t down = image_whole_factor(other_width, other_height, width, height);
    hint[0] = '\0';
    if (up && up <= FSH_PAIR_SCALE_MAX)
        (void)snprintf(hint, PAIR_SCALE_HINT_BYTES, "; %s--pair-scale %" PRIu32 " packs such pairs",
                       resizes ? "without --max-size " : "", up);
    else if (down && down <= FSH_PAIR_SCALE_MAX)
        (void)snprintf(hint, PAIR_SCALE_HINT_BYTES,
                       "; %s--pair-scale %" PRIu32 " packs such pairs, with the smaller side named first",
                       resizes ? "without --max-size " : "", down);
    return hint;
}

/* Refuses sides whose sizes differ before they are made smaller. They may come out equal then, and still do
 * not belong together. */
static FshStatus check_sizes(Intake *intake, const PackFound *found, size_t field, const ImageInfo *info,
                             FshError *error)
{
    intake->widths[field] = info->width;
    intake->heights[field] = info->height;
    if (field == 0 || (info->width == intake->widths[0] && info->height == intake->heights[0]))
        return FSH_OK;
    char hint[PAIR_SCALE_HINT_BYTES];
    return fsh_error_set(
        error, FSH_ERR_MISMATCH,
        "sizes differ: %s is %" PRIu32 "x%" PRIu32 ", %s is %" PRIu32 "x%" PRIu32 "%s", found->field_names[0],
        intake->widths[0], intake->heights[0], found->field_names[field], info->width, info->height,
        intake_hint_scale(intake->widths[0], intake->heights[0], info->width, info->height, true, hint));
}

static FshStatus make_smaller(Intake *intake, const PackFound *found, const PackSample *sample, size_t field,
                              IntakeBytes *taken, FshError *error)
{
    const IntakeBytes original = *taken;
    ImageFormat format = IMAGE_UNKNOWN;
    ShrunkImage resized = {0};
    FshStatus status = prepare_resizing(intake, found, sample, field, taken, &format, error);
    if (!status)
        status = shrink_image(intake->resizer, taken->data, taken->bytes, format, &found->options->resize,
                              &resized, error);
    if (!status)
        status = check_sizes(intake, found, field, &resized.info, error);
    if (status)
        return status;
    if (original.is_raw && resized.action != SHRINK_RESIZED) {
        *taken = original; /* small enough: its pixels as they are */
        return FSH_OK;
    }
    if (resized.action == SHRINK_COPIED)
        return FSH_OK;
    Buffer *smaller = &intake->smaller[field]; /* the worker's own is for one image at a time */
    smaller->length = 0;
    status = buffer_append(smaller, resized.bytes, resized.length, error);
    taken->data = smaller->bytes;
    taken->bytes = smaller->length;
    taken->is_new = true;
    return status;
}

FshStatus intake_take(Intake *intake, const PackFound *found, const PackSample *sample, size_t field,
                      IntakeBytes *taken, FshError *error)
{
    FshStatus status = intake_original(intake, found, sample, field, NULL, taken, error);
    if (!status && found->options->resize.max_size)
        status = make_smaller(intake, found, sample, field, taken, error);
    return status;
}

/* ---- by the header ---- */

static FshStatus probe_bytes(Intake *intake, ImageDecoder *decoder, const PackFound *found,
                             const PackSample *sample, size_t field, IntakeBytes *taken, ImageInfo *info,
                             FshError *error)
{
    const PackOptions *options = found->options;
    if (!options->resize.max_size) {
        *info = (ImageInfo){.width = taken->width, .height = taken->height, .channels = taken->channels};
        return taken->is_raw ? FSH_OK : jpeg_size_or_probe(decoder, taken->data, taken->bytes, info, error);
    }
    ShrunkImage resized = {0};
    ImageFormat format = IMAGE_UNKNOWN;
    FshStatus status = prepare_resizing(intake, found, sample, field, taken, &format, error);
    if (!status)
        status = shrink_image_plan(intake->resizer, taken->data, taken->bytes, format, &options->resize,
                                   &resized, error);
    *info = resized.info;
    info->width = resized.width;
    info->height = resized.height;
    return status;
}

FshStatus intake_probe(Intake *intake, ImageDecoder *decoder, const PackFound *found,
                       const PackSample *sample, size_t field, ImageInfo *info, FshError *error)
{
    /* The first holds the header of most JPEGs, the second that of nearly every image; where it does not (a
     * JPEG with a large thumbnail), the file is read whole. Others than JPEGs may have their orientation
     * anywhere. */
    static const size_t starts_bytes[] = {4 * 1024, 64 * 1024};
    IntakeBytes taken = {0};
    FshStatus status = FSH_OK;
    for (size_t i = 0; !found->from.dataset && i < sizeof starts_bytes / sizeof starts_bytes[0]; i++) {
        const FileEntry *file = &found->files.files[sample->items[field]];
        Buffer *buffer = &intake->files[field];
        FshError failure = {0};
        /* As many as were listed: asking for more would take a second call for each small file. */
        const bool whole = file->bytes && file->bytes <= starts_bytes[i];
        status = source_read_start(found->folder, file->path, whole ? (size_t)file->bytes : starts_bytes[i],
                                   buffer, &failure);
        taken = (IntakeBytes){.data = buffer->bytes, .bytes = buffer->length};
        if (!status && i == 0 && !whole && image_sniff(taken.data, taken.bytes) != IMAGE_JPEG)
            continue;
        if (!status)
            status = probe_bytes(intake, decoder, found, sample, field, &taken, info, &failure);
        if (!status || status == FSH_ERR_MEMORY || whole || file->bytes == 0)
            return status ? fsh_error_set(error, status, "%s", failure.message) : FSH_OK;
    }
    status = intake_original(intake, found, sample, field, NULL, &taken, error);
    if (!status)
        status = probe_bytes(intake, decoder, found, sample, field, &taken, info, error);
    return intake_check_read(found, sample, error) ? FSH_ERR_SYSTEM : status;
}
