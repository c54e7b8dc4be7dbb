#include "imaging/pnm_decode.h"

#include <math.h>
#include <string.h>

enum { EDGE_MAX = 1 << 30, SAMPLE_MAX = 65535 };

typedef struct PnmReader {
    const uint8_t *bytes;
    size_t length, at;
    bool is_text, is_bitmap;
    uint32_t width, height, channels;
    uint32_t most; /* the largest sample allowed */
} PnmReader;

static bool is_space(uint8_t byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* Skips white space and comments. */
static void skip_space(PnmReader *reader)
{
    bool in_comment = false;
    for (; reader->at < reader->length; reader->at++) {
        const uint8_t byte = reader->bytes[reader->at];
        if (byte == '#')
            in_comment = true;
        else if (byte == '\n' || byte == '\r')
            in_comment = false;
        else if (!in_comment && !is_space(byte))
            return;
    }
}

/* Reads a decimal number of at most `most`. */
static bool read_number(PnmReader *reader, uint32_t most, uint32_t *number_ret)
{
    uint64_t number = 0;
    skip_space(reader);
    const size_t begin = reader->at;
    for (; reader->at < reader->length; reader->at++) {
        const unsigned digit = (unsigned)reader->bytes[reader->at] - '0';
        if (digit > 9)
            break;
        number = number * 10 + digit;
        if (number > most)
            return false;
    }
    *number_ret = (uint32_t)number;
    return reader->at > begin;
}

/* Reads one digit, a pixel of a PBM in text. White space between digits is optional. */
static bool read_bit(PnmReader *reader, uint32_t *bit_ret)
{
    skip_space(reader);
    if (reader->at >= reader->length ||
        (reader->bytes[reader->at] != '0' && reader->bytes[reader->at] != '1'))
        return false;
    *bit_ret = reader->bytes[reader->at++] == '0'; /* 1 is black */
    return true;
}

/* Reads the header; the reader then stands at the first sample. */
static FshStatus read_header(PnmReader *reader, const void *bytes, size_t length, FshError *error)
{
    *reader = (PnmReader){.bytes = bytes, .length = length, .at = 2, .most = 1};
    const unsigned kind = (unsigned)reader->bytes[1] - '0'; /* 1 to 6: it was sniffed */
    reader->is_text = kind <= 3;
    reader->is_bitmap = kind == 1 || kind == 4;
    reader->channels = kind == 3 || kind == 6 ? 3 : 1;
    if (!read_number(reader, EDGE_MAX, &reader->width) || !read_number(reader, EDGE_MAX, &reader->height) ||
        reader->width == 0 || reader->height == 0)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "damaged or truncated (no width and height in its header)");
    if (!reader->is_bitmap && (!read_number(reader, SAMPLE_MAX, &reader->most) || reader->most == 0))
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "damaged or truncated (its header's largest sample is not from 1 to %d)",
                             SAMPLE_MAX);
    if (reader->at < length && !is_space(reader->bytes[reader->at]))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "damaged (no white space after its header)");
    reader->at += reader->at < length;
    return FSH_OK;
}

FshStatus pnm_header(const void *bytes, size_t length, ImageInfo *info, FshError *error)
{
    PnmReader reader;
    *info = (ImageInfo){.format = IMAGE_PNM, .orientation = 1};
    FshStatus status = read_header(&reader, bytes, length, error);
    if (status)
        return status;
    info->width = info->stored_width = reader.width;
    info->height = info->stored_height = reader.height;
    info->channels = reader.channels;
    if (reader.channels == 1)
        info->quirks |= IMAGE_QUIRK_GRAY;
    if (reader.most > UINT8_MAX)
        info->quirks |= IMAGE_QUIRK_16BIT;
    return FSH_OK;
}

/* Scales a sample to 0..255, in doubles, so that the result is Pillow's. */
static uint8_t scale(uint32_t sample, uint32_t most)
{
    return sample >= most ? UINT8_MAX : (uint8_t)rint((double)sample / most * UINT8_MAX);
}

/* Reads samples in text. Returns how many there were. */
static size_t read_text(PnmReader *reader, uint8_t *samples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t sample = 0;
        if (reader->is_bitmap ? !read_bit(reader, &sample) : !read_number(reader, reader->most, &sample))
            return i;
        samples[i] = scale(sample, reader->most);
    }
    return count;
}

/* Reads the bits of a PBM, whose rows begin at a byte. Returns how many there were. */
static size_t read_bits(PnmReader *reader, uint8_t *samples)
{
    const size_t row_bytes = ((size_t)reader->width + 7) / 8;
    for (uint32_t y = 0; y < reader->height; y++, reader->at += row_bytes) {
        if (reader->length - reader->at < row_bytes)
            return (size_t)y * reader->width;
        const uint8_t *row = reader->bytes + reader->at;
        for (uint32_t x = 0; x < reader->width; x++)
            *samples++ = row[x / 8] >> (7 - x % 8) & 1 ? 0 : UINT8_MAX;
    }
    return (size_t)reader->width * reader->height;
}

static size_t read_bytes(PnmReader *reader, uint8_t *samples, size_t count)
{
    const size_t sample_bytes = reader->most > UINT8_MAX ? 2 : 1;
    const size_t there = (reader->length - reader->at) / sample_bytes, taken = there < count ? there : count;
    const uint8_t *from = reader->bytes + reader->at;
    uint8_t scaled[UINT8_MAX + 1];
    for (uint32_t i = 0; i <= UINT8_MAX && sample_bytes == 1; i++)
        scaled[i] = scale(i, reader->most);
    if (sample_bytes == 1 && reader->most == UINT8_MAX)
        memcpy(samples, from, taken);
    else if (sample_bytes == 1)
        for (size_t i = 0; i < taken; i++)
            samples[i] = scaled[from[i]];
    else
        for (size_t i = 0; i < taken; i++)
            samples[i] = scale((uint32_t)from[2 * i] << 8 | from[2 * i + 1], reader->most);
    return taken;
}

FshStatus pnm_decode(const void *bytes, size_t length, bool strict, Image *image, FshError *error)
{
    PnmReader reader;
    FshStatus status = read_header(&reader, bytes, length, error);
    if (!status)
        status = image_reserve(image, reader.width, reader.height, reader.channels, error);
    if (status)
        return status;
    const size_t count = (size_t)reader.width * reader.height * reader.channels;
    size_t taken = 0;
    if (reader.is_text)
        taken = read_text(&reader, image->pixels, count);
    else if (reader.is_bitmap)
        taken = read_bits(&reader, image->pixels);
    else
        taken = read_bytes(&reader, image->pixels, count);
    if (taken == count)
        return FSH_OK;
    if (strict)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "damaged or truncated (%zu of its %zu samples can be read)", taken, count);
    memset(image->pixels + taken, 0, count - taken);
    return FSH_OK;
}
