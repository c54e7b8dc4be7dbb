#include "imaging/shrink.h"

#include <stdlib.h>

#include "common/progress.h"
#include "imaging/decode.h"
#include "imaging/jpeg_shrink.h"
#include "imaging/mask.h"
#include "imaging/mask_decode.h"
#include "imaging/y4m.h"

/* Scaled decoding must leave at least this many times the wanted edges. Measured on 286 ImageNet photographs
 * at 160 px against Pillow's full decoding: 1 gives 39.9 dB on average and 27.7 at worst, 2 gives 48.9 and
 * 39.6, 3 and 4 the same within 0.03; 3 takes 7 % longer. */
enum { SCALED_DECODE_MARGIN = 2 };

struct ShrinkWorker {
    ImageDecoder *decoder;
    ImageEncoder *encoder;
    Resampler *resampler;
    JpegShrinker *shrinker;
    Image decoded, resampled;
    Buffer encoded;
};

FshStatus shrink_worker_new(ShrinkWorker **worker_ret, FshError *error)
{
    ShrinkWorker *worker = calloc(1, sizeof *worker);
    FshStatus status = worker ? image_decoder_new(&worker->decoder, error)
                              : fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a worker");
    if (!status)
        status = image_encoder_new(&worker->encoder, error);
    if (!status)
        status = resampler_new(&worker->resampler, error);
    if (!status)
        status = jpeg_shrinker_new(&worker->shrinker, error);
    if (status)
        shrink_worker_free(&worker);
    *worker_ret = worker;
    return status;
}

void shrink_worker_free(ShrinkWorker **worker)
{
    if (!*worker)
        return;
    image_decoder_free(&(*worker)->decoder);
    image_encoder_free(&(*worker)->encoder);
    resampler_free(&(*worker)->resampler);
    jpeg_shrinker_free(&(*worker)->shrinker);
    image_free(&(*worker)->decoded);
    image_free(&(*worker)->resampled);
    buffer_free(&(*worker)->encoded);
    free(*worker);
    *worker = NULL;
}

ImageFormat shrink_format_for(ImageFormat format)
{
    static const ImageFormat formats[] = {
        [IMAGE_UNKNOWN] = IMAGE_PNG, [IMAGE_JPEG] = IMAGE_JPEG,  [IMAGE_PNG] = IMAGE_PNG,
        [IMAGE_WEBP] = IMAGE_WEBP,   [IMAGE_TIFF] = IMAGE_PNG,   [IMAGE_GIF] = IMAGE_PNG,
        [IMAGE_BMP] = IMAGE_PNG,     [IMAGE_PNM] = IMAGE_PNG,    [IMAGE_Y4M] = IMAGE_JPEG,
        [IMAGE_HEIF] = IMAGE_JPEG,   [IMAGE_OTHER] = IMAGE_JPEG, [IMAGE_JPEG2000] = IMAGE_JPEG,
        [IMAGE_TGA] = IMAGE_PNG,
    };
    return formats[format];
}

uint64_t shrink_most_bytes(const ShrinkRecipe *recipe)
{
    const uint64_t bytes_per_pixel = 8, more = (uint64_t)64 << 20;
    uint64_t pixels = recipe->max_pixels ? recipe->max_pixels : IMAGE_MAX_PIXELS_DEFAULT;
    return pixels > (UINT64_MAX - more) / bytes_per_pixel ? UINT64_MAX : pixels * bytes_per_pixel + more;
}

FshStatus shrink_image_plan(ShrinkWorker *worker, const void *bytes, size_t length, ImageFormat format,
                            const ShrinkRecipe *recipe, ShrunkImage *resized, FshError *error)
{
    *resized = (ShrunkImage){.format = format};
    const ImageInfo *info = &resized->info;
    FshStatus status = image_probe(worker->decoder, bytes, length, &resized->info, error);
    if (!status)
        status = image_check_size(info, recipe->max_pixels, error);
    if (status)
        return status;
    const bool planes = recipe->format == IMAGE_Y4M;
    if (recipe->format != IMAGE_UNKNOWN && !planes)
        resized->format = recipe->format;
    else if (format == IMAGE_UNKNOWN)
        resized->format = shrink_format_for(info->format);
    uint32_t width = recipe->ignore_orientation ? info->stored_width : info->width;
    uint32_t height = recipe->ignore_orientation ? info->stored_height : info->height;
    bool turned = info->orientation != 1 && !recipe->ignore_orientation;
    /* libpng warns about this PNG: stricter readers, Pillow among them, refuse it */
    bool doubtful = info->format == IMAGE_PNG && (info->quirks & IMAGE_QUIRK_WARNING);
    bool changed = resized->format != info->format || turned || (info->quirks & IMAGE_QUIRK_CMYK) || doubtful;
    if (width < recipe->min_size || height < recipe->min_size) {
        resized->action = SHRINK_TOO_SMALL;
        resized->width = width;
        resized->height = height;
        return FSH_OK;
    }
    if (resample_fit(width, height, recipe->max_size, recipe->long_edge, &resized->width, &resized->height))
        resized->action = SHRINK_RESIZED;
    else
        resized->action = changed && !planes ? SHRINK_CONVERTED : SHRINK_COPIED;
    if (planes && resized->action == SHRINK_COPIED)
        resized->format = info->format;
    else if (planes && resized->format != IMAGE_PNG)
        resized->format = IMAGE_Y4M;
    return FSH_OK;
}

