/* Metadata put into a WebP. Three bytes say how much of what follows is EXIF, profile and XMP; the rest is
 * the file, as an encoder is said to have written it. */
#include "imaging/image_metadata_write.h"
#include "tests/fuzz/fuzz.h"

static ImageBlock take(const uint8_t **bytes, size_t *length, size_t wanted)
{
    ImageBlock block = {*bytes, wanted < *length ? wanted : *length};
    *bytes += block.length;
    *length -= block.length;
    return block;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    const Image image = {.width = 17, .height = 5, .channels = 3};
    FshError error = {0};
    if (length < 3)
        return 0;
    const uint8_t *lengths = bytes, *rest = bytes + 3;
    size_t rest_bytes = length - 3;
    ImageMetadata metadata = {.exif = take(&rest, &rest_bytes, lengths[0])};
    metadata.icc = take(&rest, &rest_bytes, lengths[1]);
    metadata.xmp = take(&rest, &rest_bytes, lengths[2]);
    Buffer file = {0};
    fuzz_expect_ok(buffer_append(&file, rest, rest_bytes, &error), &error, "buffer_append");
    if (!metadata_write_webp(&file, &image, &metadata, &error))
        fuzz_touch(file.bytes, file.length);
    buffer_free(&file);
    return 0;
}
