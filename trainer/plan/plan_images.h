/* plan_images.h - the options of what the network sees of an image: sizes, crops, colours, and how pairs are
 * measured. plan_images.c has their rows, and the one place that reads them. What is drawn by chance has rows
 * beside what draws it, in trainer/data.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_PLAN_PLAN_IMAGES_H
#define FSHARD_TRAINER_PLAN_PLAN_IMAGES_H

#include "common/options.h"

typedef struct ImageOptions {
    int64_t train_crop_size, val_resize_size, val_crop_size; /* pixels; 0: chosen */
    double crop_pct;                                         /* val_crop_size / val_resize_size; 0: chosen */
    const char *progressive;                                 /* FROM:TO */
    int64_t progressive_step;                                /* pixels; 0: by the first size */
    const char *progressive_epochs; /* FIRST:LAST; NULL: the first and last third keep their size */
    int train_crop_mode;            /* CropMode; auto */
    const char *scale, *ratio;      /* MIN:MAX */
    int64_t crop_padding;           /* pixels; 0: an eighth of the crop */
    const char *color_jitter; /* BRIGHTNESS:CONTRAST:SATURATION:HUE, or one number for the first three */
    bool augment, flip_tta;
    int64_t shift_tta; /* pixels; 0: none */
    int64_t crop_border;
    bool y_channel;
} ImageOptions;

/* Returns the defaults. */
ImageOptions image_options_default(void);
/* Writes the rows of the options to rows and returns their number. They point into options. */
size_t image_options_rows(ImageOptions *options, Option *rows);

#endif
