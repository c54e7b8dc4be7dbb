/* tiff_tags.h - the tags in the first folder (IFD0) of a TIFF file or an EXIF block. Bytes may be hostile;
 * nothing outside them is read. Internal to imaging. Source: TIFF 6.0, section 2. */
#ifndef FSHARD_IMAGING_TIFF_TAGS_H
#define FSHARD_IMAGING_TIFF_TAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct TiffTags {
    const uint8_t *bytes; /* from the TIFF header on: offsets count from here */
    size_t length;
    bool big_endian;
    size_t first;   /* offset of the first entry */
    size_t count;   /* entries that lie within the bytes */
    bool cut_short; /* the folder claims more entries than that */
} TiffTags;

typedef struct TiffTag {
    uint32_t tag, type;
    size_t at; /* offset of the entry: tag, type, count and value take 2, 2, 4 and 4 bytes */
} TiffTag;

/* Finds the first folder. Returns false if there is no TIFF header (BigTIFF has another one), or if the
 * folder lies outside. */
bool tiff_tags_open(TiffTags *tags, const void *bytes, size_t length);

/* Returns the tag at index, which must be below tags->count. */
TiffTag tiff_tags_get(const TiffTags *tags, size_t index);

/* Sets *number_ret to the number in the entry itself and returns true if its type is SHORT or LONG; else
 * returns false. */
bool tiff_tag_number(const TiffTags *tags, const TiffTag *tag, uint32_t *number_ret);

#endif