static ImageDecodeOptions decode_options(const ShrinkRecipe *recipe, const ShrunkImage *resized)
{
    ImageDecodeOptions options = {
        .ignore_orientation = recipe->ignore_orientation,
        .convert_icc = !recipe->ignore_icc && !recipe->keep_metadata && resized->action != SHRINK_COPIED,
        .defer_icc = true,
        .keep_metadata = recipe->keep_metadata && resized->action != SHRINK_COPIED,
        .max_pixels = recipe->max_pixels,
    };
    if (resized->action == SHRINK_COPIED) {
        options.least_width = options.least_height = 1; /* only to check that it can be decoded */
    } else if (resized->action == SHRINK_RESIZED && !recipe->exact) {
        options.least_width = resized->width * SCALED_DECODE_MARGIN;
        options.least_height = resized->height * SCALED_DECODE_MARGIN;
    }
    return options;
}

/* Returns whether jpeg_shrink can do it: from JPEG to a smaller JPEG or its planes, upright, colours
 * unchanged. Most photographs are so, and never become RGB. */
static bool can_shrink(ShrinkWorker *worker, const ShrinkRecipe *recipe, const ShrunkImage *resized,
                       const ImageDecodeOptions *options)
{
    const ImageInfo *info = &resized->info;
    bool turned = info->orientation != 1 && !recipe->ignore_orientation;
    bool converted = (info->quirks & IMAGE_QUIRK_ICC) && options->convert_icc;
    return resized->action == SHRINK_RESIZED && info->format == IMAGE_JPEG &&
           (resized->format == IMAGE_JPEG || resized->format == IMAGE_Y4M) && !recipe->exact && !turned &&
           !converted && jpeg_decoder_planes_count(image_decoder_jpeg(worker->decoder)) > 0;
}

/* Makes the JPEG smaller whose header is read, by its planes. */
static FshStatus shrink(ShrinkWorker *worker, const ShrinkRecipe *recipe,
                        const ImageDecodeOptions *decode_options, ShrunkImage *resized, double start_seconds,
                        FshError *error)
{
    ImageMetadata metadata = {0};
    if (recipe->keep_metadata) {
        FshStatus status = image_decoder_fit_metadata(worker->decoder, decode_options, &resized->info, error);
        if (status)
            return status;
        image_decoder_metadata(worker->decoder, &metadata);
    }
    resized->decode_seconds = progress_lap_seconds(&start_seconds);
    const JpegShrinkOptions options = {.width = resized->width,
                                       .height = resized->height,
                                       .margin = SCALED_DECODE_MARGIN,
                                       .filter = recipe->filter,
                                       .quality = recipe->quality,
                                       .subsampling = recipe->subsampling,
                                       .metadata = recipe->keep_metadata ? &metadata : NULL};
    JpegShrinkReport report;
    JpegDecoder *decoder = image_decoder_jpeg(worker->decoder);
    FshStatus status =
        resized->format == IMAGE_Y4M
            ? jpeg_shrink_planes(worker->shrinker, decoder, &options, &worker->encoded, &report, error)
            : jpeg_shrink(worker->shrinker, decoder, image_encoder_jpeg(worker->encoder), &options,
                          &worker->encoded, &report, error);
    resized->info.quirks |= report.quirks;
    resized->decode_seconds += report.decode_seconds;
    resized->resample_seconds = report.resample_seconds;
    resized->encode_seconds = report.encode_seconds;
    resized->bytes = worker->encoded.bytes;
    resized->length = worker->encoded.length;
    return status;
}

