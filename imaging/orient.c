#include "imaging/orient.h"

#include <string.h>

/* Where the stored row 0 and column 0 are shown (EXIF 2.32, 4.6.5): mirror in stored coordinates, then, for 5
 * to 8, exchange the axes. */
static const struct {
    bool mirror_x, mirror_y, exchange;
} turns[9] = {
    [1] = {false, false, false}, [2] = {true, false, false}, [3] = {true, true, false},
    [4] = {false, true, false},  [5] = {false, false, true}, [6] = {false, true, true},
    [7] = {true, true, true},    [8] = {true, false, true},
};

FshStatus image_orient(const Image *source, uint8_t orientation, Image *target, FshError *error)
{
    bool exchange = turns[orientation].exchange;
    uint32_t width = source->width, height = source->height, channels = source->channels;
    FshStatus status =
        image_reserve(target, exchange ? height : width, exchange ? width : height, channels, error);
    if (status)
        return status;
    /* steps in target for one step right and one step down in source */
    ptrdiff_t step_x = exchange ? (ptrdiff_t)target->width * channels : (ptrdiff_t)channels;
    ptrdiff_t step_y = exchange ? (ptrdiff_t)channels : (ptrdiff_t)target->width * channels;
    uint8_t *start = target->pixels;
    if (turns[orientation].mirror_x) {
        start += step_x * ((ptrdiff_t)width - 1);
        step_x = -step_x;
    }
    if (turns[orientation].mirror_y) {
        start += step_y * ((ptrdiff_t)height - 1);
        step_y = -step_y;
    }
    const uint8_t *from = source->pixels;
    for (uint32_t y = 0; y < height; y++) {
        uint8_t *to = start + step_y * (ptrdiff_t)y;
        for (uint32_t x = 0; x < width; x++, from += channels, to += step_x)
            memcpy(to, from, channels);
    }
    return FSH_OK;
}

FshStatus image_convert_channels(const Image *source, uint32_t channels, Image *target, FshError *error)
{
    FshStatus status = image_reserve(target, source->width, source->height, channels, error);
    if (status)
        return status;
    size_t pixels_count = (size_t)source->width * source->height;
    const uint8_t *from = source->pixels;
    uint8_t *to = target->pixels;
    if (channels == source->channels) {
        memcpy(to, from, pixels_count * channels);
    } else if (channels == 3) {
        for (size_t i = 0; i < pixels_count; i++)
            to[3 * i] = to[3 * i + 1] = to[3 * i + 2] = from[i];
    } else { /* 0.299, 0.587, 0.114 in 16-bit fixed point */
        for (size_t i = 0; i < pixels_count; i++)
            to[i] = (uint8_t)((from[3 * i] * 19595u + from[3 * i + 1] * 38470u + from[3 * i + 2] * 7471u +
                               0x8000u) >>
                              16);
    }
    return FSH_OK;
}

void image_over_white(const uint8_t *from, uint32_t width, uint32_t channels, uint8_t *to)
{
    for (uint32_t x = 0; x < width; x++, from += channels + 1, to += channels) {
        unsigned alpha = from[channels], white = 255 * (255 - alpha);
        for (uint32_t c = 0; c < channels; c++)
            to[c] = (uint8_t)((from[c] * alpha + white + 127) / 255);
    }
}
