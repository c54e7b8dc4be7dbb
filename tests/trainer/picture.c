#include "tests/trainer/picture.h"

void picture_draw(uint32_t width, uint32_t height, uint32_t channels, uint32_t seed, uint8_t *pixels)
{
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            for (uint32_t c = 0; c < channels; c++) {
                uint32_t k = (x + y) % 11 == 0 ? 0 : c;
                *pixels++ = (uint8_t)(x * (7 + 4 * k) + y * (13 + 6 * k) + k * 29 + (x * y / 8) * 5 +
                                      (x ^ y) * 3 + seed);
            }
}

uint64_t picture_hash(const uint8_t *bytes, size_t count)
{
    uint64_t value = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; i++)
        value = (value ^ bytes[i]) * UINT64_C(0x100000001b3);
    return value;
}
