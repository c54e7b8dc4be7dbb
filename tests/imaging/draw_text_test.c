#include "imaging/draw_text.h"

#include <string.h>

#include "tests/support/support.h"

static const uint8_t white[3] = {255, 255, 255};

/* Asserts the rows of an image, given as text with '#' where the image is bright. */
static void expect_rows(const Image *image, const char *const *rows)
{
    for (uint32_t y = 0; y < image->height; y++)
        for (uint32_t x = 0; x < image->width; x++)
            if ((image->pixels[(y * image->width + x) * 3] > 0) != (rows[y][x] == '#'))
                fail_msg("row %u, column %u", y, x);
}

static Image black(uint32_t width, uint32_t height)
{
    Image image = {0};
    FshError error = {0};
    assert_ok(image_reserve(&image, width, height, 3, &error), &error);
    memset(image.pixels, 0, (size_t)width * height * 3);
    return image;
}

TEST(test_letters_are_drawn_and_others_are_boxes)
{
    Image image = black(17, 7);
    draw_text(&image, 0, 0, 18, 1, white, "A1\xC3\xBC", 4); /* A, 1, u with two dots */
    static const char *const rows[] = {".###....#...#####", "#...#..##...#...#", "#...#...#...#...#",
                                       "#...#...#...#...#", "#####...#...#...#", "#...#...#...#...#",
                                       "#...#..###..#####"};
    expect_rows(&image, rows);
    image_free(&image);
}

TEST(test_what_has_no_room_is_cut)
{
    Image image = black(18, 7), same = black(18, 7);
    draw_text(&image, 0, 0, 18, 1, white, "1234567", 7);
    draw_text(&same, 0, 0, 18, 1, white, "1..", 3);
    assert_memory_equal(image.pixels, same.pixels, (size_t)18 * 7 * 3);
    draw_text(&image, 15, 5, 1000, 3, white, "outside", 7); /* nor does it write outside */
    draw_text(&image, 0, 0, 0, 1, white, "none", 4);
    image_free(&image);
    image_free(&same);
}
