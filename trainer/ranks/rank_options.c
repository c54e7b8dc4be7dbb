#include "trainer/ranks/rank_options.h"

#include <string.h>

RankOptions rank_options_default(void)
{
    return (RankOptions){.gpu = -1};
}

size_t rank_options_rows(RankOptions *o, Option *rows)
{
    const Option own[] = {
        {.name = "gpus",
         .kind = OPTION_TEXT,
         .value = &o->gpus,
         .argument = "N",
         .group = "Ranks",
         .marks = OPTION_FREE,
         .help =
             "train on so many GPUs of this host, on all, or on those of a list (0,2,5): a process for each, "
             "--batch-size images on each; with --device cpu so many processes, which share the cores; "
             "torchrun --no-python, mpirun and srun start ranks too"},
    };
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
