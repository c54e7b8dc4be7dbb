#include "trainer/data/sample_recipe.h"

/* Streams of random numbers: switching one augmentation on does not change the numbers of another. */
enum { STREAM_COLOUR = 1, STREAM_NOISE, STREAM_ERASING, STREAM_MIXING, STREAM_OPERATIONS };

void sample_mixing_random(uint64_t seed, uint64_t turn, uint64_t index, Random *random)
{
    random_start(random, seed, random_stream(random_stream(turn, index), STREAM_MIXING));
}

/* Returns whether a sample is mirrored in a turn, where the next turn has the other half. */
static bool is_flipped_half(uint64_t seed, uint64_t turn, uint64_t index)
{
    static const uint64_t flip_stream = 0x666c6970; /* "flip": no turn */
    Random random;
    random_start(&random, seed, random_stream(flip_stream, index));
    return (random_below(&random, 2) + turn) % 2 == 1;
}

static bool has_jitter(const ColourJitter *jitter)
{
    return jitter->brightness > 0 || jitter->contrast > 0 || jitter->saturation > 0 || jitter->hue > 0;
}

bool sample_recipe_has_operations(const Augmentation *augmentation)
{
    return augmentation->auto_augment.kind != AUTO_AUGMENT_NONE;
}

bool sample_recipe_has_colours(const Augmentation *augmentation)
{
    return has_jitter(&augmentation->jitter) || augmentation->noise > 0 ||
           augmentation->erasing.probability > 0;
}

void sample_recipe_draw(SampleRecipe *recipe, const Augmentation *augmentation, uint64_t seed, uint64_t turn,
                        uint64_t index, uint32_t width, uint32_t height)
{
    const uint64_t sample = random_stream(turn, index);
    const bool whole = augmentation->mode == CROP_WHOLE;
    Random random;
    recipe->operations.count = 0;
    recipe->operations.black = false;
    recipe->colours.count = 0;
    recipe->noise = 0;
    recipe->erased = (ErasingPlan){0};
    random_start(&random, seed, sample);
    augment_plan(augmentation, width, height, &random, &recipe->crop);
    if (augmentation->flip_mode == FLIP_ALTERNATING)
        recipe->crop.flip = is_flipped_half(seed, turn, index);
    if (sample_recipe_has_operations(augmentation)) {
        random_start(&random, seed, random_stream(sample, STREAM_OPERATIONS));
        auto_augment_draw(&augmentation->auto_augment, augmentation->size, augmentation->size, &random,
                          &recipe->operations);
    }
    if (has_jitter(&augmentation->jitter)) {
        random_start(&random, seed, random_stream(sample, STREAM_COLOUR));
        colour_jitter_plan(&augmentation->jitter, &random, &recipe->colours);
    }
    if (augmentation->noise > 0) {
        random_start(&recipe->noise_random, seed, random_stream(sample, STREAM_NOISE));
        recipe->noise = augmentation->noise * random_uniform_double(&recipe->noise_random);
    }
    if (augmentation->erasing.probability > 0) {
        random_start(&recipe->erasing_random, seed, random_stream(sample, STREAM_ERASING));
        random_erasing_plan(&augmentation->erasing, whole ? width : augmentation->size,
                            whole ? height : augmentation->size, &recipe->erasing_random, &recipe->erased);
    }
}

void sample_recipe_pixels(const SampleRecipe *recipe, const Augmentation *augmentation, uint32_t width,
                          uint32_t height, PixelRecipe *pixels)
{
    const CropPlan *crop = &recipe->crop;
    const ResampleBox *box = &crop->box;
    *pixels = (PixelRecipe){
        .width = width,
        .height = height,
        .flip = crop->flip,
        .vertical_flip = crop->vertical_flip,
        .transpose = crop->transpose,
        .filter = interpolation_filters[augmentation->interpolation],
        .part_width = width,
        .part_height = height,
        .resized_width = crop->resized_width,
        .resized_height = crop->resized_height,
        .window_left = crop->window.left,
        .window_top = crop->window.top,
        .shift_x = crop->shift_x,
        .shift_y = crop->shift_y,
    };
    if (crop_mode_resizes_first(augmentation->mode))
        return;
    /* Whole pixels are cut out without influence of their neighbours, then resampled or not. */
    pixels->part_left = (uint32_t)box->left;
    pixels->part_top = (uint32_t)box->top;
    pixels->part_width = (uint32_t)(box->right - box->left);
    pixels->part_height = (uint32_t)(box->bottom - box->top);
    const bool resized = augmentation->mode == CROP_RESIZED;
    pixels->resized_width = resized ? augmentation->size : pixels->part_width;
    pixels->resized_height = resized ? augmentation->size : pixels->part_height;
}

/* Returns where the sequence of random goes on, for a backend to continue. */
static PixelRandom random_place(const Random *random)
{
    const uint64_t blocks = (uint64_t)random->counter[1] << 32 | random->counter[0];
    return (PixelRandom){.stream = (uint64_t)random->counter[3] << 32 | random->counter[2],
                         .drawn = (uint32_t)(4 * blocks) - (4U - (uint32_t)random->used)};
}

void sample_recipe_operations(const SampleRecipe *recipe, const Augmentation *augmentation,
                              const uint8_t fill[4], PixelOperations *operations)
{
    const ImageSteps *drawn = &recipe->operations;
    operations->count = drawn->count;
    for (int c = 0; c < 4; c++)
        operations->fill[c] = drawn->black ? 0 : fill[c];
    for (unsigned i = 0; i < drawn->count; i++)
        image_operation_plan(&drawn->steps[i], augmentation->size, augmentation->size, &operations->steps[i]);
}

void sample_recipe_colours(const SampleRecipe *recipe, const Augmentation *augmentation,
                           const uint8_t fill[4], PixelColours *colours)
{
    *colours = (PixelColours){.step_count = recipe->colours.count, .noise = recipe->noise, .share = 1};
    for (unsigned i = 0; i < recipe->colours.count; i++) {
        colours->steps[i] = (uint8_t)recipe->colours.steps[i];
        colours->factors[i] = recipe->colours.factors[i];
    }
    if (recipe->noise > 0)
        colours->noise_random = random_place(&recipe->noise_random);
    if (recipe->erased.width == 0)
        return;
    Random random = recipe->erasing_random;
    colours->erased_left = recipe->erased.left;
    colours->erased_top = recipe->erased.top;
    colours->erased_width = recipe->erased.width;
    colours->erased_height = recipe->erased.height;
    colours->erased_noise = augmentation->erasing.fill == ERASING_PIXEL;
    random_erasing_colour(&augmentation->erasing, fill, augmentation->channels, &random,
                          colours->erased_colour);
    colours->erasing_random = random_place(&random);
}

void sample_recipe_mix(const MixPlan *mix, PixelColours *colours)
{
    colours->share = mix->share;
    colours->cut = mix->cut;
    colours->cut_left = mix->left;
    colours->cut_top = mix->top;
    colours->cut_right = mix->right;
    colours->cut_bottom = mix->bottom;
}
