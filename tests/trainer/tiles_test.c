#include "trainer/inference/tiles.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

/* What is cut out and put together again is the image, whatever its size. */
TEST(test_tiles_make_the_image_again)
{
    static const uint32_t edges[] = {64, 96, 256}, overlaps[] = {16, 32, 48};
    for (uint32_t width = 1; width < 400; width += 23)
        for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
            const uint32_t height = 400 - width, channels = 1 + 2 * (uint32_t)(i % 2);
            const TileAxis columns = {width, edges[i], overlaps[i]}, rows = {height, edges[i], overlaps[i]};
            const size_t bytes = (size_t)width * height * channels;
            uint8_t *image = malloc(bytes), *joined = calloc(bytes, 1),
                    *piece = malloc((size_t)edges[i] * edges[i] * 3);
            assert_true(image && joined && piece);
            for (size_t k = 0; k < bytes; k++)
                image[k] = (uint8_t)(k * 2654435761U >> 13);
            for (uint32_t row = 0; row < tile_count(&rows); row++)
                for (uint32_t column = 0; column < tile_count(&columns); column++) {
                    const Tile tile = tile_at(&columns, &rows, column, row);
                    assert_true(tile.width > 0 && tile.x + tile.width <= width);
                    assert_true(tile.height > 0 && tile.y + tile.height <= height);
                    tile_cut(image, &columns, &tile, channels, piece);
                    tile_join(joined, &columns, &rows, &tile, channels, piece);
                }
            assert_memory_equal(image, joined, bytes);
            free(image);
            free(joined);
            free(piece);
        }
}

/* Of a tile nothing is used that is nearer to a cut than half of the overlap, less half of the ramp. */
TEST(test_what_lies_at_a_cut_is_not_used)
{
    enum { WIDTH = 300, HEIGHT = 270, EDGE = 128, OVERLAP = 64, MARGIN = (OVERLAP - TILE_RAMP) / 2 };
    const TileAxis columns = {WIDTH, EDGE, OVERLAP}, rows = {HEIGHT, EDGE, OVERLAP};
    static uint8_t image[WIDTH * HEIGHT], pixels[EDGE * EDGE];
    assert_int_equal(tile_count(&columns), 4);
    for (uint32_t i = 0; i < tile_count(&columns) * tile_count(&rows); i++) {
        const Tile tile = tile_at(&columns, &rows, i % tile_count(&columns), i / tile_count(&columns));
        for (uint32_t y = 0; y < tile.height; y++)
            for (uint32_t x = 0; x < tile.width; x++) {
                const bool left = tile.x > 0 && x<MARGIN, top = tile.y> 0 && y < MARGIN;
                const bool right = tile.x + tile.width < WIDTH && x >= tile.width - MARGIN;
                const bool bottom = tile.y + tile.height < HEIGHT && y >= tile.height - MARGIN;
                pixels[y * tile.width + x] = left || top || right || bottom ? 255 : 100;
            }
        tile_join(image, &columns, &rows, &tile, 1, pixels);
    }
    for (size_t i = 0; i < sizeof image; i++)
        assert_int_equal(image[i], 100);
}

/* However little memory there is, two tiles overlap by a multiple and something is left of each. */
TEST(test_the_smallest_tiles_have_room_to_overlap)
{
    for (uint32_t multiple = 16; multiple <= 256; multiple *= 2)
        for (uint64_t amount = 0; amount < 100000000; amount = 3 * amount + 1) {
            const double pixels = (double)amount;
            const uint32_t edge = tile_edge_for(pixels, multiple), least = tile_edge_least(multiple);
            assert_int_equal(edge % multiple, 0);
            assert_true(edge >= TILE_LEAST && edge <= TILE_MOST);
            assert_true((edge / 2 + multiple - 1) / multiple * multiple < edge);
            assert_true(edge == least || (double)edge * edge <= pixels);
        }
    assert_int_equal(tile_edge_for(1e5, 16), 304);
}
