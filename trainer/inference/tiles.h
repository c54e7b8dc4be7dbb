/* tiles.h - cuts an image into overlapping tiles, and joins what a network makes of them without seams.
 *
 * Tiles begin at multiples of edge - overlap, so that a network that halves images sees the same grid as in
 * the whole image; the last tile of a row or column is as long as what is left. Where two tiles overlap, the
 * first one provides the first half and the second one the second half, with a narrow ramp in the middle in
 * which they are mixed: only pixels at least overlap / 2 - TILE_RAMP / 2 away from the cut edges of a tile
 * are used. If the network looks no farther than that, the result is that of the whole image. NAFNet's
 * channel attention looks at all of a tile, so there the result differs slightly. */
#ifndef FSHARD_TRAINER_INFERENCE_TILES_H
#define FSHARD_TRAINER_INFERENCE_TILES_H

#include <stdint.h>

enum {
    TILE_RAMP = 16,
    TILE_LEAST = 128, /* pixels: smaller tiles would be all overlap */
    TILE_MOST = 2048,
};

/* Returns the smallest edge at which two tiles that begin at multiples of `multiple` have room to overlap. */
uint32_t tile_edge_least(uint32_t multiple);
/* Returns the largest edge, a multiple of `multiple`, of tiles with at most `pixels` pixels; at most
 * TILE_MOST, and never less than tile_edge_least. */
uint32_t tile_edge_for(double pixels, uint32_t multiple);

/* How an image is cut along one side; overlap is less than edge. */
typedef struct TileAxis {
    uint32_t length, edge, overlap;
} TileAxis;

/* Returns the number of tiles along the side. */
uint32_t tile_count(const TileAxis *axis);

/* A tile of an image: columns x..x+width-1, rows y..y+height-1. */
typedef struct Tile {
    uint32_t x, y, width, height;
} Tile;

/* Returns a tile by its place in the grid. */
Tile tile_at(const TileAxis *columns, const TileAxis *rows, uint32_t column, uint32_t row);

/* Copies the tile's pixels from the image, which is columns->length pixels wide. Both are [height, width,
 * channels]. */
void tile_cut(const uint8_t *image, const TileAxis *columns, const Tile *tile, uint32_t channels,
              uint8_t *pixels);
/* Writes a computed tile into the image. Tiles must come row by row, from the left. */
void tile_join(uint8_t *image, const TileAxis *columns, const TileAxis *rows, const Tile *tile,
               uint32_t channels, const uint8_t *pixels);

#endif
