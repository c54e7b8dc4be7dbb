#include "examples/scenes.h"

#include <math.h>

static float mix(float a, float b, float t)
{
    return a + (b - a) * t;
}

static SceneColor mix_color(SceneColor a, SceneColor b, float t)
{
    return (SceneColor){mix(a.r, b.r, t), mix(a.g, b.g, t), mix(a.b, b.b, t)};
}

static SceneColor scale(SceneColor a, float factor)
{
    return (SceneColor){a.r * factor, a.g * factor, a.b * factor};
}

static float clamp01(float x)
{
    return x < 0.0F ? 0.0F : x > 1.0F ? 1.0F : x;
}

/* 0 below a, 1 above b, smooth between. */
static float ramp(float a, float b, float x)
{
    float t = clamp01((x - a) / (b - a));
    return t * t * (3.0F - 2.0F * t);
}

/* A hash of a lattice point, in [0, 1). */
static float lattice(uint32_t seed, int32_t x, int32_t y)
{
    uint32_t h = seed ^ (uint32_t)x * 0x9E3779B1U ^ (uint32_t)y * 0x85EBCA77U;
    h ^= h >> 15;
    h *= 0x2C1B3C6DU;
    h ^= h >> 12;
    h *= 0x297A2D39U;
    h ^= h >> 15;
    return (float)(h >> 8) * (1.0F / 16777216.0F);
}

/* Value noise in [0, 1), one feature for each unit of length. */
static float noise(uint32_t seed, float x, float y)
{
    float floor_x = floorf(x), floor_y = floorf(y);
    int32_t ix = (int32_t)floor_x, iy = (int32_t)floor_y;
    float tx = x - floor_x, ty = y - floor_y;
    tx = tx * tx * (3.0F - 2.0F * tx);
    ty = ty * ty * (3.0F - 2.0F * ty);
    float top = mix(lattice(seed, ix, iy), lattice(seed, ix + 1, iy), tx);
    float bottom = mix(lattice(seed, ix, iy + 1), lattice(seed, ix + 1, iy + 1), tx);
    return mix(top, bottom, ty);
}

/* Fractal noise: octaves of halving size and weight. */
static float fractal(uint32_t seed, float x, float y, int octaves)
{
    float sum = 0.0F, weight = 0.5F, total = 0.0F;
    for (int i = 0; i < octaves; i++) {
        sum += weight * noise(seed + (uint32_t)i * 977U, x, y);
        total += weight;
        weight *= 0.5F;
        x *= 2.03F;
        y *= 2.03F;
    }
    return sum / total;
}

static SceneColor clouds(const SceneView *view, SceneColor sky, float u, float v, float amount)
{
    float density = fractal(view->seed + 11U, u * 3.0F * view->aspect, v * 7.0F, 5);
    return mix_color(sky, (SceneColor){0.9F, 0.9F, 0.92F}, amount * ramp(0.5F, 0.75F, density));
}

static SceneColor beach(const SceneView *view, float u, float v)
{
    const float *p = view->parameter;
    float horizon = 0.3F + 0.2F * p[0], shore = horizon + 0.15F + 0.2F * p[1];
    if (v < horizon) {
        SceneColor sky =
            mix_color((SceneColor){0.1F, 0.3F, 0.75F}, (SceneColor){0.6F, 0.8F, 0.95F}, v / horizon);
        return clouds(view, sky, u, v, p[2]);
    }
    float edge =
        shore + 0.05F * (fractal(view->seed, u * 4.0F, 0.0F, 4) - 0.5F) + (p[3] - 0.5F) * 0.3F * (u - 0.5F);
    if (v < edge) {
        float depth = (v - horizon) / (edge - horizon);
        SceneColor sea = mix_color((SceneColor){0.02F, 0.15F, 0.35F}, (SceneColor){0.1F, 0.5F, 0.55F}, depth);
        float wave = noise(view->seed + 5U, u * 12.0F * view->aspect, depth * depth * 30.0F);
        float foam = ramp(0.93F, 1.0F, depth + 0.1F * wave);
        return mix_color(scale(sea, 0.8F + 0.5F * wave), (SceneColor){0.95F, 0.95F, 0.95F}, foam);
    }
    float grain = fractal(view->seed + 7U, u * 60.0F * view->aspect, v * 60.0F, 3);
    return scale((SceneColor){0.72F, 0.55F, 0.32F}, 0.6F + 0.5F * grain + 0.2F * (v - edge));
}

