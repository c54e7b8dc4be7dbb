#include "tests/trainer/pixels_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "imaging/planes.h"
#include "tests/support/support.h"
#include "tests/trainer/operations_support.h"
#include "trainer/backend/pixel_tiles.h"

/* What is done to colours, besides the jitter. */
typedef enum Extra {
    EXTRA_NONE,
    EXTRA_JITTER,
    EXTRA_ERASING,
    EXTRA_NOISE,
    EXTRA_MIXING,
    EXTRA_OPERATIONS,
    EXTRA_COUNT
} Extra;

static const CropMode modes[] = {CROP_RESIZED, CROP_PADDED, CROP_CENTER, CROP_RANDOM, CROP_KEPT_RATIO};
static const char *const mode_names[] = {"rrc", "pad", "center", "random", "rkrc"};
static const char *const extra_names[] = {"plain", "jitter", "erasing", "noise", "mixing", "operations"};
static const uint32_t sizes[] = {32, 17, 100, 1}; /* within a tile, and of several */
enum { MODES = sizeof modes / sizeof *modes, SIZES = 4 };
enum { HARD = 3 }; /* the image whose pixels are black or white */

static const uint8_t fill[4] = {120, 7, 255, 0};

/* Channels of a batch, and of the images that it is made from. */
typedef struct Kind {
    uint32_t channels;
    uint8_t stored[2]; /* inputs, targets */
    bool planes[2];
} Kind;

static const Kind kinds[] = {{3, {3, 1}, {false, false}}, {1, {1, 3}, {false, false}},
                             {3, {1, 3}, {false, false}}, {1, {3, 1}, {false, false}},
                             {3, {3, 3}, {true, false}},  {1, {3, 3}, {true, true}}};

static uint64_t stored_bytes(const PixelRecipe *recipe, unsigned side)
{
    return recipe->planes[side] ? planes_bytes(PLANES_420, recipe->width, recipe->height)
                                : (uint64_t)recipe->width * recipe->height * recipe->channels[side];
}

/* Takes turns between planes and pixels where there are planes: a batch has both. */
static bool lies_as_planes(const PixelRecipe *recipe, const Kind *kind, unsigned side, unsigned i)
{
    return kind->planes[side] && i != 2 && planes_expandable(PLANES_420, recipe->width, recipe->height);
}

static uint8_t *draw_images(PixelsCase *test, Random *random, uint32_t least, const Kind *kind)
{
    uint8_t *stored = NULL;
    for (unsigned i = 0; i < PIXELS_COUNT; i++) {
        PixelRecipe *recipe = &test->recipes[i];
        /* the last one is of the batch's size and is taken as it is, the one before an icicle */
        recipe->width = i + 1 == PIXELS_COUNT ? test->augmentation.size : least + random_below(random, 200);
        recipe->height = i + 1 == PIXELS_COUNT   ? test->augmentation.size
                         : i + 2 == PIXELS_COUNT ? least
                                                 : least + random_below(random, 150);
        for (unsigned side = 0; side < 2; side++) {
            recipe->channels[side] = kind->stored[side];
            recipe->planes[side] = lies_as_planes(recipe, kind, side, i);
            recipe->offset_bytes[side] = PIXELS_NONE;
            if (side >= test->sides || (i == 1 && test->augmentation.size == 17)) /* one that is left out */
                continue;
            recipe->offset_bytes[side] = test->stored_bytes + random_below(random, 7); /* no alignment */
            test->stored_bytes = recipe->offset_bytes[side] + stored_bytes(recipe, side);
        }
    }
    stored = malloc(test->stored_bytes);
    assert_non_null(stored);
    /* smooth enough that means and hues differ from image to image, rough enough that every weight counts */
    for (uint64_t i = 0; i < test->stored_bytes; i++)
        stored[i] = (uint8_t)((random_u32(random) & 127) + (i / 999 % 129));
    /* one black and white: sums with weights below 0 go beyond both ends */
    for (unsigned side = 0; side < test->sides; side++)
        for (uint64_t i = 0; i < stored_bytes(&test->recipes[HARD], side); i++) {
            uint8_t *value = stored + test->recipes[HARD].offset_bytes[side] + i;
            *value = *value & 1 ? 255 : 0;
        }
    return stored;
}

