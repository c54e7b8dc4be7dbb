/* Which JPEG files may go to the GPU's decoder as they are. */
#include "trainer/data/jpeg_plain.h"

#include <stdlib.h>
#include <string.h>

#include "tests/imaging/make_images.h"
#include "tests/support/support.h"

enum { WIDTH = 45, HEIGHT = 31 };

static Buffer file_of(MakeJpeg options)
{
    Buffer file = {0};
    const uint32_t channels = options.colours == MAKE_GRAY ? 1 : options.colours == MAKE_RGB ? 3 : 4;
    uint8_t *pixels = make_pixels(WIDTH, HEIGHT, channels);
    options.width = WIDTH;
    options.height = HEIGHT;
    options.pixels = pixels;
    make_jpeg(&options, &file);
    free(pixels);
    return file;
}

static void check(MakeJpeg options, bool plain)
{
    uint32_t width = 0, height = 0;
    Buffer file = file_of(options);
    assert_int_equal(jpeg_is_plain(file.bytes, file.length, &width, &height), plain);
    if (plain) {
        assert_int_equal(width, WIDTH);
        assert_int_equal(height, HEIGHT);
    }
    buffer_free(&file);
}

TEST(test_baseline_files_are_plain)
{
    check((MakeJpeg){.colours = MAKE_GRAY}, true);
    check((MakeJpeg){.colours = MAKE_GRAY, .across = 1, .down = 1}, true);
    check((MakeJpeg){.colours = MAKE_RGB}, true);
    check((MakeJpeg){.colours = MAKE_RGB, .across = 1, .down = 1}, true);
    check((MakeJpeg){.colours = MAKE_RGB, .across = 2, .down = 1}, true);
    check((MakeJpeg){.colours = MAKE_RGB, .across = 1, .down = 2}, true);
    check((MakeJpeg){.colours = MAKE_RGB, .orientation = 1}, true);
}

TEST(test_others_are_not)
{
    check((MakeJpeg){.colours = MAKE_RGB, .progressive = true}, false);
    check((MakeJpeg){.colours = MAKE_GRAY, .progressive = true}, false);
    check((MakeJpeg){.colours = MAKE_RGB, .arithmetic = true}, false);
    check((MakeJpeg){.colours = MAKE_CMYK}, false);
    check((MakeJpeg){.colours = MAKE_YCCK}, false);
    check((MakeJpeg){.colours = MAKE_RGB, .across = 4, .down = 1}, false);
    check((MakeJpeg){.colours = MAKE_GRAY, .across = 2, .down = 1}, false);
    check((MakeJpeg){.colours = MAKE_GRAY, .across = 2, .down = 2}, false);
    for (uint8_t orientation = 2; orientation <= 8; orientation++)
        check((MakeJpeg){.colours = MAKE_RGB, .orientation = orientation}, false);
}

/* The file's quantisation tables have become comments. */
TEST(test_a_file_without_its_tables_is_not)
{
    uint32_t width = 0, height = 0;
    size_t tables = 0;
    Buffer file = file_of((MakeJpeg){.colours = MAKE_RGB});
    for (size_t i = 0; i + 1 < file.length; i++)
        if (file.bytes[i] == 0xFF && file.bytes[i + 1] == 0xDB) {
            file.bytes[i + 1] = 0xFE;
            tables++;
        }
    assert_true(tables > 0);
    assert_false(jpeg_is_plain(file.bytes, file.length, &width, &height));
    buffer_free(&file);
}

/* A component names a table that no file can have; its number ends in the bits of one that there is. */
TEST(test_a_file_of_an_impossible_table_is_not)
{
    enum { TABLE_OF_FIRST = 12 }; /* after the marker of the frame: T.81, B.2.2 */
    uint32_t width = 0, height = 0;
    Buffer file = file_of((MakeJpeg){.colours = MAKE_RGB});
    size_t frame = 0;
    while (frame + TABLE_OF_FIRST < file.length &&
           !(file.bytes[frame] == 0xFF && file.bytes[frame + 1] == 0xC0))
        frame++;
    assert_true(frame + TABLE_OF_FIRST < file.length);
    assert_int_equal(file.bytes[frame + TABLE_OF_FIRST], 0);
    for (unsigned bit = 2; bit < 8; bit++) {
        file.bytes[frame + TABLE_OF_FIRST] = (uint8_t)(1U << bit);
        assert_false(jpeg_is_plain(file.bytes, file.length, &width, &height));
    }
    buffer_free(&file);
}

/* From memory that ends where the file does: the sanitizer sees a byte too many. */
TEST(test_a_file_cut_anywhere_or_damaged_is_safe)
{
    Buffer file = file_of((MakeJpeg){.colours = MAKE_RGB, .orientation = 1});
    uint32_t width = 0, height = 0;
    size_t header = 0;
    for (size_t length = 0; length < file.length; length++) {
        uint8_t *cut = malloc(length + 1);
        assert_non_null(cut);
        memcpy(cut + 1, file.bytes, length);
        if (!jpeg_is_plain(cut + 1, length, &width, &height))
            header = length;
        free(cut);
    }
    assert_true(header > 100 && header < file.length);
    for (size_t at = 0; at < header; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            uint8_t *damaged = malloc(header);
            assert_non_null(damaged);
            memcpy(damaged, file.bytes, header);
            damaged[at] ^= (uint8_t)(1U << bit);
            (void)jpeg_is_plain(damaged, header, &width, &height);
            free(damaged);
        }
    buffer_free(&file);
}
