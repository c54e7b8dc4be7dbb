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

typedef enum ImageOperation {
    OPERATION_AUTO_CONTRAST, /* each channel's darkest and brightest value become 0 and 255; no argument */
    OPERATION_EQUALIZE,      /* each channel's histogram is made even; no argument */
    OPERATION_INVERT,        /* no argument */
    OPERATION_ROTATE,        /* by so many degrees, counterclockwise, around the centre */
    OPERATION_POSTERIZE,     /* so many of the highest bits are kept; 8 and more: all, 0 and less: none */
    OPERATION_SOLARIZE,      /* values from this one on are inverted */
    OPERATION_SOLARIZE_ADD,  /* so much, a whole number >= 0, is added to values below 128 */
    OPERATION_COLOUR,        /* blend with the gray image: 0 is gray, 1 the image */
    OPERATION_CONTRAST,      /* blend with the mean luma */
    OPERATION_BRIGHTNESS,    /* blend with black */
    OPERATION_SHARPNESS,     /* blend with the smoothed image */
    /* The next four: what lies at x, y comes from x + argument * y; from y + argument * x; from argument
       pixels further to the right; further down. */
    OPERATION_SHEAR_X,
    OPERATION_SHEAR_Y,
    OPERATION_TRANSLATE_X,
    OPERATION_TRANSLATE_Y,
    OPERATION_BLUR, /* ImageFilter.GaussianBlur of this deviation, pixels, > 0: three boxes each way */
    OPERATION_COUNT
} ImageOperation;

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

/* Applies one operation. */
void image_operation_apply(const ImageStep *step, const ImageCanvas *canvas);

#endif