/* Returns the stored image; of planes, the pixels that libjpeg makes of them, in *expanded. */
static ImageView stored_view(const PixelsCase *test, const PixelRecipe *recipe, unsigned side,
                             Image *expanded)
{
    const uint8_t *stored = test->stored + recipe->offset_bytes[side];
    const Planes planes = {
        .bytes = stored, .width = recipe->width, .height = recipe->height, .chroma = PLANES_420};
    FshError error = {0};
    if (recipe->planes[side])
        assert_ok(planes_expand(&planes, &(ImagePart){.width = recipe->width, .height = recipe->height}, 3,
                                expanded, &error),
                  &error);
    return (ImageView){.pixels = recipe->planes[side] ? expanded->pixels : stored,
                       .stride_bytes = (size_t)recipe->width * recipe->channels[side],
                       .width = recipe->width,
                       .height = recipe->height,
                       .channels = recipe->channels[side]};
}

/* Applies what the policy has drawn. */
static void apply_operations(const PixelsCase *test, const SampleRecipe *drawn, uint8_t *pixels)
{
    ImageCanvas canvas = {.pixels = pixels,
                          .scratch =
                              malloc((size_t)test->batch.width * test->batch.height * test->batch.channels),
                          .width = test->batch.width,
                          .height = test->batch.height,
                          .channels = test->batch.channels,
                          .bicubic = test->augmentation.interpolation != INTERPOLATION_BILINEAR};
    assert_non_null(canvas.scratch);
    memcpy(canvas.fill, fill, sizeof canvas.fill);
    auto_augment_apply(&drawn->operations, &canvas);
    free(canvas.scratch);
}

static void render_expected(PixelsCase *test, const SampleRecipe *drawn, unsigned i, Augmenter *augmenter)
{
    const PixelRecipe *recipe = &test->recipes[i];
    const size_t pixel_count = (size_t)test->batch.width * test->batch.height,
                 bytes = pixel_count * test->batch.channels;
    for (unsigned side = 0; side < test->sides; side++) {
        uint8_t *target = test->expected[side] + i * bytes;
        if (recipe->offset_bytes[side] == PIXELS_NONE) {
            for (size_t k = 0; k < bytes; k++)
                target[k] = fill[k % test->batch.channels];
            continue;
        }
        Image expanded = {0};
        const ImageView image = stored_view(test, recipe, side, &expanded);
        FshError error = {0};
        assert_int_equal(augment_render(augmenter, &test->augmentation, &drawn->crop, &image,
                                        &(ImagePlace){.eighths = 8}, target, &error),
                         FSH_OK);
        image_free(&expanded);
        if (side == 1)
            continue;
        SampleRecipe applied = *drawn;
        apply_operations(test, &applied, target);
        colour_jitter_apply(&applied.colours, target, pixel_count, test->batch.channels);
        if (applied.noise > 0)
            augment_add_noise(target, bytes, applied.noise, &applied.noise_random);
        random_erasing_apply(&test->augmentation.erasing, &applied.erased, fill, target, test->batch.width,
                             test->batch.channels, &applied.erasing_random);
    }
}

/* Mixes neighbours two by two, where both are there. */
static void mix_expected(PixelsCase *test, Random *random, const Mixing *mixing)
{
    const size_t bytes = (size_t)test->batch.width * test->batch.height * test->batch.channels;
    for (unsigned i = 0; i < PIXELS_COUNT; i += 2) {
        MixPlan plan;
        if (test->recipes[i].offset_bytes[0] == PIXELS_NONE ||
            test->recipes[i + 1].offset_bytes[0] == PIXELS_NONE)
            continue;
        mixing_plan(mixing, test->batch.width, test->batch.height, random, &plan);
        mixing_apply(&plan, test->batch.width, test->batch.height, test->batch.channels,
                     test->expected[0] + i * bytes, test->expected[0] + (i + 1) * bytes);
        sample_recipe_mix(&plan, &test->colours[i]);
        sample_recipe_mix(&plan, &test->colours[i + 1]);
    }
}

