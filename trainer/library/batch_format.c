#include "trainer/library/batch_format.h"

#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Rounds to bfloat16, to nearest, ties to even. */
static uint32_t to_bf16(float value)
{
    const uint32_t bits = bits_of(value);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* Rounds to IEEE binary16, to nearest, ties to even; what is too large becomes infinite. */
static uint32_t to_f16(float value)
{
    const uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x47800000) /* 2^16 */
        return sign | 0x7c00;
    if (magnitude < 0x33000000) /* below half of the smallest */
        return sign;
    const uint32_t exponent = magnitude >> 23;
    /* Bits to drop: 13 of a normal number, more of one below 2^-14. */
    const uint32_t drop = exponent < 113 ? 126 - exponent : 13;
    const uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
    const uint32_t kept = significand >> drop, rest = significand & ((1U << drop) - 1),
                   half = 1U << (drop - 1);
    const uint32_t rounded = kept + (rest > half || (rest == half && (kept & 1)));
    /* The leading bit of a normal number adds one to the exponent, as a carry does. */
    return sign | (exponent < 113 ? rounded : ((exponent - 113) << 10) + rounded);
}

void batch_format_make(BatchFormat *format, FshLoaderElement element, bool planes, uint32_t channels,
                       const double *mean, const double *deviation)
{
    *format = (BatchFormat){.channels = channels,
                            .element_bytes = element == FSH_LOADER_U8    ? 1
                                             : element == FSH_LOADER_F32 ? 4
                                                                         : 2,
                            .planes = planes && channels > 1};
    format->same = element == FSH_LOADER_U8 && !format->planes;
    for (uint32_t c = 0; c < channels; c++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            const float value = (float)((byte / 255.0 - mean[c]) / deviation[c]);
            format->table[c][byte] = element == FSH_LOADER_U8    ? byte
                                     : element == FSH_LOADER_F32 ? bits_of(value)
                                     : element == FSH_LOADER_F16 ? to_f16(value)
                                                                 : to_bf16(value);
        }
    }
}

/* Each writes the values of one channel, every `step`-th. */
static void write_u8(const uint8_t *source, size_t count, size_t channels, uint8_t *target, size_t step)
{
    for (size_t i = 0; i < count; i++)
        target[i * step] = source[i * channels];
}

static void write_u16(const uint32_t *table, const uint8_t *source, size_t count, size_t channels,
                      uint16_t *target, size_t step)
{
    for (size_t i = 0; i < count; i++)
        target[i * step] = (uint16_t)table[source[i * channels]];
}

static void write_u32(const uint32_t *table, const uint8_t *source, size_t count, size_t channels,
                      uint32_t *target, size_t step)
{
    for (size_t i = 0; i < count; i++)
        target[i * step] = table[source[i * channels]];
}

void batch_format_image(const BatchFormat *format, const uint8_t *source, size_t pixels, void *target)
{
    const size_t channels = format->channels, step = format->planes ? 1 : channels;
    if (format->same) {
        memcpy(target, source, pixels * channels);
        return;
    }
    for (size_t c = 0; c < channels; c++) {
        const size_t first = format->planes ? c * pixels : c;
        if (format->element_bytes == 1)
            write_u8(source + c, pixels, channels, (uint8_t *)target + first, step);
        else if (format->element_bytes == 2)
            write_u16(format->table[c], source + c, pixels, channels, (uint16_t *)target + first, step);
        else
            write_u32(format->table[c], source + c, pixels, channels, (uint32_t *)target + first, step);
    }
}
