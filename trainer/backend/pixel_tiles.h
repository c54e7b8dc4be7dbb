/* pixel_tiles.h - renders an image that is resampled, tile by tile: a tile's threads bring the stored pixels
 * that it is made from into shared memory, as RGB; resample them across; and then down. The bytes are those
 * of pixel_render, with less work: a stored pixel is read, and if it lies as planes converted, once in place
 * of once for each of nine outputs, and an output takes 3 + 3 products in place of 3 x 3.
 *
 *   for (row = …; row < end; row += strip)                      // strip = pixel_tile_rows(&image)
 *       pixel_tile_place(&image, column, columns, row, rows, &tile);
 *       pixel_tile_find_rows(…); (all threads)
 *       for (first = 0; first < tile.height; first += tile.band)
 *           pixel_tile_stage(…); (all threads) pixel_tile_across(…); (all threads)
 *       pixel_tile_down(…); (all threads)
 *
 * Written once for CUDA's threads and for the CPU's tests, where a loop is all threads. `thread` of `threads`
 * (a multiple of PIXEL_TILE_WIDTH) does its share of each function. Columns and rows are those of
 * pixel_columns. */
#ifndef FSHARD_TRAINER_BACKEND_PIXEL_TILES_H
#define FSHARD_TRAINER_BACKEND_PIXEL_TILES_H

#include "trainer/backend/pixel_math.h"
#include "trainer/backend/pixel_walk.h"

/* Before a loop that a compiler for GPUs would unroll, though few images come there. */
#ifdef __CUDA_ARCH__
#define PIXEL_ROLLED _Pragma("unroll 1")
#else
#define PIXEL_ROLLED
#endif

enum {
    PIXEL_TILE_WIDTH = 64, /* outputs, at most */
    PIXEL_TILE_HEIGHT = 32,
    PIXEL_TILE_ROWS = 64,     /* of stored pixels, that a strip of the tile is made from */
    PIXEL_TILE_STAGED = 4096, /* stored pixels in shared memory at a time */
    PIXEL_TILE_TAPS = 4,      /* weights that are kept in registers */
};

/* Words of shared memory: products with weights of 0 read beyond what lies there. */
enum {
    PIXEL_TILE_STAGED_WORDS = PIXEL_TILE_STAGED + PIXEL_TILE_TAPS,
    PIXEL_TILE_ACROSS_WORDS = (PIXEL_TILE_ROWS + PIXEL_TILE_TAPS) * PIXEL_TILE_WIDTH,
};

typedef struct PixelTile {
    uint32_t column, columns, row, rows; /* of the image of the batch */
    uint32_t place, places;              /* columns of the window that those come from */
    /* of the stored image: what that is made from; of planes all four even */
    uint32_t left, top, width, height;
    uint32_t band; /* rows that are staged at a time */
} PixelTile;

/* Returns how many stored pixels are at least as many as n outputs in a row are made from. */
FSH_HOST_DEVICE static inline float pixel_tile_span(uint32_t part, uint32_t resized, ResampleFilter filter,
                                                    uint32_t n)
{
    const float scale = (float)part / (float)resized,
                reach = (float)resample_reach(filter) * (scale < 1 ? 1 : scale);
    return (float)n * scale + 2 * reach + 6; /* 2: whole pixels at both ends; 2: even; 2: in doubt */
}

/* Returns how many rows of a tile can be rendered at a time; 0: take pixel_render. */
FSH_HOST_DEVICE static inline uint32_t pixel_tile_rows(const PixelImage *image)
{
    const PixelRecipe *recipe = image->recipe;
    const ResampleFilter filter = recipe->filter;
    const float none = pixel_tile_span(recipe->part_height, recipe->resized_height, filter, 0),
                one = pixel_tile_span(recipe->part_height, recipe->resized_height, filter, 1),
                rows = ((float)PIXEL_TILE_ROWS - none) / (one - none);
    if (!pixel_is_resampled(recipe) || rows < 1 ||
        2 * pixel_tile_span(recipe->part_width, recipe->resized_width, filter, PIXEL_TILE_WIDTH) >
            PIXEL_TILE_STAGED)
        return 0;
    const uint32_t most = rows < PIXEL_TILE_HEIGHT ? (uint32_t)rows : (uint32_t)PIXEL_TILE_HEIGHT,
                   strips = (PIXEL_TILE_HEIGHT + most - 1) / most;
    return (PIXEL_TILE_HEIGHT + strips - 1) / strips; /* strips of about the same height */
}

