/* Pixels: torchvision's and timm's, bit for bit (golden/make_augment.py). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/golden.h"
#include "tests/trainer/picture.h"
#include "trainer/data/augment.h"
#include "trainer/data/mixing.h"

typedef struct Case {
    json_t *spec;
    uint32_t width, height, channels;
    size_t bytes; /* of the picture */
    uint8_t *picture;
} Case;

static Case open_case(json_t *spec)
{
    Case opened = {.spec = spec,
                   .width = (uint32_t)golden_integer(spec, "width"),
                   .height = (uint32_t)golden_integer(spec, "height"),
                   .channels = (uint32_t)golden_integer(spec, "channels")};
    opened.bytes = (size_t)opened.width * opened.height * opened.channels;
    opened.picture = malloc(2 * opened.bytes);
    assert_non_null(opened.picture);
    picture_draw(opened.width, opened.height, opened.channels, 0, opened.picture);
    return opened;
}

static void expect_result(const Case *tried, const char *what, const uint8_t *pixels, size_t count)
{
    char hash[32];
    assert_int_equal(golden_integer(tried->spec, "bytes"), count);
    const json_t *first = json_object_get(tried->spec, "first");
    for (size_t i = 0; i < json_array_size(first); i++)
        if (json_integer_value(json_array_get(first, i)) != pixels[i])
            fail_msg("%s: value %zu is %u, not %lld", what, i, pixels[i],
                     (long long)json_integer_value(json_array_get(first, i)));
    (void)snprintf(hash, sizeof hash, "%016" PRIx64, picture_hash(pixels, count));
    if (strcmp(hash, golden_text(tried->spec, "hash")) != 0)
        fail_msg("%s: pixels differ behind the first", what);
}

typedef void (*CheckCase)(const Case *tried);

/* Calls check for each case of this op; there are some. */
static void check_cases(const char *op, CheckCase check)
{
    json_t *cases = golden_load("augment.json");
    size_t index, found = 0;
    json_t *spec;
    json_array_foreach(cases, index, spec)
    {
        if (strcmp(golden_text(spec, "op"), op) != 0)
            continue;
        Case opened = open_case(spec);
        check(&opened);
        free(opened.picture);
        found++;
    }
    assert_true(found >= 3);
    json_decref(cases);
}

static void check_adjusted(const Case *tried)
{
    static const struct {
        const char *op;
        ColourStep step;
    } steps[] = {{"brightness", COLOUR_BRIGHTNESS},
                 {"contrast", COLOUR_CONTRAST},
                 {"saturation", COLOUR_SATURATION},
                 {"hue", COLOUR_HUE}};
    char what[96];
    double factor = golden_real(tried->spec, "factor");
    const char *op = golden_text(tried->spec, "op");
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (strcmp(steps[i].op, op) == 0)
            colour_adjust(steps[i].step, factor, tried->picture, (size_t)tried->width * tried->height,
                          tried->channels);
    (void)snprintf(what, sizeof what, "%s by %g, %u channels", op, factor, tried->channels);
    expect_result(tried, what, tried->picture, tried->bytes);
}

TEST(test_brightness_is_torchvisions)
{
    check_cases("brightness", check_adjusted);
}

TEST(test_contrast_is_torchvisions)
{
    check_cases("contrast", check_adjusted);
}

TEST(test_saturation_is_torchvisions)
{
    check_cases("saturation", check_adjusted);
}

TEST(test_hue_is_torchvisions)
{
    check_cases("hue", check_adjusted);
}

static void check_rendered(const Case *tried, const Augmentation *augmentation, const CropPlan *plan)
{
    FshError error = {0};
    Augmenter *augmenter = NULL;
    size_t bytes = (size_t)augmentation->size * augmentation->size * 3;
    uint8_t *target = malloc(bytes);
    const ImageView view = {.pixels = tried->picture,
                            .stride_bytes = (size_t)tried->width * 3,
                            .width = tried->width,
                            .height = tried->height,
                            .channels = 3};
    assert_non_null(target);
    assert_ok(augmenter_new(&augmenter, &error), &error);
    assert_ok(
        augment_render(augmenter, augmentation, plan, &view, &(ImagePlace){.eighths = 8}, target, &error),
        &error);
    expect_result(tried, "crop", target, bytes);
    augmenter_free(&augmenter);
    free(target);
}

static Interpolation interpolation_of(const Case *tried)
{
    const char *name = json_string_value(json_object_get(tried->spec, "interpolation"));
    for (int i = 0; name && interpolation_names[i]; i++)
        if (strcmp(name, interpolation_names[i]) == 0)
            return (Interpolation)i;
    assert_null(name);
    return INTERPOLATION_BILINEAR;
}

static void check_resized(const Case *tried)
{
    double left = (double)golden_integer(tried->spec, "left"),
           top = (double)golden_integer(tried->spec, "top");
    const Augmentation augmentation = {.mode = CROP_RESIZED,
                                       .interpolation = interpolation_of(tried),
                                       .size = (uint32_t)golden_integer(tried->spec, "size"),
                                       .channels = 3};
    const CropPlan plan = {.box = {left, top, left + (double)golden_integer(tried->spec, "box_width"),
                                   top + (double)golden_integer(tried->spec, "box_height")},
                           .flip = json_is_true(json_object_get(tried->spec, "flip"))};
    check_rendered(tried, &augmentation, &plan);
}

TEST(test_resized_crops_are_torchvisions)
{
    check_cases("resized", check_resized);
}

static void check_center(const Case *tried)
{
    const Augmentation augmentation = {.mode = CROP_CENTER,
                                       .interpolation = interpolation_of(tried),
                                       .size = (uint32_t)golden_integer(tried->spec, "size"),
                                       .resize = (uint32_t)golden_integer(tried->spec, "resize"),
                                       .channels = 3};
    CropPlan plan;
    augment_plan(&augmentation, tried->width, tried->height, NULL, &plan);
    check_rendered(tried, &augmentation, &plan);
}

TEST(test_centre_crops_are_torchvisions)
{
    check_cases("center", check_center);
}

/* timm's transform of evaluation, which is told the part, not the short edge. */
static void check_part(const Case *tried)
{
    const uint32_t size = (uint32_t)golden_integer(tried->spec, "size");
    const Augmentation augmentation = {.mode = CROP_CENTER,
                                       .interpolation = interpolation_of(tried),
                                       .size = size,
                                       .resize =
                                           augment_resize_of_part(size, golden_real(tried->spec, "part")),
                                       .channels = 3};
    CropPlan plan;
    assert_int_equal(augmentation.resize, golden_integer(tried->spec, "resize"));
    augment_plan(&augmentation, tried->width, tried->height, NULL, &plan);
    check_rendered(tried, &augmentation, &plan);
}

TEST(test_crops_of_a_part_are_timms)
{
    check_cases("part", check_part);
}

static void check_mixed(const Case *tried)
{
    const MixPlan plan = {.share = (float)golden_real(tried->spec, "share")};
    picture_draw(tried->width, tried->height, 3, 77, tried->picture + tried->bytes);
    mixing_apply(&plan, tried->width, tried->height, 3, tried->picture, tried->picture + tried->bytes);
    expect_result(tried, "mixup", tried->picture, 2 * tried->bytes);
}

TEST(test_mixup_is_timms)
{
    check_cases("mixup", check_mixed);
}
