/* draw_text.h - a few words in an image, where no library for type is to be had: letters of 5 x 7 pixels,
 * ASCII alone. */
#ifndef FSHARD_IMAGING_DRAW_TEXT_H
#define FSHARD_IMAGING_DRAW_TEXT_H

#include "imaging/image.h"

enum {
    DRAW_TEXT_STEP_PX = 6,
    DRAW_TEXT_HEIGHT_PX = 7
}; /* from letter to letter, and of the highest; times scale */

/* Writes text into an RGB image from (left, top) on, at most max_px wide: what has no room is cut, with ".."
 * at the end. What is no ASCII stands as a box, one for each character of UTF-8. What would lie outside the
 * image is left out. */
void draw_text(Image *image, size_t left, size_t top, size_t max_px, unsigned scale, const uint8_t colour[3],
               const char *text, size_t bytes);

#endif