static Augmentation make_augmentation(CropMode mode, Extra extra, uint32_t size, uint32_t channels,
                                      Interpolation interpolation, unsigned number)
{
    Augmentation augmentation = {
        .mode = mode,
        .interpolation = interpolation,
        .size = size,
        .channels = channels,
        .resize = size + size / 7,
        .padding = size / 8,
        .scale_min = 0.08,
        .scale_max = 1,
        .ratio_min = 0.5,
        .ratio_max = 2,
        .flip_probability = 0.5,
        .vertical_flip_probability = 0.5,
        .transpose_probability = 0.5,
    };
    if (extra != EXTRA_NONE && extra != EXTRA_NOISE)
        augmentation.jitter = (ColourJitter){0.4, 0.6, 0.9, 0.5};
    if (extra == EXTRA_NOISE)
        augmentation.noise = 20;
    if (extra == EXTRA_OPERATIONS)
        augmentation.auto_augment = (AutoAugment){.kind = number % 2 ? AUTO_AUGMENT_RA : AUTO_AUGMENT_RAND,
                                                  .layers = 3,
                                                  .probability = 0.8,
                                                  .magnitude = 9,
                                                  .magnitude_max = 10,
                                                  .deviation = 0.5,
                                                  .ra_magnitude = 17};
    if (extra == EXTRA_ERASING || extra == EXTRA_NOISE)
        augmentation.erasing = (RandomErasing){.probability = 0.9,
                                               .scale_min = 0.1,
                                               .scale_max = 0.5,
                                               .ratio_min = 0.3,
                                               .ratio_max = 3.3,
                                               .fill = extra == EXTRA_NOISE ? ERASING_PIXEL
                                                       : number % 2         ? ERASING_RAND
                                                                            : ERASING_CONST,
                                               .deviation = {60, 50, 40}};
    return augmentation;
}

bool pixels_case_make(PixelsCase *test, uint64_t seed, unsigned number)
{
    const unsigned mode = number % MODES, extra = number / MODES % EXTRA_COUNT,
                   size = number / (MODES * EXTRA_COUNT) % SIZES,
                   chosen = number / (MODES * EXTRA_COUNT * SIZES);
    *test = (PixelsCase){0};
    if (chosen >= sizeof kinds / sizeof *kinds)
        return false;
    const Kind *kind = &kinds[chosen];
    Random random;
    random_start(&random, seed, number);
    /* 7: a divisor of none of the others, so that each mode, extra, size and kind meets every one */
    const Interpolation interpolation = (Interpolation)((number + seed) % 7 % (INTERPOLATION_LANCZOS + 1));
    test->augmentation =
        make_augmentation(modes[mode], (Extra)extra, sizes[size], kind->channels, interpolation, number);
    (void)snprintf(test->name, sizeof test->name, "case %u: %s, %s, %s, %u pixels, %u channels of %u%s",
                   number, mode_names[mode], interpolation_names[test->augmentation.interpolation],
                   extra_names[extra], sizes[size], kind->channels, kind->stored[0],
                   kind->planes[0] ? ", planes" : "");
    test->sides = modes[mode] == CROP_RANDOM ? 2 : 1;
    test->exact = extra != EXTRA_NOISE;
    test->stored = draw_images(test, &random, modes[mode] == CROP_RANDOM ? sizes[size] : 1, kind);
    test->batch = (PixelBatch){.count = PIXELS_COUNT,
                               .width = sizes[size],
                               .height = sizes[size],
                               .channels = kind->channels,
                               .recipes = test->recipes,
                               .operations = extra == EXTRA_OPERATIONS ? test->operations : NULL,
                               .colours = extra == EXTRA_NONE ? NULL : test->colours,
                               .seed = seed};
    memcpy(test->batch.fill, fill, sizeof fill);
    memcpy(test->batch.erased_deviation, test->augmentation.erasing.deviation,
           sizeof test->batch.erased_deviation);
    const size_t bytes = (size_t)PIXELS_COUNT * sizes[size] * sizes[size] * kind->channels;
    for (unsigned side = 0; side < test->sides; side++) {
        test->expected[side] = malloc(bytes);
        assert_non_null(test->expected[side]);
    }
    Augmenter *augmenter = NULL;
    FshError error = {0};
    assert_int_equal(augmenter_new(&augmenter, &error), FSH_OK);
    for (unsigned i = 0; i < PIXELS_COUNT; i++) {
        SampleRecipe drawn;
        PixelRecipe *recipe = &test->recipes[i];
        const PixelRecipe place = *recipe;
        sample_recipe_draw(&drawn, &test->augmentation, seed, number, i, place.width, place.height);
        sample_recipe_pixels(&drawn, &test->augmentation, place.width, place.height, recipe);
        memcpy(recipe->offset_bytes, place.offset_bytes, sizeof place.offset_bytes);
        memcpy(recipe->channels, place.channels, sizeof place.channels);
        memcpy(recipe->planes, place.planes, sizeof place.planes);
        if (place.offset_bytes[0] == PIXELS_NONE) {
            test->colours[i] = (PixelColours){.share = 1};
        } else {
            sample_recipe_operations(&drawn, &test->augmentation, fill, &test->operations[i]);
            sample_recipe_colours(&drawn, &test->augmentation, fill, &test->colours[i]);
        }
        render_expected(test, &drawn, i, augmenter);
    }
    augmenter_free(&augmenter);
    const Mixing mixing = {
        .mixup_alpha = 0.8, .cutmix_alpha = 1, .probability = 0.9, .switch_probability = 0.5};
    if (extra == EXTRA_MIXING)
        mix_expected(test, &random, &mixing);
    return true;
}

