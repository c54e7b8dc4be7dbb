#include "imaging/image.h"

#include <stdlib.h>
#include <string.h>

#include "common/image_names.h"

#define IMAGE_ALIGNMENT_BYTES 64

static const struct {
    const char *name, *extension;
} formats[] = {
    [IMAGE_UNKNOWN] = {"unknown", ""}, [IMAGE_JPEG] = {"jpeg", ".jpg"},    [IMAGE_PNG] = {"png", ".png"},
    [IMAGE_WEBP] = {"webp", ".webp"},  [IMAGE_TIFF] = {"tiff", ".tif"},    [IMAGE_GIF] = {"gif", ".gif"},
    [IMAGE_BMP] = {"bmp", ".bmp"},     [IMAGE_PNM] = {"pnm", ".ppm"},      [IMAGE_Y4M] = {"y4m", ".y4m"},
    [IMAGE_HEIF] = {"heif", ".heic"},  [IMAGE_JPEG2000] = {"jp2", ".jp2"}, [IMAGE_TGA] = {"tga", ".tga"},
    [IMAGE_OTHER] = {"other", ""},
};

const char *image_format_name(ImageFormat format)
{
    return formats[format].name;
}

const char *image_format_extension(ImageFormat format)
{
    return formats[format].extension;
}

ImageFormat image_name_format(const char *path)
{
    const char *promised = image_name_kind(path);
    for (int format = IMAGE_JPEG; promised && format <= IMAGE_OTHER; format++) {
        if (strcmp(formats[format].name, promised) == 0)
            return (ImageFormat)format;
    }
    return IMAGE_UNKNOWN;
}

bool image_name_is_image(const char *path)
{
    return image_name_kind(path) != NULL;
}

FshStatus image_reserve(Image *image, uint32_t width, uint32_t height, uint32_t channels, FshError *error)
{
    size_t bytes = 0;
    if (__builtin_mul_overflow((size_t)width, (size_t)height, &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)channels, &bytes) || bytes > SIZE_MAX - IMAGE_ALIGNMENT_BYTES)
        return fsh_error_set(error, FSH_ERR_MEMORY, "an image of %u x %u pixels does not fit into memory",
                             width, height);
    if (bytes > image->capacity_bytes || !image->pixels) {
        /* aligned_alloc wants a multiple of the alignment; the old pixels need not be copied */
        size_t capacity = (bytes / IMAGE_ALIGNMENT_BYTES + 1) * IMAGE_ALIGNMENT_BYTES;
        uint8_t *pixels = aligned_alloc(IMAGE_ALIGNMENT_BYTES, capacity);
        if (!pixels)
            return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for an image of %u x %u pixels", width,
                                 height);
        if (!image->lent)
            free(image->pixels);
        image->pixels = pixels;
        image->capacity_bytes = capacity;
        image->lent = false;
    }
    image->width = width;
    image->height = height;
    image->channels = channels;
    return FSH_OK;
}

void image_free(Image *image)
{
    if (!image->lent)
        free(image->pixels);
    *image = (Image){0};
}

void image_lend(Image *image, void *pixels, size_t capacity_bytes)
{
    image_free(image);
    *image = (Image){.pixels = pixels, .capacity_bytes = capacity_bytes, .lent = true};
}

ImageView image_view(const Image *image)
{
    return (ImageView){.pixels = image->pixels,
                       .stride_bytes = (size_t)image->width * image->channels,
                       .width = image->width,
                       .height = image->height,
                       .channels = image->channels};
}

ImageView image_view_part(const ImageView *view, uint32_t left, uint32_t top, uint32_t width, uint32_t height)
{
    ImageView part = *view;
    part.pixels += top * view->stride_bytes + (size_t)left * view->channels;
    part.width = width;
    part.height = height;
    return part;
}

FshStatus image_copy_view(Image *image, const ImageView *view, FshError *error)
{
    FshStatus status = image_reserve(image, view->width, view->height, view->channels, error);
    const size_t row_bytes = (size_t)view->width * view->channels;
    for (uint32_t y = 0; y < view->height && !status; y++)
        memcpy(image->pixels + y * row_bytes, view->pixels + y * view->stride_bytes, row_bytes);
    return status;
}

void image_exchange(Image *a, Image *b)
{
    Image kept = *a;
    *a = *b;
    *b = kept;
}

static const char *const quirk_names[] = {
    "extension",   "gray", "cmyk",        "palette",    "alpha",   "16-bit",
    "orientation", "icc",  "progressive", "arithmetic", "warning", "animation",
};

const char *image_quirk_name(ImageQuirk quirk)
{
    for (unsigned bit = 0; bit < IMAGE_QUIRK_COUNT; bit++) {
        if ((uint32_t)quirk == 1u << bit)
            return quirk_names[bit];
    }
    return "unknown";
}

/* ---- sniffing: the first bytes of each format ---- */

static bool begins(const uint8_t *bytes, size_t length, size_t offset, const char *magic, size_t magic_bytes)
{
    return length >= offset + magic_bytes && memcmp(bytes + offset, magic, magic_bytes) == 0;
}

#define MAGIC(offset, text, format)                                                                          \
    {                                                                                                        \
        text, sizeof(text) - 1, offset, format                                                               \
    }

