#include "imaging/camera_raw.h"

#include <string.h>

#include "imaging/tiff_tags.h"

enum {
    TAG_NEW_SUBFILE_TYPE = 0x00FE,
    TAG_PHOTOMETRIC = 0x0106,
    TAG_MAKE = 0x010F,
    TAG_SUB_FOLDERS = 0x014A,
    TAG_DNG_VERSION = 0xC612,

    SUBFILE_REDUCED = 1,
    PHOTOMETRIC_CFA = 32803,
    PHOTOMETRIC_LINEAR_RAW = 34892,
};

bool camera_raw_is(const void *bytes, size_t length)
{
    if (length >= 11 && memcmp((const char *)bytes + 8, "CR\x02", 3) == 0)
        return true; /* Canon */
    TiffTags tags;
    if (!tiff_tags_open(&tags, bytes, length))
        return false;
    bool reduced = false, made = false, has_folders = false;
    for (size_t i = 0; i < tags.count; i++) {
        TiffTag tag = tiff_tags_get(&tags, i);
        uint32_t number = 0;
        bool is_number = tiff_tag_number(&tags, &tag, &number);
        if (tag.tag == TAG_DNG_VERSION)
            return true;
        if (tag.tag == TAG_PHOTOMETRIC && is_number &&
            (number == PHOTOMETRIC_CFA || number == PHOTOMETRIC_LINEAR_RAW))
            return true;
        reduced |= tag.tag == TAG_NEW_SUBFILE_TYPE && is_number && number == SUBFILE_REDUCED;
        made |= tag.tag == TAG_MAKE;
        has_folders |= tag.tag == TAG_SUB_FOLDERS;
    }
    /* Nikon NEF, Sony ARW: a camera made it, the first folder is a reduced image, and other folders hold the
     * photograph. The first folder of a pyramid is the full image. */
    return reduced && made && has_folders;
}
