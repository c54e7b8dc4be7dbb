#include "trainer/checkpoint/checkpoint_options.h"

#include <string.h>

#include "trainer/checkpoint/run_state.h"

CheckpointOptions checkpoint_options_default(void)
{
    return (CheckpointOptions){0};
}

/* clang-format off */
size_t checkpoint_options_rows(CheckpointOptions *o, Option *rows)
{
    const Option own[] = {
        {.name = "resume", .kind = OPTION_TEXT, .value = &o->resume, .argument = "PATH",
         .group = "Checkpoints",
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE,
         .help = "go on from a checkpoint (file or output folder); auto: from the output's own if it has "
                 "one"},
        {.name = "checkpoint-interval", .kind = OPTION_INTEGER, .value = &o->interval, .argument = "N",
         .maximum = 1e9, .marks = OPTION_FREE | OPTION_ALIKE,
         .help = "steps between two checkpoints within an epoch; 0: at its end, and when stopped"},
        {.name = "checkpoint-hist", .kind = OPTION_INTEGER, .value = &o->hist, .argument = "N",
         .maximum = KEPT_EPOCHS_MAX, .marks = OPTION_FREE,
         .help = "keep the weights of the N best epochs too, as checkpoint-EPOCH.safetensors"},
    };
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
/* clang-format on */
