#include "imaging/image_tiff.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <tiffio.h>

#include "imaging/tiff_tags.h"
#include "imaging/vips_notes.h"

enum { CHANNELS = 3 };

/* ---- a file in memory, through libtiff's callbacks ---- */

typedef struct Memory {
    const uint8_t *bytes;
    uint64_t length, at;
} Memory;

static tmsize_t on_read(thandle_t handle, void *target, tmsize_t wanted)
{
    Memory *memory = handle;
    const uint64_t left = memory->at < memory->length ? memory->length - memory->at : 0;
    const uint64_t taken = wanted > 0 && (uint64_t)wanted < left ? (uint64_t)wanted : wanted > 0 ? left : 0;
    if (taken)
        memcpy(target, memory->bytes + memory->at, taken);
    memory->at += taken;
    return (tmsize_t)taken;
}

static tmsize_t on_write(thandle_t handle, void *source, tmsize_t wanted)
{
    (void)handle;
    (void)source;
    (void)wanted;
    return -1;
}

static toff_t on_seek(thandle_t handle, toff_t offset, int whence)
{
    Memory *memory = handle;
    memory->at = offset + (whence == SEEK_CUR ? memory->at : whence == SEEK_END ? memory->length : 0);
    return memory->at;
}

static int on_close(thandle_t handle)
{
    (void)handle;
    return 0;
}

static toff_t on_size(thandle_t handle)
{
    return ((const Memory *)handle)->length;
}

static TIFF *open_memory(Memory *memory)
{
    return TIFFClientOpen("image", "rm", memory, on_read, on_write, on_seek, on_close, on_size, NULL, NULL);
}

/* ---- facts ---- */

static uint16_t number_of(TIFF *tiff, uint32_t tag)
{
    uint16_t number = 0;
    return TIFFGetFieldDefaulted(tiff, tag, &number) ? number : 0;
}

/* Returns how many samples of a pixel are colours; 0: unknown, or a palette, which libvips expands. */
static int colours_of(uint16_t photometric)
{
    switch (photometric) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK:
        return 1;
    case PHOTOMETRIC_RGB:
    case PHOTOMETRIC_YCBCR:
        return 3;
    case PHOTOMETRIC_SEPARATED:
        return 4;
    default:
        return 0;
    }
}

/* Returns whether the first folder has ExtraSamples; libtiff makes up a value where it is absent. Returns
 * true for BigTIFF, which is not searched. */
static bool tells_extra_samples(const Memory *memory)
{
    TiffTags tags;
    if (!tiff_tags_open(&tags, memory->bytes, (size_t)memory->length))
        return true;
    for (size_t i = 0; i < tags.count; i++) {
        if (tiff_tags_get(&tags, i).tag == TIFFTAG_EXTRASAMPLES)
            return true;
    }
    return false;
}

/* Returns whether the first sample after the colours is alpha. A file with one extra sample and no
 * ExtraSamples means alpha, to Pillow too; "unspecified" means something else. */
static bool has_alpha(TIFF *tiff, const Memory *memory, int extra_count)
{
    uint16_t told_count = 0, *told = NULL;
    if (!tells_extra_samples(memory) ||
        !TIFFGetFieldDefaulted(tiff, TIFFTAG_EXTRASAMPLES, &told_count, &told) || told_count == 0)
        return extra_count == 1;
    return told[0] != EXTRASAMPLE_UNSPECIFIED;
}

static void describe(TIFF *tiff, const Memory *memory, TiffFacts *facts)
{
    const uint16_t photometric = number_of(tiff, TIFFTAG_PHOTOMETRIC),
                   bits = number_of(tiff, TIFFTAG_BITSPERSAMPLE);
    const uint16_t compression = number_of(tiff, TIFFTAG_COMPRESSION);
    const bool in_planes = number_of(tiff, TIFFTAG_PLANARCONFIG) == PLANARCONFIG_SEPARATE;
    const int colours = colours_of(photometric);
    facts->samples_count = number_of(tiff, TIFFTAG_SAMPLESPERPIXEL);
    if (colours && facts->samples_count > colours)
        facts->kept_count = colours + has_alpha(tiff, memory, facts->samples_count - colours);
    else
        facts->kept_count = colours ? facts->samples_count : 0;
    facts->needs_libtiff =
        (photometric == PHOTOMETRIC_YCBCR && compression != COMPRESSION_JPEG) ||
        (photometric == PHOTOMETRIC_RGB && in_planes && TIFFIsTiled(tiff) && (bits == 8 || bits == 16));
}

