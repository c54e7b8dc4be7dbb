#include "examples/scenes.h"

#include <math.h>

#include "examples/scene_math.h"

static SceneColor clouds(const SceneView *view, SceneColor sky, float u, float v, float amount)
{
    float density = scene_fractal(view->seed + 11U, u * 3.0F * view->aspect, v * 7.0F, 5);
    return scene_mix(sky, (SceneColor){0.9F, 0.9F, 0.92F}, amount * scene_ramp(0.5F, 0.75F, density));
}

static SceneColor beach(const SceneView *view, float u, float v)
{
    const float *p = view->parameter;
    float horizon = 0.3F + 0.2F * p[0], shore = horizon + 0.15F + 0.2F * p[1];
    if (v < horizon) {
        SceneColor sky =
            scene_mix((SceneColor){0.1F, 0.3F, 0.75F}, (SceneColor){0.6F, 0.8F, 0.95F}, v / horizon);
        return clouds(view, sky, u, v, p[2]);
    }
    float edge = shore + 0.05F * (scene_fractal(view->seed, u * 4.0F, 0.0F, 4) - 0.5F) +
                 (p[3] - 0.5F) * 0.3F * (u - 0.5F);
    if (v < edge) {
        float depth = (v - horizon) / (edge - horizon);
        SceneColor sea = scene_mix((SceneColor){0.02F, 0.15F, 0.35F}, (SceneColor){0.1F, 0.5F, 0.55F}, depth);
        float wave = scene_noise(view->seed + 5U, u * 12.0F * view->aspect, depth * depth * 30.0F);
        float foam = scene_ramp(0.93F, 1.0F, depth + 0.1F * wave);
        return scene_mix(scene_scale(sea, 0.8F + 0.5F * wave), (SceneColor){0.95F, 0.95F, 0.95F}, foam);
    }
    float grain = scene_fractal(view->seed + 7U, u * 60.0F * view->aspect, v * 60.0F, 3);
    return scene_scale((SceneColor){0.72F, 0.55F, 0.32F}, 0.6F + 0.5F * grain + 0.2F * (v - edge));
}

static SceneColor forest(const SceneView *view, float u, float v)
{
    const float *p = view->parameter;
    float leaves = scene_fractal(view->seed, u * 14.0F * view->aspect, v * 14.0F, 5);
    SceneColor green = scene_mix((SceneColor){0.01F, 0.05F, 0.01F}, (SceneColor){0.15F, 0.35F, 0.04F},
                                 scene_ramp(0.3F, 0.75F, leaves));
    float light = scene_ramp(0.55F, 0.8F, scene_fractal(view->seed + 3U, u * 4.0F, v * 4.0F, 3)) * (1.0F - v);
    green = scene_mix(green, (SceneColor){0.6F, 0.75F, 0.3F}, 0.6F * light);
    float stems = 5.0F + 9.0F * p[0];
    float bend = 0.15F * scene_fractal(view->seed + 4U, v * 2.0F, 0.0F, 3);
    float x = (u + bend) * stems;
    float stem = floorf(x), from_middle = fabsf(x - stem - 0.5F);
    float width = 0.1F + 0.2F * scene_lattice(view->seed + 9U, (int32_t)stem, 0);
    if (from_middle < width && scene_lattice(view->seed + 8U, (int32_t)stem, 1) > 0.25F) {
        float bark = scene_fractal(view->seed + 6U, u * 80.0F, v * 10.0F, 3);
        float round = 1.0F - from_middle / width * 0.7F;
        return scene_scale((SceneColor){0.2F, 0.13F, 0.07F}, (0.4F + bark) * round);
    }
    float ground = scene_ramp(0.8F, 0.9F, v);
    return scene_mix(green, scene_scale((SceneColor){0.2F, 0.14F, 0.05F}, 0.4F + leaves), ground);
}

