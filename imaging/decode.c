#include "imaging/decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libdeflate.h>

#include "common/file.h"
#include "imaging/camera_raw.h"
#include "imaging/icc.h"
#include "imaging/image_plugin.h"
#include "imaging/jpeg_decode.h"
#include "imaging/mask_decode.h"
#include "imaging/orient.h"
#include "imaging/png_decode.h"
#include "imaging/pnm_decode.h"
#include "imaging/y4m.h"

struct ImageDecoder {
    JpegDecoder *jpeg;
    PngDecoder *png;
    MaskDecoder *masks;        /* NULL before the first mask */
    PngReader png_reader;      /* who reads the PNG whose header was read last */
    const ImagePlugin *plugin; /* loaded when an image first needs it; NULL before */
    Planes planes;             /* of a Y4M whose header was read last */
    Image scratch;             /* pixels before they are turned or before their channels change */
    bool profile_waits;        /* image_convert_profile has still to apply the last image's profile */
    IccConversion *conversion; /* the last profile, prepared: cameras write the same one into every file */
    Buffer conversion_profile; /* bytes of that profile; empty if there is none */
    ImageMetadata metadata;    /* of the last decoded image, with keep_metadata */
    Buffer metadata_bytes;     /* blocks as libvips gave them */
    Buffer upright_bytes;      /* blocks changed to fit turned pixels */
};

FshStatus image_decoder_new(ImageDecoder **decoder_ret, FshError *error)
{
    ImageDecoder *decoder = calloc(1, sizeof *decoder);
    FshStatus status = decoder ? jpeg_decoder_new(&decoder->jpeg, error)
                               : fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a decoder");
    if (!status)
        status = png_decoder_new(&decoder->png, error);
    if (status)
        image_decoder_free(&decoder);
    *decoder_ret = decoder;
    return status;
}

void image_decoder_free(ImageDecoder **decoder)
{
    if (!*decoder)
        return;
    jpeg_decoder_free(&(*decoder)->jpeg);
    png_decoder_free(&(*decoder)->png);
    mask_decoder_free(&(*decoder)->masks);
    image_free(&(*decoder)->scratch);
    free((*decoder)->conversion);
    buffer_free(&(*decoder)->conversion_profile);
    buffer_free(&(*decoder)->metadata_bytes);
    buffer_free(&(*decoder)->upright_bytes);
    free(*decoder);
    *decoder = NULL;
}

static FshStatus need_plugin(ImageDecoder *decoder, FshError *error)
{
    return decoder->plugin ? FSH_OK : image_plugin_load(&decoder->plugin, error);
}

static FshStatus unknown_format(size_t length, FshError *error)
{
    if (length == 0)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "the file is empty");
    return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "not an image of a known format");
}

/* Reads the header with the reader of the file's format. A CMYK JPEG is read by libjpeg here and decoded by
 * libvips. */
static FshStatus read_header(ImageDecoder *decoder, const void *bytes, size_t length, bool strict,
                             ImageInfo *info, FshError *error)
{
    *info = (ImageInfo){.format = image_sniff(bytes, length), .orientation = 1};
    if (info->format == IMAGE_UNKNOWN && image_is_tga(bytes, length))
        info->format = IMAGE_TGA;
    if (info->format == IMAGE_UNKNOWN)
        return unknown_format(length, error);
    if (info->format == IMAGE_JPEG)
        return jpeg_decoder_header(decoder->jpeg, bytes, length, strict, info, error);
    if (info->format == IMAGE_PNM)
        return pnm_header(bytes, length, info, error);
    if (info->format == IMAGE_Y4M)
        return y4m_open(bytes, length, info, &decoder->planes, error);
    if (info->format == IMAGE_PNG) {
        decoder->png_reader = png_decoder_header(decoder->png, bytes, length, info);
        if (decoder->png_reader == PNG_WHOLLY_HERE)
            return FSH_OK;
    }
    if (info->format == IMAGE_TIFF && camera_raw_is(bytes, length))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "a camera's raw file, of which only the thumbnail could be read; develop it to "
                             "JPEG or TIFF first");
    FshStatus status = need_plugin(decoder, error);
    return status ? status : decoder->plugin->probe(bytes, length, info->format, info, error);
}

FshStatus image_probe(ImageDecoder *decoder, const void *bytes, size_t length, ImageInfo *info,
                      FshError *error)
{
    return read_header(decoder, bytes, length, false, info, error);
}

FshStatus image_check_size(const ImageInfo *info, uint64_t max_pixels, FshError *error)
{
    uint64_t most = max_pixels ? max_pixels : IMAGE_MAX_PIXELS_DEFAULT;
    uint64_t pixels_count = (uint64_t)info->stored_width * info->stored_height;
    if (pixels_count <= most)
        return FSH_OK;
    return fsh_error_set(
        error, FSH_ERR_MISMATCH,
        "the header claims %u x %u pixels, more than the limit of %llu; raise --max-pixels if that "
        "is true",
        info->stored_width, info->stored_height, (unsigned long long)most);
}

/* Decodes the pixels of a PNG where that needs no libvips; *done_ret: it did not. Metadata and profiles that
 * change colours are libvips'. */
