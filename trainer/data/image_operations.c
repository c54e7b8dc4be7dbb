#include "trainer/data/image_operations.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data/colour_jitter.h"

enum { CHANNELS_MAX = 3 };

const char *const image_operation_names[] = {
    "AutoContrast", "Equalize",   "Invert",     "Rotate",       "Posterize", "Solarize",
    "SolarizeAdd",  "Color",      "Contrast",   "Brightness",   "Sharpness", "ShearX",
    "ShearY",       "TranslateX", "TranslateY", "GaussianBlur", NULL};

static size_t count_values(const ImageCanvas *canvas)
{
    return (size_t)canvas->width * canvas->height * canvas->channels;
}

/* ---- tables: each value becomes another ---- */

typedef uint8_t Table[OPERATION_LEVELS];

static void apply_table(const Table table, const ImageCanvas *canvas)
{
    const size_t count = count_values(canvas);
    for (size_t i = 0; i < count; i++)
        canvas->pixels[i] = table[canvas->pixels[i]];
}

/* Applies a table to each channel. */
static void apply_tables(Table *tables, const ImageCanvas *canvas)
{
    if (canvas->channels == 1) {
        apply_table(tables[0], canvas);
        return;
    }
    const size_t count = count_values(canvas);
    for (size_t i = 0; i < count; i += CHANNELS_MAX)
        for (size_t c = 0; c < CHANNELS_MAX; c++)
            canvas->pixels[i + c] = tables[c][canvas->pixels[i + c]];
}

typedef uint32_t Histogram[OPERATION_LEVELS];

static void count_levels(const ImageCanvas *canvas, Histogram *histograms)
{
    const size_t count = count_values(canvas), channels = canvas->channels;
    memset(histograms, 0, channels * sizeof *histograms);
    for (size_t i = 0; i < count; i += channels)
        for (size_t c = 0; c < channels; c++)
            histograms[c][canvas->pixels[i + c]]++;
}

/* Makes ImageOps.autocontrast's table of a channel. */
static void stretch_levels(const Histogram histogram, Table table)
{
    int low, high;
    operation_find_ends(histogram, &low, &high);
    for (int i = 0; i < OPERATION_LEVELS; i++)
        table[i] = operation_stretched(low, high, i);
}

/* Makes ImageOps.equalize's table of a channel. */
static void equalize_levels(const Histogram histogram, Table table)
{
    uint64_t sum = 0, last = 0;
    for (int i = 0; i < OPERATION_LEVELS; i++) {
        sum += histogram[i];
        last = histogram[i] ? histogram[i] : last;
    }
    const uint64_t step = operation_equal_step(sum, last);
    uint64_t reached = step / 2;
    for (int i = 0; i < OPERATION_LEVELS; i++) {
        table[i] = operation_equalized(reached, step, i);
        reached += histogram[i];
    }
}

static void by_levels(void (*make)(const Histogram histogram, Table table), const ImageCanvas *canvas)
{
    Histogram histograms[CHANNELS_MAX];
    Table tables[CHANNELS_MAX];
    count_levels(canvas, histograms);
    for (uint32_t c = 0; c < canvas->channels; c++)
        make(histograms[c], tables[c]);
    apply_tables(tables, canvas);
}

static void auto_contrast(const PixelOperation *planned, const ImageCanvas *canvas)
{
    (void)planned;
    by_levels(stretch_levels, canvas);
}

static void equalize(const PixelOperation *planned, const ImageCanvas *canvas)
{
    (void)planned;
    by_levels(equalize_levels, canvas);
}

/* Gives each value what `change` makes of it. */
static void by_table(uint8_t (*change)(double argument, int value), double argument,
                     const ImageCanvas *canvas)
{
    Table table;
    for (int i = 0; i < OPERATION_LEVELS; i++)
        table[i] = change(argument, i);
    apply_table(table, canvas);
}

static void solarize(const PixelOperation *planned, const ImageCanvas *canvas)
{
    by_table(operation_solarized, planned->argument, canvas);
}

static void invert(const PixelOperation *planned, const ImageCanvas *canvas)
{
    (void)planned;
    by_table(operation_solarized, 0, canvas);
}

static void solarize_add(const PixelOperation *planned, const ImageCanvas *canvas)
{
    by_table(operation_solarized_by_addition, planned->argument, canvas);
}

