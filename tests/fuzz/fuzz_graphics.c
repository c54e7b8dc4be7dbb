/* Formats of graphics that are read, or looked over, by code of ours: PBM, PGM and PPM; a GIF's codes; a
 * TGA's header. */
#include "imaging/gif_check.h"
#include "imaging/pnm_decode.h"
#include "imaging/y4m.h"
#include "tests/fuzz/fuzz.h"

enum { PIXELS_MAX = 1 << 16 };

static void read_pnm(const uint8_t *bytes, size_t length, bool strict)
{
    static Image image;
    ImageInfo info = {0};
    FshError error = {0};
    if (pnm_header(bytes, length, &info, &error) || (uint64_t)info.width * info.height > PIXELS_MAX)
        return;
    fuzz_expect(info.width && info.height, "a header that was read says what is there");
    const FshStatus status = pnm_decode(bytes, length, strict, &image, &error);
    fuzz_expect(strict || !status, "what is missing is black");
    if (!status)
        fuzz_touch(image.pixels, (size_t)image.width * image.height * image.channels);
}

static void read_y4m(const uint8_t *bytes, size_t length)
{
    FshError error = {0};
    ImageInfo info;
    Image image = {0};
    Planes planes;
    if (y4m_open(bytes, length, &info, &planes, &error) || (uint64_t)info.width * info.height > PIXELS_MAX)
        return;
    const ImagePart all = {.width = info.width, .height = info.height};
    if (planes_expand(&planes, &all, info.channels, &image, &error) == FSH_OK)
        fuzz_touch(image.pixels, (size_t)image.width * image.height * image.channels);
    image_free(&image);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    FshError error = {0};
    const ImageFormat format = image_sniff(bytes, length);
    (void)image_is_tga(bytes, length);
    if (format == IMAGE_GIF)
        (void)gif_check(bytes, length, &error);
    if (format == IMAGE_Y4M)
        read_y4m(bytes, length);
    if (format != IMAGE_PNM)
        return 0;
    read_pnm(bytes, length, true);
    read_pnm(bytes, length, false);
    return 0;
}
