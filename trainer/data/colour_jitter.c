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

/* Pillow's Image.blend of one value: in single precision, cut off. */
static uint8_t blend(int from, int to, float factor)
{
    float value = (float)from + factor * (float)(to - from);
    if (value <= 0)
        return 0;
    return value >= 255 ? 255 : (uint8_t)value;
}

/* Blends every value with the same one: a table serves. */
static void blend_all(int from, float factor, uint8_t *values, size_t count)
{
    uint8_t table[256];
    for (int i = 0; i < 256; i++)
        table[i] = blend(from, i, factor);
    for (size_t i = 0; i < count; i++)
        values[i] = table[values[i]];
}

/* int(mean + 0.5) of the luma. */
static int mean_luma(const uint8_t *pixels, size_t pixel_count, uint32_t channels)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < pixel_count; i++)
        sum += channels == 1 ? pixels[i] : colour_luma(pixels + i * channels);
    return pixel_count ? (int)((double)sum / (double)pixel_count + 0.5) : 0;
}

static void saturate(uint8_t *pixels, size_t pixel_count, float factor)
{
    for (size_t i = 0; i < pixel_count; i++, pixels += 3) {
        int luma = colour_luma(pixels);
        for (int c = 0; c < 3; c++)
            pixels[c] = blend(luma, pixels[c], factor);
    }
}

/* ---- hue ---- */

static uint8_t clip(int value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Pillow's rgb2hsv_row, whose divisions are in single, whose last steps in double precision. False: gray, which has no hue. */
static bool hue_and_saturation(const uint8_t *rgb, uint8_t *hue, uint8_t *saturation)
{
    int most = rgb[0] > rgb[1] ? rgb[0] : rgb[1], least = rgb[0] < rgb[1] ? rgb[0] : rgb[1];
    most = rgb[2] > most ? rgb[2] : most;
    least = rgb[2] < least ? rgb[2] : least;
    if (most == least)
        return false;
    float range = (float)(most - least), s = range / (float)most;
    float red = (float)(most - rgb[0]) / range, green = (float)(most - rgb[1]) / range,
          blue = (float)(most - rgb[2]) / range;
    float h;
    if (rgb[0] == most)
        h = blue - green;
    else if (rgb[1] == most)
        h = (float)(2.0 + (double)red - (double)blue);
    else
        h = (float)(4.0 + (double)green - (double)red);
    double turned = (double)h / 6.0 + 1.0; /* 5/6 to 11/6: fmod by 1 takes at most one off */
    h = (float)(turned >= 1.0 ? turned - 1.0 : turned);
    *hue = clip((int)((double)h * 255.0));
    *saturation = clip((int)((double)s * 255.0));
    return true;
}

static int rounded(double value)
{
    return (int)(value + 0.5); /* value >= 0: half away from zero, as round() */
}

/* Pillow's hsv2rgb for a saturation above 0. */
static void to_rgb(uint8_t hue, uint8_t saturation, uint8_t value, uint8_t *rgb)
{
    double sixths = (double)hue * 6.0 / 255.0;
    int sector = (int)sixths;
    float part = (float)(sixths - (double)(float)sector), s = (float)((double)(float)saturation / 255.0);
    double v = (double)value;
    uint8_t p = clip(rounded(v * (1.0 - (double)s))), q = clip(rounded(v * (1.0 - (double)(s * part)))),
            t = clip(rounded(v * (1.0 - (double)s * (1.0 - (double)part))));
    const uint8_t sectors[6][3] = {{value, t, p}, {q, value, p}, {p, value, t},
                                   {p, q, value}, {t, p, value}, {value, p, q}};
    for (int c = 0; c < 3; c++)
        rgb[c] = sectors[sector % 6][c];
}

static void turn_hue(uint8_t *pixels, size_t pixel_count, uint8_t shift)
{
    for (size_t i = 0; i < pixel_count; i++, pixels += 3) {
        uint8_t hue, saturation, value = pixels[0];
        if (!hue_and_saturation(pixels, &hue, &saturation))
            continue;
        value = pixels[1] > value ? pixels[1] : value;
        value = pixels[2] > value ? pixels[2] : value;
        if (saturation)
            to_rgb((uint8_t)(hue + shift), saturation, value, pixels);
        else
            pixels[0] = pixels[1] = pixels[2] = value;
    }
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
        turn_hue(pixels, pixel_count, (uint8_t)(int)(factor * 255));
}