static SceneColor mountain(const SceneView *view, float u, float v)
{
    const float *p = view->parameter;
    SceneColor sky =
        scene_mix((SceneColor){0.12F, 0.25F, 0.55F}, (SceneColor){0.65F, 0.75F, 0.85F}, v * 1.4F);
    SceneColor color = clouds(view, sky, u, v, 0.8F * p[0]);
    for (int layer = 0; layer < 3; layer++) {
        uint32_t seed = view->seed + (uint32_t)layer * 131U;
        float near = (float)layer / 2.0F;
        float peak = 0.15F + 0.2F * p[1] + 0.2F * (float)layer;
        float ridge =
            peak + (0.45F - 0.15F * near) *
                       (1.0F - scene_fractal(seed, u * (2.0F + 2.0F * p[2]) * view->aspect, 3.0F, 6));
        if (v < ridge)
            continue;
        float rock = scene_fractal(seed + 17U, u * 18.0F * view->aspect, v * 30.0F, 4);
        SceneColor stone = scene_scale(
            scene_mix((SceneColor){0.35F, 0.4F, 0.5F}, (SceneColor){0.18F, 0.16F, 0.14F}, near), 0.4F + rock);
        float snow = scene_ramp(0.45F, 0.55F, rock + 1.2F * (0.25F - (v - ridge)) - 0.35F * near);
        color = scene_mix(stone, (SceneColor){0.92F, 0.94F, 1.0F}, snow);
    }
    return color;
}

static SceneColor sunset(const SceneView *view, float u, float v)
{
    const float *p = view->parameter;
    float horizon = 0.5F + 0.2F * p[0], sun_u = 0.2F + 0.6F * p[1], sun_v = horizon - 0.05F - 0.2F * p[2];
    float water = v > horizon ? 1.0F : 0.0F;
    float mirrored = water > 0.0F ? 2.0F * horizon - v : v;
    float ripple = water * 0.06F * (scene_noise(view->seed, u * 10.0F, v * 90.0F) - 0.5F);
    float height = scene_clamp(mirrored / horizon);
    SceneColor sky =
        scene_mix((SceneColor){0.12F, 0.05F, 0.22F}, (SceneColor){0.95F, 0.4F, 0.08F}, height * height);
    float streak = scene_fractal(view->seed + 2U, u * 2.0F, mirrored * 14.0F, 4);
    sky = scene_mix(sky, (SceneColor){0.45F, 0.1F, 0.15F}, 0.7F * scene_ramp(0.5F, 0.7F, streak));
    float du = (u - sun_u + ripple) * view->aspect, dv = mirrored - sun_v;
    float distance = sqrtf(du * du + dv * dv);
    float glow = expf(-distance * 6.0F);
    SceneColor color = {sky.r + glow, sky.g + 0.7F * glow, sky.b + 0.2F * glow};
    if (distance < 0.05F + 0.04F * p[3] && water == 0.0F)
        color = (SceneColor){1.4F, 1.1F, 0.6F};
    return scene_scale(color, water > 0.0F ? 0.55F : 1.0F);
}

static SceneColor city(const SceneView *view, float u, float v)
{
    const float *p = view->parameter;
    SceneColor color = scene_mix((SceneColor){0.005F, 0.008F, 0.03F}, (SceneColor){0.12F, 0.07F, 0.1F}, v);
    for (int layer = 0; layer < 2; layer++) {
        uint32_t seed = view->seed + (uint32_t)layer * 53U;
        float columns = (8.0F + 8.0F * p[0]) * view->aspect * (layer ? 0.6F : 1.0F);
        float x = u * columns;
        int32_t building = (int32_t)floorf(x);
        float top = (layer ? 0.45F : 0.2F) + 0.45F * scene_lattice(seed, building, 0);
        if (v < top)
            continue;
        SceneColor wall =
            scene_scale((SceneColor){0.04F, 0.04F, 0.06F}, 0.5F + scene_lattice(seed, building, 1));
        float floors = 30.0F + 15.0F * p[1], windows = 4.0F;
        float wx = (x - floorf(x)) * windows, wy = v * floors;
        bool inside = wx - floorf(wx) > 0.25F && wy - floorf(wy) > 0.35F;
        float lit = scene_lattice(seed + 31U, building * 8 + (int32_t)floorf(wx), (int32_t)floorf(wy));
        if (inside && lit > 0.55F)
            wall = scene_mix((SceneColor){0.9F, 0.65F, 0.25F}, (SceneColor){0.6F, 0.75F, 0.9F},
                             scene_lattice(seed, building, 2) * lit);
        color = wall;
    }
    return color;
}

