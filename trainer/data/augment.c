#include "trainer/data/augment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const crop_mode_names[] = {"rrc", "pad", "center", NULL};

struct Augmenter {
    Resampler *resampler;
    Image resized; /* [size, size, channels of the source] */
};

FshStatus augmenter_new(Augmenter **augmenter, FshError *error)
{
    *augmenter = calloc(1, sizeof **augmenter);
    if (!*augmenter)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for an augmenter");
    FshStatus status = resampler_new(&(*augmenter)->resampler, error);
    if (status)
        augmenter_free(augmenter);
    return status;
}

void augmenter_free(Augmenter **augmenter)
{
    if (!*augmenter)
        return;
    resampler_free(&(*augmenter)->resampler);
    image_free(&(*augmenter)->resized);
    free(*augmenter);
    *augmenter = NULL;
}

/* ---- geometry ---- */

static double between(Random *random, double low, double high)
{
    return low + (high - low) * random_uniform_double(random);
}

static ResampleBox box_of(uint32_t left, uint32_t top, uint32_t width, uint32_t height)
{
    return (ResampleBox){left, top, (double)left + width, (double)top + height};
}

/* torchvision.transforms.RandomResizedCrop.get_params: ten tries, then the largest centred part of allowed
 * ratio. */
static ResampleBox plan_resized(const Augmentation *augmentation, uint32_t width, uint32_t height,
                                Random *random)
{
    enum { TRIES = 10 };
    double area = (double)width * height;
    double log_ratio_min = log(augmentation->ratio_min), log_ratio_max = log(augmentation->ratio_max);
    for (int i = 0; i < TRIES; i++) {
        double target_area = area * between(random, augmentation->scale_min, augmentation->scale_max);
        double ratio = exp(between(random, log_ratio_min, log_ratio_max));
        double crop_width = nearbyint(sqrt(target_area * ratio)),
               crop_height = nearbyint(sqrt(target_area / ratio));
        if (crop_width < 1 || crop_height < 1 || crop_width > width || crop_height > height)
            continue;
        uint32_t top = random_below(random, height - (uint32_t)crop_height + 1);
        uint32_t left = random_below(random, width - (uint32_t)crop_width + 1);
        return box_of(left, top, (uint32_t)crop_width, (uint32_t)crop_height);
    }
    double ratio = (double)width / height;
    uint32_t crop_width = width, crop_height = height;
    if (ratio < augmentation->ratio_min)
        crop_height = (uint32_t)fmax(1, nearbyint(width / augmentation->ratio_min));
    else if (ratio > augmentation->ratio_max)
        crop_width = (uint32_t)fmax(1, nearbyint(height * augmentation->ratio_max));
    return box_of((width - crop_width) / 2, (height - crop_height) / 2, crop_width, crop_height);
}

/* Resize (short edge to `resize`, long edge cut to a whole number), then CenterCrop, as one box of the
 * source. */
static ResampleBox plan_center(const Augmentation *augmentation, uint32_t width, uint32_t height)
{
    uint32_t short_edge = width < height ? width : height;
    double resized_width = floor((double)augmentation->resize * width / short_edge);
    double resized_height = floor((double)augmentation->resize * height / short_edge);
    double left = nearbyint((resized_width - augmentation->size) / 2);
    double top = nearbyint((resized_height - augmentation->size) / 2);
    double scale_x = width / resized_width, scale_y = height / resized_height;
    ResampleBox box = {left * scale_x, top * scale_y, (left + augmentation->size) * scale_x,
                       (top + augmentation->size) * scale_y};
    /* Rounding may put an edge a hair outside. */
    box.right = fmin(box.right, width);
    box.bottom = fmin(box.bottom, height);
    return box;
}

void augment_plan(const Augmentation *augmentation, uint32_t width, uint32_t height, Random *random,
                  CropPlan *plan)
{
    *plan = (CropPlan){0};
    if (augmentation->mode == CROP_RESIZED)
        plan->box = plan_resized(augmentation, width, height, random);
    else
        plan->box = plan_center(augmentation, width, height);
    if (augmentation->mode == CROP_PADDED) {
        uint32_t places = 2 * augmentation->padding + 1;
        plan->shift_y = (int32_t)random_below(random, places) - (int32_t)augmentation->padding;
        plan->shift_x = (int32_t)random_below(random, places) - (int32_t)augmentation->padding;
    }
    if (augmentation->flip_probability > 0)
        plan->flip = random_uniform_double(random) < augmentation->flip_probability;
}

