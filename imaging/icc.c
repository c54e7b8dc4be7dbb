#include "imaging/icc.h"

#include <math.h>
#include <string.h>

enum { HEADER_BYTES = 128, COLOUR_SPACE_AT = 16, PCS_AT = 20, TAG_ROW_BYTES = 12 };

static uint32_t read_u16(const uint8_t *p)
{
    return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t read_u32(const uint8_t *p)
{
    return read_u16(p) << 16 | read_u16(p + 2);
}

/* Reads an s15Fixed16Number. */
static double read_fixed(const uint8_t *p)
{
    return (int32_t)read_u32(p) / 65536.0;
}

/* Returns the bytes of the tag and sets *size_ret. Returns NULL if the tag is absent or points outside the
 * profile. */
static const uint8_t *find_tag(const void *profile, size_t length, const char *name, size_t *size_ret)
{
    const uint8_t *bytes = profile;
    if (length < HEADER_BYTES + 4)
        return NULL;
    size_t count = read_u32(bytes + HEADER_BYTES), room = (length - HEADER_BYTES - 4) / TAG_ROW_BYTES;
    if (count > room)
        count = room;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *row = bytes + HEADER_BYTES + 4 + i * TAG_ROW_BYTES;
        size_t offset = read_u32(row + 4), size = read_u32(row + 8);
        if (memcmp(row, name, 4) == 0 && offset <= length && size <= length - offset) {
            *size_ret = size;
            return bytes + offset;
        }
    }
    return NULL;
}

bool icc_profile_matches(const void *profile, size_t length, uint32_t channels)
{
    const uint8_t *bytes = profile;
    return length >= HEADER_BYTES && memcmp(bytes + COLOUR_SPACE_AT, channels == 1 ? "GRAY" : "RGB ", 4) == 0;
}

bool icc_profile_is_srgb(const void *profile, size_t length)
{
    size_t size = 0;
    const uint8_t *description = find_tag(profile, length, "desc", &size);
    /* version 2 writes ASCII, version 4 UTF-16 */
    return description && (memmem(description, size, "sRGB", 4) != NULL ||
                           memmem(description, size, "s\0R\0G\0B", 7) != NULL);
}

/* ---- curves: from a sample to light ---- */

/* Applies a parametric curve to x. type: one of Table 68; p: its g, a, b, c, d, e, f. */
static double parametric(unsigned type, const double p[7], double x)
{
    double g = p[0], a = p[1], b = p[2], c = p[3], d = p[4], e = p[5], f = p[6];
    switch (type) {
    case 0:
        return pow(x, g);
    case 1:
        return a * x + b >= 0 ? pow(a * x + b, g) : 0;
    case 2:
        return (a * x + b >= 0 ? pow(a * x + b, g) : 0) + c;
    case 3:
        return x >= d ? pow(a * x + b, g) : c * x;
    default:
        return x >= d ? pow(a * x + b, g) + e : c * x + f;
    }
}

static bool read_parametric(const uint8_t *tag, size_t size, float light[256])
{
    static const size_t counts[] = {1, 3, 4, 5, 7};
    unsigned type = size >= 12 ? read_u16(tag + 8) : 5;
    if (type > 4 || size < 12 + 4 * counts[type])
        return false;
    double p[7] = {0};
    for (size_t i = 0; i < counts[type]; i++)
        p[i] = read_fixed(tag + 12 + 4 * i);
    for (int i = 0; i < 256; i++)
        light[i] = (float)parametric(type, p, i / 255.0);
    return true;
}

static bool read_sampled(const uint8_t *tag, size_t size, float light[256])
{
    if (size < 12)
        return false;
    size_t count = read_u32(tag + 8);
    if (count > (size - 12) / 2)
        return false;
    for (int i = 0; i < 256; i++) {
        double x = i / 255.0;
        if (count == 1) {
            x = pow(x, read_u16(tag + 12) / 256.0); /* u8Fixed8Number */
        } else if (count > 1) {
            double at = x * (double)(count - 1);
            size_t low = (size_t)at < count - 2 ? (size_t)at : count - 2;
            double from = read_u16(tag + 12 + 2 * low), to = read_u16(tag + 14 + 2 * low);
            x = (from + (to - from) * (at - (double)low)) / 65535.0;
        }
        light[i] = (float)x;
    }
    return true;
}