/* Returns the part of the decoded pixels that the image covers. libjpeg rounds a scaled size up, so the image
 * may end in the middle of the last column and row (of the first ones, if it was mirrored). Taking those as
 * whole would shift the picture, which at 64 px costs 5 dB. */
static ResampleBox covered_box(const ImageInfo *info, bool ignore_orientation, const Image *decoded)
{
    static const struct {
        bool across, down;
    } mirrored[9] = {[2] = {true, false}, [3] = {true, true}, [4] = {false, true},
                     [6] = {true, false}, [7] = {true, true}, [8] = {false, true}};
    uint64_t width = ignore_orientation ? info->stored_width : info->width;
    uint64_t height = ignore_orientation ? info->stored_height : info->height;
    uint8_t orientation = ignore_orientation ? 1 : info->orientation;
    ResampleBox box = {0, 0, decoded->width, decoded->height};
    for (uint64_t eighths = 4; eighths >= 1 && (decoded->width < width || decoded->height < height);
         eighths /= 2) {
        if ((width * eighths + 7) / 8 == decoded->width && (height * eighths + 7) / 8 == decoded->height) {
            box.right = (double)(width * eighths) / 8;
            box.bottom = (double)(height * eighths) / 8;
            break;
        }
    }
    if (mirrored[orientation].across) {
        box.left = decoded->width - box.right;
        box.right = decoded->width;
    }
    if (mirrored[orientation].down) {
        box.top = decoded->height - box.bottom;
        box.bottom = decoded->height;
    }
    return box;
}

/* Sets *pixels to the pixels to be written: decoded, resampled, with their colours converted. */
static FshStatus make_pixels(ShrinkWorker *worker, const void *bytes, size_t length,
                             const ShrinkRecipe *recipe, const ImageDecodeOptions *options,
                             ShrunkImage *resized, const Image **pixels, double *start_seconds,
                             FshError *error)
{
    Image *image = &worker->decoded;
    FshStatus status = image_decode(worker->decoder, bytes, length, options, image, &resized->info, error);
    resized->decode_seconds = progress_lap_seconds(start_seconds);
    if (!status && resized->action == SHRINK_RESIZED) {
        const ResampleBox box = covered_box(&resized->info, recipe->ignore_orientation, &worker->decoded);
        image = &worker->resampled;
        status = resample(worker->resampler, &worker->decoded, &box, resized->width, resized->height,
                          recipe->filter, image, error);
    }
    if (!status && image_convert_profile(worker->decoder, image, error)) {
        status = error->status;
        if (status == FSH_ERR_CORRUPT) { /* an unusable profile tells nothing about the pixels */
            resized->info.quirks |= IMAGE_QUIRK_WARNING;
            *error = (FshError){0};
            status = FSH_OK;
        }
    }
    resized->resample_seconds = progress_lap_seconds(start_seconds);
    *pixels = image;
    return status;
}

/* Writes pixels as the planes of a Y4M file. */
static FshStatus write_planes(const Image *pixels, ImageSubsampling subsampling, Buffer *file,
                              FshError *error)
{
    uint8_t *planes = NULL;
    const bool halved =
        subsampling == IMAGE_SUBSAMPLING_420 && planes_expandable(PLANES_420, pixels->width, pixels->height);
    const PlanesChroma chroma = pixels->channels == 1 ? PLANES_GRAY : halved ? PLANES_420 : PLANES_444;
    FshStatus status = y4m_begin(file, chroma, pixels->width, pixels->height, &planes, error);
    if (!status)
        planes_of_image(pixels, chroma, planes);
    return status;
}

FshStatus shrink_image(ShrinkWorker *worker, const void *bytes, size_t length, ImageFormat format,
                       const ShrinkRecipe *recipe, ShrunkImage *resized, FshError *error)
{
    const Image *pixels = NULL;
    double start_seconds = progress_now_seconds();
    FshStatus status = shrink_image_plan(worker, bytes, length, format, recipe, resized, error);
    if (status || resized->action == SHRINK_TOO_SMALL)
        return status;
    const ImageDecodeOptions decoding = decode_options(recipe, resized);
    if (can_shrink(worker, recipe, resized, &decoding))
        return shrink(worker, recipe, &decoding, resized, start_seconds, error);
    status = make_pixels(worker, bytes, length, recipe, &decoding, resized, &pixels, &start_seconds, error);
    if (status)
        return status;
    if (resized->action == SHRINK_COPIED) {
        resized->bytes = bytes;
        resized->length = length;
        return FSH_OK;
    }
    ImageMetadata metadata = {0};
    if (recipe->keep_metadata)
        image_decoder_metadata(worker->decoder, &metadata);
    const ImageEncodeOptions options = {.format = resized->format,
                                        .quality = recipe->quality,
                                        .subsampling = recipe->subsampling,
                                        .metadata = recipe->keep_metadata ? &metadata : NULL};
    status = resized->format == IMAGE_Y4M
                 ? write_planes(pixels, recipe->subsampling, &worker->encoded, error)
                 : image_encode(worker->encoder, pixels, &options, &worker->encoded, error);
    resized->encode_seconds = progress_lap_seconds(&start_seconds);
    resized->bytes = worker->encoded.bytes;
    resized->length = worker->encoded.length;
    return status;
}

