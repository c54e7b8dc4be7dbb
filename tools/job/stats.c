#include "tools/job/stats.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "imaging/pixel_sums.h"

void stats_add_size(PixelStatistics *statistics, uint32_t width, uint32_t height, uint32_t channels)
{
    if (statistics->image_count == 0 || width < statistics->width_min)
        statistics->width_min = width;
    if (statistics->image_count == 0 || height < statistics->height_min)
        statistics->height_min = height;
    if (width > statistics->width_max)
        statistics->width_max = width;
    if (height > statistics->height_max)
        statistics->height_max = height;
    statistics->image_count++;
    statistics->rgb_count += channels != 1;
}

void stats_add_pixels(PixelStatistics *statistics, const Image *image)
{
    const size_t channels = image->channels;
    PixelSums *sums = channels == 1 ? &statistics->gray : &statistics->rgb;
    const uint64_t pixel_count = (uint64_t)image->width * image->height;
    const uint8_t *bytes = image->pixels;
    uint64_t left_bytes = pixel_count * channels;
    while (left_bytes) {
        uint32_t sum[PIXEL_SUM_LANES], squares[PIXEL_SUM_LANES];
        uint64_t block_count = left_bytes / PIXEL_SUM_LANES;
        if (block_count > PIXEL_SUM_BLOCKS_MAX)
            block_count = PIXEL_SUM_BLOCKS_MAX;
        size_t taken = (size_t)block_count * PIXEL_SUM_LANES;
        pixel_sums(bytes, (size_t)block_count, sum, squares);
        if (block_count == 0) { /* the rest, shorter than a block */
            uint8_t rest[PIXEL_SUM_LANES] = {0};
            taken = (size_t)left_bytes;
            memcpy(rest, bytes, taken);
            pixel_sums(rest, 1, sum, squares);
        }
        for (size_t lane = 0; lane < PIXEL_SUM_LANES; lane++) {
            sums->sum[lane % channels] += sum[lane];
            sums->squares[lane % channels] += squares[lane];
        }
        bytes += taken;
        left_bytes -= taken;
    }
    sums->pixel_count += pixel_count;
}

void stats_add_mask(PixelStatistics *statistics, const Image *mask, bool *ignored_ret)
{
    const uint64_t count = (uint64_t)mask->width * mask->height;
    uint32_t classes = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t wanted = mask->pixels[i] == FSH_MASK_IGNORED ? 0 : mask->pixels[i] + 1u;
        classes = wanted > classes ? wanted : classes;
        statistics->mask_values[mask->pixels[i] / 64] |= UINT64_C(1) << mask->pixels[i] % 64;
    }
    *ignored_ret = classes == 0;
    if (classes > statistics->mask_classes)
        statistics->mask_classes = classes;
}

static void merge_sums(PixelSums *total, const PixelSums *part)
{
    total->pixel_count += part->pixel_count;
    for (size_t channel = 0; channel < STATS_CHANNELS; channel++) {
        total->sum[channel] += part->sum[channel];
        total->squares[channel] += part->squares[channel];
    }
}

static bool subtract_sums(PixelSums *total, const PixelSums *part)
{
    bool good = part->pixel_count <= total->pixel_count;
    total->pixel_count -= part->pixel_count;
    for (size_t channel = 0; channel < STATS_CHANNELS; channel++) {
        good = good && part->sum[channel] <= total->sum[channel] &&
               part->squares[channel] <= total->squares[channel];
        total->sum[channel] -= part->sum[channel];
        total->squares[channel] -= part->squares[channel];
    }
    return good;
}

bool stats_subtract_pixels(PixelStatistics *total, const PixelStatistics *part)
{
    const bool gray = subtract_sums(&total->gray, &part->gray);
    return subtract_sums(&total->rgb, &part->rgb) && gray;
}

void stats_merge(PixelStatistics *total, const PixelStatistics *part)
{
    merge_sums(&total->gray, &part->gray);
    merge_sums(&total->rgb, &part->rgb);
    stats_merge_sizes(total, part);
}

