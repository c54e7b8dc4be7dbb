/* scene_math.h - arithmetic for drawing scenes: integer hashes and IEEE floats, the same on every machine. */
#ifndef FSHARD_EXAMPLES_SCENE_MATH_H
#define FSHARD_EXAMPLES_SCENE_MATH_H

#include <math.h>

#include "examples/scenes.h"

static inline float scene_between(float a, float b, float t)
{
    return a + (b - a) * t;
}

static inline SceneColor scene_mix(SceneColor a, SceneColor b, float t)
{
    return (SceneColor){scene_between(a.r, b.r, t), scene_between(a.g, b.g, t), scene_between(a.b, b.b, t)};
}

static inline SceneColor scene_scale(SceneColor a, float factor)
{
    return (SceneColor){a.r * factor, a.g * factor, a.b * factor};
}

static inline float scene_clamp(float x)
{
    return x < 0.0F ? 0.0F : x > 1.0F ? 1.0F : x;
}

/* Returns 0 below a, 1 above b, and a smooth curve between. */
static inline float scene_ramp(float a, float b, float x)
{
    float t = scene_clamp((x - a) / (b - a));
    return t * t * (3.0F - 2.0F * t);
}

/* Returns a hash of a lattice point, in [0, 1). */
static inline float scene_lattice(uint32_t seed, int32_t x, int32_t y)
{
    uint32_t h = seed ^ (uint32_t)x * 0x9E3779B1U ^ (uint32_t)y * 0x85EBCA77U;
    h ^= h >> 15;
    h *= 0x2C1B3C6DU;
    h ^= h >> 12;
    h *= 0x297A2D39U;
    h ^= h >> 15;
    return (float)(h >> 8) * (1.0F / 16777216.0F);
}

/* Returns value noise in [0, 1), one feature for each unit of length. */
static inline float scene_noise(uint32_t seed, float x, float y)
{
    float floor_x = floorf(x), floor_y = floorf(y);
    int32_t ix = (int32_t)floor_x, iy = (int32_t)floor_y;
    float tx = x - floor_x, ty = y - floor_y;
    tx = tx * tx * (3.0F - 2.0F * tx);
    ty = ty * ty * (3.0F - 2.0F * ty);
    float top = scene_between(scene_lattice(seed, ix, iy), scene_lattice(seed, ix + 1, iy), tx);
    float bottom = scene_between(scene_lattice(seed, ix, iy + 1), scene_lattice(seed, ix + 1, iy + 1), tx);
    return scene_between(top, bottom, ty);
}

/* Returns fractal noise in [0, 1): octaves of halving size and weight. */
static inline float scene_fractal(uint32_t seed, float x, float y, int octaves)
{
    float sum = 0.0F, weight = 0.5F, total = 0.0F;
    for (int i = 0; i < octaves; i++) {
        sum += weight * scene_noise(seed + (uint32_t)i * 977U, x, y);
        total += weight;
        weight *= 0.5F;
        x *= 2.03F;
        y *= 2.03F;
    }
    return sum / total;
}

#endif
