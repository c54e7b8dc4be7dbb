/* EXIF blocks, TIFF tags, cameras' raw files, XMP packets, and what a file is by its first bytes. */
#include <stdlib.h>
#include <string.h>

#include "imaging/camera_raw.h"
#include "imaging/exif.h"
#include "imaging/image.h"
#include "imaging/image_metadata.h"
#include "tests/fuzz/fuzz.h"

static void make_upright(uint8_t *copy, const uint8_t *bytes, size_t length)
{
    bool damaged = false;
    memcpy(copy, bytes, length);
    if (exif_make_upright(copy, length))
        fuzz_expect(exif_orientation(copy, length, &damaged) == 1 && !damaged,
                    "what was made upright says so, and is whole");
    else
        fuzz_expect(memcmp(copy, bytes, length) == 0, "what cannot be made upright stays as it is");
    memcpy(copy, bytes, length);
    xmp_make_upright((char *)copy, length);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    bool damaged = false;
    uint8_t orientation = exif_orientation(bytes, length, &damaged);
    fuzz_expect(orientation >= 1 && orientation <= 8, "orientations are 1 to 8");
    (void)camera_raw_is(bytes, length);
    (void)image_sniff(bytes, length);
    uint8_t *copy = malloc(length + !length);
    fuzz_expect(copy != NULL, "memory for a copy");
    if (length)
        make_upright(copy, bytes, length);
    free(copy);
    Buffer room = {0};
    FshError error = {0};
    const ImageBlock block = {bytes, length};
    ImageMetadata metadata = {.exif = block, .xmp = block};
    fuzz_expect_ok(image_metadata_upright(&metadata, &room, &metadata, &error), &error,
                   "image_metadata_upright");
    fuzz_touch(metadata.exif.bytes, metadata.exif.length);
    fuzz_touch(metadata.xmp.bytes, metadata.xmp.length);
    buffer_free(&room);
    return 0;
}