static SceneColor flowers(const SceneView *view, float u, float v)
{
    const float *p = view->parameter;
    float blades = scene_fractal(view->seed, u * 40.0F * view->aspect, v * 9.0F, 4);
    SceneColor color = scene_mix((SceneColor){0.03F, 0.12F, 0.01F}, (SceneColor){0.25F, 0.5F, 0.08F}, blades);
    float cells = 4.0F + 5.0F * p[0];
    float x = u * cells * view->aspect, y = v * cells;
    /* The nearest blossom in the neighbouring cells. */
    for (int32_t j = (int32_t)floorf(y) - 1; j <= (int32_t)floorf(y) + 1; j++) {
        for (int32_t i = (int32_t)floorf(x) - 1; i <= (int32_t)floorf(x) + 1; i++) {
            float present = scene_lattice(view->seed + 21U, i, j);
            if (present < 0.35F)
                continue;
            float dx = x - ((float)i + 0.2F + 0.6F * scene_lattice(view->seed + 22U, i, j));
            float dy = y - ((float)j + 0.2F + 0.6F * scene_lattice(view->seed + 23U, i, j));
            float distance = sqrtf(dx * dx + dy * dy);
            float petals = 0.3F + 0.09F * cosf(6.0F * atan2f(dy, dx) + 6.0F * present);
            if (distance > petals)
                continue;
            float hue = scene_lattice(view->seed + 24U, i, j);
            SceneColor petal = hue < p[1]   ? (SceneColor){0.85F, 0.08F, 0.2F}
                               : hue < 0.8F ? (SceneColor){0.8F, 0.3F, 0.75F}
                                            : (SceneColor){0.95F, 0.95F, 0.9F};
            color = distance < 0.09F ? (SceneColor){0.9F, 0.65F, 0.05F}
                                     : scene_scale(petal, 0.55F + 0.5F * distance / petals);
        }
    }
    return color;
}

const Scene landscapes[] = {
    {.name = "beach", .color = beach},       {.name = "city", .color = city},
    {.name = "flowers", .color = flowers},   {.name = "forest", .color = forest},
    {.name = "mountain", .color = mountain}, {.name = "sunset", .color = sunset},
};
const int landscape_count = (int)(sizeof landscapes / sizeof landscapes[0]);

/* Converts linear light to 8 bits; a power approximates sRGB's curve. */
static uint8_t encode_level(float linear)
{
    return (uint8_t)(255.0F * powf(scene_clamp(linear), 1.0F / 2.2F) + 0.5F);
}

FshStatus scene_render(const Scene *scene, uint64_t seed, uint32_t width, uint32_t height, uint32_t channels,
                       bool noisy, Image *image, FshError *error)
{
    FshStatus status = image_reserve(image, width, height, channels, error);
    if (status)
        return status;
    Random random;
    random_start(&random, seed, 1);
    SceneView view = {
        .seed = random_u32(&random), .aspect = (float)width / (float)height, .kind = scene->kind};
    for (int i = 0; i < SCENE_PARAMETERS; i++)
        view.parameter[i] = random_uniform(&random);
    const float exposure = 0.7F + 0.6F * random_uniform(&random),
                warmth = 0.9F + 0.2F * random_uniform(&random);
    const float drawn_grain = 0.01F + 0.03F * random_uniform(&random), grain = noisy ? drawn_grain : 0.0F;
    const bool mirrored = random_uniform(&random) < 0.5F;
    uint8_t *pixel = image->pixels;
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++, pixel += channels) {
            float u = ((float)x + 0.5F) / (float)width, v = ((float)y + 0.5F) / (float)height;
            SceneColor color = scene->color(&view, mirrored ? 1.0F - u : u, v);
            float from_middle = (u - 0.5F) * (u - 0.5F) + (v - 0.5F) * (v - 0.5F);
            float light = exposure * (1.0F - 0.6F * from_middle);
            float speck =
                1.0F + grain * (scene_lattice(view.seed + 71U, (int32_t)x, (int32_t)y) - 0.5F) * 6.0F;
            color = scene_scale(color, light * speck);
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
