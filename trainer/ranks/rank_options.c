#include "trainer/ranks/rank_options.h"

#include <string.h>

#include "trainer/ranks/communicator_options.h"

static const char *const parallel_names[] = {"ddp", "dp", NULL};

RankOptions rank_options_default(void)
{
    return (RankOptions){.gpu = -1, .timeout = COMMUNICATOR_TIMEOUT_SECONDS};
}

size_t rank_options_rows(RankOptions *o, Option *rows)
{
    /* clang-format off */
    const Option own[] = {
        {.name = "gpus", .kind = OPTION_TEXT, .value = &o->gpus, .argument = "N",
         .group = "Several GPUs and hosts",
         .marks = OPTION_FREE,
         .help = "train on so many GPUs of this host, on all, or on those of a list (0,2,5): a process "
                 "for each, --batch-size images on each; with --device cpu so many processes, which "
                 "share the cores; torchrun --no-python, mpirun and srun start ranks too"},
        {.name = "parallel", .kind = OPTION_CHOICE, .value = &o->parallel, .argument = "HOW",
         .choices = parallel_names, .marks = OPTION_FREE | OPTION_ALIKE,
         .help = "ddp: --batch-size and --val-batch-size are those of one rank; dp: they are the total, "
                 "which the ranks share, as under nn.DataParallel"},
        {.name = "max-restarts", .kind = OPTION_INTEGER, .value = &o->max_restarts, .argument = "N",
         .maximum = 1e6, .marks = OPTION_FREE, .uses = USE_TRAIN,
         .help = "with --gpus: when a rank is killed or lost start all again, from the last checkpoint, "
                 "at most N times"},
        {.name = "elastic", .kind = OPTION_FLAG, .value = &o->elastic, .marks = OPTION_FREE | OPTION_ALIKE,
         .uses = USE_LEARN,
         .help = "a run goes on with another number of ranks, each update on the same images: after a "
                 "restart with those that are left, else with as many as there are now"},
        {.name = "nnodes", .kind = OPTION_TEXT, .value = &o->nnodes, .argument = "N", .marks = OPTION_FREE,
         .help = "hosts that train together, where no launcher says so: start ftrain on each, with "
                 "--gpus N for N ranks there"},
        {.name = "node-rank", .kind = OPTION_TEXT, .value = &o->node_rank, .argument = "K",
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE,
         .help = "which of --nnodes this host is, from 0"},
        {.name = "master-addr", .kind = OPTION_TEXT, .value = &o->master_addr, .argument = "HOST",
         .marks = OPTION_FREE,
         .help = "where several hosts meet: name or address of the first; MASTER_ADDR, or what a "
                 "launcher says"},
        {.name = "master-port", .kind = OPTION_TEXT, .value = &o->master_port, .argument = "PORT",
         .marks = OPTION_FREE,
         .help = "the port there; MASTER_PORT, under torchrun the next one, or 29500, under srun and "
                 "mpirun one by the job's number"},
        {.name = "world-size", .kind = OPTION_TEXT, .value = &o->world_size, .argument = "N",
         .marks = OPTION_FREE,
         .help = "processes that train together, where each is started by hand, on any hosts"},
        {.name = "rank", .kind = OPTION_TEXT, .value = &o->rank, .argument = "K",
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE,
         .help = "which of --world-size this process is, from 0"},
        {.name = "timeout", .kind = OPTION_REAL, .value = &o->timeout, .argument = "S", .minimum = 1,
         .maximum = 86400, .marks = OPTION_FREE,
         .help = "seconds after which a rank is lost whose process stands still: stopped, frozen, "
                 "swapped out; a slow one is waited for"},
    };
    /* clang-format on */
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