static SceneColor forest(const SceneView *view, float u, float v)
{
    const float *p = view->parameter;
    float leaves = fractal(view->seed, u * 14.0F * view->aspect, v * 14.0F, 5);
    SceneColor green = mix_color((SceneColor){0.01F, 0.05F, 0.01F}, (SceneColor){0.15F, 0.35F, 0.04F},
                                 ramp(0.3F, 0.75F, leaves));
    float light = ramp(0.55F, 0.8F, fractal(view->seed + 3U, u * 4.0F, v * 4.0F, 3)) * (1.0F - v);
    green = mix_color(green, (SceneColor){0.6F, 0.75F, 0.3F}, 0.6F * light);
    float stems = 5.0F + 9.0F * p[0];
    float bend = 0.15F * fractal(view->seed + 4U, v * 2.0F, 0.0F, 3);
    float x = (u + bend) * stems;
    float stem = floorf(x), from_middle = fabsf(x - stem - 0.5F);
    float width = 0.1F + 0.2F * lattice(view->seed + 9U, (int32_t)stem, 0);
    if (from_middle < width && lattice(view->seed + 8U, (int32_t)stem, 1) > 0.25F) {
        float bark = fractal(view->seed + 6U, u * 80.0F, v * 10.0F, 3);
        float round = 1.0F - from_middle / width * 0.7F;
        return scale((SceneColor){0.2F, 0.13F, 0.07F}, (0.4F + bark) * round);
    }
    float ground = ramp(0.8F, 0.9F, v);
    return mix_color(green, scale((SceneColor){0.2F, 0.14F, 0.05F}, 0.4F + leaves), ground);
}

static SceneColor mountain(const SceneView *view, float u, float v)
{
    const float *p = view->parameter;
    SceneColor sky =
        mix_color((SceneColor){0.12F, 0.25F, 0.55F}, (SceneColor){0.65F, 0.75F, 0.85F}, v * 1.4F);
    SceneColor color = clouds(view, sky, u, v, 0.8F * p[0]);
    for (int layer = 0; layer < 3; layer++) {
        uint32_t seed = view->seed + (uint32_t)layer * 131U;
        float near = (float)layer / 2.0F;
        float peak = 0.15F + 0.2F * p[1] + 0.2F * (float)layer;
        float ridge = peak + (0.45F - 0.15F * near) *
                                 (1.0F - fractal(seed, u * (2.0F + 2.0F * p[2]) * view->aspect, 3.0F, 6));
        if (v < ridge)
            continue;
        float rock = fractal(seed + 17U, u * 18.0F * view->aspect, v * 30.0F, 4);
        SceneColor stone = scale(
            mix_color((SceneColor){0.35F, 0.4F, 0.5F}, (SceneColor){0.18F, 0.16F, 0.14F}, near), 0.4F + rock);
        float snow = ramp(0.45F, 0.55F, rock + 1.2F * (0.25F - (v - ridge)) - 0.35F * near);
        color = mix_color(stone, (SceneColor){0.92F, 0.94F, 1.0F}, snow);
    }
    return color;
}

static SceneColor sunset(const SceneView *view, float u, float v)
{
    const float *p = view->parameter;
    float horizon = 0.5F + 0.2F * p[0], sun_u = 0.2F + 0.6F * p[1], sun_v = horizon - 0.05F - 0.2F * p[2];
    float water = v > horizon ? 1.0F : 0.0F;
    float mirrored = water > 0.0F ? 2.0F * horizon - v : v;
    float ripple = water * 0.06F * (noise(view->seed, u * 10.0F, v * 90.0F) - 0.5F);
    float height = clamp01(mirrored / horizon);
    SceneColor sky =
        mix_color((SceneColor){0.12F, 0.05F, 0.22F}, (SceneColor){0.95F, 0.4F, 0.08F}, height * height);
    float streak = fractal(view->seed + 2U, u * 2.0F, mirrored * 14.0F, 4);
    sky = mix_color(sky, (SceneColor){0.45F, 0.1F, 0.15F}, 0.7F * ramp(0.5F, 0.7F, streak));
    float du = (u - sun_u + ripple) * view->aspect, dv = mirrored - sun_v;
    float distance = sqrtf(du * du + dv * dv);
    float glow = expf(-distance * 6.0F);
    SceneColor color = {sky.r + glow, sky.g + 0.7F * glow, sky.b + 0.2F * glow};
    if (distance < 0.05F + 0.04F * p[3] && water == 0.0F)
        color = (SceneColor){1.4F, 1.1F, 0.6F};
    return scale(color, water > 0.0F ? 0.55F : 1.0F);
}

static SceneColor city(const SceneView *view, float u, float v)
{
    const float *p = view->parameter;
    SceneColor color = mix_color((SceneColor){0.005F, 0.008F, 0.03F}, (SceneColor){0.12F, 0.07F, 0.1F}, v);
    for (int layer = 0; layer < 2; layer++) {
        uint32_t seed = view->seed + (uint32_t)layer * 53U;
        float columns = (8.0F + 8.0F * p[0]) * view->aspect * (layer ? 0.6F : 1.0F);
        float x = u * columns;
        int32_t building = (int32_t)floorf(x);
        float top = (layer ? 0.45F : 0.2F) + 0.45F * lattice(seed, building, 0);
        if (v < top)
            continue;
        SceneColor wall = scale((SceneColor){0.04F, 0.04F, 0.06F}, 0.5F + lattice(seed, building, 1));
        float floors = 30.0F + 15.0F * p[1], windows = 4.0F;
        float wx = (x - floorf(x)) * windows, wy = v * floors;
        bool inside = wx - floorf(wx) > 0.25F && wy - floorf(wy) > 0.35F;
        float lit = lattice(seed + 31U, building * 8 + (int32_t)floorf(wx), (int32_t)floorf(wy));
        if (inside && lit > 0.55F)
            wall = mix_color((SceneColor){0.9F, 0.65F, 0.25F}, (SceneColor){0.6F, 0.75F, 0.9F},
                             lattice(seed, building, 2) * lit);
        color = wall;
    }
    return color;
}