/* Sets *first and *count to the places that `mirrored` at the edges of 0..size-1 gives to begin, …,
 * begin + n - 1. */
FSH_HOST_DEVICE static inline void pixel_tile_mirrored(int64_t begin, uint32_t n, int64_t size,
                                                       uint32_t *first, uint32_t *count)
{
    const int64_t end = begin + n - 1;
    const uint32_t a = (uint32_t)pixel_mirrored(begin, size), b = (uint32_t)pixel_mirrored(end, size);
    uint32_t low = a < b ? a : b, high = a < b ? b : a;
    if (begin < 0 && end >= 0)
        low = 0;
    if (begin < size && end >= size)
        high = (uint32_t)size - 1;
    *first = low;
    *count = high - low + 1;
}

/* Returns where n columns, or rows, of `size` begin that are counted from the other end if flipped. */
FSH_HOST_DEVICE static inline int64_t pixel_tile_begin(bool flipped, uint32_t begin, uint32_t n,
                                                       uint32_t size)
{
    return flipped ? (int64_t)size - begin - n : begin;
}

/* Finds what a part of the image is made from. rows: no more than pixel_tile_rows. */
FSH_HOST_DEVICE static inline void pixel_tile_place(const PixelImage *image, uint32_t column,
                                                    uint32_t columns, uint32_t row, uint32_t rows,
                                                    PixelTile *tile)
{
    const PixelRecipe *recipe = image->recipe;
    const uint32_t all_columns = pixel_columns(recipe, image->width, image->height),
                   all_rows = pixel_rows(recipe, image->width, image->height), even = image->planes ? 1 : 0;
    uint32_t place_y, places_y;
    pixel_tile_mirrored(pixel_tile_begin(recipe->flip, column, columns, all_columns) + recipe->shift_x,
                        columns, all_columns, &tile->place, &tile->places);
    pixel_tile_mirrored(pixel_tile_begin(recipe->vertical_flip, row, rows, all_rows) + recipe->shift_y, rows,
                        all_rows, &place_y, &places_y);
    const uint32_t last = tile->place + tile->places - 1, last_y = place_y + places_y - 1;
    const uint32_t left = recipe->part_left + image->columns.first[tile->place],
                   right = recipe->part_left + image->columns.first[last] + image->columns.length[last],
                   top = recipe->part_top + image->rows.first[place_y],
                   bottom = recipe->part_top + image->rows.first[last_y] + image->rows.length[last_y];
    tile->column = column;
    tile->columns = columns;
    tile->row = row;
    tile->rows = rows;
    tile->left = left & ~even;
    tile->top = top & ~even;
    tile->width = (right - tile->left + even) & ~even;
    tile->height = (bottom - tile->top + even) & ~even;
    tile->band = PIXEL_TILE_STAGED / tile->width & ~even;
}

/* The chroma of the four pixels that a sample of 4:2:0 lies between. */
typedef struct PixelFour {
    int values[4]; /* left and right of the upper row, of the lower one */
} PixelFour;

/* Upsamples at a sample. rows: where it, and those above and below it, lie; before, after: there are samples
 * on its left, on its right. The left one is read in any case: there is a byte, for luma begins an image. */
