#include "trainer/data/colour_jitter.h"

#include <math.h>

/* ---- plan ---- */

static double draw_factor(ColourStep step, double amount, Random *random)
{
    double low = step == COLOUR_HUE ? -amount : fmax(0, 1 - amount);
    double high = step == COLOUR_HUE ? amount : 1 + amount;
    return low + (high - low) * random_uniform_double(random);
}

void colour_jitter_plan(const ColourJitter *jitter, Random *random, ColourPlan *plan)
{
    const double amounts[COLOUR_STEP_COUNT] = {jitter->brightness, jitter->contrast, jitter->saturation,
                                               jitter->hue};
    ColourStep order[COLOUR_STEP_COUNT] = {COLOUR_BRIGHTNESS, COLOUR_CONTRAST, COLOUR_SATURATION, COLOUR_HUE};
    *plan = (ColourPlan){0};
    for (uint32_t i = COLOUR_STEP_COUNT - 1; i > 0; i--) { /* Fisher and Yates */
        uint32_t other = random_below(random, i + 1);
        ColourStep step = order[i];
        order[i] = order[other];
        order[other] = step;
    }
    for (unsigned i = 0; i < COLOUR_STEP_COUNT; i++) {
        if (!(amounts[order[i]] > 0))
            continue;
        plan->steps[plan->count] = order[i];
        plan->factors[plan->count++] = draw_factor(order[i], amounts[order[i]], random);
    }
}

void colour_jitter_apply(const ColourPlan *plan, uint8_t *pixels, size_t pixel_count, uint32_t channels)
{
    for (unsigned i = 0; i < plan->count; i++)
        colour_adjust(plan->steps[i], plan->factors[i], pixels, pixel_count, channels);
}

/* ---- blends ---- */

/* Blends every value with the same one: a table serves. */
static void blend_all(int from, float factor, uint8_t *values, size_t count)
{
    uint8_t table[256];
    for (int i = 0; i < 256; i++)
        table[i] = colour_blend(from, i, factor);
    for (size_t i = 0; i < count; i++)
        values[i] = table[values[i]];
}

static int mean_luma(const uint8_t *pixels, size_t pixel_count, uint32_t channels)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < pixel_count; i++)
        sum += channels == 1 ? pixels[i] : colour_luma(pixels + i * channels);
    return colour_mean(sum, pixel_count);
}

static void saturate(uint8_t *pixels, size_t pixel_count, float factor)
{
    for (size_t i = 0; i < pixel_count; i++, pixels += 3)
        colour_saturate(pixels, factor);
}

static void turn_hue(uint8_t *pixels, size_t pixel_count, uint8_t shift)
{
    for (size_t i = 0; i < pixel_count; i++, pixels += 3)
        colour_turn(pixels, shift);
}

void colour_adjust(ColourStep step, double factor, uint8_t *pixels, size_t pixel_count, uint32_t channels)
{
    float single = (float)factor;
    if (step == COLOUR_BRIGHTNESS)
        blend_all(0, single, pixels, pixel_count * channels);
    else if (step == COLOUR_CONTRAST)
        blend_all(mean_luma(pixels, pixel_count, channels), single, pixels, pixel_count * channels);
    else if (step == COLOUR_SATURATION && channels == 3)
        saturate(pixels, pixel_count, single);
    else if (step == COLOUR_HUE && channels == 3)
        turn_hue(pixels, pixel_count, colour_hue_shift(factor));
}
