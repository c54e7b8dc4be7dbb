#include "imaging/icc.h"

#include <string.h>

enum { HEADER_BYTES = 128, COLOUR_SPACE_AT = 16, TAG_ROW_BYTES = 12 };

static uint32_t read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

bool icc_profile_matches(const void *profile, size_t length, uint32_t channels)
{
    const uint8_t *bytes = profile;
    return length >= HEADER_BYTES && memcmp(bytes + COLOUR_SPACE_AT, channels == 1 ? "GRAY" : "RGB ", 4) == 0;
}

bool icc_profile_is_srgb(const void *profile, size_t length)
{
    const uint8_t *bytes = profile;
    if (length < HEADER_BYTES + 4)
        return false;
    size_t count = read_u32(bytes + HEADER_BYTES), room = (length - HEADER_BYTES - 4) / TAG_ROW_BYTES;
    if (count > room)
        count = room;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *row = bytes + HEADER_BYTES + 4 + i * TAG_ROW_BYTES;
        size_t offset = read_u32(row + 4), size = read_u32(row + 8);
        if (memcmp(row, "desc", 4) != 0 || offset > length || size > length - offset)
            continue;
        /* version 2 writes ASCII, version 4 UTF-16 */
        return memmem(bytes + offset, size, "sRGB", 4) || memmem(bytes + offset, size, "s\0R\0G\0B", 7);
    }
    return false;
}