void tiff_describe(const void *bytes, size_t length, TiffFacts *facts)
{
    Memory memory = {.bytes = bytes, .length = length};
    TIFF *tiff = open_memory(&memory);
    *facts = (TiffFacts){0};
    if (!tiff)
        return;
    describe(tiff, &memory, facts);
    TIFFClose(tiff);
}

/* ---- pixels ---- */

/* Converts libtiff's raster to RGB: a number holds red, green, blue and alpha, with colours multiplied by
 * alpha. */
static void take_pixels(const uint32_t *raster, size_t count, bool over_white, uint8_t *pixels)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t pixel = raster[i], white = over_white ? UINT8_MAX - TIFFGetA(pixel) : 0;
        const uint32_t colours[CHANNELS] = {TIFFGetR(pixel) + white, TIFFGetG(pixel) + white,
                                            TIFFGetB(pixel) + white};
        for (size_t c = 0; c < CHANNELS; c++)
            *pixels++ = (uint8_t)(colours[c] < UINT8_MAX ? colours[c] : UINT8_MAX);
    }
}

static FshStatus read_pixels(TIFF *tiff, bool strict, bool over_white, uint32_t width, uint32_t height,
                             uint8_t *pixels, FshError *error)
{
    TIFFRGBAImage reader;
    char reason[1024] = "";
    const size_t count = (size_t)width * height;
    uint32_t *raster = calloc(count, sizeof *raster);
    FshStatus status = FSH_OK;
    if (!raster)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for an image of %u x %u pixels", width,
                             height);
    if (!TIFFRGBAImageBegin(&reader, tiff, strict, reason)) {
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s",
                               reason[0] ? reason : "a TIFF that libtiff cannot read");
        goto done;
    }
    reader.req_orientation = reader.orientation; /* turned later, as every format is */
    const int read = TIFFRGBAImageGet(&reader, raster, width, height);
    TIFFRGBAImageEnd(&reader);
    if (strict && (!read || notes_damage()[0]))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "damaged or truncated (%s)",
                               notes_damage()[0] ? notes_damage() : "libtiff cannot read its pixels");
    else
        take_pixels(raster, count, over_white, pixels);
done:
    free(raster);
    return status;
}

static void copy_block(TIFF *tiff, uint32_t tag, VipsImage *image, const char *name)
{
    uint32_t length = 0;
    const void *bytes = NULL;
    if (TIFFGetField(tiff, tag, &length, &bytes) && length)
        vips_image_set_blob_copy(image, name, bytes, length);
}

FshStatus tiff_open(const void *bytes, size_t length, bool with_pixels, bool strict, VipsImage **image,
                    FshError *error)
{
    Memory memory = {.bytes = bytes, .length = length};
    TiffFacts facts = {0};
    uint32_t width = 0, height = 0;
    uint8_t *pixels = NULL;
    FshStatus status = FSH_OK;
    TIFF *tiff = open_memory(&memory);
    *image = NULL;
    if (!tiff || !TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &width) ||
        !TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &height) || width == 0 || height == 0 || width > INT32_MAX ||
        height > INT32_MAX) {
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "damaged or truncated (no size in its first folder)");
        goto done;
    }
    describe(tiff, &memory, &facts);
    if (with_pixels) {
        pixels = g_try_malloc((gsize)width * height * CHANNELS);
        status = pixels ? read_pixels(tiff, strict, facts.kept_count > CHANNELS, width, height, pixels, error)
                        : fsh_error_set(error, FSH_ERR_MEMORY, "no memory for an image of %u x %u pixels",
                                        width, height);
        if (status)
            goto done;
        *image = vips_image_new_from_memory(pixels, (size_t)width * height * CHANNELS, (int)width,
                                            (int)height, CHANNELS, VIPS_FORMAT_UCHAR);
        if (*image)
            g_object_set_data_full(G_OBJECT(*image), "fshard-pixels", pixels, g_free);
        pixels = *image ? NULL : pixels;
    } else if (vips_black(image, (int)width, (int)height, "bands", CHANNELS, NULL)) {
        *image = NULL;
    }
    if (!*image) {
        status = notes_failure(FSH_ERR_LIBRARY, "", error);
        goto done;
    }
    (*image)->Type = VIPS_INTERPRETATION_sRGB;
    vips_image_set_int(*image, VIPS_META_ORIENTATION, number_of(tiff, TIFFTAG_ORIENTATION));
    copy_block(tiff, TIFFTAG_ICCPROFILE, *image, VIPS_META_ICC_NAME);
    copy_block(tiff, TIFFTAG_XMLPACKET, *image, VIPS_META_XMP_NAME);
done:
    g_free(pixels);
    if (tiff)
        TIFFClose(tiff);
    return status;
}
