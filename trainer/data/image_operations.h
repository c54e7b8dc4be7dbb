/* image_operations.h - the operations that RandAugment and its kin choose from, in
 * Pillow's arithmetic.
 *
 *   const ImageStep step = {OPERATION_ROTATE, 12.5};
 *   image_operation_apply(&step, &canvas);
 *
 * Pixels are those of timm's and torchvision's functions on PIL images, bit for bit;
 * tests/trainer/golden/make_operations.py holds them against both. Geometry is computed in double precision
 * and cut off, as Pillow's Image.transform does; all else is whole numbers, or a table of 256 values.
 *
 * Threads: no state. */
#ifndef FSHARD_TRAINER_DATA_IMAGE_OPERATIONS_H
#define FSHARD_TRAINER_DATA_IMAGE_OPERATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/backend/operation_math.h"

/* "AutoContrast", "Equalize", …: timm's names, in enum order. */
extern const char *const image_operation_names[];

typedef struct ImageStep {
    ImageOperation operation;
    double argument;
} ImageStep;

/* An image that operations change in place. */
typedef struct ImageCanvas {
    uint8_t *pixels;        /* [height, width, channels] */
    uint8_t *scratch;       /* as large; what is in it is lost */
    uint32_t width, height; /* > 0 */
    uint32_t channels;      /* 1 or 3; gray is as Pillow's mode L */
    bool bicubic;           /* how geometry takes pixels between pixels; else bilinear */
    uint8_t fill[4];        /* what comes in from outside, of each channel */
} ImageCanvas;

/* Sets *planned to what the step's values are computed from, in an image of width x height: what depends on
 * the processor's library (cosines, roots) is computed here, for a backend too. */
void image_operation_plan(const ImageStep *step, uint32_t width, uint32_t height, PixelOperation *planned);

/* Applies one operation. */
void image_operation_apply(const ImageStep *step, const ImageCanvas *canvas);

#endif
