/* colour_math.h - the colours of one pixel, written once for the processor and for CUDA kernels: Pillow's
 * arithmetic.
 *
 * Which operations are in single and which in double precision decides the last bit; whoever compiles this
 * lets no compiler join a product and a sum (nvcc: --fmad=false). */
#ifndef FSHARD_TRAINER_BACKEND_COLOUR_MATH_H
#define FSHARD_TRAINER_BACKEND_COLOUR_MATH_H

#include <stdint.h>
#include <string.h>

#include "common/philox.h"

typedef enum ColourStep {
    COLOUR_BRIGHTNESS,
    COLOUR_CONTRAST,
    COLOUR_SATURATION,
    COLOUR_HUE,
    COLOUR_STEP_COUNT
} ColourStep;

/* Returns the luma of one RGB pixel as Pillow's convert("L"): ITU-R 601. */
FSH_HOST_DEVICE static inline uint8_t colour_luma(const uint8_t *rgb)
{
    return (uint8_t)((19595U * rgb[0] + 38470U * rgb[1] + 7471U * rgb[2] + 0x8000U) >> 16);
}

/* Blends one value as Pillow's Image.blend: in single precision, cut off. */
FSH_HOST_DEVICE static inline uint8_t colour_blend(int from, int to, float factor)
{
    const float value = (float)from + factor * (float)(to - from);
    if (value <= 0)
        return 0;
    return value >= 255 ? 255 : (uint8_t)value;
}

/* Returns int(mean + 0.5) of the luma of pixel_count pixels, whose sum is given. Contrast blends with it. */
FSH_HOST_DEVICE static inline int colour_mean(uint64_t sum, uint64_t pixel_count)
{
    return pixel_count ? (int)((double)sum / (double)pixel_count + 0.5) : 0;
}

FSH_HOST_DEVICE static inline void colour_saturate(uint8_t *rgb, float factor)
{
    const int luma = colour_luma(rgb);
    for (int c = 0; c < 3; c++)
        rgb[c] = colour_blend(luma, rgb[c], factor);
}

FSH_HOST_DEVICE static inline uint8_t colour_clip(int value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Converts as Pillow's rgb2hsv_row: divisions in single, the last steps in double precision. Returns 0 for
 * gray, which has no hue, and leaves *hue and *saturation. */
FSH_HOST_DEVICE static inline int colour_hue_and_saturation(const uint8_t *rgb, uint8_t *hue,
                                                            uint8_t *saturation)
{
    int most = rgb[0] > rgb[1] ? rgb[0] : rgb[1], least = rgb[0] < rgb[1] ? rgb[0] : rgb[1];
    most = rgb[2] > most ? rgb[2] : most;
    least = rgb[2] < least ? rgb[2] : least;
    if (most == least)
        return 0;
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
    *hue = colour_clip((int)((double)h * 255.0));
    *saturation = colour_clip((int)((double)s * 255.0));
    return 1;
}

FSH_HOST_DEVICE static inline int colour_rounded(double value)
{
    return (int)(value + 0.5); /* value >= 0: half away from zero, as round() */
}

/* Converts as Pillow's hsv2rgb, for a saturation above 0. */
FSH_HOST_DEVICE static inline void colour_to_rgb(uint8_t hue, uint8_t saturation, uint8_t value, uint8_t *rgb)
{
    double sixths = (double)hue * 6.0 / 255.0;
    int sector = (int)sixths;
    float part = (float)(sixths - (double)(float)sector), s = (float)((double)(float)saturation / 255.0);
    double v = (double)value;
    uint8_t p = colour_clip(colour_rounded(v * (1.0 - (double)s))),
            q = colour_clip(colour_rounded(v * (1.0 - (double)(s * part)))),
            t = colour_clip(colour_rounded(v * (1.0 - (double)s * (1.0 - (double)part))));
    const uint8_t sectors[6][3] = {{value, t, p}, {q, value, p}, {p, value, t},
                                   {p, q, value}, {t, p, value}, {value, p, q}};
    for (int c = 0; c < 3; c++)
        rgb[c] = sectors[sector % 6][c];
}

/* Turns the hue of a pixel by shift / 255 of the circle. */
FSH_HOST_DEVICE static inline void colour_turn(uint8_t *rgb, uint8_t shift)
{
    uint8_t hue, saturation, value = rgb[0];
    if (!colour_hue_and_saturation(rgb, &hue, &saturation))
        return;
    value = rgb[1] > value ? rgb[1] : value;
    value = rgb[2] > value ? rgb[2] : value;
    if (saturation)
        colour_to_rgb((uint8_t)(hue + shift), saturation, value, rgb);
    else
        rgb[0] = rgb[1] = rgb[2] = value;
}

/* Returns a value of noise around mean. */
FSH_HOST_DEVICE static inline uint8_t colour_around(double mean, double deviation, float normal)
{
    const double value = nearbyint(mean + deviation * (double)normal);
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Returns value with noise added, in single precision. */
FSH_HOST_DEVICE static inline uint8_t colour_add_noise(uint8_t value, float deviation, float normal)
{
    const float noisy = nearbyintf((float)value + deviation * normal);
    return (uint8_t)(noisy < 0 ? 0 : noisy > 255 ? 255 : noisy);
}

/* Returns the shift for a hue factor, rounded as torchvision does. */
FSH_HOST_DEVICE static inline uint8_t colour_hue_shift(double factor)
{
    return (uint8_t)(int)(factor * 255);
}

/* Applies one step to one pixel of channels (1 or 3) values; mean: colour_mean of the image as it is before a
 * COLOUR_CONTRAST. */
FSH_HOST_DEVICE static inline void colour_step_pixel(ColourStep step, double factor, int mean, uint8_t *pixel,
                                                     uint32_t channels)
{
    if (step == COLOUR_BRIGHTNESS || step == COLOUR_CONTRAST)
        for (uint32_t c = 0; c < channels; c++)
            pixel[c] = colour_blend(step == COLOUR_CONTRAST ? mean : 0, pixel[c], (float)factor);
    else if (channels == 3 && step == COLOUR_SATURATION)
        colour_saturate(pixel, (float)factor);
    else if (channels == 3)
        colour_turn(pixel, colour_hue_shift(factor));
}

/* Rounds a value in 0..255 to the nearest whole number, half to even, for timm's mixup, a * share + b * (1 -
 * share). Adding 1.5 * 2^23 leaves the number in the lowest bits: the compiler makes vectors of this, and
 * none of rintf. */
FSH_HOST_DEVICE static inline uint8_t colour_nearest(float value)
{
    const float shifted = value + 12582912.0F;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    return (uint8_t)bits;
}

#endif