void pixels_case_free(PixelsCase *test)
{
    free(test->stored);
    free(test->expected[0]);
    free(test->expected[1]);
    *test = (PixelsCase){0};
}

void pixels_case_compare(const PixelsCase *test, unsigned side, const uint8_t *pixels)
{
    const size_t image_bytes = (size_t)test->batch.width * test->batch.height * test->batch.channels,
                 count = image_bytes * PIXELS_COUNT;
    size_t differ = 0;
    for (size_t i = 0; i < count; i++) {
        const int difference = abs((int)pixels[i] - (int)test->expected[side][i]);
        differ += difference > 0;
        if (difference > (test->exact ? 0 : 1))
            fail_msg("%s, side %u: value %zu of image %zu is %u, not %u", test->name, side, i % image_bytes,
                     i / image_bytes, pixels[i], test->expected[side][i]);
    }
    if (differ > count / 1000)
        fail_msg("%s, side %u: %zu of %zu values differ", test->name, side, differ, count);
}

/* ---- what the kernels do ---- */

static void fill_axis(const PixelAxis *axis, uint32_t part, uint32_t resized, uint32_t window,
                      ResampleFilter filter)
{
    for (uint32_t i = 0; i < axis->outputs; i++)
        pixel_axis_fill(axis, part, resized, window, filter, i);
}

/* Renders a tile's strip: each of its functions by one thread after the other. */
static void render_strip(const PixelImage *image, const PixelTile *tile, uint8_t *pixels)
{
    enum { THREADS = 2 * PIXEL_TILE_WIDTH };
    static uint32_t staged[PIXEL_TILE_STAGED_WORDS], across[PIXEL_TILE_ACROSS_WORDS];
    static PixelTaps rows[PIXEL_TILE_HEIGHT];
    assert_true(tile->band > 0 && tile->height <= PIXEL_TILE_ROWS);
    assert_true(tile->columns <= PIXEL_TILE_WIDTH && tile->places <= PIXEL_TILE_WIDTH);
    memset(across, 0x5A, sizeof across); /* of the strip before, and of none before */
    for (uint32_t thread = 0; thread < THREADS; thread++)
        pixel_tile_find_rows(image, tile, rows, thread, THREADS);
    for (uint32_t first = 0; first < tile->height; first += tile->band) {
        const uint32_t left = tile->height - first, count = left < tile->band ? left : tile->band;
        assert_true(count * tile->width <= PIXEL_TILE_STAGED);
        memset(staged, 0xA5, sizeof staged);
        for (uint32_t thread = 0; thread < THREADS; thread++)
            pixel_tile_stage(image, tile, first, count, staged, thread, THREADS);
        for (uint32_t thread = 0; thread < THREADS; thread++)
            pixel_tile_across(image, tile, first, count, staged, across, thread, THREADS);
    }
    for (uint32_t thread = 0; thread < THREADS; thread++)
        pixel_tile_down(image, tile, rows, across, pixels, thread, THREADS);
}

