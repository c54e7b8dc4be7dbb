#include "trainer/start_ranks.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/launch.h"
#include "trainer/ranks/rank_gpus.h"

FshStatus start_ranks_check(const TrainOptions *options, const RankPlace *place, FshError *error)
{
    const struct {
        bool given;
        const char *name;
    } alone[] = {
        {options->predict, "--predict"},
        {options->export_path, "--export"},
        {options->bench_loader, "--bench-loader"},
        {options->program.dry_run, "--dry-run"},
    };
    RankGpus gpus = {.count = 1};
    FshStatus status = options->ranks.gpus ? rank_gpus_read(&gpus, options->ranks.gpus, error) : FSH_OK;
    for (size_t i = 0; i < sizeof alone / sizeof *alone && !status; i++)
        if (alone[i].given && place->world_size > 1)
            status = fsh_error_set(error, FSH_ERR_USAGE,
                                   "%s: is for one process, and %s has started %llu; start it by itself",
                                   alone[i].name, place->launcher, (unsigned long long)place->world_size);
        else if (alone[i].given && gpus.count != 1)
            status =
                fsh_error_set(error, FSH_ERR_USAGE, "%s: is for one process; use --gpus 1", alone[i].name);
    return status;
}

void start_ranks_take_wanted(TrainOptions *options, const RankPlace *place)
{
    const bool all = place->wanted_ranks && strcmp(place->wanted_ranks, "all") == 0;
    if (!options->ranks.gpus && !(all && options->device == DEVICE_CPU))
        options->ranks.gpus = place->wanted_ranks;
}

/* Chooses the GPUs of the ranks; on the CPU their number. */
static FshStatus choose_devices(TrainOptions *options, RankGpus *gpus, FshError *error)
{
    int there = 0;
    FshStatus status = rank_gpus_read(gpus, options->ranks.gpus, error);
    if (status)
        return status;
    if (options->device == DEVICE_CPU)
        return gpus->all || gpus->listed
                   ? fsh_error_set(error, FSH_ERR_USAGE,
                                   "--gpus: '%s' says which GPUs, and --device cpu takes none; give the "
                                   "number of ranks that are to share the cores",
                                   options->ranks.gpus)
                   : FSH_OK;
    options->device = DEVICE_CUDA;
    if (!gpus->all && !gpus->listed && gpus->count == 1)
        return FSH_OK; /* if it cannot be opened, the backend will say why */
    status = launch_count_gpus(&there, error);
    return status ? status : rank_gpus_settle(gpus, there, error);
}

/* Checks that this process may start `count` ranks: it is alone on its host. */
static FshStatus check_starter(const TrainOptions *options, const RankPlace *place, int count,
                               FshError *error)
{
    if (place->local_world > 1)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--gpus: starts processes, and %s has started %llu already; leave one of them "
                             "out, or start one process on each host",
                             place->launcher, (unsigned long long)place->world_size);
    if (options->ranks.world_size && count > 1)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--gpus: starts %d ranks, and with --world-size each process is one; give "
                             "--nnodes and --node-rank",
                             count);
    return FSH_OK;
}

FshStatus start_ranks(TrainOptions *options, RankPlace *place, FshError *error)
{
    RankGpus gpus;
    int exit_status = 0;
    bool is_parent = false;
    FshStatus status = choose_devices(options, &gpus, error);
    if (!status)
        status = check_starter(options, place, gpus.count, error);
    if (!status && gpus.count > 1)
        status = launch_ranks(place, gpus.count, &is_parent, &exit_status, error);
    if (is_parent && !status)
        exit(exit_status);
    if (!status && gpus.count > 1)
        status = rank_place_from_environment(place, &options->ranks, error);
    if (!status && gpus.listed)
        options->ranks.gpu = gpus.numbers[place->local_rank];
    return status;
}