static FshStatus read_png(ImageDecoder *decoder, const ImageDecodeOptions *options, Image *image,
                          const ImageInfo *info, bool *done_ret, FshError *error)
{
    const bool converted = (info->quirks & IMAGE_QUIRK_ICC) && options->convert_icc;
    *done_ret = false;
    if (decoder->png_reader == PNG_BY_LIBVIPS ||
        (decoder->png_reader != PNG_WHOLLY_HERE && (converted || options->keep_metadata)))
        return FSH_OK;
    return png_decoder_pixels(decoder->png, image, done_ret, error);
}

/* Decodes the pixels as stored. *channels: how many are wanted; set to how many the image has. */
static FshStatus read_pixels(ImageDecoder *decoder, const void *bytes, size_t length,
                             const ImageDecodeOptions *options, uint32_t *channels, Image *image,
                             ImageInfo *info, FshError *error)
{
    if (info->format == IMAGE_JPEG && !(info->quirks & IMAGE_QUIRK_CMYK)) {
        bool turned = !options->ignore_orientation && info->orientation >= 5;
        uint32_t least_width = turned ? options->least_height : options->least_width;
        uint32_t least_height = turned ? options->least_width : options->least_height;
        bool convert = (info->quirks & IMAGE_QUIRK_ICC) && options->convert_icc;
        bool defer = options->defer_icc && *channels == info->channels;
        /* libjpeg converts gray to RGB and back by itself, but a profile is for the file's own channels */
        if (convert)
            *channels = info->channels;
        FshStatus status =
            jpeg_decoder_pixels(decoder->jpeg, *channels, least_width, least_height, image, info, error);
        decoder->profile_waits = !status && convert;
        return status || defer ? status : image_convert_profile(decoder, image, error);
    }
    if (info->format == IMAGE_PNM) {
        *channels = info->channels;
        return pnm_decode(bytes, length, !options->allow_truncated, image, error);
    }
    if (info->format == IMAGE_Y4M) {
        const ImagePart all = {.width = info->width, .height = info->height};
        return planes_expand(&decoder->planes, &all, *channels, image, error);
    }
    bool done = false;
    if (info->format == IMAGE_PNG) {
        FshStatus status = read_png(decoder, options, image, info, &done, error);
        *channels = image->channels;
        if (status || done)
            return status;
    }
    uint32_t quirks = info->quirks;
    FshStatus status = need_plugin(decoder, error);
    if (!status && info->format == IMAGE_JPEG && !options->allow_truncated)
        status = jpeg_decoder_check(decoder->jpeg, info, error); /* libvips goes on if the scan is damaged */
    if (!status)
        status = decoder->plugin->decode(bytes, length, info->format, options, image, info,
                                         &decoder->metadata, &decoder->metadata_bytes, error);
    info->quirks |= quirks; /* what libjpeg saw in a CMYK JPEG */
    *channels = image->channels;
    return status;
}

JpegDecoder *image_decoder_jpeg(ImageDecoder *decoder)
{
    return decoder->jpeg;
}

/* Takes the metadata of a JPEG from libjpeg (libvips has filled the rest), then changes it to fit the
 * pixels. */
FshStatus image_decoder_fit_metadata(ImageDecoder *decoder, const ImageDecodeOptions *options,
                                     const ImageInfo *info, FshError *error)
{
    ImageMetadata *metadata = &decoder->metadata;
    if (info->format == IMAGE_JPEG)
        jpeg_decoder_metadata(decoder->jpeg, metadata);
    if (options->convert_icc || (info->quirks & IMAGE_QUIRK_CMYK))
        metadata->icc = (ImageBlock){0};
    if (options->ignore_orientation && info->format != IMAGE_HEIF)
        return FSH_OK;
    return image_metadata_upright(metadata, &decoder->upright_bytes, metadata, error);
}

void image_decoder_metadata(const ImageDecoder *decoder, ImageMetadata *metadata)
{
    *metadata = decoder->metadata;
}

/* Does everything of image_decode that follows the header. */
static FshStatus decode_whole(ImageDecoder *decoder, const void *bytes, size_t length,
                              const ImageDecodeOptions *options, Image *image, ImageInfo *info,
                              FshError *error)
{
    uint8_t orientation = options->ignore_orientation ? 1 : info->orientation;
    uint32_t wanted = options->channels ? options->channels : info->channels, have = wanted;
    /* each needed step exchanges the two images, so that the last result ends in the caller's */
    FshStatus status = read_pixels(decoder, bytes, length, options, &have, image, info, error);
    if (!status && have != wanted) {
        status = image_convert_channels(image, wanted, &decoder->scratch, error);
        image_exchange(image, &decoder->scratch);
    }
    if (!status && orientation != 1) {
        status = image_orient(image, orientation, &decoder->scratch, error);
        image_exchange(image, &decoder->scratch);
    }
    if (decoder->scratch.lent) /* memory lent by the caller, for this image only */
        image_free(&decoder->scratch);
    if (!status && options->keep_metadata)
        status = image_decoder_fit_metadata(decoder, options, info, error);
    return status;
}