FSH_HOST_DEVICE static inline PixelFour pixel_four(const uint8_t *const rows[3], bool before, bool after)
{
    int values[3][3];
    for (int i = 0; i < 3; i++) {
        values[i][0] = rows[i][-1];
        values[i][1] = rows[i][0];
        values[i][2] = after ? rows[i][1] : 0;
    }
    const int upper = planes_sum(values[1][1], values[0][1]), lower = planes_sum(values[1][1], values[2][1]);
    PixelFour four;
    four.values[0] = planes_left(upper, before ? planes_sum(values[1][0], values[0][0]) : upper);
    four.values[1] = planes_right(upper, after ? planes_sum(values[1][2], values[0][2]) : upper);
    four.values[2] = planes_left(lower, before ? planes_sum(values[1][0], values[2][0]) : lower);
    four.values[3] = planes_right(lower, after ? planes_sum(values[1][2], values[2][2]) : lower);
    return four;
}

/* Brings rows of planes, four pixels at a time. What is staged beyond an odd edge is read from whatever
 * follows there in the image, and nobody takes it. */
FSH_HOST_DEVICE static inline void pixel_tile_stage_planes(const PixelImage *image, const PixelTile *tile,
                                                           uint32_t first, uint32_t count, uint32_t *staged,
                                                           uint32_t thread, uint32_t threads)
{
    const uint32_t width = image->recipe->width, height = image->recipe->height,
                   columns = planes_halved(width), rows = planes_halved(height);
    const uint8_t *blue = image->stored + width * height, *red = blue + columns * rows;
    PixelWalk walk = pixel_walk(tile->width / 2, thread, threads);
    for (; walk.y < count / 2; pixel_walk_on(&walk)) {
        const uint32_t column = tile->left / 2 + walk.x, row = (tile->top + first) / 2 + walk.y,
                       own = row * columns + column, above = row > 0 ? own - columns : own,
                       below = row + 1 < rows ? own + columns : own;
        const bool before = column > 0, after = column + 1 < columns;
        const uint8_t *const blues[3] = {blue + above, blue + own, blue + below}, *const reds[3] = {
                                                                                      red + above, red + own,
                                                                                      red + below};
        const uint32_t begin = 2 * row * width + 2 * column;
        const uint8_t *upper = image->stored + begin,
                      *lower = image->stored + (2 * row + 1 < height ? begin + width : begin);
        const PixelFour cb = pixel_four(blues, before, after), cr = pixel_four(reds, before, after);
        uint32_t *to = staged + 2 * walk.y * tile->width + 2 * walk.x;
        to[0] = pixel_of_planes(upper[0], cb.values[0], cr.values[0]);
        to[1] = pixel_of_planes(upper[1], cb.values[1], cr.values[1]);
        to += tile->width;
        to[0] = pixel_of_planes(lower[0], cb.values[2], cr.values[2]);
        to[1] = pixel_of_planes(lower[1], cb.values[3], cr.values[3]);
    }
}

/* Brings `count` rows of stored pixels from row `first` of the tile on: to staged, [count, tile->width]. */
FSH_HOST_DEVICE static inline void pixel_tile_stage(const PixelImage *image, const PixelTile *tile,
                                                    uint32_t first, uint32_t count, uint32_t *staged,
                                                    uint32_t thread, uint32_t threads)
{
    if (image->planes) {
        pixel_tile_stage_planes(image, tile, first, count, staged, thread, threads);
        return;
    }
    PixelWalk walk = pixel_walk(tile->width, thread, threads);
    for (; walk.y < count; pixel_walk_on(&walk))
        staged[walk.y * tile->width + walk.x] =
            pixel_at(image, tile->left + walk.x, tile->top + first + walk.y);
}

/* Returns whether some of the filter's weights are below 0. */
FSH_HOST_DEVICE static inline bool pixel_tile_is_signed(ResampleFilter filter)
{
    return filter == RESAMPLE_BICUBIC || filter == RESAMPLE_LANCZOS;
}

/* Returns how many weights, 2 to PIXEL_TILE_TAPS, nearly all outputs of bilinear resampling have at most. */
FSH_HOST_DEVICE static inline uint32_t pixel_tile_taps(uint32_t part, uint32_t resized)
{
    return part <= resized ? 2 : 2 * part <= 3 * resized ? 3 : PIXEL_TILE_TAPS;
}