static bool read_curve(const void *profile, size_t length, const char *name, float light[256])
{
    size_t size = 0;
    const uint8_t *tag = find_tag(profile, length, name, &size);
    bool read = false;
    if (tag && size >= 4 && memcmp(tag, "curv", 4) == 0)
        read = read_sampled(tag, size, light);
    else if (tag && size >= 4 && memcmp(tag, "para", 4) == 0)
        read = read_parametric(tag, size, light);
    for (int i = 0; read && i < 256; i++) {
        if (!isfinite(light[i]))
            return false;
        light[i] = light[i] < 0 ? 0 : light[i] > 1 ? 1 : light[i];
    }
    return read;
}

/* ---- conversion ---- */

/* XYZ under D50 to linear sRGB: the inverse of the matrix in the sRGB profile (IEC 61966-2-1,
 * Bradford-adapted). */
static const double srgb_from_xyz[3][3] = {{3.1338561, -1.6168667, -0.4906146},
                                           {-0.9787684, 1.9161415, 0.0334540},
                                           {0.0719453, -0.2289914, 1.4052427}};

static bool read_matrix(const void *profile, size_t length, float matrix[3][3])
{
    static const char *const names[] = {"rXYZ", "gXYZ", "bXYZ"};
    for (size_t from = 0; from < 3; from++) {
        size_t size = 0;
        const uint8_t *tag = find_tag(profile, length, names[from], &size);
        if (!tag || size < 20 || memcmp(tag, "XYZ ", 4) != 0)
            return false;
        for (size_t to = 0; to < 3; to++) {
            double sum = 0;
            for (size_t axis = 0; axis < 3; axis++)
                sum += srgb_from_xyz[to][axis] * read_fixed(tag + 8 + 4 * axis);
            matrix[to][from] = (float)sum;
        }
    }
    return true;
}

enum { STEPS = 1 << 14 };

static void fill_encoded(uint8_t encoded[STEPS])
{
    for (int i = 0; i < STEPS; i++) {
        double light = i / (STEPS - 1.0);
        double value = light <= 0.0031308 ? 12.92 * light : 1.055 * pow(light, 1 / 2.4) - 0.055;
        encoded[i] = (uint8_t)(255 * value + 0.5);
    }
}

bool icc_conversion_prepare(const void *profile, size_t length, uint32_t channels, IccConversion *conversion)
{
    static const char *const tables[] = {"A2B0", "A2B1", "A2B2", "D2B0", "D2B1"};
    static const char *const curves[] = {"rTRC", "gTRC", "bTRC"};
    const uint8_t *bytes = profile;
    size_t size = 0;
    if (!icc_profile_matches(profile, length, channels) || memcmp(bytes + PCS_AT, "XYZ ", 4) != 0)
        return false;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        if (find_tag(profile, length, tables[i], &size)) /* these take precedence over matrix and curves */
            return false;
    }
    conversion->channels = channels;
    bool read = channels == 1 ? read_curve(profile, length, "kTRC", conversion->linear[0])
                              : read_matrix(profile, length, conversion->matrix);
    for (size_t i = 0; channels == 3 && i < 3 && read; i++)
        read = read_curve(profile, length, curves[i], conversion->linear[i]);
    if (read && !conversion->encoded[STEPS - 1]) /* the table is the same for all profiles */
        fill_encoded(conversion->encoded);
    return read;
}

static uint8_t encode(const uint8_t encoded[STEPS], float light)
{
    float at = light * (STEPS - 1) + 0.5f;
    return encoded[at <= 0 ? 0 : at >= STEPS - 1 ? STEPS - 1 : (int)at];
}

void icc_conversion_apply(const IccConversion *conversion, Image *image)
{
    size_t pixels_count = (size_t)image->width * image->height;
    uint8_t *pixel = image->pixels;
    if (conversion->channels == 1) {
        uint8_t values[256];
        for (int i = 0; i < 256; i++)
            values[i] = encode(conversion->encoded, conversion->linear[0][i]);
        for (size_t i = 0; i < pixels_count; i++)
            pixel[i] = values[pixel[i]];
        return;
    }
    const float(*matrix)[3] = conversion->matrix;
    for (size_t i = 0; i < pixels_count; i++, pixel += 3) {
        float red = conversion->linear[0][pixel[0]], green = conversion->linear[1][pixel[1]],
              blue = conversion->linear[2][pixel[2]];
        for (size_t to = 0; to < 3; to++)
            pixel[to] = encode(conversion->encoded,
                               matrix[to][0] * red + matrix[to][1] * green + matrix[to][2] * blue);
    }
}