static void posterize(const PixelOperation *planned, const ImageCanvas *canvas)
{
    by_table(operation_posterized, planned->argument, canvas);
}

/* ---- blends ---- */

static void adjust(ColourStep step, const PixelOperation *planned, const ImageCanvas *canvas)
{
    colour_adjust(step, planned->argument, canvas->pixels, (size_t)canvas->width * canvas->height,
                  canvas->channels);
}

static void colour(const PixelOperation *planned, const ImageCanvas *canvas)
{
    adjust(COLOUR_SATURATION, planned, canvas);
}

static void contrast(const PixelOperation *planned, const ImageCanvas *canvas)
{
    adjust(COLOUR_CONTRAST, planned, canvas);
}

static void brightness(const PixelOperation *planned, const ImageCanvas *canvas)
{
    adjust(COLOUR_BRIGHTNESS, planned, canvas);
}

/* Blends with the smoothed image, whose edges are those of the image. */
static void sharpness(const PixelOperation *planned, const ImageCanvas *canvas)
{
    const size_t channels = canvas->channels, stride = canvas->width * channels;
    const float factor = (float)planned->argument;
    memcpy(canvas->scratch, canvas->pixels, count_values(canvas));
    for (size_t y = 1; y + 1 < canvas->height && canvas->width > 2; y++) {
        const uint8_t *row = canvas->scratch + y * stride;
        uint8_t *target = canvas->pixels + y * stride;
        for (size_t i = channels; i < stride - channels; i++)
            target[i] = operation_sharpened(factor, row - stride + i, row + i, row + stride + i, channels);
    }
}

/* ---- geometry ---- */

/* Moves every pixel. channels and bicubic are constants where it is called: its loop has no calls. */
static inline __attribute__((always_inline)) void
move_pixels(const PixelOperation *planned, const ImageCanvas *canvas, int channels, bool bicubic)
{
    const int width = (int)canvas->width, height = (int)canvas->height;
    double affine[6]; /* that no write of a pixel could change */
    uint8_t *target = canvas->pixels;
    memcpy(affine, planned->affine, sizeof affine);
    for (int row = 0; row < height; row++)
        for (int column = 0; column < width; column++, target += channels)
            operation_move(affine, canvas->scratch, width, height, channels, bicubic, canvas->fill, column,
                           row, target);
}

static void transform(const PixelOperation *planned, const ImageCanvas *canvas)
{
    memcpy(canvas->scratch, canvas->pixels, count_values(canvas));
    if (canvas->channels == 1)
        move_pixels(planned, canvas, 1, canvas->bicubic);
    else if (canvas->bicubic)
        move_pixels(planned, canvas, CHANNELS_MAX, true);
    else
        move_pixels(planned, canvas, CHANNELS_MAX, false);
}

/* Returns Python's round(value, 15). */
static double round_to_15(double value)
{
    char text[40];
    (void)snprintf(text, sizeof text, "%.15f", value);
    return strtod(text, NULL);
}

/* Rotates as Image.rotate, whose quarter turns come out of the same sums. */
static void plan_rotation(double degrees, uint32_t width, uint32_t height, double affine[6])
{
    const double pi = 3.14159265358979323846, whole = fmod(degrees, 360.0);
    const double turned = -((whole < 0 ? whole + 360.0 : whole) * (pi / 180.0));
    const double cosine = round_to_15(cos(turned)), sine = round_to_15(sin(turned)),
                 other_sine = round_to_15(-sin(turned));
    const double centre_x = width / 2.0, centre_y = height / 2.0;
    const double planned[] = {
        cosine,     sine,   cosine * -centre_x + sine * -centre_y + 0.0 + centre_x,
        other_sine, cosine, other_sine * -centre_x + cosine * -centre_y + 0.0 + centre_y};
    memcpy(affine, planned, sizeof planned);
}

/* Shears and moves: the argument takes the place of one number of the identity. */
static void plan_affine(ImageOperation operation, double argument, double affine[6])
{
    static const uint8_t places[OPERATION_COUNT] = {[OPERATION_SHEAR_X] = 1,
                                                    [OPERATION_SHEAR_Y] = 3,
                                                    [OPERATION_TRANSLATE_X] = 2,
                                                    [OPERATION_TRANSLATE_Y] = 5};
    affine[0] = affine[4] = 1;
    affine[places[operation]] = argument;
}

/* ---- blur ---- */

/* Returns the box whose threefold use is nearest to a Gaussian (Gwosdek et al. 2011), in Pillow's
 * precision. */