/* What an output is made from: the first PIXEL_TILE_TAPS weights, 0 beyond its last. */
typedef struct PixelTaps {
    int32_t weights[PIXEL_TILE_TAPS];
    uint32_t output;  /* of the axis */
    uint32_t length;  /* of its weights */
    uint32_t place;   /* where the first pixel lies, in words */
    uint32_t padding; /* 0: to a multiple of 16 bytes, of which each read has 16 */
} PixelTaps;

FSH_HOST_DEVICE static inline void pixel_tile_find(const PixelAxis *axis, uint32_t output, uint32_t place,
                                                   PixelTaps *found)
{
    found->output = output;
    found->length = axis->length[output];
    found->place = place;
    found->padding = 0;
    for (uint32_t k = 0; k < PIXEL_TILE_TAPS; k++)
        found->weights[k] = k < found->length ? axis->weights[k * axis->outputs + output] : 0;
}

/* Finds the taps of the tile's rows, [PIXEL_TILE_HEIGHT]. */
FSH_HOST_DEVICE static inline void pixel_tile_find_rows(const PixelImage *image, const PixelTile *tile,
                                                        PixelTaps *rows, uint32_t thread, uint32_t threads)
{
    const PixelRecipe *recipe = image->recipe;
    const uint32_t all = pixel_rows(recipe, image->width, image->height);
    for (uint32_t i = thread; i < tile->rows; i += threads) {
        const uint32_t y = pixel_place_y(recipe, all, tile->row + i);
        pixel_tile_find(&image->rows, y,
                        (recipe->part_top + image->rows.first[y] - tile->top) * PIXEL_TILE_WIDTH, &rows[i]);
    }
}

/* Returns the pixel of the taps from pixels that lie `stride` words apart. Callers pass channels, taps,
 * few (pixel_rounded) and stride as constants. */
FSH_HOST_DEVICE static inline uint32_t pixel_tile_sum(const PixelAxis *axis, const PixelTaps *found,
                                                      uint32_t channels, uint32_t taps, bool few,
                                                      const uint32_t *from, uint32_t stride)
{
    PixelSums sums = pixel_sums();
    for (uint32_t k = 0; k < taps; k++)
        pixel_add(&sums, channels, from[k * stride], found->weights[k]);
    PIXEL_ROLLED
    for (uint32_t k = taps; k < found->length; k++)
        pixel_add(&sums, channels, from[k * stride], axis->weights[k * axis->outputs + found->output]);
    return pixel_rounded(&sums, channels, few);
}

/* Callers pass channels, taps and few as constants. */
FSH_HOST_DEVICE static inline void pixel_tile_across_of(const PixelImage *image, const PixelTile *tile,
                                                        uint32_t channels, uint32_t taps, bool few,
                                                        uint32_t first, uint32_t count,
                                                        const uint32_t *staged, uint32_t *across,
                                                        uint32_t thread, uint32_t threads)
{
    const uint32_t x = thread % PIXEL_TILE_WIDTH, place = tile->place + x;
    if (x >= tile->places)
        return;
    PixelTaps found;
    pixel_tile_find(&image->columns, place,
                    image->recipe->part_left + image->columns.first[place] - tile->left, &found);
    for (uint32_t row = thread / PIXEL_TILE_WIDTH; row < count; row += threads / PIXEL_TILE_WIDTH)
        across[(first + row) * PIXEL_TILE_WIDTH + x] = pixel_tile_sum(
            &image->columns, &found, channels, taps, few, staged + row * tile->width + found.place, 1);
}

/* Resamples what was staged: to rows first, first + 1, … of across, [PIXEL_TILE_ROWS, PIXEL_TILE_WIDTH], a
 * column for each place. */
