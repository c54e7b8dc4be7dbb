/* plan_device.h - the options that say where and in which precision the network is computed. plan_device.c
 * has their rows, and the one place that reads them.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_PLAN_PLAN_DEVICE_H
#define FSHARD_TRAINER_PLAN_PLAN_DEVICE_H

#include "common/options.h"

/* Values of options with choices, in the order of their names; "auto" is OPTION_AUTO. */
typedef enum TrainDevice { DEVICE_CPU, DEVICE_CUDA } TrainDevice;
typedef enum TrainAmp { AMP_OFF, AMP_BF16, AMP_FP16 } TrainAmp;

typedef struct ComputeOptions {
    int device; /* TrainDevice; auto */
    int amp;    /* TrainAmp; auto */
    bool tf32, cudnn_benchmark, deterministic;
    const char *no_fuse; /* NAME,NAME; NULL: use all fusions of the backend */
} ComputeOptions;

/* Return the text of a value of --device ("auto", "cpu", "cuda") and --amp. */
const char *train_device_name(int device);
const char *train_amp_name(int amp);

/* Returns the defaults. */
ComputeOptions compute_options_default(void);
/* Writes the rows of the options to rows and returns their number. They point into options. */
size_t compute_options_rows(ComputeOptions *options, Option *rows);

#endif