static const struct {
    const char *magic;
    size_t magic_bytes, offset;
    ImageFormat format;
} magics[] = {
    MAGIC(0, "\xff\xd8\xff", IMAGE_JPEG),
    MAGIC(0, "\x89PNG\r\n\x1a\n", IMAGE_PNG),
    MAGIC(8, "WEBP", IMAGE_WEBP), /* "RIFF" before it is checked below */
    MAGIC(0, "II*\0", IMAGE_TIFF),
    MAGIC(0, "MM\0*", IMAGE_TIFF),
    MAGIC(0, "II+\0", IMAGE_TIFF),
    MAGIC(0, "MM\0+", IMAGE_TIFF),
    MAGIC(0, "YUV4MPEG2 ", IMAGE_Y4M),
    MAGIC(0, "GIF87a", IMAGE_GIF),
    MAGIC(0, "GIF89a", IMAGE_GIF),
    MAGIC(4, "ftypheic", IMAGE_HEIF),
    MAGIC(4, "ftypheix", IMAGE_HEIF),
    MAGIC(4, "ftyphevc", IMAGE_HEIF),
    MAGIC(4, "ftypheim", IMAGE_HEIF),
    MAGIC(4, "ftypheis", IMAGE_HEIF),
    MAGIC(4, "ftypmif1", IMAGE_HEIF),
    MAGIC(4, "ftypmsf1", IMAGE_HEIF),
    MAGIC(4, "ftypavif", IMAGE_HEIF),
    MAGIC(4, "ftypavis", IMAGE_HEIF),
    MAGIC(0, "\0\0\0\x0cjP  \r\n\x87\n", IMAGE_JPEG2000),
    MAGIC(0, "\xff\x4f\xff\x51", IMAGE_JPEG2000),
    MAGIC(0, "\0\0\0\x0cJXL \r\n\x87\n", IMAGE_OTHER),
};

/* Returns whether this is a BMP: "BM" and the length of a header that exists. "BM" alone would match text. */
static bool is_bmp(const uint8_t *bytes, size_t length)
{
    static const uint8_t header_bytes[] = {12, 16, 40, 52, 56, 64, 108, 124};
    if (length < 18 || !begins(bytes, length, 0, "BM", 2) || bytes[15] || bytes[16] || bytes[17])
        return false;
    return memchr(header_bytes, bytes[14], sizeof header_bytes) != NULL;
}

/* Returns whether this is a PNM: P1 to P6, white space, then a digit or a comment. "P5\n" is one, "P5 in the
 * list" is not. */
static bool is_pnm(const uint8_t *bytes, size_t length)
{
    if (length < 4 || bytes[0] != 'P' || bytes[1] < '1' || bytes[1] > '6')
        return false;
    size_t i = 2;
    while (i < length && (bytes[i] == ' ' || (bytes[i] >= '\t' && bytes[i] <= '\r')))
        i++;
    return i > 2 && i < length && ((bytes[i] >= '0' && bytes[i] <= '9') || bytes[i] == '#');
}

/* Returns whether this is a bare JPEG XL codestream. Its magic is two bytes with which a Latin-1 text may
 * begin too (y with diaeresis, end of line), so a control character is required among the bit-packed headers
 * that follow. */
static bool is_jxl(const uint8_t *bytes, size_t length)
{
    size_t most = length < IMAGE_SNIFF_BYTES ? length : IMAGE_SNIFF_BYTES;
    if (!begins(bytes, length, 0, "\xff\x0a", 2))
        return false;
    for (size_t i = 2; i < most; i++) {
        if (bytes[i] < '\t' || (bytes[i] > '\r' && bytes[i] < ' ' && bytes[i] != 0x1B))
            return true;
    }
    return false;
}

ImageFormat image_sniff(const void *bytes, size_t length)
{
    const uint8_t *first = bytes;
    for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++) {
        if (!begins(first, length, magics[i].offset, magics[i].magic, magics[i].magic_bytes))
            continue;
        if (magics[i].format == IMAGE_WEBP && !begins(first, length, 0, "RIFF", 4))
            continue;
        return magics[i].format;
    }
    if (is_bmp(first, length))
        return IMAGE_BMP;
    if (is_jxl(first, length))
        return IMAGE_OTHER;
    return is_pnm(first, length) ? IMAGE_PNM : IMAGE_UNKNOWN;
}

bool image_is_tga(const void *bytes, size_t length)
{
    enum { HEADER_BYTES = 18, PALETTE = 1, COLOURS = 2, GRAY = 3, RUN_LENGTHS = 8 };
    const uint8_t *header = bytes;
    if (length < HEADER_BYTES || header[1] > 1 || header[17] >> 6) /* palette there or not; not interleaved */
        return false;
    const unsigned kind = header[2] & ~(unsigned)RUN_LENGTHS, depth = header[16], palette_depth = header[7];
    const bool has_size = (header[12] || header[13]) && (header[14] || header[15]);
    if (kind == PALETTE)
        return has_size && header[1] == 1 && depth == 8 && palette_depth >= 15 && palette_depth <= 32;
    if (kind == COLOURS)
        return has_size && (depth == 15 || depth == 16 || depth == 24 || depth == 32);
    return has_size && kind == GRAY && (depth == 8 || depth == 16);
}

uint32_t image_whole_factor(uint32_t width, uint32_t height, uint32_t other_width, uint32_t other_height)
{
    const uint32_t factor = width ? other_width / width : 0;
    const bool whole = other_width == (uint64_t)factor * width && other_height == (uint64_t)factor * height;
    return factor > 1 && whole ? factor : 0;
}
