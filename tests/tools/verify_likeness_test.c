/* Are the sides of a pair told apart from two scenes? Haze, darkness, noise and blur are made of
 * photographs where $FSHARD_DATA has some, else of scenes that are drawn; each test prints what likeness
 * it found. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "imaging/decode.h"
#include "imaging/resample.h"
#include "tests/support/support.h"
#include "tools/verify/verify_likeness.h"

enum { SCENES_MAX = 60, LEAVES = 1500, GRID = 12 };

typedef struct Scenes {
    Image items[SCENES_MAX];
    size_t count;
} Scenes;

/* ---- chance ---- */

static uint32_t seed = 1;

/* Returns a number in 0..1. */
static float chance(void)
{
    seed = seed * 1664525U + 1013904223U;
    return (float)(seed >> 8) / (float)(1 << 24);
}

/* Returns a number that is about normal, deviation 1. */
static float spread(void)
{
    return (chance() + chance() + chance() + chance() - 2) * 1.732F;
}

static uint8_t level(float value)
{
    return (uint8_t)(value < 0 ? 0 : value > 1 ? 255 : (int)(value * 255 + 0.5F));
}

/* ---- scenes ---- */

/* Draws disks of all sizes that lie over each other: edges as photographs have them. */
static void draw_scene(Image *image)
{
    FshError error;
    assert_int_equal(image_reserve(image, 320, 240, 3, &error), FSH_OK);
    memset(image->pixels, 128, (size_t)320 * 240 * 3);
    for (int leaf = 0; leaf < LEAVES; leaf++) {
        const float radius = 3 / sqrtf(chance() + 0.0008F), left = chance() * 320, top = chance() * 240;
        const uint8_t colour[3] = {level(chance()), level(chance()), level(chance())};
        for (int y = (int)(top - radius); y < (int)(top + radius); y++) {
            for (int x = (int)(left - radius); x < (int)(left + radius); x++) {
                const float dx = (float)x - left, dy = (float)y - top;
                if (x >= 0 && x < 320 && y >= 0 && y < 240 && dx * dx + dy * dy < radius * radius)
                    memcpy(image->pixels + ((size_t)y * 320 + (size_t)x) * 3, colour, 3);
            }
        }
    }
}

static void load_photographs(Scenes *scenes, const char *folder)
{
    struct dirent **classes = NULL;
    const int class_count = scandir(folder, &classes, NULL, alphasort);
    ImageDecoder *decoder = NULL;
    FshError error;
    assert_int_equal(image_decoder_new(&decoder, &error), FSH_OK);
    for (int i = 0; i < class_count; i++) {
        char path[1024];
        struct dirent **files = NULL;
        (void)snprintf(path, sizeof path, "%s/%s", folder, classes[i]->d_name);
        const int count =
            i % 4 == 2 && scenes->count < SCENES_MAX ? scandir(path, &files, NULL, alphasort) : 0;
        for (int j = 0; j < count; j++) {
            Image *image = &scenes->items[scenes->count < SCENES_MAX ? scenes->count : 0];
            (void)snprintf(path, sizeof path, "%s/%s/%s", folder, classes[i]->d_name, files[j]->d_name);
            if (scenes->count < SCENES_MAX && image_name_is_image(path)) {
                size_t length = 0;
                char *bytes = test_file_read(path, &length);
                const ImageDecodeOptions options = {.least_width = 200, .least_height = 200};
                assert_int_equal(image_decode(decoder, bytes, length, &options, image, NULL, &error), FSH_OK);
                scenes->count += image->channels == 3;
                free(bytes);
            }
            free(files[j]);
        }
        free(files);
        free(classes[i]);
    }
    free(classes);
    image_decoder_free(&decoder);
}

int test_group_setup(void **state)
{
    Scenes *scenes = calloc(1, sizeof *scenes);
    const char *data = getenv("FSHARD_DATA");
    char folder[512];
    assert_non_null(scenes);
    (void)snprintf(folder, sizeof folder, "%s/imagenet-sample/train", data ? data : "");
    if (data)
        load_photographs(scenes, folder);
    while (scenes->count < 24)
        draw_scene(&scenes->items[scenes->count++]);
    *state = scenes;
    return 0;
}

int test_group_teardown(void **state)
{
    Scenes *scenes = *state;
    for (size_t i = 0; i < SCENES_MAX; i++)
        image_free(&scenes->items[i]);
    free(scenes);
    return 0;
}

/* ---- what happens to a scene ---- */

/* A field without edges, 0..1, as haze is thick here and thin there. */
typedef struct Field {
    float at[GRID + 1][GRID + 1];
} Field;

static void make_field(Field *field)
{
    for (int y = 0; y <= GRID; y++)
        for (int x = 0; x <= GRID; x++)
            field->at[y][x] = chance();
}

static float field_at(const Field *field, const Image *image, size_t x, size_t y)
{
    const float u = (float)x * GRID / 4 / (float)image->width, v = (float)y * GRID / 4 / (float)image->height;
    const int i = (int)u, j = (int)v;
    const float s = u - (float)i, t = v - (float)j;
    return (1 - t) * ((1 - s) * field->at[j][i] + s * field->at[j][i + 1]) +
           t * ((1 - s) * field->at[j + 1][i] + s * field->at[j + 1][i + 1]);
}