void stats_take_sizes(PixelStatistics *total, const PixelStatistics *other)
{
    const PixelSums gray = total->gray, rgb = total->rgb;
    *total = *other;
    total->gray = gray;
    total->rgb = rgb;
}

void stats_merge_sizes(PixelStatistics *total, const PixelStatistics *part)
{
    if (part->mask_classes > total->mask_classes)
        total->mask_classes = part->mask_classes;
    for (size_t i = 0; i < sizeof part->mask_values / sizeof part->mask_values[0]; i++)
        total->mask_values[i] |= part->mask_values[i];
    if (part->image_count == 0)
        return;
    if (total->image_count == 0 || part->width_min < total->width_min)
        total->width_min = part->width_min;
    if (total->image_count == 0 || part->height_min < total->height_min)
        total->height_min = part->height_min;
    if (part->width_max > total->width_max)
        total->width_max = part->width_max;
    if (part->height_max > total->height_max)
        total->height_max = part->height_max;
    total->image_count += part->image_count;
    total->rgb_count += part->rgb_count;
}

FshStatistics stats_finish(const PixelStatistics *statistics)
{
    FshStatistics result = {
        .channels = statistics->rgb_count ? 3 : 1,
        .width_min = statistics->width_min,
        .width_max = statistics->width_max,
        .height_min = statistics->height_min,
        .height_max = statistics->height_max,
        .mask_classes = statistics->mask_classes,
    };
    const PixelSums *gray = &statistics->gray, *rgb = &statistics->rgb;
    const uint64_t pixel_count = gray->pixel_count + rgb->pixel_count;
    for (uint32_t channel = 0; channel < result.channels && pixel_count; channel++) {
        WideSum sum = gray->sum[0] + rgb->sum[channel];
        WideSum squares = gray->squares[0] + rgb->squares[channel];
        /* n * sum(x^2) - sum(x)^2 is n^2 times the variance: exact, where a difference of floating means is
         * not. */
        WideSum scaled_variance = squares * pixel_count - sum * sum;
        result.mean[channel] = (double)sum / (double)pixel_count / 255.0;
        result.standard_deviation[channel] = sqrt((double)scaled_variance) / (double)pixel_count / 255.0;
    }
    return result;
}

/* ---- JSON: sums as 32 hex digits, since JSON's integers end at 2^63 ---- */

static json_t *wide_to_json(WideSum value)
{
    char text[33];
    (void)snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, (uint64_t)(value >> 64), (uint64_t)value);
    return json_string(text);
}

static bool wide_from_json(const json_t *value, WideSum *wide)
{
    static const char digits[] = "0123456789abcdef";
    const char *text = json_string_value(value);
    *wide = 0;
    if (!text || strlen(text) != 32 || strspn(text, digits) != 32)
        return false;
    for (size_t i = 0; i < 32; i++)
        *wide = *wide << 4 | (WideSum)(strchr(digits, text[i]) - digits);
    return true;
}

/* One list of what is kept, walked by both directions: pixel counts, then sums and squares. */
enum { SUMS_NUMBERS = 1 + 2 * STATS_CHANNELS };

static json_t *sums_to_json(const PixelSums *sums)
{
    json_t *array = json_array();
    int failed = json_array_append_new(array, wide_to_json(sums->pixel_count));
    for (size_t channel = 0; channel < STATS_CHANNELS; channel++) {
        failed |= json_array_append_new(array, wide_to_json(sums->sum[channel]));
        failed |= json_array_append_new(array, wide_to_json(sums->squares[channel]));
    }
    if (failed) {
        json_decref(array);
        return NULL;
    }
    return array;
}

