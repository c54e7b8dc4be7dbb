#include "imaging/image_metadata.h"

#include "imaging/exif.h"

FshStatus image_metadata_upright(const ImageMetadata *metadata, Buffer *room, ImageMetadata *upright,
                                 FshError *error)
{
    const ImageBlock exif = metadata->exif, xmp = metadata->xmp;
    ImageMetadata turned = {.icc = metadata->icc};
    room->length = 0;
    FshStatus status = buffer_append(room, exif.bytes, exif.length, error);
    if (!status)
        status = buffer_append(room, xmp.bytes, xmp.length, error);
    if (status)
        return status;
    if (exif.length && exif_make_upright(room->bytes, exif.length))
        turned.exif = (ImageBlock){room->bytes, exif.length};
    if (xmp.length) {
        turned.xmp = (ImageBlock){room->bytes + exif.length, xmp.length};
        xmp_make_upright((char *)room->bytes + exif.length, xmp.length);
    }
    *upright = turned;
    return FSH_OK;
}
