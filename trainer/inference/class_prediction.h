/* class_prediction.h - what a classifier says of images: names of the classes, a table with a row for each
 * image, and the prediction of a single image for people.
 *
 *   status = class_prediction_name(&classes, …);
 *   if (!status) status = class_prediction_open(&classes, …);
 *   …add, write after each batch…
 *   if (!status) status = class_prediction_finish(&classes, …);
 *   class_prediction_free(&classes);                        // safe after all of them, and on a zeroed struct
 *
 * Threads: one belongs to one thread at a time. */
#ifndef FSHARD_TRAINER_INFERENCE_CLASS_PREDICTION_H
#define FSHARD_TRAINER_INFERENCE_CLASS_PREDICTION_H

#include <jansson.h>
#include <limits.h>

#include "common/file.h"
#include "trainer/inference/prediction_table.h"
#include "trainer/report/class_rows.h"
#include "trainer/session/session.h"

typedef struct ClassPrediction {
    ClassRows rows;
    char (*numbers)[24]; /* class names where the weights have none; owned */
    char **names;        /* owned, but not the names themselves */
    PredictionTable *table;
    char table_path[PATH_MAX];
    Buffer row;           /* rows that are not written yet */
    char likeliest[1024]; /* prediction of a single image, for people */
    json_t *only;         /* the row of a single image, for --json; NULL: there are more, or none */
} ClassPrediction;

/* Sets the class names to those of the weights, which must outlive them, or to numbers. FSH_ERR_MEMORY, and
 * what weights_class_count returns. */
FshStatus class_prediction_name(ClassPrediction *classes, const TrainOptions *options, const Model *model,
                                const WeightsOrigin *origin, FshError *error);
/* Opens the table, new or to go on with it. FSH_ERR_EXISTS: --export's file is there, without --force. */
FshStatus class_prediction_open(ClassPrediction *classes, const TrainOptions *options, FshError *error);
/* Adds an image's row. is_only: there is no other image, and its prediction is kept. FSH_ERR_MEMORY. */
FshStatus class_prediction_add(ClassPrediction *classes, const char *key, size_t key_bytes,
                               const float *logits, bool is_only, FshError *error);
/* Writes the rows that were added since. */
FshStatus class_prediction_write(ClassPrediction *classes, FshError *error);
/* Ends the table, copies it to --export if --predict is given too, and warns of cells that spreadsheets run.
 */
FshStatus class_prediction_finish(ClassPrediction *classes, const TrainOptions *options, Console *console,
                                  FshError *error);
/* Returns the name of the only image: as on the command line, else as in its row. */
const char *class_prediction_only_name(const ClassPrediction *classes, const TrainOptions *options);
void class_prediction_free(ClassPrediction *classes);

#endif