typedef void Change(const Image *from, Image *to);

/* Adds scattering: less of the scene and more of the sky's light the farther it is; what is above is far, as
 * a rule. */
static void add_haze(const Image *from, Image *to, float thickness)
{
    Field field;
    make_field(&field);
    const float light = 0.7F + 0.3F * chance(), share = chance();
    for (size_t y = 0; y < from->height; y++) {
        for (size_t x = 0; x < from->width; x++) {
            const float height = 1 - (float)y / (float)from->height;
            const float distance = share * height + (1 - share) * field_at(&field, from, x, y);
            const float left = expf(-thickness * distance);
            for (size_t c = 0; c < 3; c++) {
                const size_t i = (y * from->width + x) * 3 + c;
                to->pixels[i] =
                    level((float)from->pixels[i] / 255 * left + light * (1 - left) + 0.004F * spread());
            }
        }
    }
}

static void haze(const Image *from, Image *to)
{
    add_haze(from, to, 0.5F + 2.5F * chance());
}

static void thick_haze(const Image *from, Image *to)
{
    add_haze(from, to, 3 + chance());
}

static void low_light(const Image *from, Image *to)
{
    const float gamma = 1.5F + 2 * chance(), share = 0.06F + 0.24F * chance(),
                noise = 0.003F + 0.012F * chance();
    for (size_t i = 0; i < (size_t)from->width * from->height * 3; i++) {
        const float value = share * powf((float)from->pixels[i] / 255, gamma);
        to->pixels[i] = level(value + spread() * sqrtf(value * 0.002F + noise * noise));
    }
}

static void noise(const Image *from, Image *to)
{
    const float strength = 0.1F + 0.2F * chance();
    for (size_t i = 0; i < (size_t)from->width * from->height * 3; i++)
        to->pixels[i] = level((float)from->pixels[i] / 255 + strength * spread());
}

/* Blurs along a line of 7 % of the width. */
static void motion_blur(const Image *from, Image *to)
{
    const float angle = 3.14159F * chance();
    const int length = (int)(0.07F * (float)from->width) | 1;
    for (size_t y = 0; y < from->height; y++) {
        for (size_t x = 0; x < from->width; x++) {
            float sums[3] = {0};
            for (int k = -length / 2; k <= length / 2; k++) {
                long u = (long)x + lroundf((float)k * cosf(angle)),
                     v = (long)y + lroundf((float)k * sinf(angle));
                u = u < 0 ? 0 : u >= (long)from->width ? (long)from->width - 1 : u;
                v = v < 0 ? 0 : v >= (long)from->height ? (long)from->height - 1 : v;
                for (size_t c = 0; c < 3; c++)
                    sums[c] += (float)from->pixels[((size_t)v * from->width + (size_t)u) * 3 + c];
            }
            for (size_t c = 0; c < 3; c++)
                to->pixels[(y * from->width + x) * 3 + c] =
                    level(sums[c] / (float)length / 255 + 0.01F * spread());
        }
    }
}

static void nothing(const Image *from, Image *to)
{
    memcpy(to->pixels, from->pixels, (size_t)from->width * from->height * 3);
}

static const struct {
    const char *name;
    Change *change;
} changes[] = {{"nothing", nothing},     {"haze", haze},   {"thick haze", thick_haze},
               {"low light", low_light}, {"noise", noise}, {"motion blur", motion_blur}};
enum { CHANGES = sizeof changes / sizeof *changes };

/* ---- likeness ---- */

static LikenessSide *side_of(const Image *image)
{
    LikenessSide *side = malloc(sizeof *side);
    Resampler *resampler = NULL;
    Image thumbnail = {0};
    FshError error;
    assert_non_null(side);
    assert_int_equal(resampler_new(&resampler, &error), FSH_OK);
    assert_int_equal(
        resample(resampler, image, NULL, LIKENESS_EDGE, LIKENESS_EDGE, RESAMPLE_BILINEAR, &thumbnail, &error),
        FSH_OK);
    likeness_side(&thumbnail, side);
    image_free(&thumbnail);
    resampler_free(&resampler);
    return side;
}

static LikenessSide *changed_side(const Image *image, Change *change)
{
    Image changed = {0};
    FshError error;
    assert_int_equal(image_reserve(&changed, image->width, image->height, 3, &error), FSH_OK);
    change(image, &changed);
    LikenessSide *side = side_of(&changed);
    image_free(&changed);
    return side;
}

typedef struct Spread {
    double values[SCENES_MAX * SCENES_MAX];
    size_t count;
} Spread;

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void print_spread(const char *name, const char *what, Spread *found)
{
    qsort(found->values, found->count, sizeof *found->values, compare);
    print_message("%-12s %-9s %5zu: least %6.3f, 1 %% %6.3f, median %6.3f, 99 %% %6.3f, most %6.3f\n", name,
                  what, found->count, found->values[0], found->values[found->count / 100],
                  found->values[found->count / 2], found->values[found->count - 1 - found->count / 100],
                  found->values[found->count - 1]);
}