/* Reads the header and checks that the size is allowed. */
static FshStatus begin(ImageDecoder *decoder, const void *bytes, size_t length,
                       const ImageDecodeOptions *options, ImageInfo *info, FshError *error)
{
    decoder->profile_waits = false;
    decoder->metadata = (ImageMetadata){0};
    FshStatus status = read_header(decoder, bytes, length, !options->allow_truncated, info, error);
    return status ? status : image_check_size(info, options->max_pixels, error);
}

FshStatus image_decode(ImageDecoder *decoder, const void *bytes, size_t length,
                       const ImageDecodeOptions *options, Image *image, ImageInfo *info, FshError *error)
{
    ImageInfo own_info;
    if (!info)
        info = &own_info;
    FshStatus status = begin(decoder, bytes, length, options, info, error);
    return status ? status : decode_whole(decoder, bytes, length, options, image, info, error);
}

FshStatus image_decode_part(ImageDecoder *decoder, const void *bytes, size_t length,
                            const ImageDecodeOptions *options, uint32_t width, uint32_t height,
                            const ImagePart *part, Image *image, ImagePlace *place, FshError *error)
{
    ImageInfo info;
    ImageDecodeOptions whole = *options;
    *place = (ImagePlace){.eighths = 8};
    FshStatus status = begin(decoder, bytes, length, options, &info, error);
    if (status)
        return status;
    bool upright = options->ignore_orientation || info.orientation == 1;
    if ((options->ignore_orientation ? info.stored_width : info.width) != width ||
        (options->ignore_orientation ? info.stored_height : info.height) != height)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "it is %u x %u pixels, not %u x %u as its record says",
                             info.width, info.height, width, height);
    if (info.format == IMAGE_JPEG && !(info.quirks & IMAGE_QUIRK_CMYK) && upright)
        return jpeg_decoder_part(decoder->jpeg, options->channels ? options->channels : info.channels,
                                 options->least_width, options->least_height, part, image, place, &info,
                                 error);
    if (info.format == IMAGE_Y4M) {
        *place = (ImagePlace){.left = part->left, .top = part->top, .eighths = 8};
        return planes_expand(&decoder->planes, part, options->channels ? options->channels : info.channels,
                             image, error);
    }
    whole.least_width = whole.least_height =
        0; /* a mirrored image has its fraction of a pixel at the other end */
    return decode_whole(decoder, bytes, length, &whole, image, &info, error);
}

FshStatus image_decode_mask(ImageDecoder *decoder, const void *bytes, size_t length, uint64_t max_pixels,
                            Image *image, FshError *error)
{
    FshStatus status = decoder->masks ? FSH_OK : mask_decoder_new(&decoder->masks, error);
    return status ? status
                  : mask_decode(decoder->masks, bytes, length,
                                max_pixels ? max_pixels : IMAGE_MAX_PIXELS_DEFAULT, image, error);
}

/* Sets *conversion to the prepared conversion of this profile: the last file's if the profile is the same,
 * else a new one; NULL if only libvips can convert it. */
static FshStatus find_conversion(ImageDecoder *decoder, const void *profile, size_t length, uint32_t channels,
                                 const IccConversion **conversion, FshError *error)
{
    Buffer *known = &decoder->conversion_profile;
    *conversion = decoder->conversion;
    if (known->length == length && memcmp(known->bytes, profile, length) == 0)
        return FSH_OK; /* the channels are the same too: the profile's header names them */
    *conversion = NULL;
    known->length = 0;
    if (!decoder->conversion)
        decoder->conversion = calloc(1, sizeof *decoder->conversion);
    if (!decoder->conversion)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a colour profile");
    if (!icc_conversion_prepare(profile, length, channels, decoder->conversion))
        return FSH_OK;
    FshStatus status = buffer_append(known, profile, length, error);
    if (!status)
        *conversion = decoder->conversion;
    return status;
}

FshStatus image_convert_profile(ImageDecoder *decoder, Image *image, FshError *error)
{
    if (!decoder->profile_waits)
        return FSH_OK;
    decoder->profile_waits = false;
    size_t length = 0;
    const void *profile = jpeg_decoder_profile(decoder->jpeg, &length);
    const IccConversion *conversion = NULL;
    FshStatus status = find_conversion(decoder, profile, length, image->channels, &conversion, error);
    if (!status && conversion) {
        icc_conversion_apply(conversion, image);
        return FSH_OK;
    }
    if (!status)
        status = need_plugin(decoder, error);
    if (status)
        return fsh_error_prepend(error, "its colour profile");
    return decoder->plugin->convert_to_srgb(image, profile, length, error);
}

const char *image_library_versions(char *buffer, size_t buffer_bytes)
{
    const ImagePlugin *plugin = NULL;
    FshError error = {0};
    (void)image_plugin_load(&plugin, &error); /* a failure leaves plugin NULL, and the line says so */
    (void)snprintf(buffer, buffer_bytes, "%s, libdeflate %s, %s", jpeg_library_version(),
                   LIBDEFLATE_VERSION_STRING, plugin ? plugin->library : "no libvips");
    return buffer;
}
