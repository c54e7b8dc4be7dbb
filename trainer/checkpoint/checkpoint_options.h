/* checkpoint_options.h - the options of what a run keeps of itself, and goes on from. trainer/loop reads
 * them.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_CHECKPOINT_CHECKPOINT_OPTIONS_H
#define FSHARD_TRAINER_CHECKPOINT_CHECKPOINT_OPTIONS_H

#include "common/options.h"

typedef struct CheckpointOptions {
    const char *resume; /* "auto" or a path; NULL: begin anew */
    int64_t interval;   /* steps between two checkpoints within an epoch; 0: only at its end */
    int64_t hist;       /* how many best epochs keep their weights */
} CheckpointOptions;

/* Returns the defaults. */
CheckpointOptions checkpoint_options_default(void);
/* Writes the rows of the options to rows and returns their number. They point into options. */
size_t checkpoint_options_rows(CheckpointOptions *options, Option *rows);

#endif