/* Renders a tile by strips, as render_tile of pixels.cu does. */
static void render_tile(const PixelImage *image, uint32_t column, uint32_t columns, uint32_t row,
                        uint32_t rows, uint32_t strip, uint8_t *pixels)
{
    for (uint32_t done = 0; done < rows; done += strip) {
        const uint32_t left = rows - done;
        PixelTile tile;
        pixel_tile_place(image, column, columns, row + done, strip < left ? strip : left, &tile);
        render_strip(image, &tile, pixels);
    }
}

/* Renders an image by tiles; where `each`, and where it cannot be, pixel by pixel. */
static void render_image(const PixelImage *image, bool each, uint8_t *pixels)
{
    const uint32_t columns = pixel_columns(image->recipe, image->width, image->height),
                   rows = pixel_rows(image->recipe, image->width, image->height),
                   strip = each ? 0 : pixel_tile_rows(image);
    for (uint32_t row = 0; row < rows && !strip; row++)
        for (uint32_t column = 0; column < columns; column++)
            pixel_render(image, column, row,
                         pixels + (size_t)pixel_index(image, column, row) * image->channels);
    for (uint32_t row = 0; row < rows && strip; row += PIXEL_TILE_HEIGHT)
        for (uint32_t column = 0; column < columns; column += PIXEL_TILE_WIDTH) {
            const uint32_t right = columns - column, below = rows - row;
            render_tile(image, column, right < PIXEL_TILE_WIDTH ? right : PIXEL_TILE_WIDTH, row,
                        below < PIXEL_TILE_HEIGHT ? below : PIXEL_TILE_HEIGHT, strip, pixels);
        }
}

static void render_recipe(const PixelBatch *batch, const uint8_t *store, unsigned side, uint64_t i, bool each,
                          uint8_t *pixels)
{
    const PixelRecipe *recipe = &batch->recipes[i];
    if (recipe->offset_bytes[side] == PIXELS_NONE) {
        for (size_t k = 0; k < (size_t)batch->width * batch->height; k++)
            memcpy(pixels + k * batch->channels, batch->fill, batch->channels);
        return;
    }
    const uint32_t outputs[2] = {pixel_columns(recipe, batch->width, batch->height),
                                 pixel_rows(recipe, batch->width, batch->height)};
    const uint32_t parts[2] = {recipe->part_width, recipe->part_height},
                   resized[2] = {recipe->resized_width, recipe->resized_height},
                   windows[2] = {recipe->window_left, recipe->window_top};
    PixelAxis axes[2];
    uint32_t *words[2];
    for (int a = 0; a < 2; a++) {
        words[a] =
            malloc(pixel_axis_words(outputs[a], (uint32_t)pixel_taps(parts[a], resized[a], recipe->filter)) *
                   sizeof(uint32_t));
        assert_non_null(words[a]);
        axes[a] = pixel_axis_at(words[a], outputs[a]);
        if (pixel_is_resampled(recipe))
            fill_axis(&axes[a], parts[a], resized[a], windows[a], recipe->filter);
    }
    render_image(&(PixelImage){.recipe = recipe,
                               .stored = store + recipe->offset_bytes[side],
                               .stored_channels = recipe->channels[side],
                               .planes = recipe->planes[side],
                               .width = batch->width,
                               .height = batch->height,
                               .channels = batch->channels,
                               .columns = axes[0],
                               .rows = axes[1]},
                 each, pixels);
    free(words[0]);
    free(words[1]);
}

