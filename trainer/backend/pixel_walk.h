/* pixel_walk.h - how the threads of a block share the pixels of an image. */
#ifndef FSHARD_TRAINER_BACKEND_PIXEL_WALK_H
#define FSHARD_TRAINER_BACKEND_PIXEL_WALK_H

#include <stdint.h>

#include "common/philox.h"

/* The place of a thread's next item in rows of `width`, without a division for each. */
typedef struct PixelWalk {
    uint32_t x, y, step_x, step_y, width;
} PixelWalk;

FSH_HOST_DEVICE static inline PixelWalk pixel_walk(uint32_t width, uint32_t thread, uint32_t threads)
{
    const PixelWalk walk = {thread % width, thread / width, threads % width, threads / width, width};
    return walk;
}

FSH_HOST_DEVICE static inline void pixel_walk_on(PixelWalk *walk)
{
    walk->x += walk->step_x;
    walk->y += walk->step_y;
    if (walk->x >= walk->width) {
        walk->x -= walk->width;
        walk->y++;
    }
}

#endif
