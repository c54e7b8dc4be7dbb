/* scenes.h - pictures with the look of photographs, drawn from nothing but a seed.
 *
 * Landscapes differ at a glance: gradients, fractal noise, a horizon. Blossoms differ in their petals alone.
 * Then comes a camera (exposure, vignette, sensor noise). The same (scene, seed) gives the same pixels on
 * every machine: integer hashes and IEEE arithmetic only. */
#ifndef FSHARD_EXAMPLES_SCENES_H
#define FSHARD_EXAMPLES_SCENES_H

#include "common/random.h"
#include "imaging/image.h"

enum { SCENE_PARAMETERS = 16 };

/* What a picture's draw function gets besides the place: u to the right and v downwards, both 0..1, and this.
 */
typedef struct SceneView {
    uint32_t seed;                     /* of the noise */
    int kind;                          /* the scene's */
    float aspect;                      /* width / height */
    float parameter[SCENE_PARAMETERS]; /* uniform in [0, 1), drawn once for each picture */
} SceneView;

/* Linear light, 0..1 for each of R, G, B; values outside are clipped. */
typedef struct SceneColor {
    float r, g, b;
} SceneColor;

typedef struct Scene {
    const char *name; /* the class folder */
    int kind;         /* what one function tells its scenes apart by */
    SceneColor (*color)(const SceneView *view, float u, float v);
} Scene;

extern const Scene landscapes[], blossoms[];
extern const int landscape_count, blossom_count;

/* Renders width x height RGB pixels (channels 3), or their luma (channels 1), with the camera's noise or
 * without. FSH_ERR_MEMORY. */
FshStatus scene_render(const Scene *scene, uint64_t seed, uint32_t width, uint32_t height, uint32_t channels,
                       bool noisy, Image *image, FshError *error);

#endif