static PixelBox gaussian_box(float deviation)
{
    const float variance = deviation * deviation / 3;
    const float length = (float)sqrt(12.0 * (double)variance + 1.0),
                whole = (float)floor(((double)length - 1.0) / 2.0);
    float part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance);
    part /= 6 * (variance - (whole + 1) * (whole + 1));
    const float radius = whole + part;
    PixelBox box = {.radius = (int32_t)radius, .weight = (uint32_t)((float)(1 << 24) / (radius * 2 + 1))};
    box.at_ends = ((1U << 24) - (uint32_t)(box.radius * 2 + 1) * box.weight) / 2;
    return box;
}

/* Blurs count values that lie step apart as operation_box_at, with a sum that runs along. */
static void blur_line(const PixelBox *box, const uint8_t *source, size_t step, int count, uint8_t *target)
{
    const int radius = box->radius;
    uint32_t sum = 0;
    for (int i = -radius - 1; i < radius; i++)
        sum += source[(size_t)operation_clip_index(i, count) * step];
    for (int i = 0; i < count; i++) {
        const uint32_t before = source[(size_t)operation_clip_index(i - radius - 1, count) * step],
                       behind = source[(size_t)operation_clip_index(i + radius + 1, count) * step];
        sum += source[(size_t)operation_clip_index(i + radius, count) * step] - before;
        target[(size_t)i * step] = operation_box_mean(box, sum, before, behind);
    }
}

/* Blurs all rows, or all columns, from source to target. */
static void blur_lines(const PixelBox *box, const ImageCanvas *canvas, bool rows, const uint8_t *source,
                       uint8_t *target)
{
    const size_t channels = canvas->channels, stride = canvas->width * channels;
    for (size_t y = 0; rows && y < canvas->height; y++)
        for (size_t c = 0; c < channels; c++)
            blur_line(box, source + y * stride + c, channels, (int)canvas->width, target + y * stride + c);
    for (size_t i = 0; !rows && i < stride; i++)
        blur_line(box, source + i, stride, (int)canvas->height, target + i);
}

static void blur(const PixelOperation *planned, const ImageCanvas *canvas)
{
    const PixelBox *box = &planned->box;
    for (int pass = 0; pass < OPERATION_BOXES; pass += 2) { /* three over rows, then three over columns */
        blur_lines(box, canvas, pass < OPERATION_BOXES / 2, canvas->pixels, canvas->scratch);
        blur_lines(box, canvas, pass + 1 < OPERATION_BOXES / 2, canvas->scratch, canvas->pixels);
    }
}

/* ---- all ---- */

static void (*const functions[OPERATION_COUNT])(const PixelOperation *planned, const ImageCanvas *canvas) = {
    [OPERATION_AUTO_CONTRAST] = auto_contrast,
    [OPERATION_EQUALIZE] = equalize,
    [OPERATION_INVERT] = invert,
    [OPERATION_ROTATE] = transform,
    [OPERATION_POSTERIZE] = posterize,
    [OPERATION_SOLARIZE] = solarize,
    [OPERATION_SOLARIZE_ADD] = solarize_add,
    [OPERATION_COLOUR] = colour,
    [OPERATION_CONTRAST] = contrast,
    [OPERATION_BRIGHTNESS] = brightness,
    [OPERATION_SHARPNESS] = sharpness,
    [OPERATION_SHEAR_X] = transform,
    [OPERATION_SHEAR_Y] = transform,
    [OPERATION_TRANSLATE_X] = transform,
    [OPERATION_TRANSLATE_Y] = transform,
    [OPERATION_BLUR] = blur,
};

void image_operation_plan(const ImageStep *step, uint32_t width, uint32_t height, PixelOperation *planned)
{
    *planned = (PixelOperation){.operation = step->operation, .argument = step->argument};
    if (step->operation == OPERATION_ROTATE)
        plan_rotation(step->argument, width, height, planned->affine);
    else if (functions[step->operation] == transform)
        plan_affine(step->operation, step->argument, planned->affine);
    else if (step->operation == OPERATION_BLUR)
        planned->box = gaussian_box((float)step->argument);
}

void image_operation_apply(const ImageStep *step, const ImageCanvas *canvas)
{
    PixelOperation planned;
    image_operation_plan(step, canvas->width, canvas->height, &planned);
    functions[step->operation](&planned, canvas);
}
