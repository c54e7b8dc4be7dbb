/* tiff_tags.h - the tags of a TIFF structure's first folder (IFD0): of an EXIF block, of a TIFF file. Bytes
 * may be hostile; nothing outside them is read. Internal to imaging. Source: TIFF 6.0, section 2. */
#ifndef FSHARD_IMAGING_TIFF_TAGS_H
#define FSHARD_IMAGING_TIFF_TAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct TiffTags {
    const uint8_t *bytes; /* from the TIFF header on: offsets count from here */
    size_t length;
    bool big_endian;
    size_t first;   /* where the first entry is */
    size_t count;   /* entries that lie within the bytes */
    bool cut_short; /* the folder claims more of them */
} TiffTags;

typedef struct TiffTag {
    uint32_t tag, type;
    size_t at; /* of the entry: tag, type, count and value take 2, 2, 4 and 4 bytes */
} TiffTag;

/* False: no TIFF header (BigTIFF's included), or its first folder lies outside. */
bool tiff_tags_open(TiffTags *tags, const void *bytes, size_t length);

/* index below tags->count. */
TiffTag tiff_tags_get(const TiffTags *tags, size_t index);

/* The number in the entry itself, of type SHORT or LONG; false for other types. */
bool tiff_tag_number(const TiffTags *tags, const TiffTag *tag, uint32_t *number_ret);

#endif
