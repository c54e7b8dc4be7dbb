/* Colour profiles: what they say, and converting every value by those that are matrix and curves. */
#include "imaging/icc.h"
#include "tests/fuzz/fuzz.h"

static void convert(const uint8_t *bytes, size_t length, uint32_t channels)
{
    enum { WIDTH = 256 };
    static IccConversion conversion; /* 20 kB, good for one profile after another, as in a decoder */
    uint8_t pixels[WIDTH * 3];
    Image image = {.pixels = pixels, .width = WIDTH, .height = 1, .channels = channels};
    if (!icc_conversion_prepare(bytes, length, channels, &conversion))
        return;
    fuzz_expect(icc_profile_matches(bytes, length, channels), "a profile that converts matches");
    for (uint32_t i = 0; i < WIDTH * channels; i++)
        pixels[i] = (uint8_t)(i / channels * (1 + i % channels));
    icc_conversion_apply(&conversion, &image);
    fuzz_touch(pixels, WIDTH * (size_t)channels);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    (void)icc_profile_is_srgb(bytes, length);
    convert(bytes, length, 1);
    convert(bytes, length, 3);
    return 0;
}