/* ---- masks ---- */

/* Plans as shrink_mask_plan, and sets *format to what the values are written as. */
static FshStatus plan_mask(const void *bytes, size_t length, const ShrinkRecipe *recipe, MaskFormat *format,
                           ShrunkImage *resized, FshError *error)
{
    const uint64_t most = recipe->max_pixels ? recipe->max_pixels : IMAGE_MAX_PIXELS_DEFAULT;
    uint32_t width = 0, height = 0;
    *resized = (ShrunkImage){.format = IMAGE_PNG};
    FshStatus status = mask_read_format(bytes, length, most, format, &width, &height, error);
    if (status)
        return status;
    resized->info = (ImageInfo){.format = IMAGE_PNG,
                                .width = width,
                                .height = height,
                                .stored_width = width,
                                .stored_height = height,
                                .channels = 1,
                                .orientation = 1};
    resized->width = width;
    resized->height = height;
    if (width < recipe->min_size || height < recipe->min_size)
        resized->action = SHRINK_TOO_SMALL;
    else if (resample_fit(width, height, recipe->max_size, recipe->long_edge, &resized->width,
                          &resized->height))
        resized->action = SHRINK_RESIZED;
    else
        resized->action = SHRINK_COPIED;
    return FSH_OK;
}

FshStatus shrink_mask_plan(const void *bytes, size_t length, const ShrinkRecipe *recipe, ShrunkImage *resized,
                           FshError *error)
{
    MaskFormat format;
    return plan_mask(bytes, length, recipe, &format, resized, error);
}

FshStatus shrink_mask(ShrinkWorker *worker, const void *bytes, size_t length, const ShrinkRecipe *recipe,
                      ShrunkImage *resized, FshError *error)
{
    MaskFormat format;
    double start_seconds = progress_now_seconds();
    FshStatus status = plan_mask(bytes, length, recipe, &format, resized, error);
    if (status || resized->action == SHRINK_TOO_SMALL)
        return status;
    status = image_decode_mask(worker->decoder, bytes, length, recipe->max_pixels, &worker->decoded, error);
    resized->decode_seconds = progress_lap_seconds(&start_seconds);
    if (!status && resized->action == SHRINK_COPIED) {
        resized->bytes = bytes;
        resized->length = length;
    }
    if (status || resized->action == SHRINK_COPIED)
        return status;
    status = mask_resize(&worker->decoded, resized->width, resized->height, &worker->resampled, error);
    resized->resample_seconds = progress_lap_seconds(&start_seconds);
    if (!status)
        status = image_encode_mask(worker->encoder, &worker->resampled, &format, &worker->encoded, error);
    resized->encode_seconds = progress_lap_seconds(&start_seconds);
    resized->bytes = worker->encoded.bytes;
    resized->length = worker->encoded.length;
    return status;
}

json_t *shrink_recipe_json(const ShrinkRecipe *recipe, const char *tool)
{
    return json_pack("{s:s, s:s, s:i, s:s, s:s, s:i, s:s, s:s, s:i, s:s, s:s, s:b, s:b}", "tool", tool,
                     "version", FSHARD_VERSION, "max_size", (int)recipe->max_size, "edge",
                     recipe->long_edge ? "long" : "short", "filter", resample_filter_names[recipe->filter],
                     "quality", recipe->quality, "subsampling",
                     recipe->subsampling == IMAGE_SUBSAMPLING_420 ? "420" : "444", "format",
                     recipe->format == IMAGE_UNKNOWN ? "keep" : image_format_name(recipe->format), "min_size",
                     (int)recipe->min_size, "orient", recipe->ignore_orientation ? "ignore" : "apply", "icc",
                     recipe->ignore_icc ? "ignore" : "srgb", "exact", recipe->exact, "keep_metadata",
                     recipe->keep_metadata);
}
