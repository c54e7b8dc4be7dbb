/* What the bytes of a member are, as far as a container must know without decoding. */
#include "formats/media.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/text.h"
#include "common/bytes.h"

/* Signature at an offset; the first row that fits counts. */
static const struct {
    size_t at, bytes;
    const char *signature;
    FshCodec codec;
} signatures[] = {
    {0, 3, "\xFF\xD8\xFF", FSH_CODEC_JPEG}, {0, 8, "\x89PNG\r\n\x1A\n", FSH_CODEC_PNG},
    {8, 4, "WEBP", FSH_CODEC_WEBP},         {0, 4, "II*\0", FSH_CODEC_TIFF},
    {0, 4, "MM\0*", FSH_CODEC_TIFF},        {0, 4, "II+\0", FSH_CODEC_TIFF},
    {0, 4, "MM\0+", FSH_CODEC_TIFF},        {0, 6, "GIF87a", FSH_CODEC_GIF},
    {0, 6, "GIF89a", FSH_CODEC_GIF},        {0, 2, "BM", FSH_CODEC_BMP},
    {0, 10, "YUV4MPEG2 ", FSH_CODEC_Y4M},
};

FshCodec fsh_codec_sniff(const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
        if (length >= signatures[i].at + signatures[i].bytes &&
            memcmp(bytes + signatures[i].at, signatures[i].signature, signatures[i].bytes) == 0)
            return signatures[i].codec;
    }
    /* P1 to P7 and a blank: netpbm. */
    if (length >= 3 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '7' &&
        (bytes[2] == ' ' || bytes[2] == '\t' || bytes[2] == '\r' || bytes[2] == '\n' || bytes[2] == '#'))
        return FSH_CODEC_PNM;
    return FSH_CODEC_OTHER;
}

/* The first of a codec is the one that is written. */
static const struct {
    const char *extension;
    FshCodec codec;
} extensions[] = {
    {"jpg", FSH_CODEC_JPEG},  {"jpeg", FSH_CODEC_JPEG}, {"png", FSH_CODEC_PNG},   {"webp", FSH_CODEC_WEBP},
    {"tif", FSH_CODEC_TIFF},  {"tiff", FSH_CODEC_TIFF}, {"gif", FSH_CODEC_GIF},   {"bmp", FSH_CODEC_BMP},
    {"ppm", FSH_CODEC_PNM},   {"pgm", FSH_CODEC_PNM},   {"pbm", FSH_CODEC_PNM},   {"pnm", FSH_CODEC_PNM},
    {"pam", FSH_CODEC_PNM},   {"jpe", FSH_CODEC_JPEG},  {"jfif", FSH_CODEC_JPEG}, {"y4m", FSH_CODEC_Y4M},
    {"img", FSH_CODEC_OTHER},
};

const char *fsh_codec_extension(FshCodec codec)
{
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        if (extensions[i].codec == codec)
            return extensions[i].extension;
    }
    return "npy";
}

bool fsh_extension_is_image(const char *extension, size_t bytes)
{
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        if (strlen(extensions[i].extension) == bytes &&
            memcmp(extensions[i].extension, extension, bytes) == 0)
            return true;
    }
    return false;
}

/* ---- .npy ---- */

static const uint8_t npy_magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

typedef struct Text {
    const char *next, *end;
} Text;

static bool take(Text *text, const char *expected)
{
    size_t bytes = strlen(expected);
    text->next = text_skip_blanks(text->next, text->end);
    if ((size_t)(text->end - text->next) < bytes || memcmp(text->next, expected, bytes) != 0)
        return false;
    text->next += bytes;
    return true;
}

static bool take_number(Text *text, uint64_t *number_ret)
{
    uint64_t number = 0;
    text->next = text_skip_blanks(text->next, text->end);
    const char *begin = text->next;
    for (; text->next < text->end && *text->next >= '0' && *text->next <= '9'; text->next++) {
        number = number * 10 + (uint64_t)(*text->next - '0');
        if (number > UINT32_MAX)
            return false;
    }
    *number_ret = number;
    return text->next > begin;
}