static SceneColor flowers(const SceneView *view, float u, float v)
{
    const float *p = view->parameter;
    float blades = fractal(view->seed, u * 40.0F * view->aspect, v * 9.0F, 4);
    SceneColor color = mix_color((SceneColor){0.03F, 0.12F, 0.01F}, (SceneColor){0.25F, 0.5F, 0.08F}, blades);
    float cells = 4.0F + 5.0F * p[0];
    float x = u * cells * view->aspect, y = v * cells;
    /* The nearest of the blossoms in the cells around. */
    for (int32_t j = (int32_t)floorf(y) - 1; j <= (int32_t)floorf(y) + 1; j++) {
        for (int32_t i = (int32_t)floorf(x) - 1; i <= (int32_t)floorf(x) + 1; i++) {
            float present = lattice(view->seed + 21U, i, j);
            if (present < 0.35F)
                continue;
            float dx = x - ((float)i + 0.2F + 0.6F * lattice(view->seed + 22U, i, j));
            float dy = y - ((float)j + 0.2F + 0.6F * lattice(view->seed + 23U, i, j));
            float distance = sqrtf(dx * dx + dy * dy);
            float petals = 0.3F + 0.09F * cosf(6.0F * atan2f(dy, dx) + 6.0F * present);
            if (distance > petals)
                continue;
            float hue = lattice(view->seed + 24U, i, j);
            SceneColor petal = hue < p[1]   ? (SceneColor){0.85F, 0.08F, 0.2F}
                               : hue < 0.8F ? (SceneColor){0.8F, 0.3F, 0.75F}
                                            : (SceneColor){0.95F, 0.95F, 0.9F};
            color = distance < 0.09F ? (SceneColor){0.9F, 0.65F, 0.05F}
                                     : scale(petal, 0.55F + 0.5F * distance / petals);
        }
    }
    return color;
}

const Scene scenes[] = {
    {"beach", beach},   {"city", city},         {"flowers", flowers},
    {"forest", forest}, {"mountain", mountain}, {"sunset", sunset},
};
const int scene_count = (int)(sizeof scenes / sizeof scenes[0]);

/* Linear light to the 8 bits of a file, sRGB's curve approximated by a power. */
static uint8_t encode_level(float linear)
{
    return (uint8_t)(255.0F * powf(clamp01(linear), 1.0F / 2.2F) + 0.5F);
}

FshStatus scene_render(const Scene *scene, uint64_t seed, uint32_t width, uint32_t height, uint32_t channels,
                       Image *image, FshError *error)
{
    FshStatus status = image_reserve(image, width, height, channels, error);
    if (status)
        return status;
    Random random;
    random_start(&random, seed, 1);
    SceneView view = {.seed = random_u32(&random), .aspect = (float)width / (float)height};
    for (int i = 0; i < SCENE_PARAMETERS; i++)
        view.parameter[i] = random_uniform(&random);
    const float exposure = 0.7F + 0.6F * random_uniform(&random),
                warmth = 0.9F + 0.2F * random_uniform(&random);
    const float grain = 0.01F + 0.03F * random_uniform(&random);
    const bool mirrored = random_uniform(&random) < 0.5F;
    uint8_t *pixel = image->pixels;
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++, pixel += channels) {
            float u = ((float)x + 0.5F) / (float)width, v = ((float)y + 0.5F) / (float)height;
            SceneColor color = scene->color(&view, mirrored ? 1.0F - u : u, v);
            float from_middle = (u - 0.5F) * (u - 0.5F) + (v - 0.5F) * (v - 0.5F);
            float light = exposure * (1.0F - 0.6F * from_middle);
            float speck = 1.0F + grain * (lattice(view.seed + 71U, (int32_t)x, (int32_t)y) - 0.5F) * 6.0F;
            color = scale(color, light * speck);
            if (channels == 1) {
                pixel[0] = encode_level(0.2126F * color.r + 0.7152F * color.g + 0.0722F * color.b);
            } else {
                pixel[0] = encode_level(color.r * warmth);
                pixel[1] = encode_level(color.g);
                pixel[2] = encode_level(color.b / warmth);
            }
        }
    }
    return FSH_OK;
}
