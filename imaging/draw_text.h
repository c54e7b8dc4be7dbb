/* draw_text.h - draws a few words into an image without a font library: letters of 5 x 7 pixels, ASCII
 * only. */
#ifndef FSHARD_IMAGING_DRAW_TEXT_H
#define FSHARD_IMAGING_DRAW_TEXT_H

#include "imaging/image.h"

enum {
    DRAW_TEXT_STEP_PX = 6,
    DRAW_TEXT_HEIGHT_PX = 7
}; /* distance from letter to letter, height of the highest letter; multiplied by scale */

/* Draws text into an RGB image from (left, top) on, at most max_px wide. Text that is too long is cut and
 * ends in "..". Each character outside ASCII is drawn as a box. Pixels outside the image are left out. */
void draw_text(Image *image, size_t left, size_t top, size_t max_px, unsigned scale, const uint8_t colour[3],
               const char *text, size_t bytes);

#endif
