#include "imaging/mirror.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

typedef void (*MirrorRow)(const uint8_t *source, size_t width, uint32_t channels, uint8_t *target);

/* Mirrors a row and back. Both rows end where their memory does, so that ASan sees a byte too many. */
static void check(MirrorRow mirror, size_t width, uint32_t channels)
{
    size_t bytes = width * channels;
    uint8_t *source = malloc(bytes), *target = malloc(bytes), *back = malloc(bytes);
    assert_true(source && target && back);
    for (size_t i = 0; i < bytes; i++)
        source[i] = (uint8_t)(i * 37 + i / 256);
    memset(target, 0xAA, bytes);
    mirror(source, width, channels, target);
    for (size_t x = 0; x < width; x++)
        assert_memory_equal(target + x * channels, source + (width - 1 - x) * channels, channels);
    mirror(target, width, channels, back);
    assert_memory_equal(back, source, bytes);
    free(source);
    free(target);
    free(back);
}

static void check_widths(MirrorRow mirror)
{
    for (size_t width = 1; width < 70; width++)
        for (uint32_t channels = 1; channels <= 3; channels += 2)
            check(mirror, width, channels);
}

TEST(test_portable_rows_are_reversed)
{
    check_widths(image_mirror_row_portable);
}

TEST(test_the_chosen_kernel_reverses_rows)
{
    check_widths(image_mirror_row);
}