/* Takes "(3, 4)" or "(3, 4, 1)", of *count_ret numbers; a comma may stand at the end. */
static bool take_shape(Text *text, uint64_t shape[3], size_t *count_ret)
{
    size_t count = 0;
    if (!take(text, "("))
        return false;
    while (count < 3 && take_number(text, &shape[count])) {
        count++;
        if (!take(text, ","))
            break;
    }
    *count_ret = count;
    return take(text, ")");
}

/* Reads the three members of the dictionary that numpy writes, in any order: shape, of *shape_count_ret
 * numbers. Returns false if they are others, or of another type. */
static bool parse_npy_header(Text text, uint64_t shape[3], size_t *shape_count_ret)
{
    bool has_type = false, has_order = false, has_shape = false;
    if (!take(&text, "{"))
        return false;
    while (!take(&text, "}")) {
        bool *has = NULL, good = false;
        if (take(&text, "'descr'")) {
            has = &has_type;
            good = take(&text, ":") && (take(&text, "'|u1'") || take(&text, "'u1'") || take(&text, "'<u1'"));
        } else if (take(&text, "'fortran_order'")) {
            has = &has_order;
            good = take(&text, ":") && take(&text, "False");
        } else if (take(&text, "'shape'")) {
            has = &has_shape;
            good = take(&text, ":") && take_shape(&text, shape, shape_count_ret);
        }
        if (!has || *has || !good)
            return false;
        *has = true;
        (void)take(&text, ",");
    }
    return has_type && has_order && has_shape;
}

bool fsh_npy_parse(const uint8_t *bytes, size_t length, NpyArray *array_ret)
{
    enum { AT_VERSION = 6, AT_LENGTH = 8, START_BYTES = 10, LONG_START_BYTES = 12 };
    if (length < LONG_START_BYTES || memcmp(bytes, npy_magic, sizeof npy_magic) != 0)
        return false;
    unsigned version = bytes[AT_VERSION];
    size_t start = version == 1 ? START_BYTES : LONG_START_BYTES;
    uint64_t header_bytes = version == 1 ? load_le16(bytes + AT_LENGTH) : load_le32(bytes + AT_LENGTH);
    if (version < 1 || version > 3 || header_bytes > length - start)
        return false;
    const char *text = (const char *)bytes + start;
    uint64_t shape[3] = {0, 0, 1};
    size_t shape_count = 0;
    if (!parse_npy_header((Text){text, text + header_bytes}, shape, &shape_count) || shape_count < 2)
        return false;
    if (shape_count == 2)
        shape[2] = 1;
    uint64_t pixels = shape[0] * shape[1], content = length - start - header_bytes; /* each below 2^32 */
    if (!shape[0] || !shape[1] || shape[2] < 1 || shape[2] > FSH_CHANNELS_MAX ||
        content / shape[2] != pixels || content % shape[2])
        return false;
    *array_ret = (NpyArray){.height = (uint32_t)shape[0],
                            .width = (uint32_t)shape[1],
                            .channels = (uint8_t)shape[2],
                            .data_at = start + (size_t)header_bytes};
    return true;
}

void fsh_npy_store_header(uint8_t header[NPY_HEADER_BYTES], uint32_t height, uint32_t width, uint8_t channels)
{
    enum { START_BYTES = 10 };
    char text[NPY_HEADER_BYTES];
    int length =
        snprintf(text, sizeof text,
                 "{'descr': '|u1', 'fortran_order': False, 'shape': (%" PRIu32 ", %" PRIu32 ", %u), }",
                 height, width, channels);
    memset(header, ' ', NPY_HEADER_BYTES);
    memcpy(header, npy_magic, sizeof npy_magic);
    header[6] = 1;
    header[7] = 0;
    store_le16(header + 8, NPY_HEADER_BYTES - START_BYTES);
    memcpy(header + START_BYTES, text, (size_t)length);
    header[NPY_HEADER_BYTES - 1] = '\n';
}
