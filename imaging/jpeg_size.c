/* Markers as in ITU-T T.81 B.1, each checked as closely as libjpeg's header reading does. Rare ones are left
 * to libjpeg. */
#include "imaging/jpeg_size.h"

#include "common/bytes.h"

enum {
    MARKER_SOF0 = 0xC0, /* baseline; then extended, progressive */
    MARKER_SOF2 = 0xC2,
    MARKER_DHT = 0xC4,
    MARKER_SOI = 0xD8,
    MARKER_SOS = 0xDA,
    MARKER_DQT = 0xDB,
    MARKER_DRI = 0xDD,
    MARKER_APP0 = 0xE0,
    MARKER_COM = 0xFE,
    COMPONENTS_MAX = 3,
    TABLES = 4, /* of each kind */
    SAMPLING_MAX = 4,
    EDGE_MAX = 65500, /* libjpeg's JPEG_MAX_DIMENSION */
};

/* The bytes of a segment after its length field. */
typedef struct Segment {
    const uint8_t *bytes;
    size_t length;
} Segment;

typedef struct Frame {
    uint32_t width, height;
    uint8_t components, ids[COMPONENTS_MAX]; /* components 0: not seen yet */
} Frame;

static bool quantization_is_good(Segment segment)
{
    while (segment.length) {
        const unsigned precision = segment.bytes[0] >> 4, table = segment.bytes[0] & 15;
        const size_t taken = 1 + (size_t)64 * (precision + 1);
        if (precision > 1 || table >= TABLES || taken > segment.length)
            return false;
        segment.bytes += taken;
        segment.length -= taken;
    }
    return true;
}

static bool huffman_is_good(Segment segment)
{
    enum { COUNTS = 16 };
    while (segment.length > COUNTS) {
        const unsigned table = segment.bytes[0];
        size_t symbols = 0;
        for (size_t i = 1; i <= COUNTS; i++)
            symbols += segment.bytes[i];
        const size_t taken = 1 + COUNTS + symbols;
        if ((table & 15) >= TABLES || table >> 4 > 1 || symbols > 256 || taken > segment.length)
            return false;
        segment.bytes += taken;
        segment.length -= taken;
    }
    return segment.length == 0;
}

static bool frame_is_good(Segment segment, Frame *frame)
{
    enum { FIXED = 6, EACH = 3 };
    if (frame->components || segment.length < FIXED)
        return false;
    const uint8_t *bytes = segment.bytes;
    *frame = (Frame){.height = load_be16(bytes + 1), .width = load_be16(bytes + 3), .components = bytes[5]};
    if (bytes[0] != 8 || frame->height < 1 || frame->height > EDGE_MAX || frame->width < 1 ||
        frame->width > EDGE_MAX || (frame->components != 1 && frame->components != COMPONENTS_MAX) ||
        segment.length != FIXED + (size_t)EACH * frame->components)
        return false;
    for (unsigned i = 0; i < frame->components; i++) {
        const uint8_t *component = bytes + FIXED + (size_t)EACH * i;
        const unsigned across = component[1] >> 4, down = component[1] & 15;
        frame->ids[i] = component[0];
        if (across < 1 || across > SAMPLING_MAX || down < 1 || down > SAMPLING_MAX)
            return false;
        for (unsigned j = 0; j < i; j++) {
            if (frame->ids[j] == frame->ids[i])
                return false;
        }
    }
    return true;
}

/* Returns whether the first scan names components of the frame, each once and in the frame's order. */
static bool scan_is_good(Segment segment, const Frame *frame)
{
    if (segment.length < 1 || segment.bytes[0] < 1 || segment.length != (size_t)4 + 2 * segment.bytes[0])
        return false;
    unsigned next = 0;
    for (unsigned i = 0; i < segment.bytes[0]; i++) {
        while (next < frame->components && frame->ids[next] != segment.bytes[1 + 2 * i])
            next++;
        if (next++ >= frame->components)
            return false;
    }
    return true;
}

/* Returns whether the segment is valid before the first scan. */
static bool segment_is_good(unsigned marker, Segment segment, Frame *frame)
{
    switch (marker) {
    case MARKER_APP0:
    case MARKER_COM:
        return true;
    case MARKER_DRI:
        return segment.length == 2;
    case MARKER_DQT:
        return quantization_is_good(segment);
    case MARKER_DHT:
        return huffman_is_good(segment);
    default:
        return marker >= MARKER_SOF0 && marker <= MARKER_SOF2 && frame_is_good(segment, frame);
    }
}

bool jpeg_size(const void *bytes, size_t length, ImageInfo *info)
{
    const uint8_t *jpeg = bytes;
    Frame frame = {0};
    if (length < 2 || jpeg[0] != 0xFF || jpeg[1] != MARKER_SOI)
        return false;
    for (size_t at = 2; length - at >= 4 && jpeg[at] == 0xFF;) {
        const unsigned marker = jpeg[at + 1];
        const size_t segment_bytes = load_be16(jpeg + at + 2); /* including its own two bytes */
        if (segment_bytes < 2 || segment_bytes > length - at - 2)
            return false;
        const Segment segment = {jpeg + at + 4, segment_bytes - 2};
        if (marker == MARKER_SOS) {
            *info = (ImageInfo){.format = IMAGE_JPEG,
                                .width = frame.width,
                                .height = frame.height,
                                .stored_width = frame.width,
                                .stored_height = frame.height,
                                .channels = frame.components,
                                .orientation = 1};
            return frame.components && scan_is_good(segment, &frame);
        }
        if (!segment_is_good(marker, segment, &frame))
            return false;
        at += 2 + segment_bytes;
    }
    return false;
}

FshStatus jpeg_size_or_probe(ImageDecoder *decoder, const void *bytes, size_t length, ImageInfo *info,
                             FshError *error)
{
    return jpeg_size(bytes, length, info) ? FSH_OK : image_probe(decoder, bytes, length, info, error);
}