TEST_WITH(test_changed_scenes_are_alike_and_exchanged_ones_are_not, NULL, NULL, const Scenes *scenes)
{
    LikenessSide *clear[SCENES_MAX] = {0}, *changed[SCENES_MAX] = {0};
    Spread *alike = malloc(sizeof *alike), *exchanged = malloc(sizeof *exchanged);
    assert_true(alike && exchanged);
    for (size_t i = 0; i < scenes->count; i++)
        clear[i] = side_of(&scenes->items[i]);
    for (size_t kind = 0; kind < CHANGES; kind++) {
        alike->count = exchanged->count = 0;
        for (size_t i = 0; i < scenes->count; i++)
            changed[i] = changed_side(&scenes->items[i], changes[kind].change);
        for (size_t i = 0; i < scenes->count; i++) {
            for (size_t j = 0; j < scenes->count; j++) {
                Spread *found = i == j ? alike : exchanged;
                found->values[found->count++] = likeness_of(changed[i], clear[j]).likeness;
            }
        }
        print_spread(changes[kind].name, "alike", alike);
        print_spread(changes[kind].name, "exchanged", exchanged);
        assert_true(alike->values[0] > LIKENESS_MIN + 0.15);
        assert_true(exchanged->values[exchanged->count - 1 - exchanged->count / 1000] < LIKENESS_MIN);
        for (size_t i = 0; i < scenes->count; i++)
            free(changed[i]);
    }
    for (size_t i = 0; i < scenes->count; i++)
        free(clear[i]);
    free(alike);
    free(exchanged);
}

static void cut(const Image *from, uint32_t left, uint32_t top, uint32_t width, uint32_t height, Image *to)
{
    FshError error;
    assert_int_equal(image_reserve(to, width, height, 3, &error), FSH_OK);
    for (uint32_t y = 0; y < height; y++)
        memcpy(to->pixels + (size_t)y * width * 3,
               from->pixels + ((size_t)(top + y) * from->width + left) * 3, (size_t)width * 3);
}

/* The two differ as neighbouring frames or crops at other places do: by 4 to 20 % of the width and height. */
TEST_WITH(test_another_crop_of_the_scene_is_not_alike, NULL, NULL, const Scenes *scenes)
{
    static const float shares[] = {0.04F, 0.05F, 0.07F, 0.1F, 0.2F};
    Spread *found = malloc(sizeof *found);
    assert_non_null(found);
    for (size_t kind = 0; kind < CHANGES; kind++) {
        size_t passed = 0;
        found->count = 0;
        for (size_t i = 0; i < scenes->count; i++) {
            const Image *image = &scenes->items[i];
            const float share = shares[i % 5];
            const uint32_t dx = (uint32_t)(share * (float)image->width),
                           dy = (uint32_t)(share * (float)image->height);
            const uint32_t width = image->width - dx, height = image->height - dy;
            Image first = {0}, second = {0};
            cut(image, 0, i % 2 ? dy : 0, width, height, &first);
            cut(image, dx, i % 2 ? 0 : dy, width, height, &second);
            LikenessSide *a = side_of(&first), *b = changed_side(&second, changes[kind].change);
            const Likeness likeness = likeness_of(a, b);
            if (changes[kind].change == nothing && share < 0.1F) { /* and it says where the scene is */
                assert_true(likeness.shifted && likeness.likeness_there > 2 * likeness.likeness);
                assert_true(fabs(likeness.shift_x + (double)share) < 0.03);
                assert_true(fabs(likeness.shift_y - (i % 2 ? 1 : -1) * (double)share) < 0.03);
            }
            found->values[found->count++] = likeness.likeness;
            passed += likeness.likeness >= LIKENESS_MIN;
            free(a);
            free(b);
            image_free(&first);
            image_free(&second);
        }
        print_spread(changes[kind].name, "shifted", found);
        assert_true(passed * 10 <= scenes->count); /* of those by 4 %, some look like blur */
    }
    free(found);
}

TEST_WITH(test_plain_sides_are_alike_with_each_other_only, NULL, NULL, const Scenes *scenes)
{
    Image plain = {0};
    FshError error;
    assert_int_equal(image_reserve(&plain, LIKENESS_EDGE, LIKENESS_EDGE, 1, &error), FSH_OK);
    memset(plain.pixels, 90, (size_t)LIKENESS_EDGE * LIKENESS_EDGE);
    LikenessSide *scene = side_of(&scenes->items[0]), *flat = malloc(sizeof *flat);
    assert_non_null(flat);
    likeness_side(&plain, flat);
    assert_true(likeness_of(flat, flat).likeness == 1);
    assert_true(likeness_of(flat, scene).likeness == 0);
    assert_true(likeness_of(scene, flat).likeness == 0);
    assert_true(likeness_of(scene, scene).likeness > 0.999);
    free(scene);
    free(flat);
    image_free(&plain);
}
