#include "trainer/data/jpeg_plain.h"

#include <string.h>

#include "imaging/exif.h"

/* ITU-T T.81, table B.1. */
enum {
    MARKER_SOI = 0xD8,
    MARKER_SOF0 = 0xC0,
    MARKER_DHT = 0xC4,
    MARKER_JPG = 0xC8,
    MARKER_DAC = 0xCC,
    MARKER_SOF15 = 0xCF,
    MARKER_SOS = 0xDA,
    MARKER_DQT = 0xDB,
    MARKER_APP1 = 0xE1,
    MARKER_APP14 = 0xEE,
};
enum { TABLES_MAX = 4 }; /* of quantisation */

/* What was seen before the first scan. */
typedef struct Seen {
    uint32_t width, height;
    unsigned components; /* 0: no frame yet */
    /* Of quantisation: a bit for each that a component names, and for each that there is. */
    unsigned wanted_tables, tables;
    int transform; /* Adobe's; -1: it has none */
    bool odd;
} Seen;

static uint32_t big16(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 8 | bytes[1];
}

/* Reads the parameters of a frame header, after its length (T.81, B.2.2). */
static void see_frame(const uint8_t *frame, size_t length, Seen *seen)
{
    if (length < 6 || seen->components) {
        seen->odd = true;
        return;
    }
    seen->height = big16(frame + 1);
    seen->width = big16(frame + 3);
    seen->components = frame[5];
    seen->odd |= frame[0] != 8 || seen->width == 0 || seen->height == 0 ||
                 (seen->components != 1 && seen->components != 3) ||
                 length != 6 + 3 * (size_t)seen->components;
    if (seen->odd)
        return;
    const uint8_t *component = frame + 6;
    for (unsigned i = 0; i < seen->components; i++) {
        seen->odd |= component[3 * i + 2] >= TABLES_MAX;
        seen->wanted_tables |= 1U << component[3 * i + 2] % TABLES_MAX;
    }
    const unsigned across = component[1] >> 4, down = component[1] & 15;
    if (seen->components == 1) {
        /* other factors mean nothing (A.2.2), and nvJPEG 13.0 goes by them all the same */
        seen->odd |= component[1] != 0x11;
        return;
    }
    seen->odd |= across < 1 || across > 2 || down < 1 || down > 2 || component[4] != 0x11 ||
                 component[7] != 0x11 || (component[0] == 'R' && component[3] == 'G' && component[6] == 'B');
}

/* Reads tables of quantisation (T.81, B.2.4.1). nvJPEG 13.0 decodes a file without them, too. */
static void see_tables(const uint8_t *data, size_t length, Seen *seen)
{
    while (length > 0) {
        const size_t bytes = 1 + (size_t)64 * (data[0] >> 4 ? 2 : 1);
        seen->odd |= data[0] >> 4 > 1 || (data[0] & 15) >= TABLES_MAX || bytes > length;
        if (seen->odd)
            return;
        seen->tables |= 1U << (data[0] & 15);
        data += bytes;
        length -= bytes;
    }
}

static void see_application(uint8_t marker, const uint8_t *data, size_t length, Seen *seen)
{
    bool damaged = false;
    if (marker == MARKER_APP14 && length >= 12 && memcmp(data, "Adobe", 5) == 0)
        seen->transform = data[11];
    if (marker == MARKER_APP1 && length >= 6 && memcmp(data, "Exif\0", 6) == 0)
        seen->odd |= exif_orientation(data, length, &damaged) != 1 || damaged;
}

static bool is_other_frame(uint8_t marker)
{
    return marker > MARKER_SOF0 && marker <= MARKER_SOF15 && marker != MARKER_DHT && marker != MARKER_JPG;
}

/* Returns whether the scan has all components, from the first coefficient to the last (T.81, B.2.3). */
static bool is_whole_scan(const uint8_t *scan, size_t length, const Seen *seen)
{
    return length == 4 + 2 * (size_t)seen->components && scan[0] == seen->components &&
           (seen->wanted_tables & ~seen->tables) == 0 && scan[length - 3] == 0 && scan[length - 2] == 63 &&
           scan[length - 1] == 0;
}

bool jpeg_is_plain(const void *bytes, size_t length, uint32_t *width_ret, uint32_t *height_ret)
{
    const uint8_t *file = bytes;
    Seen seen = {.transform = -1};
    if (length < 4 || file[0] != 0xFF || file[1] != MARKER_SOI)
        return false;
    for (size_t at = 2; at + 4 <= length && file[at] == 0xFF && !seen.odd;) {
        const uint8_t marker = file[at + 1];
        if (marker == 0xFF) { /* fill */
            at++;
            continue;
        }
        const size_t segment = big16(file + at + 2);
        if (segment < 2 || segment > length - at - 2)
            return false;
        const uint8_t *data = file + at + 4;
        if (marker == MARKER_SOF0)
            see_frame(data, segment - 2, &seen);
        else if (marker == MARKER_DQT)
            see_tables(data, segment - 2, &seen);
        else if (is_other_frame(marker))
            return false;
        else if (marker == MARKER_SOS) {
            *width_ret = seen.width;
            *height_ret = seen.height;
            return seen.components && (seen.components == 1 || seen.transform < 0 || seen.transform == 1) &&
                   is_whole_scan(data, segment - 2, &seen);
        } else {
            see_application(marker, data, segment - 2, &seen);
        }
        at += 2 + segment;
    }
    return false;
}
