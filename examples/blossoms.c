/* blossoms.c - draws six kinds of flowers that differ only in the number and the tips of their petals.
 * Colour, size, place, tilt, leaves in front and the meadow have the same distributions for all, so a network
 * must look closely and takes some epochs. */
#include <math.h>

#include "examples/scenes.h"
#include "examples/scene_math.h"

static const float pi = 3.14159265F;

/* What tells one species from another. */
typedef struct Species {
    float petals;
    bool pointed;
} Species;

/* Returns how far out a petal reaches, 0..1, at `off` from its axis: 0 on the axis, 1 where it meets its
 * neighbour. */
static float petal_reach(bool pointed, float off)
{
    return pointed ? 1.0F - 0.55F * off : sqrtf(1.0F - 0.7F * off * off);
}

/* Returns the meadow out of focus, with round lights in it. */
static SceneColor meadow(const SceneView *view, float x, float y)
{
    float grass = scene_fractal(view->seed + 3U, x * 5.0F, y * 4.0F, 3);
    SceneColor color = scene_mix((SceneColor){0.02F, 0.07F, 0.015F}, (SceneColor){0.22F, 0.4F, 0.08F}, grass);
    int32_t column = (int32_t)floorf(x * 4.0F), row = (int32_t)floorf(y * 4.0F);
    float dx = x * 4.0F - (float)column - 0.5F, dy = y * 4.0F - (float)row - 0.5F;
    float light = scene_lattice(view->seed + 4U, column, row);
    if (light > 0.6F && dx * dx + dy * dy < 0.16F * light)
        color = scene_mix(color, (SceneColor){0.6F, 0.62F, 0.3F}, 0.5F * light);
    return color;
}

/* Lays one blossom over `color`. x, y: from its middle, in radii. hue: 0..1. */
static SceneColor blossom(SceneColor color, const Species *kind, float x, float y, float turn, float hue)
{
    static const SceneColor colors[] = {{0.8F, 0.1F, 0.2F},
                                        {0.75F, 0.3F, 0.7F},
                                        {0.9F, 0.88F, 0.85F},
                                        {0.85F, 0.6F, 0.05F},
                                        {0.25F, 0.3F, 0.8F}};
    const int count = (int)(sizeof colors / sizeof colors[0]);
    float radius = sqrtf(x * x + y * y);
    if (radius > 1.0F)
        return color;
    float place = (atan2f(y, x) / (2.0F * pi) + turn) * kind->petals;
    float off = 2.0F * fabsf(place - floorf(place) - 0.5F);
    if (radius < 0.2F)
        return scene_scale((SceneColor){0.8F, 0.5F, 0.05F}, 0.5F + 2.0F * radius);
    if (radius > petal_reach(kind->pointed, off))
        return color;
    int chosen = (int)(hue * (float)count);
    SceneColor petal = colors[chosen < count ? chosen : count - 1];
    return scene_scale(petal, (0.45F + 0.55F * radius) * (1.0F - 0.45F * off * off));
}

/* Species by Scene.kind. */
static const Species species[] = {{5, true}, {8, true}, {8, false}, {13, false}, {5, false}, {3, true}};

static SceneColor flower(const SceneView *view, float u, float v)
{
    const float *p = view->parameter;
    float x = u * view->aspect, y = v;
    SceneColor color = meadow(view, x, y);
    float edge = view->aspect < 1.0F ? view->aspect : 1.0F, size = edge * (0.24F + 0.16F * p[0]);
    float dx = (x - view->aspect * (0.35F + 0.3F * p[1])) / size, dy = (y - (0.35F + 0.3F * p[2])) / size;
    float tilt = 0.75F + 0.25F * p[3], angle = pi * p[4];
    float along = dx * cosf(angle) + dy * sinf(angle);
    float across = (dy * cosf(angle) - dx * sinf(angle)) / tilt;
    color = blossom(color, &species[view->kind], along, across, p[4], p[5]);
    /* Blades of grass in front of everything. */
    float blade = scene_fractal(view->seed + 9U, x * 14.0F + 2.0F * y, y * 1.5F, 2);
    if (blade > 0.74F)
        color = scene_scale((SceneColor){0.1F, 0.24F, 0.04F}, 0.5F + blade);
    return color;
}

const Scene blossoms[] = {
    {"borage", 0, flower}, {"clematis", 1, flower}, {"cosmos", 2, flower},
    {"daisy", 3, flower},  {"primrose", 4, flower}, {"trillium", 5, flower},
};
const int blossom_count = (int)(sizeof blossoms / sizeof blossoms[0]);