static bool sums_from_json(const json_t *array, PixelSums *sums)
{
    WideSum numbers[SUMS_NUMBERS];
    if (json_array_size(array) != SUMS_NUMBERS)
        return false;
    for (size_t i = 0; i < SUMS_NUMBERS; i++) {
        if (!wide_from_json(json_array_get(array, i), &numbers[i]))
            return false;
    }
    sums->pixel_count = (uint64_t)numbers[0];
    bool possible = numbers[0] <= UINT64_MAX / 256; /* so that no product below overflows */
    for (size_t channel = 0; channel < STATS_CHANNELS && possible; channel++) {
        const WideSum count = numbers[0], sum = numbers[1 + 2 * channel], squares = numbers[2 + 2 * channel];
        sums->sum[channel] = sum;
        sums->squares[channel] = squares;
        /* Of values in 0..255; and a variance is never below zero. */
        possible = sum <= 255 * count && squares <= 255 * sum && sum * sum <= squares * count;
    }
    return possible;
}

json_t *stats_to_json(const PixelStatistics *statistics)
{
    json_t *object = json_pack("{s:o, s:o, s:[I, I, I, I, I, I]}", "gray", sums_to_json(&statistics->gray),
                               "rgb", sums_to_json(&statistics->rgb), "sizes",
                               (json_int_t)statistics->image_count, (json_int_t)statistics->rgb_count,
                               (json_int_t)statistics->width_min, (json_int_t)statistics->width_max,
                               (json_int_t)statistics->height_min, (json_int_t)statistics->height_max);
    if (object && statistics->mask_classes &&
        json_object_set_new(object, "mask_classes", json_integer((json_int_t)statistics->mask_classes))) {
        json_decref(object);
        object = NULL;
    }
    return object;
}

bool stats_from_json(const json_t *object, PixelStatistics *statistics)
{
    const json_t *sizes = json_object_get(object, "sizes");
    *statistics = (PixelStatistics){0};
    if (!sums_from_json(json_object_get(object, "gray"), &statistics->gray) ||
        !sums_from_json(json_object_get(object, "rgb"), &statistics->rgb) || json_array_size(sizes) != 6)
        return false;
    uint64_t numbers[6];
    for (size_t i = 0; i < 6; i++) {
        const json_t *number = json_array_get(sizes, i);
        if (!json_is_integer(number) || json_integer_value(number) < 0)
            return false;
        numbers[i] = (uint64_t)json_integer_value(number);
    }
    statistics->image_count = numbers[0];
    statistics->rgb_count = numbers[1];
    statistics->width_min = (uint32_t)numbers[2];
    statistics->width_max = (uint32_t)numbers[3];
    statistics->height_min = (uint32_t)numbers[4];
    statistics->height_max = (uint32_t)numbers[5];
    for (size_t i = 2; i < 6; i++) {
        if (numbers[i] > UINT32_MAX)
            return false;
    }
    const json_t *classes = json_object_get(object, "mask_classes");
    if (classes && (!json_is_integer(classes) || json_integer_value(classes) < 1 ||
                    json_integer_value(classes) > FSH_MASK_IGNORED))
        return false;
    statistics->mask_classes = (uint32_t)json_integer_value(classes);
    return statistics->rgb_count <= statistics->image_count &&
           statistics->width_min <= statistics->width_max && statistics->height_min <= statistics->height_max;
}

/* ---- codecs ---- */

static const struct {
    ImageFormat format;
    FshCodec codec;
} codecs[] = {
    {IMAGE_JPEG, FSH_CODEC_JPEG}, {IMAGE_PNG, FSH_CODEC_PNG}, {IMAGE_WEBP, FSH_CODEC_WEBP},
    {IMAGE_TIFF, FSH_CODEC_TIFF}, {IMAGE_GIF, FSH_CODEC_GIF}, {IMAGE_BMP, FSH_CODEC_BMP},
    {IMAGE_PNM, FSH_CODEC_PNM},   {IMAGE_Y4M, FSH_CODEC_Y4M},
};

FshCodec codec_of_format(ImageFormat format)
{
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        if (codecs[i].format == format)
            return codecs[i].codec;
    }
    return FSH_CODEC_OTHER;
}
