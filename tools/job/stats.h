/* stats.h - what a dataset notes of its images: codec, range of sizes, mean and standard deviation of pixels
 * in exact integers.
 *
 * Sums of integers do not depend on the order they are added in, so any number of threads gives the same mean
 * to the last bit. Sums are 128 bits wide: 10^15 pixels are far from overflow even in the product that the
 * variance needs. A PixelStatistics belongs to one thread at a time; each sample has its own, and they are
 * merged on delivery. */
#ifndef FSHARD_TOOLS_JOB_STATS_H
#define FSHARD_TOOLS_JOB_STATS_H

#include <jansson.h>

#include "formats/fshard.h"
#include "imaging/image.h"

enum { STATS_CHANNELS = 3 };

__extension__ typedef unsigned __int128 WideSum;

/* Over the pixels of images with one number of channels. */
typedef struct PixelSums {
    uint64_t pixel_count;
    WideSum sum[STATS_CHANNELS], squares[STATS_CHANNELS];
} PixelSums;

typedef struct PixelStatistics {
    PixelSums gray, rgb;
    uint64_t image_count, rgb_count; /* images noted, and how many of them are not gray */
    uint32_t width_min, width_max, height_min, height_max; /* 0 while image_count is 0 */
    uint32_t mask_classes;                                 /* as FshStatistics'; goes with the sizes */
    /* bit v % 64 of word v / 64: masks have the value v; of this run alone, never written as JSON */
    uint64_t mask_values[4];
} PixelStatistics;

/* Notes an image's size and channels (1 or 3), not its pixels. */
void stats_add_size(PixelStatistics *statistics, uint32_t width, uint32_t height, uint32_t channels);

/* Adds an image's pixels (1 or 3 channels) to the sums, not its size. */
void stats_add_pixels(PixelStatistics *statistics, const Image *image);

/* Notes the classes of a mask's values, [height, width] of one channel; *ignored_ret: all of them are
 * FSH_MASK_IGNORED. */
void stats_add_mask(PixelStatistics *statistics, const Image *mask, bool *ignored_ret);

/* Adds part to total. */
void stats_merge(PixelStatistics *total, const PixelStatistics *part);

/* Takes part's pixels out of total, not its sizes. Returns false, and leaves total in no state to be used,
 * where they are not in it. */
bool stats_subtract_pixels(PixelStatistics *total, const PixelStatistics *part);

/* Adds part's sizes to total, not its pixels. */
void stats_merge_sizes(PixelStatistics *total, const PixelStatistics *part);

/* Gives total the sizes of another, instead of its own. */
void stats_take_sizes(PixelStatistics *total, const PixelStatistics *other);

/* Returns means and deviations in 0..1. channels is 3 as soon as one image is not gray; a gray pixel then
 * counts as r = g = b. Mean and deviation are 0 where no pixels were added. */
FshStatistics stats_finish(const PixelStatistics *statistics);

/* Returns the sums as JSON, a new reference, for a packing that goes on after a stop; NULL: out of memory. */
json_t *stats_to_json(const PixelStatistics *statistics);
/* Reads what stats_to_json made. Returns false where the object is something else, or its sums are those of
 * no pixels. */
bool stats_from_json(const json_t *object, PixelStatistics *statistics);

/* Returns the codec that an image file of this format is stored as; FSH_CODEC_OTHER for formats that have no
 * number of their own on disk. */
FshCodec codec_of_format(ImageFormat format);

#endif
