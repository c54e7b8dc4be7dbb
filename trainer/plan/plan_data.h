/* plan_data.h - the options of where images come from and how they reach the network. plan_data.c has their
 * rows, and chooses the source of pixels from them.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_PLAN_PLAN_DATA_H
#define FSHARD_TRAINER_PLAN_PLAN_DATA_H

#include "common/options.h"
#include "stores/store.h"
#include "trainer/data/training_labels.h"

/* Values of options with choices, in the order of their names. */
typedef enum TrainOnError { TRAIN_STOP, TRAIN_SKIP } TrainOnError;
typedef enum TrainDecode { DECODE_CPU, DECODE_GPU } TrainDecode;

typedef struct DataOptions {
    const char *train_split, *val_split; /* val_split NULL: val, else test */
    LabelSources labels;                 /* those beside the dataset */
    int on_error;                        /* TrainOnError */
    int64_t workers;                     /* loader threads; 0: chosen */
    int decode;                          /* TrainDecode: of JPEG files */
    int cache;                           /* place in pixel_source_caches; auto */
    bool bench_loader, drop_caches;
    StoreOptions store; /* of a dataset on a server */
} DataOptions;

/* Returns the defaults. */
DataOptions data_options_default(void);
/* Writes the rows of the options to rows and returns their number. They point into options. */
size_t data_options_rows(DataOptions *options, Option *rows);

#endif