static uint64_t luma_sum(const PixelBatch *batch, const uint8_t *pixels)
{
    uint64_t sum = 0;
    for (size_t k = 0; k < (size_t)batch->width * batch->height; k++, pixels += batch->channels)
        sum += batch->channels == 1 ? pixels[0] : colour_luma(pixels);
    return sum;
}

static void change_colours(const PixelBatch *batch, const PixelColours *colours, uint8_t *pixels)
{
    const size_t count = (size_t)batch->width * batch->height;
    for (uint32_t s = 0; s < colours->step_count; s++) {
        const int mean = colour_mean(luma_sum(batch, pixels), count);
        for (size_t k = 0; k < count; k++)
            colour_step_pixel((ColourStep)colours->steps[s], colours->factors[s], mean,
                              pixels + k * batch->channels, batch->channels);
    }
    for (uint32_t y = 0; y < batch->height; y++)
        for (uint32_t x = 0; x < batch->width; x++)
            pixel_finish(colours, batch->seed, batch->erased_deviation, batch->width, batch->channels, x, y,
                         pixels + ((size_t)y * batch->width + x) * batch->channels);
}

static void mix(const PixelBatch *batch, uint64_t i, uint8_t *first, uint8_t *second)
{
    for (size_t k = 0; k < (size_t)batch->width * batch->height * batch->channels; k++) {
        const uint32_t pixel = (uint32_t)(k / batch->channels), x = pixel % batch->width,
                       y = pixel / batch->width;
        const uint8_t a = first[k], b = second[k];
        first[k] = pixel_mixed(&batch->colours[i], x, y, a, b);
        second[k] = pixel_mixed(&batch->colours[i + 1], x, y, b, a);
    }
}

void pixels_apply(const PixelBatch *batch, const uint8_t *store, unsigned side, bool each, uint8_t *pixels)
{
    const size_t bytes = (size_t)batch->width * batch->height * batch->channels;
    for (uint64_t i = 0; i < batch->count; i++) {
        render_recipe(batch, store, side, i, each, pixels + i * bytes);
        if (side == 0 && batch->operations)
            operations_apply(batch, i, 512, pixels + i * bytes);
        if (side == 0 && batch->colours && batch->recipes[i].offset_bytes[0] != PIXELS_NONE)
            change_colours(batch, &batch->colours[i], pixels + i * bytes);
    }
    for (uint64_t i = 0; i + 1 < batch->count && side == 0 && batch->colours; i += 2)
        mix(batch, i, pixels + i * bytes, pixels + (i + 1) * bytes);
}

uint8_t *pixels_bring_files(const PixelBatch *batch)
{
    uint8_t *store = calloc(1, (size_t)batch->stored_bytes + 1);
    ImageDecoder *decoder = NULL;
    Image image = {0};
    FshError error = {0};
    assert_non_null(store);
    assert_ok(image_decoder_new(&decoder, &error), &error);
    for (unsigned side = 0; side < 2; side++)
        for (uint64_t i = 0; i < batch->count && batch->files[side]; i++) {
            const PixelFile *file = &batch->files[side][i];
            const PixelRecipe *recipe = &batch->recipes[i];
            const size_t bytes = (size_t)recipe->width * recipe->height * recipe->channels[side];
            if (recipe->offset_bytes[side] == PIXELS_NONE)
                continue;
            assert_true(recipe->offset_bytes[side] + bytes <= batch->stored_bytes);
            if (!file->is_jpeg) {
                assert_int_equal(file->bytes, bytes);
                memcpy(store + recipe->offset_bytes[side], file->data, bytes);
                continue;
            }
            assert_ok(image_decode(decoder, file->data, file->bytes,
                                   &(ImageDecodeOptions){.channels = recipe->channels[side]}, &image, NULL,
                                   &error),
                      &error);
            assert_int_equal(image.width, recipe->width);
            assert_int_equal(image.height, recipe->height);
            memcpy(store + recipe->offset_bytes[side], image.pixels, bytes);
        }
    image_free(&image);
    image_decoder_free(&decoder);
    return store;
}
