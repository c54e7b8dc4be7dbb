/* WebPs that libwebp reads without libvips. */
#include "imaging/image_webp.h"
#include "tests/fuzz/fuzz.h"

enum { PIXELS_MAX = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static Image image;
    ImageInfo info = {0};
    FshError error = {0};
    bool done = false;
    if (!webp_probe_simple(bytes, length, &info) || (uint64_t)info.width * info.height > PIXELS_MAX)
        return 0;
    fuzz_expect(info.width && info.height, "a header that was read says what is there");
    fuzz_expect_ok(webp_decode_simple(bytes, length, &info, &image, &done, &error), &error,
                   "webp_decode_simple");
    if (done)
        fuzz_touch(image.pixels, (size_t)image.width * image.height * image.channels);
    return 0;
}
