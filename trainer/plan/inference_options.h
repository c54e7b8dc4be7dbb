/* inference_options.h - the options of evaluation and prediction with weights that are there.
 * trainer/inference and evaluate.c read them; train_use.h says what is done.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_PLAN_INFERENCE_OPTIONS_H
#define FSHARD_TRAINER_PLAN_INFERENCE_OPTIONS_H

#include "common/options.h"

/* Values of --predict-format, in the order of their names; "auto" is OPTION_AUTO. */
typedef enum PredictFormat { PREDICT_CSV, PREDICT_JSONL, PREDICT_PNG, PREDICT_JPEG } PredictFormat;

typedef struct InferenceOptions {
    bool evaluate;
    const char *predict, *export_path, *export_onnx;
    int format;                 /* PredictFormat; auto */
    const char *files_from;     /* a list of images that are not packed; NULL: all images */
    int64_t tile, tile_overlap; /* pixels; tile 0: whole images if memory allows */
} InferenceOptions;

/* Returns the text of a value of --predict-format. */
const char *predict_format_name(int format);

/* Returns the defaults. */
InferenceOptions inference_options_default(void);
/* Writes the rows of the options to rows and returns their number. They point into options. */
size_t inference_options_rows(InferenceOptions *options, Option *rows);

#endif
