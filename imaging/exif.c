#include "imaging/exif.h"

#include <string.h>

#include "imaging/tiff_tags.h"

enum { TAG_ORIENTATION = 0x0112 };

size_t exif_prefix_bytes(const void *bytes, size_t length)
{
    return length >= 6 && memcmp(bytes, "Exif\0\0", 6) == 0 ? 6 : 0;
}

uint8_t exif_orientation(const void *bytes, size_t length, bool *damaged_ret)
{
    size_t prefix = exif_prefix_bytes(bytes, length);
    TiffTags tags;
    const uint8_t *block = bytes;
    if (prefix)
        block += prefix; /* if length is 0 this may still be NULL */
    if (!tiff_tags_open(&tags, block, length - prefix)) {
        *damaged_ret = true;
        return 1;
    }
    if (tags.cut_short) /* the entries that are there may still hold the tag */
        *damaged_ret = true;
    for (size_t i = 0; i < tags.count; i++) {
        TiffTag tag = tiff_tags_get(&tags, i);
        uint32_t value = 0;
        if (tag.tag != TAG_ORIENTATION)
            continue;
        if (!tiff_tag_number(&tags, &tag, &value) || value < 1 || value > 8) {
            *damaged_ret = true;
            return 1;
        }
        return (uint8_t)value;
    }
    return 1;
}

bool exif_make_upright(uint8_t *bytes, size_t length)
{
    /* type, count and value: a SHORT with value 1, the rest of its four bytes 0 */
    static const uint8_t big[] = {0, 3, 0, 0, 0, 1, 0, 1, 0, 0}, little[] = {3, 0, 1, 0, 0, 0, 1, 0, 0, 0};
    size_t prefix = exif_prefix_bytes(bytes, length);
    TiffTags tags;
    if (!tiff_tags_open(&tags, bytes + prefix, length - prefix) || tags.cut_short)
        return false;
    for (size_t i = 0; i < tags.count; i++) { /* every entry: readers differ in which one they take */
        TiffTag tag = tiff_tags_get(&tags, i);
        if (tag.tag == TAG_ORIENTATION)
            memcpy(bytes + prefix + tag.at + 2, tags.big_endian ? big : little, sizeof big);
    }
    return true;
}

void xmp_make_upright(char *text, size_t length)
{
    static const char name[] = "tiff:Orientation";
    char *end = text + length, *found = text;
    while ((found = memmem(found, (size_t)(end - found), name, sizeof name - 1)) != NULL) {
        found += sizeof name - 1;
        char *value = found; /* ="6" or >6</ */
        while (value < end && value - found < 8 && strchr(" \t\r\n='\">", *value) && *value)
            value++;
        if (value > found && value < end && *value >= '2' && *value <= '8')
            *value = '1';
    }
}
