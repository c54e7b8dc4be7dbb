#include "trainer/data/image_operations.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data/colour_jitter.h"

enum { LEVELS = 256, CHANNELS_MAX = 3 };

const char *const image_operation_names[] = {
    "AutoContrast", "Equalize",   "Invert",     "Rotate",       "Posterize", "Solarize",
    "SolarizeAdd",  "Color",      "Contrast",   "Brightness",   "Sharpness", "ShearX",
    "ShearY",       "TranslateX", "TranslateY", "GaussianBlur", NULL};

static size_t count_values(const ImageCanvas *canvas)
{
    return (size_t)canvas->width * canvas->height * canvas->channels;
}

/* ---- tables: each value becomes another ---- */

typedef uint8_t Table[LEVELS];

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

typedef uint32_t Histogram[LEVELS];

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
    int low = 0, high = LEVELS - 1;
    while (low < LEVELS - 1 && !histogram[low])
        low++;
    while (high > 0 && !histogram[high])
        high--;
    const double scale = high > low ? 255.0 / (high - low) : 1, offset = high > low ? -low * scale : 0;
    for (int i = 0; i < LEVELS; i++)
        table[i] = colour_clip((int)(i * scale + offset));
}

/* Makes ImageOps.equalize's table of a channel. */
static void equalize_levels(const Histogram histogram, Table table)
{
    uint64_t sum = 0, last = 0;
    for (int i = 0; i < LEVELS; i++) {
        sum += histogram[i];
        last = histogram[i] ? histogram[i] : last;
    }
    const uint64_t step = (sum - last) / 255;
    uint64_t reached = step / 2;
    for (int i = 0; i < LEVELS; i++) {
        const uint64_t level = step ? reached / step : (uint64_t)i;
        table[i] = (uint8_t)(level > 255 ? 255 : level);
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

static void auto_contrast(double argument, const ImageCanvas *canvas)
{
    (void)argument;
    by_levels(stretch_levels, canvas);
}

static void equalize(double argument, const ImageCanvas *canvas)
{
    (void)argument;
    by_levels(equalize_levels, canvas);
}

static void solarize(double threshold, const ImageCanvas *canvas)
{
    Table table;
    for (int i = 0; i < LEVELS; i++)
        table[i] = (uint8_t)(i < threshold ? i : 255 - i);
    apply_table(table, canvas);
}

static void invert(double argument, const ImageCanvas *canvas)
{
    (void)argument;
    solarize(0, canvas);
}

static void solarize_add(double added, const ImageCanvas *canvas)
{
    Table table;
    for (int i = 0; i < LEVELS; i++)
        table[i] = i < 128 ? colour_clip(i + (int)added) : (uint8_t)i;
    apply_table(table, canvas);
}

static void posterize(double bits, const ImageCanvas *canvas)
{
    const int kept = bits < 0 ? 0 : bits > 8 ? 8 : (int)bits;
    Table table;
    for (int i = 0; i < LEVELS; i++)
        table[i] = (uint8_t)(i >> (8 - kept) << (8 - kept));
    apply_table(table, canvas);
}

/* ---- blends ---- */

static void adjust(ColourStep step, double factor, const ImageCanvas *canvas)
{
    colour_adjust(step, factor, canvas->pixels, (size_t)canvas->width * canvas->height, canvas->channels);
}

static void colour(double factor, const ImageCanvas *canvas)
{
    adjust(COLOUR_SATURATION, factor, canvas);
}

static void contrast(double factor, const ImageCanvas *canvas)
{
    adjust(COLOUR_CONTRAST, factor, canvas);
}

static void brightness(double factor, const ImageCanvas *canvas)
{
    adjust(COLOUR_BRIGHTNESS, factor, canvas);
}

/* Blends a row with what ImageFilter.SMOOTH makes of it, whose weights are thirteenths: 5 in the middle, 1
 * around. Pillow sums in single precision and rounds; a sum of thirteenths is never near enough to a half
 * for that to matter. above, row, below: the image before. */
static void sharpen_row(float factor, const uint8_t *above, const uint8_t *row, const uint8_t *below,
                        size_t first, size_t end, size_t channels, uint8_t *target)
{
    for (size_t i = first; i < end; i++) {
        const int around = above[i - channels] + above[i] + above[i + channels] + row[i - channels] +
                           row[i + channels] + below[i - channels] + below[i] + below[i + channels];
        target[i] = colour_blend((2 * (around + 5 * row[i]) + 13) / 26, row[i], factor);
    }
}

/* Blends with the smoothed image, whose edges are those of the image. */
static void sharpness(double factor, const ImageCanvas *canvas)
{
    const size_t channels = canvas->channels, stride = canvas->width * channels;
    memcpy(canvas->scratch, canvas->pixels, count_values(canvas));
    for (size_t y = 1; y + 1 < canvas->height; y++) {
        const uint8_t *row = canvas->scratch + y * stride;
        if (canvas->width > 2)
            sharpen_row((float)factor, row - stride, row, row + stride, channels, stride - channels, channels,
                        canvas->pixels + y * stride);
    }
}

/* ---- geometry: Pillow's Image.transform(AFFINE) ---- */

/* Where the pixel with its middle at x, y comes from: m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]. */
typedef struct Affine {
    double m[6];
} Affine;

static int clip_index(int at, int size)
{
    return at < 0 ? 0 : at >= size ? size - 1 : at;
}

/* Splits a place >= -0.5 into the pixel before it and what is left. */
static int split_place(double at, double *part)
{
    const int whole = at < 0 ? -1 : (int)at;
    *part = at - whole;
    return whole;
}

static inline double mix_linear(double a, double b, double part)
{
    return a + (b - a) * part;
}

static inline __attribute__((always_inline)) void
take_bilinear(const uint8_t *source, int width, int height, int channels, double x, double y, uint8_t *target)
{
    double part_x, part_y;
    const int left = split_place(x - 0.5, &part_x), top = split_place(y - 0.5, &part_y);
    const uint8_t *above = source + (ptrdiff_t)clip_index(top, height) * width * channels,
                  *below = source + (ptrdiff_t)clip_index(top + 1, height) * width * channels;
    const int first = clip_index(left, width) * channels, second = clip_index(left + 1, width) * channels;
    /* Between two pixels of a row or of a column, as sheared and moved images are, half of it is enough. */
    if (part_y == 0)
        for (int c = 0; c < channels; c++)
            target[c] = (uint8_t)mix_linear(above[first + c], above[second + c], part_x);
    else if (part_x == 0)
        for (int c = 0; c < channels; c++)
            target[c] = (uint8_t)mix_linear(above[first + c], below[first + c], part_y);
    else
        for (int c = 0; c < channels; c++)
            target[c] = (uint8_t)mix_linear(mix_linear(above[first + c], above[second + c], part_x),
                                            mix_linear(below[first + c], below[second + c], part_x), part_y);
}

static inline double mix_cubic(double a, double b, double c, double d, double part)
{
    const double p2 = -a + c, p3 = 2 * (a - b) + c - d, p4 = -a + b - c + d;
    return b + part * (p2 + part * (p3 + part * p4));
}

static inline __attribute__((always_inline)) void
take_bicubic(const uint8_t *source, int width, int height, int channels, double x, double y, uint8_t *target)
{
    double part_x, part_y;
    const int left = split_place(x - 0.5, &part_x), top = split_place(y - 0.5, &part_y);
    const uint8_t *rows[4];
    int at[4];
    for (int i = 0; i < 4; i++) {
        rows[i] = source + (ptrdiff_t)clip_index(top - 1 + i, height) * width * channels;
        at[i] = clip_index(left - 1 + i, width) * channels;
    }
    for (int c = 0; c < channels; c++) {
        double v[4] = {rows[0][at[1] + c], rows[1][at[1] + c], rows[2][at[1] + c], rows[3][at[1] + c]};
        if (part_x != 0)
            for (int i = part_y == 0; i < (part_y == 0 ? 2 : 4); i++)
                v[i] = mix_cubic(rows[i][at[0] + c], rows[i][at[1] + c], rows[i][at[2] + c],
                                 rows[i][at[3] + c], part_x);
        const double value = part_y == 0 ? v[1] : mix_cubic(v[0], v[1], v[2], v[3], part_y);
        target[c] = (uint8_t)(value <= 0 ? 0 : value >= 255 ? 255 : value);
    }
}

typedef void (*TakePixel)(const uint8_t *source, int width, int height, int channels, double x, double y,
                          uint8_t *target);

/* Moves every pixel. take and channels are constants where it is called: its loop has no calls. */
static inline __attribute__((always_inline)) void move_pixels(const Affine *affine, const ImageCanvas *canvas,
                                                              int channels, TakePixel take)
{
    const int width = (int)canvas->width, height = (int)canvas->height;
    const double *m = affine->m;
    uint8_t *target = canvas->pixels;
    for (int row = 0; row < height; row++)
        for (int column = 0; column < width; column++, target += channels) {
            const double x = m[0] * (column + 0.5) + m[1] * (row + 0.5) + m[2],
                         y = m[3] * (column + 0.5) + m[4] * (row + 0.5) + m[5];
            if (x >= 0 && x < width && y >= 0 && y < height)
                take(canvas->scratch, width, height, channels, x, y, target);
            else
                memcpy(target, canvas->fill, (size_t)channels);
        }
}

static void transform(const Affine *affine, const ImageCanvas *canvas)
{
    memcpy(canvas->scratch, canvas->pixels, count_values(canvas));
    if (canvas->channels == 1)
        move_pixels(affine, canvas, 1, canvas->bicubic ? take_bicubic : take_bilinear);
    else if (canvas->bicubic)
        move_pixels(affine, canvas, CHANNELS_MAX, take_bicubic);
    else
        move_pixels(affine, canvas, CHANNELS_MAX, take_bilinear);
}

/* Returns Python's round(value, 15). */
static double round_to_15(double value)
{
    char text[40];
    (void)snprintf(text, sizeof text, "%.15f", value);
    return strtod(text, NULL);
}

/* Rotates as Image.rotate, whose quarter turns come out of the same sums. */
static void rotate(double degrees, const ImageCanvas *canvas)
{
    const double pi = 3.14159265358979323846, whole = fmod(degrees, 360.0);
    const double turned = -((whole < 0 ? whole + 360.0 : whole) * (pi / 180.0));
    const double cosine = round_to_15(cos(turned)), sine = round_to_15(sin(turned)),
                 other_sine = round_to_15(-sin(turned));
    const double centre_x = canvas->width / 2.0, centre_y = canvas->height / 2.0;
    const Affine affine = {{cosine, sine, cosine * -centre_x + sine * -centre_y + 0.0 + centre_x, other_sine,
                            cosine, other_sine * -centre_x + cosine * -centre_y + 0.0 + centre_y}};
    transform(&affine, canvas);
}

static void shear_x(double factor, const ImageCanvas *canvas)
{
    transform(&(Affine){{1, factor, 0, 0, 1, 0}}, canvas);
}

static void shear_y(double factor, const ImageCanvas *canvas)
{
    transform(&(Affine){{1, 0, 0, factor, 1, 0}}, canvas);
}

static void translate_x(double pixels, const ImageCanvas *canvas)
{
    transform(&(Affine){{1, 0, pixels, 0, 1, 0}}, canvas);
}

static void translate_y(double pixels, const ImageCanvas *canvas)
{
    transform(&(Affine){{1, 0, 0, 0, 1, pixels}}, canvas);
}

/* ---- blur: Pillow's BoxBlur.c ---- */

/* A box of a length that is no whole number: its pixels, and one more at each end that weighs less. */
typedef struct Box {
    int radius;               /* whole pixels each way */
    uint32_t weight, at_ends; /* in 24 bits */
} Box;

/* Returns the box whose threefold use is nearest to a Gaussian (Gwosdek et al. 2011), in Pillow's
 * precision. */
static Box gaussian_box(float deviation)
{
    const float variance = deviation * deviation / 3;
    const float length = (float)sqrt(12.0 * (double)variance + 1.0),
                whole = (float)floor(((double)length - 1.0) / 2.0);
    float part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance);
    part /= 6 * (variance - (whole + 1) * (whole + 1));
    const float radius = whole + part;
    Box box = {.radius = (int)radius, .weight = (uint32_t)((float)(1 << 24) / (radius * 2 + 1))};
    box.at_ends = ((1U << 24) - (uint32_t)(box.radius * 2 + 1) * box.weight) / 2;
    return box;
}

/* Blurs count values that lie step apart; beyond the ends are those at the ends. */
static void blur_line(const Box *box, const uint8_t *source, size_t step, int count, uint8_t *target)
{
    const int radius = box->radius;
    uint32_t sum = 0;
    for (int i = -radius - 1; i < radius; i++)
        sum += source[(size_t)clip_index(i, count) * step];
    for (int i = 0; i < count; i++) {
        const uint32_t before = source[(size_t)clip_index(i - radius - 1, count) * step],
                       behind = source[(size_t)clip_index(i + radius + 1, count) * step];
        sum += source[(size_t)clip_index(i + radius, count) * step] - before;
        target[(size_t)i * step] =
            (uint8_t)((sum * box->weight + (before + behind) * box->at_ends + (1U << 23)) >> 24);
    }
}

/* Blurs all rows, or all columns, from source to target. */
static void blur_lines(const Box *box, const ImageCanvas *canvas, bool rows, const uint8_t *source,
                       uint8_t *target)
{
    const size_t channels = canvas->channels, stride = canvas->width * channels;
    for (size_t y = 0; rows && y < canvas->height; y++)
        for (size_t c = 0; c < channels; c++)
            blur_line(box, source + y * stride + c, channels, (int)canvas->width, target + y * stride + c);
    for (size_t i = 0; !rows && i < stride; i++)
        blur_line(box, source + i, stride, (int)canvas->height, target + i);
}

static void blur(double deviation, const ImageCanvas *canvas)
{
    enum { PASSES = 6 };
    const Box box = gaussian_box((float)deviation);
    for (int pass = 0; pass < PASSES; pass += 2) { /* three over rows, then three over columns */
        blur_lines(&box, canvas, pass < PASSES / 2, canvas->pixels, canvas->scratch);
        blur_lines(&box, canvas, pass + 1 < PASSES / 2, canvas->scratch, canvas->pixels);
    }
}

void image_operation_apply(const ImageStep *step, const ImageCanvas *canvas)
{
    static void (*const functions[OPERATION_COUNT])(double argument, const ImageCanvas *canvas) = {
        [OPERATION_AUTO_CONTRAST] = auto_contrast,
        [OPERATION_EQUALIZE] = equalize,
        [OPERATION_INVERT] = invert,
        [OPERATION_ROTATE] = rotate,
        [OPERATION_POSTERIZE] = posterize,
        [OPERATION_SOLARIZE] = solarize,
        [OPERATION_SOLARIZE_ADD] = solarize_add,
        [OPERATION_COLOUR] = colour,
        [OPERATION_CONTRAST] = contrast,
        [OPERATION_BRIGHTNESS] = brightness,
        [OPERATION_SHARPNESS] = sharpness,
        [OPERATION_SHEAR_X] = shear_x,
        [OPERATION_SHEAR_Y] = shear_y,
        [OPERATION_TRANSLATE_X] = translate_x,
        [OPERATION_TRANSLATE_Y] = translate_y,
        [OPERATION_BLUR] = blur,
    };
    functions[step->operation](step->argument, canvas);
}
