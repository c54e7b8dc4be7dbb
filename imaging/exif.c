#include "imaging/exif.h"

#include <string.h>

enum { TAG_ORIENTATION = 0x0112, TYPE_SHORT = 3, TYPE_LONG = 4, ENTRY_BYTES = 12 };

typedef struct Reader {
    const uint8_t *bytes; /* from the TIFF header on: offsets count from here */
    size_t length;
    bool big_endian;
} Reader;

/* The caller has checked that the bytes are there. */
static uint32_t read_u16(const Reader *reader, size_t offset)
{
    const uint8_t *p = reader->bytes + offset;
    return reader->big_endian ? (uint32_t)p[0] << 8 | p[1] : (uint32_t)p[1] << 8 | p[0];
}

static uint32_t read_u32(const Reader *reader, size_t offset)
{
    uint32_t first = read_u16(reader, offset), second = read_u16(reader, offset + 2);
    return reader->big_endian ? first << 16 | second : second << 16 | first;
}

uint8_t exif_orientation(const void *bytes, size_t length, bool *damaged_ret)
{
    Reader reader = {.bytes = bytes, .length = length};
    if (length >= 6 && memcmp(bytes, "Exif\0\0", 6) == 0) {
        reader.bytes += 6;
        reader.length -= 6;
    }
    if (reader.length < 8) {
        *damaged_ret = true;
        return 1;
    }
    reader.big_endian = reader.bytes[0] == 'M';
    if (memcmp(reader.bytes, reader.big_endian ? "MM\0*" : "II*\0", 4) != 0) {
        *damaged_ret = true;
        return 1;
    }
    size_t folder = read_u32(&reader, 4);
    if (folder > reader.length - 2) {
        *damaged_ret = true;
        return 1;
    }
    size_t count = read_u16(&reader, folder);
    size_t room = (reader.length - folder - 2) / ENTRY_BYTES;
    if (count > room) { /* cut short: what is there may still hold the tag */
        *damaged_ret = true;
        count = room;
    }
    for (size_t i = 0; i < count; i++) {
        size_t entry = folder + 2 + i * ENTRY_BYTES;
        if (read_u16(&reader, entry) != TAG_ORIENTATION)
            continue;
        uint32_t type = read_u16(&reader, entry + 2);
        uint32_t value = type == TYPE_LONG ? read_u32(&reader, entry + 8) : read_u16(&reader, entry + 8);
        if ((type != TYPE_SHORT && type != TYPE_LONG) || value < 1 || value > 8) {
            *damaged_ret = true;
            return 1;
        }
        return (uint8_t)value;
    }
    return 1;
}
