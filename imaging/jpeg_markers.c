#include "imaging/jpeg_markers.h"

#include <string.h>

#include "imaging/jpeg_guard.h"

enum { ICC_HEAD_BYTES = 14 }; /* "ICC_PROFILE\0", the number of the part, how many there are */

static bool begins(const ImageBlock *block, const char *signature, size_t signature_bytes)
{
    return block->length >= signature_bytes && memcmp(block->bytes, signature, signature_bytes) == 0;
}

/* Keeps what follows the signature if `block` has it and is the first such marker, as Pillow does. Returns
 * whether it has the signature. */
static bool keep_first(const ImageBlock *block, const char *signature, size_t signature_bytes,
                       ImageBlock *kept)
{
    if (!begins(block, signature, signature_bytes))
        return false;
    if (!kept->bytes)
        *kept =
            (ImageBlock){(const uint8_t *)block->bytes + signature_bytes, block->length - signature_bytes};
    return true;
}

static void keep_icc_part(JpegMarkers *markers, const ImageBlock *block)
{
    if (!begins(block, "ICC_PROFILE", ICC_HEAD_BYTES - 2) || block->length < ICC_HEAD_BYTES)
        return;
    const uint8_t *bytes = block->bytes;
    const unsigned number = bytes[ICC_HEAD_BYTES - 2], count = bytes[ICC_HEAD_BYTES - 1];
    if (!markers->icc_count)
        markers->icc_count = count;
    if (number == 0 || number > count || count != markers->icc_count || markers->icc_parts[number].bytes) {
        markers->icc_damaged = true;
        return;
    }
    markers->icc_parts[number] = (ImageBlock){bytes + ICC_HEAD_BYTES, block->length - ICC_HEAD_BYTES};
}

/* Returns the next byte. At the end of the file libjpeg's memory source goes on with an end-of-image
 * marker. */
static uint8_t next_byte(j_decompress_ptr cinfo)
{
    struct jpeg_source_mgr *source = cinfo->src;
    if (source->bytes_in_buffer == 0)
        (void)source->fill_input_buffer(cinfo);
    source->bytes_in_buffer--;
    return *source->next_input_byte++;
}

boolean jpeg_markers_take(JpegMarkers *markers, j_decompress_ptr cinfo)
{
    const size_t high = next_byte(cinfo), claimed = high << 8 | next_byte(cinfo);
    const size_t length = claimed > 2 ? claimed - 2 : 0; /* the claimed length includes its own two bytes */
    const ImageBlock block = {cinfo->src->next_input_byte, length};
    if (length == 0)
        return TRUE;
    if (length <= cinfo->src->bytes_in_buffer) { /* a truncated marker is ignored */
        if (cinfo->unread_marker == JPEG_APP0 + 2)
            keep_icc_part(markers, &block);
        else if (!keep_first(&block, JPEG_EXIF_SIGNATURE, JPEG_EXIF_SIGNATURE_BYTES, &markers->exif))
            (void)keep_first(&block, JPEG_XMP_SIGNATURE, JPEG_XMP_SIGNATURE_BYTES, &markers->xmp);
    }
    cinfo->src->skip_input_data(cinfo, (long)length);
    return TRUE;
}

FshStatus jpeg_markers_join_profile(const JpegMarkers *markers, Buffer *profile, bool *damaged_ret,
                                    FshError *error)
{
    bool damaged = markers->icc_damaged;
    FshStatus status = FSH_OK;
    profile->length = 0;
    for (unsigned i = 1; i <= markers->icc_count && !damaged && !status; i++) {
        damaged = !markers->icc_parts[i].bytes;
        if (!damaged)
            status = buffer_append(profile, markers->icc_parts[i].bytes, markers->icc_parts[i].length, error);
    }
    if (damaged)
        *damaged_ret = true;
    if (damaged || status)
        profile->length = 0;
    return status;
}
