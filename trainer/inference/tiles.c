#include "trainer/inference/tiles.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

uint32_t tile_edge_least(uint32_t multiple)
{
    const uint32_t least = multiple > TILE_LEAST / 2 ? 2 * multiple : TILE_LEAST;
    return (least + multiple - 1) / multiple * multiple;
}

uint32_t tile_edge_for(double pixels, uint32_t multiple)
{
    const uint32_t least = tile_edge_least(multiple);
    const uint32_t edge = (uint32_t)fmin(TILE_MOST, sqrt(pixels)) / multiple * multiple;
    return edge < least ? least : edge;
}

uint32_t tile_count(const TileAxis *axis)
{
    const uint32_t step = axis->edge - axis->overlap;
    return axis->length <= axis->edge ? 1 : (axis->length - axis->overlap + step - 1) / step;
}

/* Returns where tile `index` begins. */
static uint32_t tile_begin(const TileAxis *axis, uint32_t index)
{
    return index * (axis->edge - axis->overlap);
}

/* Returns how long tile `index` is. */
static uint32_t tile_length(const TileAxis *axis, uint32_t index)
{
    const uint32_t left = axis->length - tile_begin(axis, index);
    return left < axis->edge ? left : axis->edge;
}

Tile tile_at(const TileAxis *columns, const TileAxis *rows, uint32_t column, uint32_t row)
{
    return (Tile){.x = tile_begin(columns, column),
                  .y = tile_begin(rows, row),
                  .width = tile_length(columns, column),
                  .height = tile_length(rows, row)};
}

void tile_cut(const uint8_t *image, const TileAxis *columns, const Tile *tile, uint32_t channels,
              uint8_t *pixels)
{
    const size_t row_bytes = (size_t)tile->width * channels;
    for (uint32_t row = 0; row < tile->height; row++)
        memcpy(pixels + row * row_bytes,
               image + ((size_t)(tile->y + row) * columns->length + tile->x) * channels, row_bytes);
}

/* The part of a tile that is used along one side: from `begin`, in the first TILE_RAMP pixels mixed with the
 * tile before, to `end`. */
typedef struct Used {
    uint32_t begin, end;
    bool cut; /* there is a tile before it */
} Used;

static Used used_part(const TileAxis *axis, uint32_t at, uint32_t length)
{
    const uint32_t unused = (axis->overlap - TILE_RAMP) / 2;
    const bool last = at + length == axis->length;
    return (Used){.begin = at ? unused : 0, .end = last ? length : length - unused, .cut = at > 0};
}

/* Returns the weight of the tile at a place, out of TILE_RAMP; the tile before has the rest. */
static uint32_t share_at(const Used *used, uint32_t place)
{
    const uint32_t into = place - used->begin;
    return used->cut && into < TILE_RAMP ? into : TILE_RAMP;
}

void tile_join(uint8_t *image, const TileAxis *columns, const TileAxis *rows, const Tile *tile,
               uint32_t channels, const uint8_t *pixels)
{
    const uint32_t whole = TILE_RAMP * TILE_RAMP;
    const Used across = used_part(columns, tile->x, tile->width),
               down = used_part(rows, tile->y, tile->height);
    for (uint32_t row = down.begin; row < down.end; row++) {
        const uint8_t *from = pixels + ((size_t)row * tile->width + across.begin) * channels;
        uint8_t *to = image + ((size_t)(tile->y + row) * columns->length + tile->x + across.begin) * channels;
        for (uint32_t column = across.begin; column < across.end; column++) {
            const uint32_t share = share_at(&down, row) * share_at(&across, column);
            for (uint32_t c = 0; c < channels;
                 c++, from++, to++) /* the image is not read where no tile has written */
                *to = share == whole ? *from
                                     : (uint8_t)((*to * (whole - share) + *from * share + whole / 2) / whole);
        }
    }
}
