#include "tools/pack/work.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/pack/codec.h"
#include "tools/pack/source.h"

void worker_free(Worker *worker)
{
    image_decoder_free(&worker->decoder);
    for (size_t field = 0; field < FSH_FIELDS_MAX; field++) {
        buffer_free(&worker->files[field]);
        image_free(&worker->images[field]);
    }
}

void work_result_free(WorkResult *result)
{
    buffer_free(&result->record);
}

/* Failures of the machine and not of the image: leaving samples out because of them would be a loss that
 * depends on the day.
 */
static bool is_fatal(const FshError *failure)
{
    const int number = failure->system_errno;
    return failure->status == FSH_ERR_MEMORY || number == EMFILE || number == ENFILE || number == ENOMEM;
}

/* Reads one field's file and looks at it as closely as the options ask; fills description's field. */
static FshStatus take_field(Worker *worker, const Plan *plan, const PackOptions *options, size_t field,
                            const FileEntry *file, bool sum_pixels, FshField *description, WorkResult *result,
                            FshError *failure)
{
    Buffer *bytes = &worker->files[field];
    Image *image = &worker->images[field];
    const bool raw = options->store == PACK_STORE_RAW;
    ImageInfo info = {0};
    FshStatus status = source_read(plan->folder, file->path, file->bytes, bytes, failure);
    if (status)
        return status;
    result->source_bytes += bytes->length;
    if (raw || options->check) {
        const ImageDecodeOptions decode = {.channels = raw ? plan->raw_channels : 0,
                                           .max_pixels = options->max_pixels};
        status = image_decode(worker->decoder, bytes->bytes, bytes->length, &decode, image, &info, failure);
        if (status)
            return status;
        if (sum_pixels)
            stats_add_pixels(&result->statistics, image);
        description->width = image->width;
        description->height = image->height;
        description->channels = (uint8_t)image->channels;
    } else {
        status = image_probe(worker->decoder, bytes->bytes, bytes->length, &info, failure);
        if (status)
            return status;
        if ((uint64_t)info.width * info.height > options->max_pixels)
            return fsh_error_set(failure, FSH_ERR_MISMATCH,
                                 "%" PRIu32 "x%" PRIu32 " is more than --max-pixels %" PRIu64, info.width,
                                 info.height, options->max_pixels);
        description->width = info.width;
        description->height = info.height;
        description->channels = (uint8_t)info.channels;
    }
    stats_add_size(&result->statistics, description->width, description->height, description->channels);
    description->codec = raw ? FSH_CODEC_RAW : codec_of_format(info.format);
    description->data = raw ? image->pixels : bytes->bytes;
    description->bytes = raw ? (size_t)image->width * image->height * image->channels : bytes->length;
    return FSH_OK;
}

/* All sides of a pair show the same scene pixel for pixel: sizes that differ mean that they do not belong
 * together. */
static FshStatus check_sizes(const Plan *plan, const FshSample *description, FshError *failure)
{
    const FshField *first = &description->fields[0];
    for (size_t field = 1; field < description->field_count; field++) {
        const FshField *other = &description->fields[field];
        if (other->width != first->width || other->height != first->height)
            return fsh_error_set(failure, FSH_ERR_MISMATCH,
                                 "sizes differ: %s is %" PRIu32 "x%" PRIu32 ", %s (%.*s) is %" PRIu32
                                 "x%" PRIu32,
                                 plan->field_names[0], first->width, first->height, plan->field_names[field],
                                 (int)other->source_bytes, other->source, other->width, other->height);
    }
    return FSH_OK;
}

FshStatus work_sample(Worker *worker, const Plan *plan, const PackOptions *options, const PlanSample *sample,
                      bool sum_pixels, WorkResult *result, FshError *error)
{
    FshError failure = {0};
    FshSample description;
    FshStatus status = worker->decoder ? FSH_OK : image_decoder_new(&worker->decoder, error);
    if (status)
        return status;
    result->failure = FSH_OK;
    result->source_bytes = 0;
    result->record.length = 0;
    result->statistics = (PixelStatistics){0};
    plan_describe(plan, sample, &description);

    size_t field = 0;
    for (; field < plan->field_count && !status; field++)
        status = take_field(worker, plan, options, field, plan_source(plan, sample, field), sum_pixels,
                            &description.fields[field], result, &failure);
    field = status ? field - 1 : 0;
    if (!status)
        status = check_sizes(plan, &description, &failure);
    size_t record_bytes = status ? 0 : fsh_record_bytes(&description);
    if (!status && record_bytes == 0)
        status = fsh_error_set(&failure, FSH_ERR_MISMATCH, "too large for a record");
    if (!status)
        status = buffer_reserve(&result->record, record_bytes, &failure);
    if (!status)
        status = fsh_record_build(&description, result->record.bytes, record_bytes, &failure);
    if (!status) {
        result->record.length = record_bytes;
        return FSH_OK;
    }
    if (is_fatal(&failure))
        return fsh_error_set(error, failure.status, "%s: %s", plan_source(plan, sample, field)->path,
                             failure.message);
    result->failure = failure.status;
    result->failed_field = field;
    (void)snprintf(result->reason, sizeof result->reason, "%s", failure.message);
    result->statistics = (PixelStatistics){0};
    return FSH_OK;
}
