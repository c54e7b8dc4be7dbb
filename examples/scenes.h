/* scenes.h - draws pictures that look like photographs, from a seed alone.
 *
 * Landscapes differ at a glance: gradients, fractal noise, a horizon. Blossoms differ only in their petals. A
 * simulated camera follows (exposure, vignette, sensor noise). The same (scene, seed) gives the same pixels
 * on every machine: integer hashes and IEEE arithmetic only. */
#ifndef FSHARD_EXAMPLES_SCENES_H
#define FSHARD_EXAMPLES_SCENES_H

#include "common/random.h"
#include "imaging/image.h"

enum { SCENE_PARAMETERS = 16 };

/* The parameters of a picture, passed to its draw function with the place: u to the right and v downwards,
 * both 0..1. */
typedef struct SceneView {
    uint32_t seed;                     /* of the noise */
    int kind;                          /* Scene.kind */
    float aspect;                      /* width / height */
    float parameter[SCENE_PARAMETERS]; /* uniform in [0, 1), drawn once for each picture */
} SceneView;

/* Linear light, 0..1 for each of R, G, B; values outside are clipped. */
typedef struct SceneColor {
    float r, g, b;
} SceneColor;

/* A kind of picture, one class of a data set. */
typedef struct Scene {
    const char *name; /* of the class folder */
    int kind;         /* tells apart the scenes that share a draw function */
    SceneColor (*color)(const SceneView *view, float u, float v);
} Scene;

extern const Scene landscapes[], blossoms[];
extern const int landscape_count, blossom_count;

/* Renders width x height RGB pixels (channels 3), or their luma (channels 1). noisy: adds the camera's noise.
 * FSH_ERR_MEMORY. */
FshStatus scene_render(const Scene *scene, uint64_t seed, uint32_t width, uint32_t height, uint32_t channels,
                       bool noisy, Image *image, FshError *error);

#endif
