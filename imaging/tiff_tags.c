#include "imaging/tiff_tags.h"

#include <string.h>

enum { HEADER_BYTES = 8, ENTRY_BYTES = 12, TYPE_SHORT = 3, TYPE_LONG = 4 };

/* Reads a number; the caller has checked that its bytes are there. */
static uint32_t read_u16(const TiffTags *tags, size_t offset)
{
    const uint8_t *p = tags->bytes + offset;
    return tags->big_endian ? (uint32_t)p[0] << 8 | p[1] : (uint32_t)p[1] << 8 | p[0];
}

static uint32_t read_u32(const TiffTags *tags, size_t offset)
{
    uint32_t first = read_u16(tags, offset), second = read_u16(tags, offset + 2);
    return tags->big_endian ? first << 16 | second : second << 16 | first;
}

bool tiff_tags_open(TiffTags *tags, const void *bytes, size_t length)
{
    *tags = (TiffTags){.bytes = bytes, .length = length};
    if (length < HEADER_BYTES)
        return false;
    tags->big_endian = tags->bytes[0] == 'M';
    if (memcmp(bytes, tags->big_endian ? "MM\0*" : "II*\0", 4) != 0)
        return false;
    size_t folder = read_u32(tags, 4);
    if (folder > length - 2)
        return false;
    size_t count = read_u16(tags, folder), room = (length - folder - 2) / ENTRY_BYTES;
    tags->first = folder + 2;
    tags->cut_short = count > room;
    tags->count = tags->cut_short ? room : count;
    return true;
}

TiffTag tiff_tags_get(const TiffTags *tags, size_t index)
{
    size_t at = tags->first + index * ENTRY_BYTES;
    return (TiffTag){.tag = read_u16(tags, at), .type = read_u16(tags, at + 2), .at = at};
}

bool tiff_tag_number(const TiffTags *tags, const TiffTag *tag, uint32_t *number_ret)
{
    if (tag->type != TYPE_SHORT && tag->type != TYPE_LONG)
        return false;
    *number_ret = tag->type == TYPE_LONG ? read_u32(tags, tag->at + 8) : read_u16(tags, tag->at + 8);
    return true;
}