static uint32_t least_edge(uint32_t edge, double box_edge, uint32_t size)
{
    double least = ceil(edge * (double)size / box_edge);
    return least < edge ? (uint32_t)least : edge;
}

void augment_least_size(const Augmentation *augmentation, const CropPlan *plan, uint32_t width,
                        uint32_t height, uint32_t *least_width_ret, uint32_t *least_height_ret)
{
    *least_width_ret = least_edge(width, plan->box.right - plan->box.left, augmentation->size);
    *least_height_ret = least_edge(height, plan->box.bottom - plan->box.top, augmentation->size);
}

/* ---- pixels ---- */

static size_t mirrored(int64_t at, int64_t size)
{
    if (at < 0)
        at = -at;
    if (at >= size)
        at = 2 * (size - 1) - at;
    return at < 0 ? 0 : (size_t)at; /* size 1 has nothing to mirror */
}

/* One output pixel from one source pixel. */
static void copy_pixel(uint8_t *target, uint32_t target_channels, const uint8_t *source,
                       uint32_t source_channels)
{
    if (target_channels == source_channels)
        memcpy(target, source, source_channels);
    else if (source_channels == 1)
        memset(target, source[0], target_channels);
    else /* Pillow's convert("L") */
        target[0] = (uint8_t)((19595U * source[0] + 38470U * source[1] + 7471U * source[2] + 0x8000U) >> 16);
}

/* source: top left pixel of a size x size area, rows source_stride bytes apart. */
static void copy_pixels(const Augmentation *augmentation, const CropPlan *plan, const uint8_t *source,
                        size_t source_stride, uint32_t source_channels, uint8_t *target)
{
    uint32_t size = augmentation->size, channels = augmentation->channels;
    size_t target_stride = (size_t)size * channels;
    bool straight = !plan->flip && plan->shift_x == 0 && channels == source_channels;
    for (uint32_t y = 0; y < size; y++) {
        const uint8_t *source_row = source + mirrored((int64_t)y + plan->shift_y, size) * source_stride;
        uint8_t *target_row = target + y * target_stride;
        if (straight) {
            memcpy(target_row, source_row, target_stride);
            continue;
        }
        for (uint32_t x = 0; x < size; x++) {
            int64_t unflipped = plan->flip ? (int64_t)size - 1 - x : (int64_t)x;
            size_t from = mirrored(unflipped + plan->shift_x, size);
            copy_pixel(target_row + (size_t)x * channels, channels, source_row + from * source_channels,
                       source_channels);
        }
    }
}

static bool is_whole(double value)
{
    return value == floor(value);
}

FshStatus augment_render(Augmenter *augmenter, const Augmentation *augmentation, const CropPlan *plan,
                         uint32_t width, uint32_t height, const Image *image, uint8_t *target,
                         FshError *error)
{
    uint32_t size = augmentation->size;
    double scale_x = (double)image->width / width, scale_y = (double)image->height / height;
    ResampleBox box = {plan->box.left * scale_x, plan->box.top * scale_y,
                       fmin(plan->box.right * scale_x, image->width),
                       fmin(plan->box.bottom * scale_y, image->height)};
    if (box.right - box.left == size && box.bottom - box.top == size && is_whole(box.left) &&
        is_whole(box.top)) {
        size_t stride = (size_t)image->width * image->channels;
        const uint8_t *corner = image->pixels + (size_t)box.top * stride + (size_t)box.left * image->channels;
        copy_pixels(augmentation, plan, corner, stride, image->channels, target);
        return FSH_OK;
    }
    FshStatus status = resample(augmenter->resampler, image, &box, size, size, RESAMPLE_BILINEAR,
                                &augmenter->resized, error);
    if (!status)
        copy_pixels(augmentation, plan, augmenter->resized.pixels, (size_t)size * image->channels,
                    image->channels, target);
    return status;
}