FSH_HOST_DEVICE static inline void pixel_tile_across(const PixelImage *image, const PixelTile *tile,
                                                     uint32_t first, uint32_t count, const uint32_t *staged,
                                                     uint32_t *across, uint32_t thread, uint32_t threads)
{
    const uint32_t taps = pixel_tile_taps(image->recipe->part_width, image->recipe->resized_width);
    const bool gray = image->stored_channels == 1,
               signed_weights = pixel_tile_is_signed(image->recipe->filter);
    if (signed_weights && gray)
        pixel_tile_across_of(image, tile, 1, 4, false, first, count, staged, across, thread, threads);
    else if (signed_weights)
        pixel_tile_across_of(image, tile, 3, 4, false, first, count, staged, across, thread, threads);
    else if (gray)
        pixel_tile_across_of(image, tile, 1, 2, true, first, count, staged, across, thread, threads);
    else if (taps == 2)
        pixel_tile_across_of(image, tile, 3, 2, true, first, count, staged, across, thread, threads);
    else if (taps == 3)
        pixel_tile_across_of(image, tile, 3, 3, true, first, count, staged, across, thread, threads);
    else
        pixel_tile_across_of(image, tile, 3, 4, true, first, count, staged, across, thread, threads);
}

/* Callers pass channels, taps and few as constants. */
FSH_HOST_DEVICE static inline void pixel_tile_down_of(const PixelImage *image, const PixelTile *tile,
                                                      uint32_t channels, uint32_t taps, bool few,
                                                      const PixelTaps *rows, const uint32_t *across,
                                                      uint8_t *target, uint32_t thread, uint32_t threads)
{
    const PixelRecipe *recipe = image->recipe;
    const uint32_t x = thread % PIXEL_TILE_WIDTH;
    if (x >= tile->columns)
        return;
    const uint32_t column = tile->column + x, row = tile->row + thread / PIXEL_TILE_WIDTH,
                   place = pixel_place_x(recipe, pixel_columns(recipe, image->width, image->height), column);
    const size_t next = (size_t)(threads / PIXEL_TILE_WIDTH) * image->channels *
                        (pixel_index(image, 0, 1) - pixel_index(image, 0, 0));
    uint8_t *to = target + (size_t)pixel_index(image, column, row) * image->channels;
    const uint32_t *from = across + (place - tile->place);
    for (uint32_t i = thread / PIXEL_TILE_WIDTH; i < tile->rows;
         i += threads / PIXEL_TILE_WIDTH, to += next) {
        const PixelTaps found = rows[i];
        pixel_take(
            image,
            pixel_tile_sum(&image->rows, &found, channels, taps, few, from + found.place, PIXEL_TILE_WIDTH),
            to);
    }
}

/* Resamples the tile's pixels from all rows of across, into the image [height, width, channels]. rows: of
 * pixel_tile_find_rows. */
FSH_HOST_DEVICE static inline void pixel_tile_down(const PixelImage *image, const PixelTile *tile,
                                                   const PixelTaps *rows, const uint32_t *across,
                                                   uint8_t *target, uint32_t thread, uint32_t threads)
{
    const uint32_t taps = pixel_tile_taps(image->recipe->part_height, image->recipe->resized_height);
    const bool gray = image->stored_channels == 1,
               signed_weights = pixel_tile_is_signed(image->recipe->filter);
    if (signed_weights && gray)
        pixel_tile_down_of(image, tile, 1, 4, false, rows, across, target, thread, threads);
    else if (signed_weights)
        pixel_tile_down_of(image, tile, 3, 4, false, rows, across, target, thread, threads);
    else if (gray)
        pixel_tile_down_of(image, tile, 1, 2, true, rows, across, target, thread, threads);
    else if (taps == 2)
        pixel_tile_down_of(image, tile, 3, 2, true, rows, across, target, thread, threads);
    else if (taps == 3)
        pixel_tile_down_of(image, tile, 3, 3, true, rows, across, target, thread, threads);
    else
        pixel_tile_down_of(image, tile, 3, 4, true, rows, across, target, thread, threads);
}

#endif
